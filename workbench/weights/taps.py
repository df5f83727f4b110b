"""The taps of a convolution's kernels: an init makes each of them by the same law, and independently.

A kernel ``[out, in, *taps]`` that is laid out as a matrix has few rows, or norms of rows that a folded
batch norm changed, and both hide what training did. Its taps do not: training makes the middle ones
louder, and neighbours alike, over all pairs of channels at once.
"""

from __future__ import annotations

import dataclasses
import math
from math import prod
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]

_MOST_TAPS = 1024
_FEWEST_PAIRS = 64
# Heavy tails make sums of products unsure; other statistics see them.
_KURTOSIS = 3.0
# Taps that are copies of each other (a kernel that was inflated over time) say nothing of training.
_COPIES = 0.98
# Rounding errors that are fed forward correlate taps by less; training by more.
_SMALLEST = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Taps:
    """How taps differ in their norms, and how they depend on each other, as z values under independence."""

    norms: float
    pairs: float

    @property
    def z(self) -> float:
        """The larger one."""
        return max(self.norms, self.pairs)

    @property
    def text(self) -> str:
        """What was seen."""
        if self.norms > self.pairs:
            return f"taps of its kernels that differ in their norms (z = {self.norms:.1f})"
        return f"taps of its kernels that depend on each other (z = {self.pairs:.1f})"


def taps_of(values: Floats, shape: tuple[int, ...], excess: float = 0.0) -> Taps | None:
    """Return what the taps of a convolution's kernels say; None where there is nothing to see.

    Parameters
    ----------
    values
        Some or all rows of the matrix ``[out, in * taps]``, finite.
    shape
        Of the tensor: ``[out, in, *taps]``.
    excess
        Mean squared cosine between rows beyond chance: rows that depend on each other count as fewer.

    Returns
    -------
    Taps or None
    """
    count = prod(shape[2:])
    if len(shape) < 3 or not 2 <= count <= _MOST_TAPS or values.shape[1] != shape[1] * count:
        return None
    cube = values.reshape(len(values), shape[1], count).astype(np.float64)
    # Scales first: a mean that a loud row makes is a constant in all the others.
    for axes in ((1, 2), (0, 2)):
        power = np.sqrt(np.square(cube).mean(axis=axes, keepdims=True))
        cube = cube / np.where(power > 0, power, 1)
    cube = cube - cube.mean()
    pairs = cube.reshape(-1, count)
    pairs = pairs[pairs.any(axis=1)]
    if len(pairs) < _FEWEST_PAIRS:
        return None
    kurtosis = float(np.mean(np.square(np.square(pairs)))) - 3
    gram = pairs.T @ pairs / len(pairs)
    power = np.diag(gram)
    if kurtosis > _KURTOSIS or not (power > 0).all():
        return None
    apart = gram[np.triu_indices(count, 1)]
    root = np.sqrt(power)
    if np.abs(gram / np.outer(root, root))[np.triu_indices(count, 1)].max() > _COPIES:
        return None
    independent = len(pairs) / (1 + len(values) * max(excess, 0.0))
    norms = float(np.square(power - power.mean()).sum())
    return Taps(
        _z(norms, independent / max(kurtosis + 2, 0.5), count - 1),
        _z(float(np.square(apart).sum()), independent, len(apart)),
    )


def _z(squares: float, weight: float, degrees: int) -> float:
    """Return a sum of squares as a normal z value (Wilson and Hilferty 1931); 0 where it is too small."""
    if squares < _SMALLEST:
        return 0.0
    spread = 2 / (9 * degrees)
    ratio = float((weight * squares / degrees) ** (1 / 3))
    return (ratio - (1 - spread)) / math.sqrt(spread)
