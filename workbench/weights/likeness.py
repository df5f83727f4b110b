"""Equality beyond equal bytes: the same values in another order, type or place, and changed copies."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeights, matrix_shape
from workbench.errors import WorkbenchError
from workbench.weights.draft_rows import rows_of_target, target_ids

if TYPE_CHECKING:
    from workbench.weights.changes import Change
    from workbench.weights.compare import Values

Floats = np.ndarray[Any, np.dtype[np.float32]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_BLOCK = 1 << 22
_SMALLEST = 256  # elements; smaller tensors are equal by chance or by convention
# Rows and columns of a sketch: two matrices that have nothing to do with each other agree to 0.02.
_ROWS, _COLUMNS = 8, 512
_ALIKE = 0.9
# A rearranged tensor differs by about its own norm, √2 of it.
_MOVED = 0.05
_MOST_CANDIDATES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Likeness:
    """What tensor of the target one of the draft is, or was.

    Attributes
    ----------
    of
        The target's tensor.
    change
        norm(draft - target) / norm(target); 0 for equal values.
    same_type
        Whether both are stored in one type.
    """

    of: str
    change: float
    same_type: bool

    @property
    def text(self) -> str:
        """The likeness in words."""
        if self.change == 0 and self.same_type:
            return f"equal, bit by bit, to the target's {self.of}"
        if self.change == 0:
            return f"equal to the target's {self.of}, in another type"
        return f"the target's {self.of}, changed by {self.change:.2g} of its norm"


def likenesses(
    mine: LogicalWeights,
    theirs: LogicalWeights,
    chosen: Iterable[int],
    difference: Callable[[Values, Values], float | None],
) -> dict[str, Likeness]:
    """Return which of the chosen weights are the target's own, or started from it.

    A sketch of a few rows finds the candidates; `difference` then reads them whole, and returns the relative
    change of the first from the second. A weight of the draft's own vocabulary is compared with the rows that
    its `d2t` names.
    """
    wanted: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for at in chosen:
        one = mine[at]
        if prod(one.shape) >= _SMALLEST and not one.flaw:
            wanted[one.shape].append(at)
    others: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for at in range(len(theirs)):
        one = theirs[at]
        if one.shape in wanted and not one.flaw:
            others[one.shape].append(at)
    pairs = [
        pair
        for shape, ours in wanted.items()
        for pair in _near([mine[i] for i in ours], [theirs[i] for i in others[shape]])
    ]
    matched = {one.name for one, _ in pairs}
    ids = target_ids(mine)
    for one in (mine[at] for ours in wanted.values() for at in ours):
        if one.name not in matched:
            pairs += _near([one], list(rows_of_target(one, ids, theirs)))
    found = {}
    for one, other in pairs:
        change = difference(one, other)
        is_vector = sum(size > 1 for size in one.shape) < 2
        if change is not None and (change == 0 or not is_vector):
            found[one.name] = Likeness(other.name, change, one.dtype == other.dtype)
    return found


def _near(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs whose sketches agree: each of ours with the nearest of theirs."""
    if not ours or not theirs:
        return
    left, right = (np.stack([_sketch(one) for one in side]) for side in (ours, theirs))
    alike = left @ right.T
    for i, one in enumerate(ours):
        best = int(alike[i].argmax())
        if alike[i, best] >= _ALIKE:
            yield one, theirs[best]


def _sketch(one: Any) -> Floats:
    """Return a few values of a weight as a vector of length one; of what cannot be read, zeros."""
    count, columns = matrix_shape(one.shape)
    at = np.unique(np.linspace(0, count - 1, _ROWS).astype(np.int64)) if columns > 1 else None
    try:
        rows = (
            [one.rows(int(i), int(i) + 1)[:, :_COLUMNS] for i in at]
            if at is not None
            else [one.rows(0, min(count, _ROWS * _COLUMNS))]
        )
    except WorkbenchError:
        rows = []
    values = np.concatenate([row.ravel() for row in rows]) if rows else np.zeros(1, np.float32)
    size = (len(at) if at is not None else 1) * min(columns, _COLUMNS)
    size = size if at is not None else min(count, _ROWS * _COLUMNS)
    values = np.resize(np.nan_to_num(values, posinf=0.0, neginf=0.0), size)
    values = values - values.mean()
    length = float(np.linalg.norm(values))
    return np.asarray(values / length if length > 0 else values, dtype=np.float32)


