"""Compiled loops over counts and sums: in a small tensor a call of Python costs more than its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.checkpoint.compiled import kernel

Array = np.ndarray[Any, Any]


@kernel()
def central_moments(values: Array, counts: Array) -> tuple[float, float, float, float]:
    """Return the mean and the sums of the central powers of counted values."""
    number, total = 0.0, 0.0
    for i in range(values.size):
        number += counts[i]
        total += counts[i] * values[i]
    mean = total / number
    second = third = fourth = 0.0
    for i in range(values.size):
        away = values[i] - mean
        square = away * away
        second += counts[i] * square
        third += counts[i] * (square * away)
        fourth += counts[i] * (square * square)
    return mean, second, third, fourth


@kernel()
def order_statistics(values: Array, counts: Array, levels: Array) -> Array:
    """Return quantiles with straight lines between counted values, as numpy's default does."""
    last = -1
    for i in range(counts.size):
        last += counts[i]
    found = np.empty(levels.size)
    at, end = 0, counts[0]  # how many values lie up to this one
    for k in range(levels.size):
        rank = levels[k] * last
        low = int(np.floor(rank))
        while end <= low:
            at += 1
            end += counts[at]
        below = values[at]
        above = values[at + 1] if end <= min(low + 1, last) else below
        found[k] = below + (above - below) * (rank - low)
    return found


@kernel()
def bars(
    lower: Array, upper: Array, counts: Array, ends: tuple[float, float], edges: Array
) -> Array:
    """Return counts between edges; what a cell holds is spread evenly over it, between least and greatest."""
    least, greatest = ends
    total = 0
    for i in range(counts.size):
        total += counts[i]
    reached = np.empty(edges.size)
    at, below = 0, 0  # the first cell that does not end before the edge, and what lies before it
    for k in range(edges.size):
        edge = edges[k]
        while at < counts.size and min(upper[at], greatest) <= edge:
            below += counts[at]
            at += 1
        reached[k] = below
        if at < counts.size:
            start, stop = max(lower[at], least), min(upper[at], greatest)
            if start < edge:
                reached[k] += counts[at] * ((edge - start) / (stop - start))
    found, before = np.empty(edges.size - 1, np.int64), 0
    for k in range(1, edges.size):
        here = int(np.rint(reached[k])) if k < edges.size - 1 else total
        here = max(here, before)
        found[k - 1] = here - before
        before = here
    return found


@kernel()
def variance(sums: Array) -> tuple[float, float]:
    """Return the mean, and the variance with one degree of freedom less."""
    mean = 0.0
    for x in sums:
        mean += x
    mean /= sums.size
    square = 0.0
    for x in sums:
        square += (x - mean) * (x - mean)
    return mean, square / max(sums.size - 1, 1)


@kernel()
def distinct(sums: Array) -> tuple[Array, int]:
    """Return the finite sums above zero, and how many of them differ."""
    kept, count = np.empty(sums.size), 0
    for x in sums:
        if np.isfinite(x) and x > 0:
            kept[count] = x
            count += 1
    found = np.sort(kept[:count])
    different = min(count, 1)
    for i in range(1, count):
        different += found[i] != found[i - 1]
    return found, different
