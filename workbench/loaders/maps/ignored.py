"""Which layers SGLang leaves unquantised: the same list means other layers to each method.

A fused layer asks under its own name (``qkv_proj``), while lists have the names of files. Some methods
know the parts of a fused layer, others do so only for classes that declare them. `tests/engines` compares
every function here with SGLang's, on random lists.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from workbench.loaders.profile import NotCovered, Refused

Packed = Mapping[str, Sequence[str]]
# What the FP8 and ModelOpt methods take for the parts of layers that a class does not declare.
_USUAL: Packed = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_DEEPSEEK_PARTS = frozenset(["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"])
EXPERTS = "FusedMoE"


@dataclasses.dataclass(frozen=True)
class Asked:
    """A layer as it asks: what it is, and under which name."""

    kind: str
    name: str


def compressed(entries: Sequence[str], packed: Packed) -> Callable[[Asked], bool]:
    """Return the rule of compressed-tensors: whole names, ends of names, or ``re:`` patterns."""
    patterns = [_compiled(e[3:]) if e.startswith("re:") else None for e in entries]

    def hit(name: str) -> bool:
        return any(
            name == entry or name.endswith(f".{entry}") if pattern is None else pattern.match(name)
            for entry, pattern in zip(entries, patterns, strict=True)
        )

    def rule(asked: Asked) -> bool:
        if asked.kind == EXPERTS:
            parts = [f"{asked.name}.0.{p}" for p in ("gate_proj", "up_proj", "down_proj")]
            return _agreed(asked.name, [hit(p) for p in parts])
        last = asked.name.rpartition(".")[2]
        if last in packed and asked.name not in entries:
            return _agreed(asked.name, [hit(asked.name.replace(last, p)) for p in packed[last]])
        return hit(asked.name)

    return rule


def by_path(entries: Sequence[str], packed: Packed) -> Callable[[Asked], bool]:
    """Return the rule of the FP8 method: an entry is a part of the name between dots."""

    def hit(name: str) -> bool:
        return any(f".{entry.rstrip('.')}." in f".{name.rstrip('.')}." for entry in entries)

    def rule(asked: Asked) -> bool:
        name, last = asked.name, asked.name.rpartition(".")[2]
        parts = (packed if last in packed else _USUAL).get(last)
        if parts is not None:
            return _agreed(name, [hit(name.replace(last, part)) for part in parts])
        found = hit(name)
        if "gate_up_proj" in name:
            halves = [name.replace("gate_up_proj", half) for half in _USUAL["gate_up_proj"]]
            return found or all(half in entries for half in halves)
        return found or (
            "experts" in name and any(name in entry for entry in entries if "experts" in entry)
        )

    return rule


def fp8(entries: Sequence[str], packed: Packed) -> Callable[[Asked], bool]:
    """Return the rule of the FP8 method for a list as it stands in config.json: ``model.`` does not count."""
    bare = [entry.removeprefix("model.") for entry in entries]
    return by_path([name for b in bare for name in (b, f"model.{b}")], packed)


def awq(entries: Sequence[str]) -> Callable[[Asked], bool]:
    """Return the rule of AWQ: an entry is any part of the name."""
    return lambda asked: any(entry in asked.name for entry in entries)


def gptq(patterns: Sequence[str]) -> Callable[[Asked], bool]:
    """Return the rule of GPTQ: patterns that match the beginning; experts do not ask."""
    compiled = [_compiled(pattern) for pattern in patterns]
    return lambda asked: asked.kind != EXPERTS and any(p.match(asked.name) for p in compiled)


def modelopt(entries: Sequence[str], packed: Packed) -> Callable[[Asked], bool]:
    """Return the rule of ModelOpt: that of FP8, and patterns with ``*`` for the name or a part of it."""
    plain = by_path(entries, packed)
    patterns = [_compiled(e.replace(".", r"\.").replace("*", ".*")) for e in entries]

    def rule(asked: Asked) -> bool:
        if asked.kind != EXPERTS and plain(asked):
            return True
        names = {asked.name, asked.name.removeprefix("language_model.")}
        parts = {part for name in names for part in name.split(".")}
        if any(pattern.fullmatch(name) for pattern in patterns for name in names | parts):
            return True
        last = asked.name.rpartition(".")[2]
        tails = {entry.rpartition(".")[2] for entry in entries}
        return any(tail in last for tail in tails & _DEEPSEEK_PARTS)

    return rule


def _agreed(name: str, hits: Sequence[bool]) -> bool:
    if len(set(hits)) > 1:
        raise Refused(
            f"some parts of {name} are to be quantised and others not; the engine has them as one: it stops",
            "layers/quantization",
        )
    return hits[0]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise NotCovered(f"the pattern {pattern!r:.80} of what is not quantised: {error}") from None
