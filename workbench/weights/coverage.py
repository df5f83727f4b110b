"""What the questions "are these weights trained?" and "what changed?" cover, and the checks that settle them.

Tensors are listed by template: `layers.{0...23}.mlp.up_proj.weight` is one item that stands for 24.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.verdict import WORST, Coverage, Item, Settled, State, cover
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.changes import STATES, Changes
from workbench.weights.faults import bad_values, half_empty
from workbench.weights.names import is_seldom_read, named_groups
from workbench.weights.repeated import half_repeated
from workbench.weights.seen import EXCUSED, Seen

if TYPE_CHECKING:
    from workbench.weights.sides import Sides

READING = "every tensor that was asked for is read"
NONE = "a matrix of weights"
FILLED = "rows and columns are filled"
NEEDED = "parameters that the model needs"
TIED = "the head, which the config ties to the embedding"
NOT_REQUESTED = "weights that were not requested"
ALL = {
    "norm": "scales of norms",
    "magnitude": "magnitudes, compared with siblings",
    "buffer": "buffers and tables",
}

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
    yield from _aside(seen)
    if not seen.matters.any():
        yield Item("matrix", NONE, "open", "none of the tensors that were read can be judged")
    yield Item("rows of zeros", FILLED)
    for kind, which in (
        ("norm", seen.is_norm),
        ("magnitude", seen.counts),
        ("buffer", ~seen.counts),
    ):
        if which.any():
            yield Item(kind, ALL[kind], count=int(which.sum()))
    yield from _parameters(seen)
    if seen.limited:
        yield Item("weight", NOT_REQUESTED, "open", seen.limited, essential=False)
    if seen.sampled:
        yield Item("value", "values that were not read", "open", "the sample left them out")


def _aside(seen: Seen) -> Iterator[Item]:
    """Yield the matrices that are listed and decide nothing."""
    small = int((seen.counts & seen.tensors.is_matrix & seen.too_small).sum())
    if small:
        name = plural(small, "small matrix", "small matrices")
        yield Item("matrix", name, "open", "too small to judge", small, essential=False)
    excused = int(seen.excused.sum())
    if excused:
        sizes = seen.tensors.column("count")
        share = 100 * sizes[seen.excused].sum() / sizes[seen.counts].sum()
        name = plural(excused, "undecided matrix", "undecided matrices")
        how = f"{share:.2g} % of the values; up to {100 * EXCUSED:g} % may stay undecided"
        yield Item("matrix", name, "open", how, excused, essential=False)


def _parameters(seen: Seen) -> Iterator[Item]:
    """Yield what the model needs, one item a template of what is not as it should be."""
    if seen.tied is not None:
        yield Item("parameter", TIED)
    if seen.needed is None:
        how = "listed only where a whole checkpoint is scanned"
        if seen.kind == "server":
            how = "a server does not list what its model needs; `workbench diff` does that"
        yield Item("parameter", NEEDED, "open", how, essential=False)
        return
    yield Item("parameter", NEEDED, count=max(seen.needed.count, 1))


def _matrices(seen: Seen) -> np.ndarray[Any, Any]:
    """Return which matrices can be judged; a small one could be either, whatever is in it."""
    decisive = seen.tensors.is_matrix | seen.decides
    return np.asarray(seen.counts & decisive & ~(seen.too_small | seen.excused | seen.by_design))


def _templates(
    seen: Seen, which: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.int64]]]]:
    """Yield some tensors by template, each under a name of its own."""
    at = np.flatnonzero(which)
    for name, members in named_groups([seen.tensors.names[i] for i in at]):
        yield name, at[members]


def reading(seen: Seen) -> Iterator[Settled]:
    """Settle whether all that was asked for was read."""
    if seen.changed:
        yield Settled("completeness", READING, "open", f"{seen.changed} changed while it was read")
    elif seen.interrupted:
        yield Settled("completeness", READING, "open", "the scan was interrupted")
    elif seen.unseen:
        how = f"{plural(seen.unseen, 'tensor')} could not be read"
        yield Settled("completeness", READING, "open", how)
    else:
        yield Settled("completeness", READING, "ok", "read")


def values(seen: Seen) -> Iterator[Settled]:
    """Settle the values of each tensor: there, read, finite, and written by somebody."""
    bad = bad_values(seen)
    counts = seen.tensors.column("count")
    for name, at in _templates(seen, seen.counts):
        found = [bad[i] for i in at.tolist() if i in bad]
        for i in at[~seen.is_read[at]].tolist():
            found.append(
                ("open", "its values could not be read" if counts[i] else "it has no elements")
            )
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
            if not seen.is_read[i]:
                found.append(("open", "not read"))
                continue
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
    whole = True
    for found, what in (
        (half_empty(seen), "many are zeros"),
        (half_repeated(seen), "many are copies"),
    ):
        if len(found):
            first = shorten(seen.tensors.names[int(found[0])], 90)
            more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
            yield Settled("rows of zeros", FILLED, "open", f"{first}{more}: {what}")
            whole = False
    if whole:
        yield Settled("rows of zeros", FILLED, "ok", "few rows or columns are zeros or copies")


def doubted(seen: Seen) -> Iterator[Settled]:
    """Settle norms, magnitudes and buffers."""
    for kind, doubts, which, good in (
        ("norm", seen.norm_doubts, seen.is_norm, "scales are neither zero nor freshly initialised"),
        ("magnitude", seen.magnitude_doubts, seen.counts, "all tensors are near their siblings"),
        ("buffer", seen.buffer_doubts, ~seen.counts, "finite, and as they should be"),
    ):
        if which.any() and not doubts:
            yield Settled(kind, ALL[kind], "ok", good)
        elif doubts:
            at = np.array(sorted(doubts), dtype=np.int64)
            for name, members in named_groups([seen.tensors.names[i] for i in at]):
                found = [(doubts[i].state, doubts[i].how) for i in at[members].tolist()]
                yield Settled(kind, name, *_worst(found, len(found), ("ok", good)))
            states: list[State] = [doubt.state for doubt in doubts.values()]
            worst = min(states, key=WORST.index)
            yield Settled(kind, ALL[kind], worst, plural(len(doubts), "tensor") + " in doubt")


def closing(seen: Seen) -> Iterator[Settled]:
    """Settle whether the file brings what the model needs, and one head of the two that it may have."""
    if seen.tied is not None:
        pair = f"{seen.tied.head} and {seen.tied.embedding}"
        if seen.tied.agree:
            yield Settled("parameter", TIED, "ok", f"{pair} have the same values")
        else:
            how = f"{pair} differ; set tie_word_embeddings to false if the head was trained"
            yield Settled("parameter", TIED, "open", how)
    if seen.needed is None:
        return
    lacking = (*seen.needed.absent, *seen.needed.mismatched)
    source = seen.needed.source
    for name, members in named_groups([name for name, _ in seen.needed.promised]):
        yield Settled("parameter", name, "wrong", seen.needed.promised[int(members[0])][1])
    if not lacking:
        yield Settled("parameter", NEEDED, "ok", f"all are in the file, by {source}")
        return
    whys = dict(lacking)
    for name, members in named_groups(list(whys)):
        found: list[Judged] = [("open", list(whys.values())[i]) for i in members.tolist()]
        yield Settled("parameter", name, *_worst(found, len(found), ("ok", "")))
    yield Settled("parameter", NEEDED, "open", f"{len(lacking):,} are not as {source} needs them")


def proved_wrong(seen: Seen) -> dict[str, str]:
    """Return the tensors that are proved wrong, and how."""
    names = seen.tensors.names
    found = {names[i]: how for i, (state, how) in bad_values(seen).items() if state == "wrong"}
    for i in np.flatnonzero(_matrices(seen) & seen.is_read).tolist():
        how = {"at_init": "at random initialisation", "constant": "constant"}.get(seen.verdict[i])
        if how and not (seen.verdict[i] == "at_init" and is_seldom_read(names[i])):
            found[names[i]] = how
    for doubts in (seen.norm_doubts, seen.magnitude_doubts, seen.buffer_doubts):
        found |= {names[i]: doubt.how for i, doubt in doubts.items() if doubt.state == "wrong"}
    return found


Check = Callable[[Seen], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (reading, values, training, filling, doubted, closing)


def compared(
    changes: Changes,
    differs: frozenset[str],
    moved: Sequence[tuple[str, str, str]] = (),
    sides: Sides | None = None,
    same: frozenset[str] = frozenset(),
) -> Coverage:
    """Return the coverage of a comparison.

    Parameters
    ----------
    differs
        Names that are proved wrong, since one side should hold what the other does.
    moved
        Names of both sides of which the second holds the values of the first elsewhere, and how.
    sides
        What the scans of the two sides say.
    same
        Names whose values are the same, or differ by rounding only.
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
    elsewhere = {second: how for _, second, how in moved}
    found: dict[tuple[State, str, bool], list[str]] = {}
    for row in changes:
        wrong = row.name in differs
        state: State = "wrong" if wrong else states[row.state]
        how = "the engine holds other values" if wrong else row.reason or STATES[row.state]
        if state == "ok" and row.name in elsewhere:
            state, how = "open", elsewhere[row.name]
        if state == "ok" and sides is not None:
            state, how = _scanned(row.name, row.name in same, sides) or (state, how)
        found.setdefault((state, how, row.state not in ("left", "right")), []).append(row.name)
    listed = []
    for (state, how, essential), names in found.items():
        for name, members in named_groups(names):
            count = len(members)
            listed.append(Item("tensor", name, state, how, count=count, essential=essential))
    return Coverage((*listed, *(_sides(sides) if sides is not None else ())))


def _scanned(name: str, same: bool, sides: Sides) -> Judged | None:
    """Return what the scans say of a tensor that both sides have; None where they leave it as it is."""
    if name in sides.second.wrong:
        return "wrong", f"in the second: {sides.second.wrong[name]}"
    if name not in sides.first.wrong or sides.second.ok:
        return None
    how = sides.first.wrong[name]
    if same:
        return "wrong", f"{how}, and it did not change"
    return "open", f"in the first: {how}; the second was not proved trained"


def _sides(sides: Sides) -> Iterator[Item]:
    """Yield the scans of the sides, and what was not compared."""
    for name, side in (("first", sides.first), ("second", sides.second)):
        if side.sentence and not side.ok:
            counts = side.ok is False and not (name == "first" and sides.second.ok)
            yield Item("scan", f"the {name} by itself", "open", side.sentence, essential=counts)
    if sides.limited:
        yield Item("tensor", NOT_REQUESTED, "open", sides.limited, essential=False)
