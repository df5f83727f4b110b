"""What the questions "are these weights trained?" and "what changed?" cover, and the checks that settle them.

Tensors are listed by template: `layers.{0...23}.mlp.up_proj.weight` is one item that stands for 24.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from workbench.core.verdict import WORST, Coverage, Item, Settled, State, cover
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.changes import STATES, Changes
from workbench.weights.faults import bad_values, half_empty
from workbench.weights.names import is_seldom_read, named_groups
from workbench.weights.seen import Seen

READING = "every tensor that was asked for is read"
NONE = "a matrix of weights"
FILLED = "rows and columns are filled"

Judged = tuple[State, str]


def covered(seen: Seen, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage of a scan; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    return cover(items(seen), (one for check in chosen for one in check(seen)))


def items(seen: Seen) -> Iterator[Item]:
    """Yield everything that a scan covers."""
    yield Item("completeness", READING)
    for name, at in _templates(seen, seen.counts):
        yield Item("tensor", name, count=len(at))
    for name, at in _templates(seen, _matrices(seen)):
        yield Item("matrix", name, count=len(at))
    small = int((seen.counts & seen.tensors.is_matrix & seen.too_small).sum())
    if small:
        name = plural(small, "small matrix", "small matrices")
        yield Item("matrix", name, "open", "too small to judge", small, essential=False)
    if not seen.matters.any():
        yield Item("matrix", NONE, "open", "none of the tensors that were read can be judged")
    yield Item("rows of zeros", FILLED)
    how = "not compared with the config; `workbench diff` does that"
    yield Item("parameter", "parameters that the model needs", "open", how, essential=False)
    if seen.sampled:
        how = "the sample left them out"
        yield Item("value", "values that were not read", "open", how, essential=False)


def _matrices(seen: Seen) -> np.ndarray[Any, Any]:
    """Return which matrices can be judged; a small one could be either, whatever is in it."""
    return np.asarray(seen.counts & seen.tensors.is_matrix & ~seen.too_small)


def _templates(
    seen: Seen, which: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.int64]]]]:
    """Yield some tensors by template, each under a name of its own."""
    at = np.flatnonzero(which)
    for name, members in named_groups([seen.tensors.names[i] for i in at]):
        yield name, at[members]


def reading(seen: Seen) -> Iterator[Settled]:
    """Settle whether all that was asked for was read."""
    if seen.interrupted:
        yield Settled("completeness", READING, "open", "the scan was interrupted")
    elif seen.unseen:
        how = f"{plural(seen.unseen, 'tensor')} could not be read"
        yield Settled("completeness", READING, "open", how)
    else:
        yield Settled("completeness", READING, "ok", "read")


def values(seen: Seen) -> Iterator[Settled]:
    """Settle the values of each tensor: finite, and written by somebody."""
    bad = bad_values(seen)
    for name, at in _templates(seen, seen.counts):
        found = [bad[i] for i in at.tolist() if i in bad]
        yield Settled("tensor", name, *_worst(found, len(at), ("ok", "finite, and written")))


def training(seen: Seen) -> Iterator[Settled]:
    """Settle each matrix: trained, still at initialisation, constant, or undecided."""
    states = {
        "trained": ("ok", "trained"),
        "at_init": ("wrong", "at random initialisation"),
        "constant": ("wrong", "constant"),
        "undecided": ("open", "trained or at random initialisation"),
        "invalid": ("open", "its values are not finite, or not written"),
    }
    for name, at in _templates(seen, _matrices(seen)):
        found = []
        for i in at.tolist():
            state, how = states[str(seen.verdict[i])]
            if state == "wrong" and how != "constant" and is_seldom_read(seen.tensors.names[i]):
                state, how = "open", "at random initialisation, in a head that is seldom read"
            if state != "ok":
                found.append((state, how))
        yield Settled("matrix", name, *_worst(found, len(at), ("ok", "trained")))


def _worst(found: Iterable[Any], total: int, good: Judged) -> Judged:
    """Return the worst state of the tensors of a template, and how many of them have it."""
    counts = Counter(found)
    if not counts:
        return good
    state, how = min(counts, key=lambda each: (WORST.index(each[0]), -counts[each]))
    count = counts[state, how]
    return state, how if count == total else f"{count:,} of {total:,}: {how}"


def filling(seen: Seen) -> Iterator[Settled]:
    """Settle whether trained matrices have rows or columns that nobody filled."""
    empty = half_empty(seen)
    if len(empty):
        first = shorten(seen.tensors.names[int(empty[0])], 90)
        more = f" and {len(empty) - 1:,} more" if len(empty) > 1 else ""
        yield Settled("rows of zeros", FILLED, "open", f"{first}{more}: many are zeros")
    else:
        yield Settled("rows of zeros", FILLED, "ok", "few rows or columns are zeros")


Check = Callable[[Seen], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (reading, values, training, filling)


def compared(changes: Changes, differs: frozenset[str]) -> Coverage:
    """Return the coverage of a comparison.

    Parameters
    ----------
    differs
        Names that are proved wrong, since one side should hold what the other does.
    """
    states: dict[str, State] = {
        "identical": "ok",
        "changed": "ok",
        "shape": "wrong",
        "invalid": "wrong",
        "unread": "open",
        "left": "open",
        "right": "open",
    }
    found: dict[tuple[State, str, bool], list[str]] = {}
    for row in changes:
        wrong = row.name in differs
        state: State = "wrong" if wrong else states[row.state]
        how = "the engine holds other values" if wrong else row.reason or STATES[row.state]
        found.setdefault((state, how, row.state not in ("left", "right")), []).append(row.name)
    listed = []
    for (state, how, essential), names in found.items():
        for name, members in named_groups(names):
            count = len(members)
            listed.append(Item("tensor", name, state, how, count=count, essential=essential))
    return Coverage(tuple(listed))
