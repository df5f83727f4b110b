"""What exactly differs between two launches: defaults filled in, renamed and deprecated flags as one."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Literal

from workbench.errors import shorten
from workbench.evidence.launches import Launch
from workbench.facts import flags
from workbench.launch.read import read_launch
from workbench.launch.records import Launch as ReadLaunch

Kind = Literal["flag", "environment", "version", "gpu", "launcher", "image", "config"]
# What a log alone does not tell.
_NOT_LOGGED = ("environment", "launcher", "image", "config")

# Chosen anew at each start, or only a name for others: they do not make another launch of it.
_INCIDENTAL = frozenset(
    {"port", "nccl-port", "host", "served-model-name", "log-file", "crash-dump-folder", "random-seed"}
)  # fmt: skip
_GRAPH = re.compile(
    r"cuda-graph-(?:max-bs|bs)-(decode|prefill)|(disable-cuda-graph-padding|debug-cuda-graph)"
)
_BEFORE = ("exec", "nohup", "env", "sudo")
_EMPTY = ("[]", "{}")
_LOGGED_BACKEND = re.compile(r"(decode|prefill)=PhaseConfig\(backend='(\w+)'")


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs; a value is "" where it was not given and the engine chooses.

    ``why`` says why it is taken as without effect, for a difference that is.
    """

    kind: Kind
    name: str
    before: str
    after: str
    why: str = ""

    @property
    def text(self) -> str:
        """The change in one line: ``--tp-size: 8 → 4``."""
        name = f"--{self.name}" if self.kind == "flag" else self.name
        return f"{name}: {_value(self.before)} → {_value(self.after)}"


def _value(value: str) -> str:
    return shorten(value, 80) if value else "not given"


@dataclasses.dataclass(frozen=True, slots=True)
class Differences:
    """What differs between two launches, defaults and deprecated spellings resolved.

    Attributes
    ----------
    changed
        What may have an effect.
    harmless
        What differs and is taken as without effect, with the reason.
    unsure
        What one launch leaves to the engine and the other names, where no log says what it chose; and
        the environment of a launch of which only the log is known.
    """

    first: str
    second: str
    changed: tuple[Change, ...]
    harmless: tuple[Change, ...] = ()
    unsure: tuple[Change, ...] = ()

    @property
    def warning(self) -> str:
        """Why the pair does not test one thing, or ""."""
        if len(self.changed) > 1:
            return (
                f"{len(self.changed)} things changed at once: the outcome does not show which of them "
                "caused it"
            )
        if self.unsure:
            return (
                "it is not known whether both launches had the same: one of them does not record it"
            )
        return ""

    def __str__(self) -> str:
        lines = [f"{self.first} → {self.second}"]
        lines += [f"  changed   {change.text}" for change in self.changed] or ["  nothing changed"]
        lines += [f"  unsure    {change.text}" for change in self.unsure]
        lines += [f"  harmless  {change.text} ({change.why})" for change in self.harmless]
        return "\n".join(lines + ([f"  {self.warning}"] if self.warning else []))


Aspect = tuple[Kind, str]


def aspects(launch: Launch, by_log: bool = False) -> dict[Aspect, str]:
    """Return all of a launch that may matter, flags under one name each with their defaults.

    With `by_log` the flags are those that the engine logged, whatever was typed.
    """
    found: dict[Aspect, str] = {("flag", n): v for n, v in _flags(launch, by_log).items()}
    found |= {("environment", n): v for n, v in launch.environment.items()}
    found |= {("version", n): v for n, v in launch.versions.items()}
    read = _read(launch.command, launch.version)
    before = [w for w in read.before if w not in _BEFORE] if read is not None else []
    if before:
        found["environment", "what starts the server"] = " ".join(before)
    if launch.version:
        found["version", launch.engine] = launch.version
    if launch.gpus:
        found["gpu", "GPUs"] = ", ".join(launch.gpus)
    found |= {
        ("launcher", program): options or "used" for program, options in launch.launcher.items()
    }
    if launch.image:
        found["image", "image"] = launch.image
    if not launch.config and any(word.partition("=")[0] == "--config" for word in launch.command):
        found["config", "content of the --config file"] = "not read"
    return found


@functools.lru_cache(maxsize=1024)
def _read(command: tuple[str, ...], version: str) -> ReadLaunch | None:
    """Return a command as a launch of SGLang; None where it is none."""
    if not any(command):
        return None
    found = read_launch(command, engine="sglang", version=version)
    return found if found.engine == "sglang" else None


def typed_arguments(command: tuple[str, ...], version: str) -> dict[str, str | bool | None]:
    """Return the arguments of a command by name, as `flags.normalise` takes them."""
    found = _read(command, version)
    if found is None:  # another program: its options as they are written
        return flags.arguments_of(command, version)
    return {
        one.key: ", ".join(one.unknown) or None if one.value is None else one.value
        for one in found.arguments
        if one.value is not None or one.unknown
    }


def _flags(launch: Launch, by_log: bool) -> Mapping[str, str]:
    # A ledger compares each launch with many: what 400 flags amount to is worked out once.
    written = tuple(launch.config.items())
    return _resolved(
        launch.command, written, tuple(launch.resolved.items()), launch.version, by_log
    )


