"""Names that differ in their beginnings alone: the commonest fault, and the first that is tried.

A wrapper, a merge or another class puts ``model.``, ``language_model.`` or ``module.`` before all names of a
part, or leaves it out. Such a rule is a pair of beginnings, found by laying the trees of names on each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from workbench.checkpoint.records import TensorGroup
from workbench.loaders.outcome import Gap

MOST = 6  # pairs that are tried
_SIBLINGS = (
    frozenset({"q_proj", "k_proj", "v_proj", "query", "key", "value", "wq", "wk", "wv"}),
    frozenset({"gate_proj", "up_proj", "w1", "w3"}),
    frozenset({"q_norm", "k_norm"}),
    frozenset({"q_a_proj", "kv_a_proj_with_mqa"}),
)


def pairs(lost: Sequence[TensorGroup], gaps: Sequence[Gap]) -> list[tuple[str, str]]:
    """Return beginnings of lost names with those that they should have, the pair that moves most keys first.

    Each ends with a dot, or is empty. No beginning has a number in it.
    """
    by_end: dict[tuple[str, tuple[int, ...] | None], list[Gap]] = {}
    for gap in gaps:
        by_end.setdefault((gap.template.rpartition(".")[2], gap.shape), []).append(gap)
    moved: Counter[tuple[str, str]] = Counter()
    for group in lost:
        for gap in by_end.get((group.template.rpartition(".")[2], group.shape), ()):
            for pair in _beginnings(group.template, gap.template):
                moved[pair] += min(len(group), len(gap.index))
    ranked = sorted(moved, key=lambda pair: (-moved[pair], len(pair[0]) + len(pair[1])))
    return ranked[:MOST]


def _beginnings(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the beginnings in which two templates differ, if all behind them is the same."""
    a, b = old.split("."), new.split(".")
    same = 0
    while same < min(len(a), len(b)) - 1 and a[-1 - same] == b[-1 - same]:
        same += 1
    before, after = a[: len(a) - same], b[: len(b) - same]
    if same >= len(a) or same >= len(b):
        return
    if same == min(len(a), len(b)) - 1 and a[-1 - same] == b[-1 - same]:
        before, after = a[: len(a) - same - 1], b[: len(b) - same - 1]
    if before != after and "{}" not in before and "{}" not in after and same:
        yield _joined(before), _joined(after)


def _joined(parts: Sequence[str]) -> str:
    return "".join(f"{part}." for part in parts)


def crosses(old: str, new: str) -> bool:
    """Tell whether one name is of another projection than the other: q for k, gate for up."""
    a, b = set(old.split(".")), set(new.split("."))
    return any((a & kind) and (b & kind) and (a & kind) != (b & kind) for kind in _SIBLINGS)