# The same values in another order.


def rearranged(
    left: Mapping[str, Values], right: Mapping[str, Values], changes: Iterable[Change]
) -> list[tuple[str, str, str]]:
    """Return first name, second name and how the second holds the values of the first elsewhere."""
    rows = list(changes)
    found = []
    for row in rows:
        far = row.state == "changed" and (row.change or 0.0) > _MOVED
        same_count = row.state == "shape" and prod(row.shape) == prod(row.shape_after)
        if (far or same_count) and prod(row.shape) >= _SMALLEST:
            how = _order(left[row.name], right[row.name])
            if how:
                found.append((row.name, row.name, how))
    alone = [left[row.name] for row in rows if row.state == "left" and _usable(left[row.name])]
    others = [right[row.name] for row in rows if row.state == "right" and _usable(right[row.name])]
    return [*found, *_within(alone, others), *_within(others, alone, swapped=True)]


def _usable(one: Values) -> bool:
    return not one.flaw and len(one.shape) > 1 and prod(one.shape) >= _SMALLEST


def _order(a: Values, b: Values) -> str:
    """Return how the values of two tensors are the same in another order, "" where they are not."""
    try:
        if _fingerprint(a) != _fingerprint(b):
            return ""
        if a.shape == b.shape[::-1] and len(a.shape) == 2 and _is_transposed(a, b):
            return "transposed"
        mine, theirs = _row_hashes(a), _row_hashes(b)
    except WorkbenchError:
        return ""
    if len(mine) == len(theirs) and np.array_equal(np.sort(mine), np.sort(theirs)):
        return "the same rows in another order"
    return "the same values in another order"


def _is_transposed(a: Values, b: Values) -> bool:
    if prod(a.shape) > _BLOCK:  # the first rows are enough beside equal fingerprints
        return np.array_equal(
            a.rows(0, 4).T, np.concatenate([b.rows(i, i + 1) for i in range(b.shape[0])])[:, :4]
        )
    return np.array_equal(a.rows(0, a.shape[0]).T, b.rows(0, b.shape[0]))


def _within(
    small: Sequence[Values], large: Sequence[Values], swapped: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Yield tensors whose rows all are rows of a larger one under another name: sliced or stacked copies."""
    by_width: dict[int, list[Values]] = defaultdict(list)
    for one in large:
        by_width[matrix_shape(one.shape)[1]].append(one)
    known: dict[str, Hashes] = {}
    for one in small:
        count, width = matrix_shape(one.shape)
        others = [o for o in by_width[width][:_MOST_CANDIDATES] if matrix_shape(o.shape)[0] > count]
        try:
            mine = _row_hashes(one) if others else None
            for other in others:
                if other.name not in known:
                    known[other.name] = _row_hashes(other)
                if mine is not None and np.isin(mine, known[other.name]).all():
                    pair = (other.name, one.name) if swapped else (one.name, other.name)
                    yield (*pair, "rows of the larger one")
                    break
        except WorkbenchError:
            continue


def _mixed(values: Floats) -> Hashes:
    """Return 64 well mixed bits of each value; both zeros are one."""
    bits = (values + np.float32(0)).view(np.uint32).astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(16))) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed: Hashes = bits ^ (bits >> np.uint64(32))
    return mixed


def _read(one: Values) -> Iterator[Floats]:
    count, columns = matrix_shape(one.shape)
    step = max(_BLOCK // max(columns, 1), 1)
    for start in range(0, count, step):
        yield np.ascontiguousarray(one.rows(start, start + step))


def _fingerprint(one: Values) -> int:
    """Return a sum over all values that does not depend on their order."""
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for block in _read(one):
            total = total + _mixed(block).sum(dtype=np.uint64)
    return int(total)


def _row_hashes(one: Values) -> Hashes:
    """Return one number a row that depends on the order of its values."""
    _, columns = matrix_shape(one.shape)
    factors = np.random.default_rng(13).integers(1, 1 << 63, columns, dtype=np.uint64) | np.uint64(
        1
    )
    with np.errstate(over="ignore"):
        parts = [(_mixed(block) * factors).sum(1, dtype=np.uint64) for block in _read(one)]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
