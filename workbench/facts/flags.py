"""SGLang's command line by release: spelling, values and defaults of each flag, and its former names.

The flags of every release are facts (`workbench.facts.rows`, kind ``flag``), read from its source. For a
version that was not read the two releases around it are asked, and a flag is proposed only in a spelling that
both take.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

from workbench.facts import rows

ENGINE = "sglang"
UNSET = ""
"""The value of a flag whose default is left to the engine."""
_RECENT = 21  # releases: about a year of them

# Field names that a later release spells otherwise without a parser that tells both.
_RENAMED = {
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "data-parallel-size": "dp-size",
    "expert-parallel-size": "ep-size",
    "attention-context-parallel-size": "attn-cp-size",
    "moe-data-parallel-size": "moe-dp-size",
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "piecewise-cuda-graph-tokens": "cuda-graph-bs-prefill",
    "piecewise-cuda-graph-max-tokens": "cuda-graph-max-bs-prefill",
    "piecewise-cuda-graph-compiler": "cuda-graph-tc-compiler",
    "nsa-prefill-backend": "dsa-prefill-backend",
    "nsa-decode-backend": "dsa-decode-backend",
    "nsa-prefill-cp-mode": "cp-strategy",
    "dsa-prefill-cp-mode": "cp-strategy",
    "prefill-cp-mode": "cp-strategy",
    "enable-nsa-prefill-context-parallel": "enable-prefill-cp",
    "enable-dsa-prefill-context-parallel": "enable-prefill-cp",
    "enable-prefill-context-parallel": "enable-prefill-cp",
    "mamba-scheduler-strategy": "mamba-radix-cache-strategy",
    "speculative-dflash-draft-window-size": "speculative-draft-window-size",
    "stream-output": "incremental-streaming-output",
    "hierarchical-sparse-attention-extra-config": "hisparse-config",
}
# Switches that stand for a value of another flag, the ones that win first. (0.5.14: server_args.py:2919
# _parse_cuda_graph_config: JSON, then backends, then the switch of one phase, then the switch of both.)
_GRAPHS = (
    ("disable-decode-cuda-graph", {"decode": "disabled"}),
    ("disable-prefill-cuda-graph", {"prefill": "disabled"}),
    ("enforce-piecewise-cuda-graph", {"prefill": "tc_piecewise"}),
    ("disable-piecewise-cuda-graph", {"prefill": "disabled"}),
    ("enable-breakable-cuda-graph", {"prefill": "breakable"}),
    ("enable-piecewise-cuda-graph", {"prefill": "tc_piecewise"}),
    ("disable-cuda-graph", {"decode": "disabled", "prefill": "disabled"}),
)
_GRAPH_SWITCHES = frozenset(name for name, _ in _GRAPHS)
_BACKEND = "cuda-graph-backend-"
_CONFIG = "cuda-graph-config"
_CONFIG_KEYS = {"backend": _BACKEND, "max_bs": "cuda-graph-max-bs-", "bs": "cuda-graph-bs-"}
_TRUE, _FALSE = "true", "false"


@dataclasses.dataclass(frozen=True, slots=True)
class Flag:
    """One flag in one release.

    Attributes
    ----------
    name, names
        This spelling, and all that the release takes for it, without dashes.
    field
        The field of ServerArgs that it sets, with dashes.
    sort
        ``value``, ``switch`` (sets true), ``optional`` (``--x`` and ``--no-x``), ``sets VALUE``, ``append``,
        or ``void``: it is accepted, or refused with a hint, and does nothing.
    type
        What a value is made by: ``str``, ``int``, ``float``, or a function of the engine's by name.
    choices
        The values that are taken; None where any is, or the source does not say.
    nargs
        As argparse has it: ``+``, ``*``, ``?`` or a number; "" for one value.
    place
        Where it is registered: file and line in the first release that has it so.
    """

    name: str
    field: str
    sort: str
    default: str
    deprecated: bool
    names: tuple[str, ...] = ()
    type: str = "str"
    choices: tuple[Any, ...] | None = None
    nargs: str = ""
    required: bool = False
    place: str = ""


@functools.cache
def _flags(release: str) -> Mapping[str, Flag]:
    """Return a read release's flags by every name."""
    found: dict[str, Flag] = {}
    for name in rows.names(ENGINE, "flag", release):
        row = rows.row_in(ENGINE, "flag", name, release)
        for flag in _spelt(row) if row is not None else ():
            found[flag.name] = flag
    return found


