"""What `doctor` was handed: each thing is recognised by what it is, and nothing is looked up elsewhere."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from workbench.checkpoint import hub
from workbench.errors import WorkbenchError, shorten, shown
from workbench.evidence.casefile import MANIFEST
from workbench.launch.files import nothing_to_read

Kind = Literal["run", "log", "case", "checkpoint", "launch", "process", "result"]

VERBS = (
    "check", "doctor", "gate", "diff", "fix", "weights", "hang", "collect", "watch", "replay", "report",
    "ledger",
)  # fmt: skip
_WEIGHTS = re.compile(r"\.(?:safetensors|bin|pt|pth|gguf)$|\.index\.json$")
_LOG = re.compile(r"\.(?:log|out|err)(?:\.(?:gz|xz|bz2))?$")
_LAUNCH = re.compile(r"\.(?:sh|bash|ya?ml|service|txt)$|^Dockerfile")
_MOST_BELOW = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Thing:
    """One thing.

    Attributes
    ----------
    kind
        ``run``: a folder of what one launch left. ``case``: what `workbench collect` wrote.
    name
        As it was given.
    place
        Its path; the text of a launch line; "" for a process.
    pid
        Of a process.
    """

    kind: Kind
    name: str
    place: str = ""
    pid: int = 0


def recognise(thing: Any) -> tuple[Thing, ...]:
    """Return what a thing is; a folder of several runs or checkpoints is all of them.

    Raises
    ------
    WorkbenchError
        It is not there, or nothing that is known.
    """
    if isinstance(thing, bool) or thing is None:
        raise _unknown(thing, "it is neither a path, nor a launch, nor a PID")
    if isinstance(thing, int) or (
        isinstance(thing, str) and re.fullmatch(r"\d{1,9}", thing.strip())
    ):
        return (_process(int(thing)),)
    if not isinstance(thing, str | os.PathLike):
        raise _unknown(thing, "it is neither a path, nor a launch, nor a PID")
    text = os.fspath(thing)
    port = re.fullmatch(
        r"(?:(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]))?:(\d{1,5})/?",
        text.strip(),
    )
    if port is not None:
        return (_of_port(int(port[1]), text.strip()),)
    if re.match(r"https?://", text):
        raise WorkbenchError(
            f"{shorten(text)} is an address, and `doctor` asks no server by itself",
            why="it works from files, processes and launch lines",
            next_step="Give the PID or the log of the server.",
        )
    place = _here(text)
    if place is not None:
        return tuple(_of_path(place, text))
    if "\n" in text or re.search(r"\s--?\w|launch_server|\bserve\s", text):
        return (Thing("launch", shorten(text, 60), text),)
    wanted = hub.parse_id(text)
    cached = hub.cached(wanted) if wanted is not None else None
    if cached is not None:
        return (Thing("checkpoint", text, str(cached)),)
    raise _absent(text)


def _here(text: str) -> Path | None:
    """Return the file or folder that a text names, None where there is none."""
    try:
        place = Path(text).expanduser()
        return place if text.strip() and place.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _process(pid: int) -> Thing:
    import psutil

    if not 0 < pid < 1 << 31 or not psutil.pid_exists(pid):
        raise WorkbenchError(
            f"there is no process {shorten(str(pid), 40)}",
            next_step="`workbench doctor` without arguments lists servers.",
        )
    return Thing("process", f"process {pid}", pid=pid)


def _of_port(port: int, name: str) -> Thing:
    """Return the process of this machine that listens on a port; nothing is sent to it."""
    import psutil

    try:
        found = psutil.net_connections("inet")
    except (psutil.AccessDenied, OSError) as error:
        raise WorkbenchError(
            f"who listens on port {port} cannot be seen",
            why=str(error),
            next_step="Give the PID: `workbench doctor` without arguments lists servers.",
        ) from None
    pids = {
        one.pid for one in found if one.status == "LISTEN" and one.laddr.port == port and one.pid
    }
    if not pids:
        raise WorkbenchError(
            f"nothing on this machine listens on port {port}",
            why="a port of another machine is not asked",
            next_step="`workbench doctor` without arguments lists servers.",
        )
    return Thing("process", name, pid=min(pids))


def _of_path(place: Path, name: str) -> Iterator[Thing]:
    if place.is_dir():
        yield from _of_folder(place, name)
        return
    why = nothing_to_read(place)
    if why:
        raise WorkbenchError(
            f"{shorten(name)} is nothing that `doctor` can look at",
            why=why,
            next_step="Give a log, a folder, a case, a checkpoint, a launch line or a PID.",
        )
    if _WEIGHTS.search(place.name):
        yield Thing("checkpoint", name, str(place))
    elif place.suffix == ".zip":
        yield Thing("case", name, str(place))
    elif place.suffix == ".json":
        yield Thing(_of_json(place), name, str(place))
    elif _LOG.search(place.name):
        yield Thing("log", name, str(place))
    elif _LAUNCH.search(place.name):
        yield Thing("log" if _has_log_lines(place) else "launch", name, str(place))
    else:
        yield Thing("log", name, str(place))


_OF_LOGS = (b"server_args=", b"Traceback (most recent call last)", b"accept len: ")


def _has_log_lines(place: Path) -> bool:
    with place.open("rb") as file:
        head = file.read(1 << 20)
    return any(word in head for word in _OF_LOGS)


def _of_json(place: Path) -> Kind:
    with place.open("rb") as file:
        head = file.read(4096)
    if b'"schema"' in head and b"workbench." in head:
        return "result"
    return "checkpoint" if place.name == "config.json" else "launch"


def _of_folder(place: Path, name: str) -> Iterator[Thing]:
    kind = _folder_kind(place)
    if kind is not None:
        yield Thing(kind, name, str(place))
        return
    found = [
        Thing(kind, f"{name.rstrip('/')}/{inner.name}", str(inner))
        for inner in sorted(place.iterdir())[:_MOST_BELOW]
        if inner.is_dir() and (kind := _folder_kind(inner)) is not None
    ]
    if not found:
        raise WorkbenchError(
            f"{shorten(name)} holds nothing that is known",
            why="it has no log, no launch.json, no dumps and no weights, and neither have its folders",
            next_step="Give a log, a case, a checkpoint or a launch.",
        )
    yield from sorted(found, key=lambda thing: _started(Path(thing.place)))


def _folder_kind(place: Path) -> Kind | None:
    """Return what a folder is by the names in it; evidence outranks weights, which a run may hold."""
    try:
        names = sorted(os.listdir(place))[:4096]
    except OSError:
        return None
    if MANIFEST in names:
        return "case"
    if "launch.json" in names or any(_LOG.search(one) for one in names):
        return "run"
    if any(re.match(r"snapshot-\d+$|pyspy-", one) for one in names):
        return "run"
    if any(_WEIGHTS.search(one) for one in names) or "config.json" in names:
        return "checkpoint"
    return None


def _started(place: Path) -> str:
    """Return when a run was started, as its record says; its name where it says nothing."""
    try:
        text = (place / "launch.json").read_text("utf-8", "replace")[: 1 << 20]
    except OSError:
        return place.name
    found = re.search(r'"started"\s*:\s*"([^"]{1,40})"', text)
    return found[1] if found else place.name


def _unknown(thing: object, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"{shown(thing, 60)} is nothing that `doctor` can look at",
        why=why,
        next_step="Give a log, a folder, a case, a checkpoint, a launch line or a PID.",
    )


def _absent(text: str) -> WorkbenchError:
    near = difflib.get_close_matches(text.lower(), VERBS, 1, 0.6)
    if near:
        return WorkbenchError(
            f"{shorten(text, 60)} is neither a command nor a path here",
            why="a name is never looked up on the Hub",
            next_step=f"Did you mean `workbench {near[0]}`?",
        )
    return WorkbenchError(
        f"{shorten(text, 60)} is not here",
        why="it is no path, no launch, no PID and no model in the local cache; the Hub is not asked",
        next_step="Check the spelling, or give the path.",
    )
