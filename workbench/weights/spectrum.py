"""Do the entries of a matrix know of each other? Singular values against those of noise.

Independent entries of any law give a spectrum that is known beforehand: it ends at the
Marchenko-Pastur edge, and its largest value fluctuates there by the Tracy-Widom law. Training puts
directions on top of that which reach past the edge. The scale of each row and column is divided out
first, so that a matrix whose blocks were drawn with different sigmas (a fused qkv) is noise still.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from workbench.weights import matrix_kernels as kernels
from workbench.weights.means import means_of

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]

# Mean and standard deviation of the Tracy-Widom law of order 1 (Bornemann 2010, table 9).
_TW_MEAN, _TW_SD = -1.2065336, 1.2680340
# Up to so many rows the eigenvalues are computed outright; above, the largest by Lanczos' method.
DENSE = 512
_STEPS = 48
_ROUNDS = 3
_JUMPS = 8
_NEARLY = 0.3
# Where a value lies more than so many deviations out, all are drawn in to the border. The deviation is that
# of the values within the border.
_ALONE, _BORDER = 10.0, 5.0
# Deviations of a mean that chance does not make.
_NO_CHANCE = 4.0
# Below this share of the mean square a variance is not taken from it.
_SHARE_OF_SQUARE = 0.1
# How far the norms may be more alike than expected: the kurtosis that is expected is itself estimated.
_SLACK_BELOW = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Spectrum:
    """What the singular values say, as z values under independence.

    Attributes
    ----------
    gram
        Squared cosines between rows, over what independent entries give. Far below zero: rows that are
        more orthogonal than chance, as an orthogonal init has them.
    edge
        The largest singular value against the Marchenko-Pastur edge, in standard deviations of the
        Tracy-Widom law.
    rows, columns
        What was looked at.
    kurtosis
        Excess kurtosis once the scales of rows and columns are divided out.
    row_scale, column_scale
        Differences between the norms of neighbouring rows (columns), over what independent entries of
        one scale give. The largest few are left out: blocks that were drawn with scales of their own
        are no sign of training.
    row_neighbours, column_neighbours
        Correlation of entries with those of the next row (column), times the root of their number.
    orthogonality
        Mean squared cosine between rows times the columns: 1 for independent entries, 0 for orthogonal
        ones. Of the values as they are, where it is small.
    empty_rows, empty_columns
        How many are all zeros; they are left out of everything else.
    filled
        Values beside zeros that a row or column has, whichever is fewer, on average over those not empty.
    row_means, column_means, mean
        Differences between the means of rows (columns), and the mean of all (`workbench.weights.means`).
    """

    gram: float = 0.0
    edge: float = 0.0
    rows: int = 0
    columns: int = 0
    kurtosis: float = 0.0
    row_scale: float = 0.0
    column_scale: float = 0.0
    row_neighbours: float = 0.0
    column_neighbours: float = 0.0
    orthogonality: float = 1.0
    empty_rows: int = 0
    empty_columns: int = 0
    filled: float = 0.0
    row_means: float = 0.0
    column_means: float = 0.0
    mean: float = 0.0

    @property
    def means(self) -> float:
        """The strongest sign that means give."""
        return max(self.row_means, self.column_means, self.mean)

    @property
    def excess(self) -> float:
        """Mean squared cosine between rows beyond what chance makes of it."""
        shorter, longer = sorted((self.rows - self.empty_rows, self.columns - self.empty_columns))
        return max(2 * self.gram / max(min(shorter, DENSE) * longer, 1), 0.0)


def spectrum(values: Floats, slack: float = 0.05) -> Spectrum:
    """Return the statistics of a matrix of finite values.

    Parameters
    ----------
    values
        Shape (m, n), float32. It is not changed.
    slack
        Share by which the format of the values may add to the difference between norms of rows.

    Returns
    -------
    Spectrum
        All zero where fewer than two rows or columns hold anything but a constant.
    """
    rows, columns = values.shape
    zeros = values == 0
    some_rows, some_columns = ~zeros.all(axis=1), ~zeros.all(axis=0)
    nothing = Spectrum(
        rows=rows,
        columns=columns,
        empty_rows=int(rows - some_rows.sum()),
        empty_columns=int(columns - some_columns.sum()),
    )
    if nothing.empty_rows or nothing.empty_columns:
        values = np.ascontiguousarray(values[some_rows][:, some_columns])
    filled = (zeros.size - int(np.count_nonzero(zeros))) / max(values.shape) if values.size else 0.0
    nothing = dataclasses.replace(nothing, filled=filled)
    if min(values.shape) < 2:
        return nothing
    whole, values = values, drawn_in(values)
    mean, spread = moments(values)
    if not spread > 0:
        return nothing
    moved = values is not whole
    plain = values / np.float32(spread)
    # A mean that chance makes is left in: taken off, it would be a direction in rows that are small.
    has_mean = abs(mean) * np.sqrt(values.size) > _NO_CHANCE * spread
    values = plain - np.float32(mean / spread) if has_mean else plain
    matrix = equilibrated(values)
    if min(matrix.shape) < 2:
        return nothing
    fourth, below, beside = kernels.products(matrix)
    kurtosis = _entry_kurtosis(fourth, matrix.shape)
    root = float(np.sqrt(matrix.size))
    row_neighbours, column_neighbours = below / root, beside / root
    with_mean = equilibrated(plain) if has_mean else matrix
    if matrix.shape[0] > matrix.shape[1]:
        matrix = np.ascontiguousarray(matrix.T)
    m, n = matrix.shape
    step = -(-m // DENSE)
    sketch = matrix[::step]
    gram = (sketch @ sketch.T).astype(np.float64)
    largest = float(np.linalg.eigvalsh(gram)[-1]) if m <= DENSE else _largest(matrix)
    cosines = kernels.mean_squared_cosine(gram)
    orthogonality = n * cosines
    if orthogonality < _NEARLY:
        plain = (plain if plain.shape[0] <= plain.shape[1] else plain.T)[::step]
        orthogonality = n * kernels.mean_squared_cosine((plain @ plain.T).astype(np.float64))
    by_row, by_column = kernels.powers(values)
    found = dataclasses.replace(
        nothing,
        gram=(n * cosines - _chance(fourth, m)) * len(gram) / 2,
        edge=_edge_z(largest, m, n),
        kurtosis=_kurtosis(whole) if moved else kurtosis,
        row_scale=_scale_z(by_row, values.shape[1], kurtosis, slack),
        column_scale=_scale_z(by_column, values.shape[0], kurtosis, slack),
        row_neighbours=row_neighbours,
        column_neighbours=column_neighbours,
        orthogonality=orthogonality,
    )
    means = means_of(with_mean, found.excess, None if has_mean else fourth)
    return dataclasses.replace(
        found, row_means=means.rows, column_means=means.columns, mean=means.all
    )


def drawn_in(values: Floats) -> Floats:
    """Return the values; where some lie far out, with those moved to the border of the others.

    A value far out makes the norm of its row by itself. In the rows without one the mean is then a direction,
    though the entries know nothing of each other. Independent entries stay independent if each is moved.
    Zeros do not count: beside many of them everything else would lie far out.
    """
    # Half a million are enough, and an odd step meets the most columns.
    step = values.size >> 18 | 1
    mean, spread, _ = kernels.inliers(np.array(values.ravel()[::step], np.float64), _BORDER)
    far = max(float(values.max()) - mean, mean - float(values.min()))
    if not spread > 0 or far <= _ALONE * spread:
        return values
    low, high = np.float32(mean - _BORDER * spread), np.float32(mean + _BORDER * spread)
    return np.clip(values, low, high)


def moments(values: Floats) -> tuple[float, float]:
    """Return mean and standard deviation: sums of float32 within a row, of float64 over the rows."""
    sums = values @ np.ones(values.shape[1], dtype=np.float32)
    mean = float(sums.sum(dtype=np.float64) / values.size)
    square = float(np.einsum("ij,ij->i", values, values).sum(dtype=np.float64) / values.size)
    variance = square - mean * mean
    if variance > _SHARE_OF_SQUARE * square:
        return mean, float(np.sqrt(variance))
    # A mean far from zero, or squares that float32 does not hold.
    return float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))


def _chance(fourth: float, rows: int) -> float:
    """Return the mean squared cosine between rows, times the columns, of independent entries.

    Columns of one norm share what the squares of each make together: what one row has of a column the
    others have not. So it is below 1 by (fourth moment - 1) / rows, which of few values beside zeros is much.
    """
    return (rows - fourth) / (rows - 1)


def equilibrated(values: Floats) -> Floats:
    """Return the values with rows and columns of mean square one, and empty ones left out."""
    matrix = np.array(values, dtype=np.float32, order="C")
    if not matrix.size or kernels.balance(matrix, _ROUNDS):
        return matrix
    m, n = values.shape
    rows = np.einsum("ij,ij->i", values, values) / np.float32(n) > 0
    columns = np.einsum("ij,ij->j", values, values) / np.float32(m) > 0
    if rows.all() and columns.all():
        return matrix
    return equilibrated(values[rows][:, columns])


def _scale_z(power: Doubles, entries: int, kurtosis: float, slack: float) -> float:
    """Return the z value of the norms of rows (columns) against their neighbours'.

    `power` are their squares, once what differs along the other axis is divided out.
    """
    mean, count = kernels.steps(power, _JUMPS)
    if not count:
        return 0.0
    # Variance of the logarithm of a mean of n squares: as of a gamma variable with the same first moments.
    x = (kurtosis + 2) / entries
    expected = 2 * (x + x**2 / 2 + x**3 / 6)
    ratio = mean / expected - 1 if expected > 0 else -1.0  # all of one magnitude
    beyond = max(ratio - slack, 0) if ratio > 0 else min(ratio + _SLACK_BELOW, 0)
    return float(beyond * np.sqrt(count / 3))


def _kurtosis(values: Floats) -> float:
    """Return the excess kurtosis of the entries, those far out among them."""
    mean, spread = moments(values)
    matrix = equilibrated((values - np.float32(mean)) / np.float32(spread))
    return _entry_kurtosis(kernels.products(matrix)[0], matrix.shape)


def _entry_kurtosis(fourth: float, shape: tuple[int, ...]) -> float:
    """Return the excess kurtosis of the entries before their scales were divided out.

    Dividing by the norms of rows and columns takes away about (k + 1.2) 1.67 / n of the fourth moment: exact
    to first order for normal entries, near it for uniform ones.
    """
    lost = max(fourth - 1.8, 0.0) * 1.67
    for size in shape:
        fourth *= 1 + lost / size
    return fourth - 3.0


def _edge_z(largest: float, m: int, n: int) -> float:
    at, spread = _edge(m, n)
    return float(((largest - at) / spread - _TW_MEAN) / _TW_SD)


def _edge(m: int, n: int) -> tuple[float, float]:
    """Return the Marchenko-Pastur edge of squared singular values, and the width that they fluctuate by."""
    root = np.sqrt(n - 1) + np.sqrt(m)
    return root**2, root * (1 / np.sqrt(n - 1) + 1 / np.sqrt(m)) ** (1 / 3)


def edge_of(m: int, n: int, z: float) -> float:
    """Return the squared singular value of m x n entries of variance one that is `z` deviations out."""
    at, spread = _edge(m, n)
    return float(at + spread * (_TW_MEAN + z * _TW_SD))


def _largest(matrix: Floats) -> float:
    """Return the largest eigenvalue of ``matrix @ matrix.T``, by Lanczos' method kept orthogonal."""
    m = len(matrix)
    basis = np.zeros((_STEPS + 1, m), dtype=np.float32)
    start = np.random.default_rng(0).standard_normal(m, dtype=np.float32)
    basis[0] = start / np.linalg.norm(start)
    alpha, beta = np.zeros(_STEPS), np.zeros(_STEPS)
    for k in range(_STEPS):
        new = matrix @ (matrix.T @ basis[k])
        alpha[k] = float(new @ basis[k])
        for _ in range(2):
            new = new - basis[: k + 1].T @ (basis[: k + 1] @ new)
        beta[k] = float(np.linalg.norm(new))
        if beta[k] <= 1e-6 * abs(alpha[k]):
            beta[k:] = alpha[k + 1 :] = 0
            break
        basis[k + 1] = new / beta[k]
    steps = k + 1
    tridiagonal = np.diag(alpha[:steps]) + np.diag(beta[: steps - 1], 1)
    tridiagonal += np.diag(beta[: steps - 1], -1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1])