def _spelt(row: rows.Row) -> Iterable[Flag]:
    value = row.value
    sort = str(value["sort"])
    names = tuple(value["names"])
    if sort == "optional":
        names += tuple(f"no-{name}" for name in names)
    choices = value.get("choices")
    for name in names:
        yield Flag(
            name,
            value["field"],
            f"sets {value.get('const')}" if sort == "sets" else sort,
            _default_text(value.get("default")),
            bool(value.get("old", False)),
            names,
            value.get("type", "str"),
            None if choices is None else tuple(choices),
            str(value.get("nargs", "")),
            bool(value.get("required", False)),
            row.place,
        )


def _default_text(value: Any) -> str:
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)


def measured() -> tuple[str, ...]:
    """Return the releases whose flags were read, oldest first."""
    return rows.releases(ENGINE)


@functools.lru_cache(maxsize=1024)
def neighbours(version: str) -> tuple[str, ...]:
    """Return the releases that stand for a version: itself, its two neighbours, or the newest.

    The newest ones where the version is unknown or cannot be compared: most servers run one of them.
    """
    release = rows.known(ENGINE, version)
    if release is not None:
        return (release,)
    try:
        wanted = Version(version)
    except InvalidVersion:
        return measured()[-_RECENT:]
    base = Version(wanted.base_version)
    older = [v for v in measured() if Version(v) <= base]
    newer = [v for v in measured() if Version(v) >= base]
    return tuple(dict.fromkeys([*older[-1:], *newer[:1]]))


def flags_of(version: str) -> Mapping[str, Flag]:
    """Return the flags of a release by name; of the older neighbour where it was not read."""
    near = neighbours(version)
    return _flags(near[0] if len(near) <= 2 else near[-1])


def takes(flag: str, version: str) -> bool:
    """Whether every release that stands for `version` has the flag, and does something with it."""
    name = _name(flag)
    found = [_flags(near).get(name) for near in neighbours(version)]
    return all(one is not None and one.sort != "void" for one in found)


def _name(text: str) -> str:
    """Return the bare name of a flag that may have a value: ``--a=1`` and ``--a 1``."""
    return re.split(r"[=\s]", text.lstrip("-"), maxsplit=1)[0]


def spelling(choices: Iterable[str], version: str) -> str | None:
    """Return the first of several spellings of one change that `version` takes, a current one if it can."""
    taken = [choice for choice in choices if takes(_name(choice), version)]

    def outdated(choice: str) -> bool:
        name = _name(choice)
        return any(_flags(near)[name].deprecated for near in neighbours(version))

    return min(taken, key=outdated, default=None)


def canonical(name: str, version: str = "") -> str:
    """Return what the newest release calls a flag or a field of ServerArgs: ``tp-size`` for ``--tp``."""
    plain = name.lstrip("-").replace("_", "-")
    flags = flags_of(version)
    if plain not in flags and plain not in _RENAMED:
        # argparse takes any beginning that only one field's flags have.
        fields = {flag.field for other, flag in flags.items() if other.startswith(plain)}
        known = any(flag.field == plain for flag in flags.values())
        if len(fields) == 1 and not known:
            plain = fields.pop()
    elif plain in flags and plain not in _GRAPH_SWITCHES:
        plain = flags[plain].field
    return _RENAMED.get(plain, plain)


def arguments_of(command: Sequence[str], version: str = "") -> dict[str, str | bool | None]:
    """Return the flags of a command line as `normalise` takes them: ``--a 1 2 --b=3 --c`` as a, b and c.

    What comes before the first flag is left out.
    """
    flags = flags_of(version)
    found: dict[str, str | bool | None] = {}
    name = ""
    for word in command:
        if re.match(r"--[A-Za-z]", word):
            name, has_value, value = word[2:].partition("=")
            flag = flags.get(name)
            if flag is not None and flag.sort == "optional" and name.startswith("no-"):
                name, has_value, value = flag.field, "=", _FALSE
            found[name] = value if has_value else True
        elif name:
            before = found[name]
            found[name] = word if before is True else f"{before} {word}"
    return found


