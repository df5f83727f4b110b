"""Masks and stored rotations by their values: two of them in a known order are no weight."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from workbench.weights.records import Measure

Rows = Callable[[int, int], np.ndarray[Any, np.dtype[np.float32]]]

MASK = "mask"
"""The statistic that marks a tensor as a mask, or as a rotation."""
# A mask of more positions than this is not read once more to see whether it is one.
_MOST = 1 << 26
# How QuaRot, SpinQuant and their relatives call the rotations that they store.
_ROTATION = re.compile(r"(^|[._])(R_?[1-4]|rot|rotat\w*|had|hadamard\w*)(\.weight)?$")
# Rows whose products with all others are looked at.
_SOME = 64


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


def is_rotation(measure: Measure, rows: Rows) -> bool:
    """Say whether a tensor is a stored Hadamard rotation: so called, one magnitude, orthogonal rows.

    The name counts: a layer's weight can start as such a matrix, too.
    """
    if (
        not _ROTATION.search(measure.name)
        or len(measure.shape) != 2
        or measure.seen != measure.count
    ):
        return False
    size = measure.shape[0]
    if measure.shape != (size, size) or measure.count > _MOST or measure.zeros or measure.nan:
        return False
    if size < 2 or not 0 < measure.max == -measure.min:
        return False
    values = rows(0, size)
    if not (np.abs(values) == np.float32(measure.max)).all():
        return False
    signs = np.sign(values)
    at = np.unique(np.linspace(0, size - 1, _SOME).astype(np.int64))
    return np.array_equal(signs[at] @ signs.T, size * np.eye(size, dtype=np.float32)[at])
