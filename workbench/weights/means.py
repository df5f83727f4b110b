"""Means that an init does not have: of all values, and rows or columns with means of their own.

A layer whose inputs keep to one side, as behind a ReLU, is pulled along one known direction: all entries of
a row move together. Along a direction that is known beforehand a change shows that is too small for the
spectrum, which has to look along all of them. Under independence the sums of rows are as large as those of
signs that a coin makes, whatever the law of the entries and the scales of rows and columns.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from workbench.weights import matrix_kernels as kernels

Floats = np.ndarray[Any, np.dtype[np.float32]]
Sums = np.ndarray[Any, np.dtype[np.float64]]

# Laws around another middle than zero (uniform from 0, normal around 1) reach beyond the first; the sums of
# values with longer tails than the second are no normal ones.
_MIDDLE, _KURTOSIS, _KURTOSIS_OF_ALL = 0.3, 3.0, 1.0
# A mean of so many deviations is a matter of rounding: 8 bits that are cut off, not rounded, leave 0.016.
_ROUNDING = 0.02
# Where a few directions of any origin hold more, the mean of all is one of theirs.
_DIRECTIONS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Means:
    """How much the means of rows and columns differ, and how far that of all is from zero, as z values."""

    rows: float = 0.0
    columns: float = 0.0
    all: float = 0.0


def means_of(matrix: Floats, excess: float, fourth: float | None = None) -> Means:
    """Return what the means of a matrix say.

    Parameters
    ----------
    matrix
        Shape (m, n), rows and columns of mean square one, no mean taken off.
    excess
        Mean squared cosine between rows beyond chance: rows that depend on each other count as fewer.
    fourth
        The mean fourth power, where it is known.

    Returns
    -------
    Means
        All zero where the values keep to one side, or have long tails.
    """
    m, n = matrix.shape
    rows, columns = kernels.sums(matrix)
    mean = float(rows.sum()) / (m * n)
    fourth = kernels.products(matrix)[0] if fourth is None else fourth
    if abs(mean) > _MIDDLE or fourth - 3 > _KURTOSIS or min(m, n) < 3:
        return Means()
    whole = max(abs(mean) - _ROUNDING, 0.0) * math.sqrt(m * n)
    few = min(m, n) * excess < _DIRECTIONS and fourth - 3 < _KURTOSIS_OF_ALL
    variance = 1 - mean * mean
    return Means(
        _z(rows - n * mean, n * variance, fourth, excess),
        _z(columns - m * mean, m * variance, fourth, excess),
        whole if few else 0.0,
    )


def _z(sums: Sums, variance: float, fourth: float, excess: float) -> float:
    """Return the sum of their squares as a normal z value (Wilson and Hilferty 1931)."""
    count = len(sums)
    ratio = float(np.square(sums).sum()) / (variance * (count - 1))
    tails = max(fourth - 3, 0.0) / max(variance, 1.0)
    degrees = (count - 1) / (1 + count * excess) / (1 + tails / 2)
    spread = 2 / (9 * degrees)
    return float((ratio ** (1 / 3) - (1 - spread)) / math.sqrt(spread))