@functools.lru_cache(maxsize=512)
def _resolved(
    command: tuple[str, ...],
    written: tuple[tuple[str, str], ...],
    logged: tuple[tuple[str, str], ...],
    version: str,
    by_log: bool,
) -> Mapping[str, str]:
    resolved = flags.normalise(dict(logged), version) if logged else {}
    if resolved:
        backends = dict(_LOGGED_BACKEND.findall(resolved.pop("cuda-graph-config", "")))
        resolved |= {f"cuda-graph-backend-{phase}": value for phase, value in backends.items()}
    if by_log or not command:
        found = resolved
    else:  # what the launch leaves to the engine is what the engine's log says it chose
        given = flags.normalise(_arguments(command, written, version), version)
        found = given | {n: resolved.get(n, "") for n, value in given.items() if not value}
    return {name: "" if value in _EMPTY else value for name, value in found.items()}


def _arguments(
    command: tuple[str, ...], written: tuple[tuple[str, str], ...], version: str
) -> dict[str, str | bool | None]:
    """Return the arguments of a configuration file and of the command, which outranks it.

    The path of a file that was read is only a name.
    """
    typed = typed_arguments(command, version)
    if written:
        typed.pop("config", None)
    names = {flags.canonical(name, version) for name in typed}
    return {n: v for n, v in written if flags.canonical(n, version) not in names} | typed


@functools.lru_cache(maxsize=512)
def _typed(
    command: tuple[str, ...], written: tuple[tuple[str, str], ...], version: str
) -> frozenset[str]:
    """Return the flags that were typed, under their one name."""
    given = _arguments(command, written, version)
    typed = {flags.canonical(name, version) for name in given}
    if any("cuda-graph" in name for name in typed):
        typed |= {"cuda-graph-backend-decode", "cuda-graph-backend-prefill"}
    return frozenset(typed)


def differences(first: Launch, second: Launch) -> Differences:
    """Return what exactly differs between two launches."""
    by_log = bool(first.resolved and second.resolved and not (first.command and second.command))
    left, right = aspects(first, by_log), aspects(second, by_log)
    one_log = bool(first.command) != bool(second.command)  # a log does not tell the environment
    mixed = one_log and not by_log
    typed = frozenset[str]().union(
        *(_typed(one.command, tuple(one.config.items()), one.version) for one in (first, second))
    )
    # Where a version is not known, its defaults are not either.
    unknown = bool(first.version) != bool(second.version) and not by_log
    both = bool(first.version and second.version)
    upgraded = unknown or (both and first.version != second.version)
    changed, harmless, unsure, defaults = [], [], [], 0
    for kind, name in sorted(left.keys() | right.keys()):
        before, after = left.get((kind, name), ""), right.get((kind, name), "")
        if kind == "config":
            unsure.append(Change(kind, name, before, after))
            continue
        if before == after or (kind in ("version", "gpu") and not (before and after)):
            continue  # a version that one record lacks is no difference that was seen
        change = Change(kind, name, before, after)
        if kind == "flag" and upgraded and name not in typed:
            defaults += 1
            continue
        why = "" if name == "random-seed" and name in typed else _no_effect(kind, name, left, right)
        if why:
            harmless.append(dataclasses.replace(change, why=why))
        elif _left_open(change, one_log, mixed, typed):
            unsure.append(change)
        else:
            changed.append(change)
    if defaults:
        changed = [_with_defaults(change, first.engine, defaults) for change in changed]
    changed = _one_switch(changed, first, second)
    return Differences(first.name, second.name, tuple(changed), tuple(harmless), tuple(unsure))


def _left_open(change: Change, one_log: bool, mixed: bool, typed: frozenset[str]) -> bool:
    """Whether one of the two launches does not record what it had."""
    both = bool(change.before and change.after)
    if change.kind in _NOT_LOGGED:
        return one_log and not both
    return change.kind == "flag" and mixed and not (both and change.name in typed)


def _one_switch(changed: list[Change], first: Launch, second: Launch) -> list[Change]:
    """Return the changes with what one switch does to both kinds of graphs as that one switch."""
    both = {f"cuda-graph-backend-{phase}" for phase in ("decode", "prefill")}
    given = [
        "disable-cuda-graph" in typed_arguments(one.command, one.version) for one in (first, second)
    ]
    if given[0] == given[1] or not both <= {change.name for change in changed}:
        return changed
    values = [str(one).lower() if one else "" for one in given]
    switch = Change("flag", "disable-cuda-graph", values[0], values[1], "decode and prefill graphs")
    return [switch, *(change for change in changed if change.name not in both)]


def _with_defaults(change: Change, engine: str, count: int) -> Change:
    """Add to the engine's version how many defaults came with it: they are one change."""
    if (change.kind, change.name) != ("version", engine):
        return change
    return dataclasses.replace(change, why=f"with it {count} defaults differ")


def _no_effect(
    kind: Kind, name: str, left: Mapping[Aspect, str], right: Mapping[Aspect, str]
) -> str:
    if kind != "flag":
        return ""
    if name in _INCIDENTAL:
        return "chosen anew at each start" if "port" in name or name == "random-seed" else "a name"
    graph = _GRAPH.fullmatch(name)
    if graph:
        backend: Aspect = ("flag", f"cuda-graph-backend-{graph.group(1) or 'decode'}")
        if "disabled" in (left.get(backend), right.get(backend)):
            return f"no effect where `--{backend[1]}` is disabled"
    algorithm: Aspect = ("flag", "speculative-algorithm")
    drafting = left.get(algorithm) and right.get(algorithm)
    if name.startswith("speculative-") and name != algorithm[1] and not drafting:
        return "no effect without `--speculative-algorithm`"
    return ""
