"""Structure that no training made: products of random factors, fed-back rounding errors, copies, blocks.

Independent entries are not the only thing that chance makes. A merged random adapter, a product of two
random factors and a slice of an orthogonal init have directions, but none that favours a row or a column.
GPTQ feeds the rounding error of a column into later columns: the rows of a random matrix stay draws of
one law, and a few directions stick out. Repeated heads and block diagonals are random once a copy is
counted once. Training makes rows unequal and columns unequal, in more than a few directions, or leaves a
spectrum that falls as none of these does.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from workbench.weights.spectrum import Spectrum, drawn_in, edge_of, equilibrated, moments

Floats = np.ndarray[Any, np.dtype[np.float32]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]

# A side is uneven from this z value on, as structure counts from there.
_UNEVEN = 6.5
# Tails that none of the models has.
_KURTOSIS = 0.5
# Means beyond what directions of chance have.
_ALONG = 5.5
# Rows (columns) that a test looks at, and the strongest directions.
_SIDE, _DIRECTIONS, _ROUNDS, _NOTHING = 256, 16, 4, 1e-3
# Error feedback lifts about as many directions as there are loud channels.
_FEW, _BULK = 16, 6.5
# Largest difference between the shares that the largest k eigenvalues have, in a matrix and in a model of it.
# Few factors fluctuate more, and those of a product alone, without noise, four times as much.
_ALIKE, _ALIKE_PER_RANK, _ALONE = 0.005, 0.14, 4.0
# Largest difference of the logarithms of the largest eigenvalues.
_TOP = 0.15
# With fewer rows or columns the spectra of training and of a product cannot be distinguished.
_FEWEST = 128
# Ranks that are tried, as shares of the largest one possible: coarse steps, then finer ones around the best.
_COARSE, _FINE = 1.3 ** -np.arange(12), 1.06 ** np.array([-3, -2, -1, 1, 2, 3])


def explanation(values: Floats, seen: Spectrum) -> str:
    """Return which model without training explains the structure of a matrix; "" where none does.

    Parameters
    ----------
    values
        Shape (m, n), finite float32: what `seen` was taken from.
    seen
        Its statistics, that show structure.

    Returns
    -------
    str
    """
    if seen.kurtosis > _KURTOSIS or min(values.shape) < _FEWEST:
        return ""
    # Directions of chance do not lie along rows that all move together.
    if _neighbours(seen) > _UNEVEN or seen.means > _ALONG:
        return ""
    filled = values[values.any(axis=1)][:, values.any(axis=0)]
    # What lies far out is not drawn in: a model must explain it as well.
    mean, spread = moments(drawn_in(filled))
    plain = (filled - np.float32(mean)) / np.float32(spread)
    first = unevenness(plain)
    second = unevenness(np.ascontiguousarray(plain.T))
    if min(first, second) > _UNEVEN:
        return ""
    even = max(first, second) < _UNEVEN
    eigenvalues, size = _eigenvalues(plain if even else equilibrated(plain))
    if even and seen.gram < -_UNEVEN and seen.edge < _UNEVEN:
        return (
            "rows more orthogonal than chance makes them, and no row or column unlike the others: "
            "a slice of an orthogonal init looks like this"
        )
    few = _few_directions(eigenvalues, size)
    if few is not None:
        number = f"{few} direction{'s' * (few != 1)}" if few else "few directions"
        side = "rows" if first < _UNEVEN else "columns"
        return (
            f"structure in {number} only, over {side} that are all alike: rounding errors that were fed "
            "forward (GPTQ), or a merged adapter, leave this in a random matrix"
        )
    if not even:
        return ""
    rank = _rank_of_product(eigenvalues, size)
    if not rank:
        return ""
    return (
        "no row or column unlike the others, and the singular values of a product of random "
        f"factors (rank about {rank:,}), alone or added to an init"
    )


def _neighbours(seen: Spectrum) -> float:
    """Return how alike neighbours are beyond what the structure as a whole makes of any two."""
    rows = abs(seen.row_neighbours) / np.sqrt(1 + seen.columns * seen.excess)
    columns = abs(seen.column_neighbours) / np.sqrt(1 + seen.rows * seen.excess)
    return float(max(rows, columns))


def unevenness(values: Floats) -> float:
    """Return how much the rows differ beyond independent draws of one law, whatever the columns are like.

    Two signs: norms that vary more than the covariance of the columns explains, and strong directions
    that lie on some rows rather than on all.
    """
    sketch = values[:: -(-len(values) // _SIDE)]
    gram = (sketch @ sketch.T).astype(np.float64)
    count = len(gram)
    power = np.diag(gram)
    across = (np.square(gram).sum() - np.square(power).sum()) / (count * (count - 1))
    if not across > 0:
        return 0.0
    # A squared norm follows a gamma law, with as many degrees of freedom as the columns have.
    degrees = float(power.mean()) ** 2 / across
    ratio = float(power.var()) / (2 * across) - 1
    norms = ratio * np.sqrt(count / (2 + 12 / max(degrees, 1.0)))
    if norms > _UNEVEN:
        return float(norms)
    return float(max(norms, _spread(gram)))


def _spread(gram: Doubles) -> float:
    """Return how unevenly the strongest directions lie on the rows."""
    size = len(gram)
    count = max(min(_DIRECTIONS, size // 4), 1)
    basis = np.random.default_rng(0).standard_normal((size, count))
    for _ in range(_ROUNDS):
        basis, _ = np.linalg.qr(gram @ basis)
    power, inner = np.linalg.eigh(basis.T @ gram @ basis)
    # Of a product of few factors the others hold nothing.
    count = max(int((power > _NOTHING * power[-1]).sum()), 1)
    squares = size * np.square(basis @ inner[:, ::-1])
    found = []
    for taken in sorted({1, min(4, count), count}):
        share = squares[:, :taken].mean(axis=1)
        # Variance 2 a direction, less what the fixed sum of each takes away; excess kurtosis 12 / taken.
        ratio = float(share.var()) / (2 / taken * (1 - taken / size)) - 1
        found.append(ratio * np.sqrt(size / (2 + 12 / taken)))
    return float(max(found))


def _eigenvalues(matrix: Floats) -> tuple[Doubles, tuple[int, int]]:
    """Return squared singular values of some rows of the shorter side, the largest first, and the shape."""
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    sketch = np.ascontiguousarray(matrix[:: -(-len(matrix) // _SIDE)])
    gram = (sketch @ sketch.T).astype(np.float64)
    found: Doubles = np.linalg.eigvalsh(gram)[::-1].astype(np.float64)
    return found, (len(sketch), int(sketch.shape[1]))


def _few_directions(eigenvalues: Doubles, size: tuple[int, int]) -> int | None:
    """Return how many directions stick out of noise; None where they are many, or the rest is no noise."""
    m, n = size
    found = 0
    for _ in range(6):
        rest = eigenvalues[found:] / (eigenvalues[found:].sum() / ((m - found) * (n - found)))
        limit = edge_of(m - found, n - found, _UNEVEN / 2)
        beyond = found + int((rest > limit).sum())
        if beyond > min(_FEW, m // 4):
            return None
        if beyond == found:
            break
        found = beyond
    m, n = m - found, n - found
    rest = eigenvalues[found:] / eigenvalues[found:].mean()
    bulk = (np.square(rest).mean() - 1 - m / n) * n / 2
    return found if abs(bulk) < _BULK else None


def _rank_of_product(eigenvalues: Doubles, size: tuple[int, int]) -> int:
    """Return the rank of the random factors that would give such singular values; 0 for none."""
    m, n = size
    found = eigenvalues / eigenvalues.mean()
    # Beyond the second moment of noise: what a product of some rank adds, with its share of the variance.
    excess = (float(np.square(found).mean()) - 1) / m - 1 / n
    if not excess > 0:
        return 0
    most = 1 / excess

    def distance(rank: int) -> float:
        share = min(float(np.sqrt(rank * excess)), 1.0)
        model = _model(size, (rank,), share)
        top = abs(float(np.log(found[0] / model[0])))
        return _distance(found, model) if top < _TOP or share > 0.9 else np.inf

    coarse = {rank: distance(rank) for rank in _ranks(most * _COARSE, most)}
    best = min(coarse, key=coarse.__getitem__)
    fine = {rank: distance(rank) for rank in _ranks(best * _FINE, most) if rank not in coarse}
    best, least = min((coarse | fine).items(), key=lambda pair: pair[1])
    limit = _ALIKE + _ALIKE_PER_RANK / best
    if least < limit * (_ALONE if best == max(round(most), 1) else 1):
        return best
    inner = max(round(2 * most), 1)  # three factors, the two inner ranks alike
    alike = _distance(found, _model(size, (inner, inner), 1.0)) < _ALIKE + _ALIKE_PER_RANK / inner
    return inner if alike else 0


def _ranks(wanted: Any, most: float) -> list[int]:
    """Return whole ranks, none above the largest possible."""
    return sorted({min(max(round(rank), 1), max(round(most), 1)) for rank in wanted.tolist()})


def _model(size: tuple[int, int], ranks: tuple[int, ...], share: float) -> Doubles:
    """Return the eigenvalues of random factors with a share of the variance, the rest being noise."""
    m, n = size
    random = np.random.default_rng(ranks)
    product = np.float32((1 - share) ** 0.5) * random.standard_normal((m, n), dtype=np.float32)
    sides = (m, *ranks, n)
    factors = [
        random.standard_normal(pair, dtype=np.float32) / np.float32(pair[0] ** 0.5 if at else 1)
        for at, pair in enumerate(itertools.pairwise(sides))
    ]
    product = product + np.float32(share**0.5) * functools.reduce(np.matmul, factors)
    values = np.linalg.eigvalsh((product @ product.T).astype(np.float64))[::-1]
    return np.asarray(values / values.mean())


def _distance(found: Doubles, model: Doubles) -> float:
    """Return the largest difference between the shares of the largest k eigenvalues, over all k."""
    share, other = np.cumsum(found) / found.sum(), np.cumsum(model) / model.sum()
    return float(np.abs(share - other).max())
