"""What the things say together: the launches, with their release, models, log and how they are known."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.facts import rows
from workbench.hang.read.prefixes import without_prefix
from workbench.launch import prose
from workbench.launch.files import read_file
from workbench.launch.read import read_launch
from workbench.launch.records import Launch
from workbench.preflight.reading import place_of
from workbench.speculation.evidence.read_counts import logged_of
from workbench.speculation.evidence.tally import Logged
from workbench.triage.things import Thing

_ASSERT = re.compile(
    r"device-side assert|CUDA error: an illegal|index out of bounds|out of bounds: "
)
# Names of copies whose weights or keys are not those of the folder that they were made from.
_CHANGED = re.compile(
    r"(?i)repair|fix|renam|convert|patch|mend|sglang|quant|fp8|int[48]|merge|prun"
)
_NAMED = re.compile(
    r"(?i)\bsglang(?: version)?(?: is)?[ ]?[:=]{0,2}[ ]?v?(\d+\.\d+\.\d+(?:\.post\d+)?)(?![\w.])"
)
# "v0.5.5" in a sentence: of SGLang where it is one of its releases, and no other package's.
_VERSION = re.compile(r"(?:([\w.-]+)[ :=@]+)?\bv(\d+\.\d+\.\d+(?:\.post\d+)?)(?![\w.])")
_PLAIN = frozenset(
    {
        "",
        "on",
        "in",
        "with",
        "at",
        "using",
        "use",
        "version",
        "release",
        "sglang",
        "image",
        "tag",
        "to",
    }
)
_READY = "The server is fired up and ready to roll"
_LOGS = re.compile(r"\.(?:log|out)(?:\.(?:gz|xz|bz2))?$")


@dataclasses.dataclass(frozen=True)
class Found:
    """A model of a launch, where it was found.

    Attributes
    ----------
    stands_in
        Whether another folder stands for the one that the launch names: the name of the served copy begins
        with its name, and what differs in the copy is not known.
    changed
        Whether the name of the served copy says that its weights or keys were changed.
    """

    place: str
    stands_in: bool = False
    changed: bool = False


@dataclasses.dataclass(frozen=True)
class Served:
    """One launch, and what its evidence says.

    Attributes
    ----------
    thing
        What it was read from.
    why
        Why there is no launch, "" where there is one.
    ready, logged, asserted
        What the log says: that the server became ready, its acceptance, and a line of a failed assertion on
        the device.
    text
        The log, "" where there is none.
    """

    thing: Thing
    launch: Launch | None = None
    why: str = ""
    ready: bool = False
    logged: Logged | None = None
    asserted: str = ""
    text: str = ""
    target: Found | None = None
    draft: Found | None = None


def served(thing: Thing, target: str, draft: str) -> Served:
    """Return what a thing says of a launch; `target` and `draft` were handed over next to it."""
    text = _log_of(thing)
    launch, why = _launch(thing, text)
    logged = logged_of(text)[0] if text else None
    failed = _ASSERT.search(text)
    line = text[text.rfind("\n", 0, failed.start()) + 1 :].split("\n", 1)[0] if failed else ""
    folder = _folder(thing)
    named = (launch.target, launch.draft) if launch is not None else (None, None)
    models = [
        Found(given) if given else _find(name, folder)
        for name, given in zip(named, (target, draft), strict=True)
    ]
    return Served(
        thing, launch, why, _READY in text, logged, line.strip()[:200], text, models[0], models[1]
    )


def _folder(thing: Thing) -> Path | None:
    if thing.kind in ("run", "case"):
        return Path(thing.place)
    return Path(thing.place).parent if thing.kind == "log" else Path()


def _launch(thing: Thing, text: str) -> tuple[Launch | None, str]:
    try:
        if thing.kind == "process":
            found = read_launch(thing.pid)
        elif thing.kind == "launch" and not Path(thing.place[:4096]).is_file():
            found = read_launch(thing.place)
        else:
            found = read_launch(Path(thing.place))
            if not found.engine:
                found = _in_message(text) or found
            named = _release(text) if found.engine == "sglang" and not found.version else ""
            if named:
                again = read_launch(Path(thing.place), engine="sglang", version=named)
                found = dataclasses.replace(
                    again if again.engine else found,
                    version=named,
                    version_basis="named in the text",
                )
    except WorkbenchError as error:
        return None, error.brief
    except OSError as error:
        return None, str(error)
    if not found.engine:
        return None, "; ".join(map(str, found.not_read[:1])) or "it holds no launch"
    return found, ""


def _in_message(text: str) -> Launch | None:
    """Return the launch of a message with a log in it: in a sentence, or alone between fences."""
    for part in (prose.commands(text), *map(prose.one_line, prose.fenced(text))):
        found = read_launch(part) if part.strip() else None
        if found is not None and found.engine and found.arguments:
            return found
    return None


def _release(text: str) -> str:
    """Return the release that a text names: ``sglang: 0.5.3.post3``, ``v0.5.5``; "" for none or several."""
    found = set(_NAMED.findall(text)) or {
        version
        for word, version in _VERSION.findall(text)
        if word.lower() in _PLAIN and rows.known("sglang", version)
    }
    return found.pop() if len(found) == 1 else ""


def _log_of(thing: Thing) -> str:
    """Return the text of the log, "" where there is none that can be read."""
    for place in _logs(thing):
        try:
            return "\n".join(without_prefix(read_file(place).text.splitlines()))
        except WorkbenchError:
            continue
    return ""


def _logs(thing: Thing) -> Iterator[Path]:
    if thing.kind == "log" or (thing.kind == "launch" and Path(thing.place[:4096]).is_file()):
        yield Path(thing.place)
    elif thing.kind == "run":
        names = [one for one in sorted(Path(thing.place).iterdir()) if _LOGS.search(one.name)]
        yield from sorted(names, key=lambda one: not one.name.startswith("server"))


def _find(name: str | None, folder: Path | None) -> Found | None:
    """Find a model by the name that a launch has for it, near the evidence.

    A copy that was made for serving is often not kept. A single folder next to it, with the beginning of its
    name as its name, then stands for it.
    """
    if not name:
        return None
    place = place_of(name, folder)
    if place is not None:
        return Found(str(place))
    parent = place_of(str(Path(name).parent), folder) if "/" in name else None
    if parent is None or not parent.is_dir():
        return None
    last = Path(name).name
    alike = [
        one
        for one in sorted(parent.iterdir())
        if one.is_dir() and re.match(re.escape(one.name) + r"[-_.]", last)
    ]
    if len(alike) != 1:
        return None
    changed = bool(_CHANGED.search(last[len(alike[0].name) :]))
    return Found(str(alike[0]), stands_in=True, changed=changed)


def roles(checkpoints: Sequence[Thing]) -> tuple[str, str]:
    """Return which of the checkpoints that were handed over is the target, and which the draft."""
    from workbench.checkpoint.open import open_checkpoint

    target = draft = ""
    for thing in checkpoints:
        try:
            opened = open_checkpoint(thing.place)
            named = (
                *opened.config.architectures,
                str(opened.config.raw.get("speculators_model_type", "")),
            )
        except WorkbenchError:
            continue
        small = len(opened.table) < 64 and any("fc.weight" in one for one in opened.names)
        if small or any(re.search(r"(?i)eagle|nextn|draft|mtp$", one) for one in named):
            draft = draft or thing.place
        else:
            target = target or thing.place
    return target, draft
