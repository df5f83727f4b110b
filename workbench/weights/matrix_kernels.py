"""Compiled loops over one matrix: fewer passes over a large one, fewer calls of Python for a small one."""

from __future__ import annotations

from math import inf, log, sqrt
from typing import Any

import numpy as np

from workbench.checkpoint.compiled import kernel

Array = np.ndarray[Any, Any]


@kernel(fast=True)
def balance(matrix: Array, rounds: int) -> bool:
    """Divide by the root mean squares of rows, then of columns, some times, in place.

    Return whether none of them is zero; such a row or column is left as it is.
    """
    m, n = matrix.shape
    filled = True
    scale, sums = np.ones(n, np.float32), np.empty(n, np.float32)
    for _ in range(rounds):
        sums[:] = 0
        for i in range(m):
            total = np.float32(0)
            for j in range(n):
                x = matrix[i, j] * scale[j]
                matrix[i, j] = x
                total += x * x
            power, factor = total / np.float32(n), np.float32(1)
            if power > 0:
                factor /= np.float32(sqrt(power))
            else:
                filled = False
            for j in range(n):
                x = matrix[i, j] * factor
                matrix[i, j] = x
                sums[j] += x * x
        for j in range(n):
            power, scale[j] = sums[j] / np.float32(m), np.float32(1)
            if power > 0:
                scale[j] /= np.float32(sqrt(power))
            else:
                filled = False
    for i in range(m):
        for j in range(n):
            matrix[i, j] *= scale[j]
    return filled


@kernel(fast=True)
def powers(matrix: Array) -> tuple[Array, Array]:
    """Return the squares of rows once columns have one norm, and those of columns once rows have one."""
    m, n = matrix.shape
    rows, columns = np.zeros(m), np.zeros(n)
    for i in range(m):
        total = 0.0
        for j in range(n):
            square = float(matrix[i, j]) ** 2
            total += square
            columns[j] += square
        rows[i] = 1 / total if total > 0 else 1.0
    for j in range(n):
        columns[j] = 1 / columns[j] if columns[j] > 0 else 1.0
    by_row, by_column = np.zeros(m), np.zeros(n)
    for i in range(m):
        total = 0.0
        for j in range(n):
            square = float(matrix[i, j]) ** 2
            total += square * columns[j]
            by_column[j] += square * rows[i]
        by_row[i] = total
    return by_row, by_column


@kernel()
def steps(power: Array, most_left_out: int) -> tuple[float, int]:
    """Return the mean squared step of the logarithms, the largest few left out, and how many are in."""
    steps = np.empty(power.size)
    count, before = -1, 0.0
    for x in power:
        if x > 0:
            at = log(x)
            if count >= 0:
                steps[count] = (at - before) ** 2
            before = at
            count += 1
    if count < 2:
        return 0.0, 0
    found = np.sort(steps[:count])
    kept = count - min(most_left_out, max(1, count // 64))
    total = 0.0
    for at in range(kept):
        total += found[at]
    return total / kept, kept


@kernel(fast=True)
def products(matrix: Array) -> tuple[float, float, float]:
    """Return the mean fourth power, and the sums of products with the next row and the next column."""
    m, n = matrix.shape
    fourth = below = beside = 0.0
    for i in range(m):
        one = two = three = np.float32(0)
        for j in range(n):
            square = matrix[i, j] * matrix[i, j]
            one += square * square
        if i:
            for j in range(n):
                two += matrix[i, j] * matrix[i - 1, j]
        for j in range(1, n):
            three += matrix[i, j] * matrix[i, j - 1]
        fourth += float(one)
        below += float(two)
        beside += float(three)
    return fourth / (m * n), below, beside


@kernel(fast=True)
def sums(matrix: Array) -> tuple[Array, Array]:
    """Return the sums of rows and of columns."""
    m, n = matrix.shape
    rows, columns = np.zeros(m), np.zeros(n, np.float32)
    for i in range(m):
        total = np.float32(0)
        for j in range(n):
            x = matrix[i, j]
            total += x
            columns[j] += x
        rows[i] = total
    return rows, columns.astype(np.float64)


@kernel(fast=True)
def mean_squared_cosine(gram: Array) -> float:
    """Return the mean over all pairs of rows, by their products with each other."""
    a = len(gram)
    scale = np.empty(a)
    for i in range(a):
        scale[i] = 1 / max(gram[i, i], 2.0**-1022)
    total = 0.0
    for i in range(a):
        inner = 0.0
        for j in range(a):
            inner += gram[i, j] * gram[i, j] * scale[j]
        total += inner * scale[i]
    return (total - a) / (a * (a - 1))


@kernel()
def inliers(values: Array, border: float) -> tuple[float, float, int]:
    """Return mean, deviation and number of the values that lie within so many deviations of themselves.

    Zeros do not count.
    """
    low, high, before = -inf, inf, -1
    while True:
        count, total = 0, 0.0
        for x in values:
            if x != 0 and low <= x <= high:
                count += 1
                total += x
        if not count:
            return 0.0, 0.0, 0
        mean, square = total / count, 0.0
        for x in values:
            if x != 0 and low <= x <= high:
                square += (x - mean) * (x - mean)
        spread = sqrt(square / count)
        if count == before:
            return mean, spread, count
        before = count
        low, high = max(low, mean - border * spread), min(high, mean + border * spread)
