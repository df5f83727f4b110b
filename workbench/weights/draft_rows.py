"""Rows of the target's vocabulary that a draft's own map names, as a weight of the draft's shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeight, LogicalWeights

if TYPE_CHECKING:
    from workbench.weights.compare import Values

Floats = np.ndarray[Any, np.dtype[np.float32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]

_MAP = re.compile(r"(^|\.)d2t$")
_WHOLE = frozenset(("I64", "I32", "U32", "I16", "U16"))
# Rows that lie so far apart are read one by one.
_SPARSE = 16


class RowsOfTarget:
    """Some rows of one of the target's weights, in the order of the draft's vocabulary."""

    def __init__(self, whole: Values, ids: Ids) -> None:
        self._whole, self._ids = whole, ids
        self.name = f"{whole.name} (the rows that d2t names)"
        self.dtype, self.flaw = whole.dtype, whole.flaw
        self.shape = (len(ids), *whole.shape[1:])

    def rows(self, start: int, stop: int) -> Floats:
        """Return rows of the draft's vocabulary, as `LogicalWeight.rows` does."""
        ids = self._ids[start:stop]
        if not len(ids):
            return self._whole.rows(0, 0)
        least, end = int(ids.min()), int(ids.max()) + 1
        if end - least <= _SPARSE * len(ids):
            return self._whole.rows(least, end)[ids - least]
        return np.concatenate([self._whole.rows(at, at + 1) for at in ids.tolist()])


def rows_of_target(one: LogicalWeight, ids: Ids | None, theirs: LogicalWeights) -> Iterator[Values]:
    """Yield the target's weights whose rows a weight of the draft's vocabulary may be.

    Parameters
    ----------
    one
        Of the draft.
    ids
        The target's id of each of the draft's tokens (`target_ids`).
    theirs
        The target's weights.
    """
    if ids is None or len(one.shape) != 2 or one.shape[0] != len(ids):
        return
    for at in range(len(theirs)):
        other = theirs[at]
        fits = (
            len(other.shape) == 2 and other.shape[1] == one.shape[1] and other.shape[0] > ids.max()
        )
        if fits and not other.flaw:
            yield RowsOfTarget(other, ids)


def target_ids(mine: LogicalWeights) -> Ids | None:
    """Return the target's id of each of the draft's tokens, by its `d2t`; None without a usable one."""
    for at in range(len(mine)):
        one = mine[at]
        if _MAP.search(one.name) and one.dtype in _WHOLE and len(one.shape) == 1 and one.shape[0]:
            offsets = np.asarray(one.units(0, one.shape[0]), dtype=np.int64)
            ids = np.arange(len(offsets), dtype=np.int64) + offsets
            return ids if ids.min() >= 0 else None
    return None
