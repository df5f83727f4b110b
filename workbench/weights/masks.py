"""Masks by their values: two of them in a triangle are no weight, however large they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from workbench.weights.records import Measure

Rows = Callable[[int, int], np.ndarray[Any, np.dtype[np.float32]]]

MASK = "mask"
"""The statistic that marks a tensor as a mask."""
# A mask of more positions than this is not read once more to see whether it is one.
_MOST = 1 << 26


def is_mask(measure: Measure, rows: Rows) -> bool:
    """Say whether a tensor is a triangle of two values, in its last two dimensions.

    Parameters
    ----------
    measure
        What one pass over its values gave; most tensors are ruled out by it.
    rows
        Reads rows of it, laid out in two dimensions.
    """
    if not _may_be(measure):
        return False
    size = measure.shape[-1]
    lead = prod(measure.shape[:-2])
    values = rows(0, measure.shape[0]).reshape(lead, size, size)
    first = values[0]
    if lead > 1 and not np.array_equal(
        values, np.broadcast_to(first, values.shape), equal_nan=True
    ):
        return False
    below, above = first[-1, 0], first[0, -1]
    if below == above or math.isnan(below) or math.isnan(above):
        return False
    return any(
        np.array_equal(first, np.where(np.tri(size, k=k, dtype=bool), below, above))
        for k in (0, -1)
    )


def _may_be(measure: Measure) -> bool:
    """Say whether the counts are those of a triangle: one value is zero, the other in half of the places."""
    shape = measure.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2 or measure.seen != measure.count:
        return False
    if measure.nan or measure.count > _MOST or 0 in shape:
        return False
    size, lead = shape[-1], prod(shape[:-2])
    halves = {lead * size * (size - 1) // 2, lead * size * (size + 1) // 2}
    return measure.zeros in halves