def normalise(arguments: Mapping[str, str | bool | None], version: str) -> dict[str, str]:
    """Return a launch's arguments under one name each, with the defaults that were left out.

    Parameters
    ----------
    arguments
        By flag (with or without dashes, in any spelling, old or new) or by field of ServerArgs. True and
        ``"True"`` switch on; None, ``"None"`` and False are the same as not given.
    version
        The SGLang release: names, defaults and deprecated flags are its own.

    Returns
    -------
    dict
        Name in the newest release to value as text; `UNSET` where the engine chooses. Switches are
        ``true`` or ``false``. Every switch about CUDA graphs is resolved into
        ``cuda-graph-backend-decode`` and ``cuda-graph-backend-prefill``, so that a deprecated spelling
        counts as the same launch. A flag the release does not know keeps its name and its value.
    """
    given: dict[str, str] = {}
    switches: dict[str, str] = {}
    for name, raw in arguments.items():
        value = _text(raw)
        if value is None:
            continue
        key = canonical(name, version)
        flag = flags_of(version).get(name.lstrip("-").replace("_", "-"))
        if key in _GRAPH_SWITCHES:
            switches[key] = value
        elif flag is not None and flag.sort.startswith("sets ") and value == _TRUE:
            given[key] = flag.sort.removeprefix("sets ")
        elif flag is None or flag.sort != "void":
            given[key] = value
    resolved = _defaults(version) | given
    for phase in ("decode", "prefill"):
        backend = given.get(_BACKEND + phase) or _switched(switches, phase, version)
        resolved[_BACKEND + phase] = backend or UNSET
    _explicit(resolved)
    return dict(sorted(resolved.items()))


def _switched(switches: Mapping[str, str], phase: str, version: str) -> str | None:
    """Return what the switches make of one phase's graphs."""
    for name, sets in _GRAPHS:
        flag = flags_of(version).get(name)
        if switches.get(name) == _TRUE and phase in sets and (flag is None or flag.sort != "void"):
            return sets[phase]
    return None


def _explicit(resolved: dict[str, str]) -> None:
    """Put what --cuda-graph-config says in the place of single flags: it wins over them."""
    try:
        config = json.loads(resolved.get(_CONFIG) or "{}")
    except (ValueError, RecursionError):
        return
    phases = config if isinstance(config, dict) else {}
    for phase in ("decode", "prefill"):
        said = phases.get(phase)
        for key, value in said.items() if isinstance(said, dict) else ():
            if key in _CONFIG_KEYS and value is not None:
                resolved[_CONFIG_KEYS[key] + phase] = _text(value) or UNSET
                resolved[_CONFIG] = UNSET


def defaults(version: str) -> Mapping[str, str]:
    """Return a release's defaults by newest name; `UNSET` where the engine chooses."""
    return _defaults(version)


@functools.cache
def _defaults(version: str) -> dict[str, str]:
    return {
        canonical(flag.name, version): flag.default
        for flag in sorted(flags_of(version).values(), key=lambda flag: not flag.deprecated)
        if flag.sort != "void"
        and not flag.sort.startswith("sets ")
        and flag.name not in _GRAPH_SWITCHES
    }


def _text(value: object) -> str | None:
    """Return a value as text, None for what is as good as not given."""
    if value is None or value is False:
        return None
    if value is True:
        return _TRUE
    text = str(value).strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":  # as a ServerArgs line has it
        return text[1:-1]
    if re.fullmatch(r"\[[\w\s.,'\"-]*\]", text):  # a list: the words that a command line would have
        return " ".join(re.sub(r"[\[\]'\",]", " ", text).split())
    if text == "None":  # the log's; `none` is a value: --grammar-backend none
        return None
    lowered = text.lower()
    return lowered if lowered in (_TRUE, _FALSE) else text
