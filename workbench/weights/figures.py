"""The figures that follow from counts and sums (`measure.Tally`)."""

from __future__ import annotations

from math import inf, isfinite, nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.weights import figure_kernels as compiled
from workbench.weights import kernels
from workbench.weights.cells import UPPER, Cells, cells_of
from workbench.weights.records import QUANTILES

if TYPE_CHECKING:
    from workbench.weights.measure import Tally

Array = np.ndarray[Any, Any]

BARS = 64
# Beyond so many deviations a bar of the drawing holds all that is farther out.
_DRAWN = 6.0
# Squares of float32 lose bits below 2^-63; dispersions of such small values are not told.
_SMALLEST = 2.0**-50
# Squared norms that differ by less, as a share of their mean, are one norm and its rounding.
_ONE_NORM = 1e-3
_NO_SQUARE = 2.0**-120
# Distances between laws are not told where one cell holds more than this share.
_COARSEST = 0.02
_LEVELS = np.array(QUANTILES)
_FAR, _NEAR = 2.0**20, 2.0**-40


def figures(tally: Tally, rows: int) -> dict[str, Any]:
    """Return the fields of a `Measure` that say something of values, by name."""
    by_code = tally.counted or not (tally.joined or tally.kind == "dequantised")
    kind = tally.kind if tally.counted else ("BF16" if by_code else UPPER)
    cells = cells_of(kind)
    places = np.empty(len(cells.order), np.int64)
    places = places[: kernels.occupied(tally.counts, cells.order, cells.place, places)]
    values, counts = cells.values[places], tally.counts[cells.order[places]]
    number = int(counts.sum())
    broken = {
        "nan": int(tally.counts[cells.nan].sum()),
        "inf": int(tally.counts[cells.inf].sum()),
    }
    if not number:
        return _nothing() | broken
    if tally.counted:
        moments = compiled.central_moments(values, counts)
        least, greatest = float(values[0]), float(values[-1])
        zeros = int(counts[values == 0].sum())
    else:
        moments = tally.moments[1:]
        least, greatest = tally.least, tally.greatest
        zeros = tally.zeros
    mean, second, third, fourth = moments
    variance = second / number
    std = sqrt(variance) if variance > 0 else 0.0
    plain = std > 0 and isfinite(fourth) and 0 < variance * variance < inf
    magnitude = np.abs(values)
    far = (magnitude >= _FAR) | ((magnitude < _NEAR) & (values != 0))
    lower, upper = cells.lower[places], cells.upper[places]
    return broken | {
        "mean": mean,
        "std": std,
        "min": least,
        "max": greatest,
        "absmax": max(abs(least), abs(greatest)),
        "zeros": zeros,
        "denormal": _subnormal(tally, cells, places, counts, zeros),
        "skew": third / number / std**3 if plain else 0.0,
        "kurtosis": fourth / number / variance**2 - 3 if plain else 0.0,
        **_order(
            tally, by_code, values, counts, (lower, upper, least, greatest, zeros), (mean, std)
        ),
        "exact_in_fp16": tally.exact / number if tally.kind in ("F32", "F64") else None,
        "top_exponent_share": float(counts[far].sum() / number),
        "bins": _bars(lower, upper, counts, least, greatest, mean, std),
        **_empty(tally, rows, zeros),
        **_copied(tally, rows),
        **_dispersions(tally, rows, number, (mean, second, third, fourth), sum(broken.values())),
    }


def _nothing() -> dict[str, Any]:
    empty = dict.fromkeys(("mean", "std", "min", "max", "absmax", "skew", "kurtosis"), nan)
    return empty | {"zeros": 0, "denormal": 0, "quantiles": (nan,) * len(QUANTILES)}


def _subnormal(tally: Tally, cells: Cells, places: Array, counts: Array, zeros: int) -> int:
    """Count values that are subnormal in the type that they are stored in."""
    if tally.counted:
        return int(counts[cells.subnormal[places]].sum())
    if (
        tally.kind != "F32"
    ):  # dequantised values and whole numbers have none; float64's are zeros here
        return 0
    return int(counts[np.abs(cells.values[places]) < 2.0**-126].sum()) - zeros


def _order(
    tally: Tally,
    by_code: bool,
    values: Array,
    counts: Array,
    cells: tuple[Any, ...],
    moments: tuple[float, float],
) -> dict[str, Any]:
    """Return what needs the values in order: quantiles, how far off their ranks may be, distances."""
    lower, upper, least, greatest, zeros = cells
    if by_code:
        quantiles = tuple(compiled.order_statistics(values, counts, _LEVELS).tolist())
        error = 0.0
    elif sum(part.size for part in tally.kept.values()) >= counts.sum():
        kept = np.concatenate(list(tally.kept.values()))
        lower = upper = np.sort(kept[np.isfinite(kept)])
        counts = np.ones(len(lower), np.int64)
        quantiles, error = tuple(np.quantile(lower, QUANTILES).tolist()), 0.0
    else:
        quantiles = _quantiles(lower, upper, counts, least, greatest, zeros)
        error = _rank_error(values, counts, zeros)
    coarse = error > _COARSEST or tally.kind == "dequantised"
    return {
        "quantiles": quantiles,
        "rank_error": error,
        "ks": None if coarse else _ks(lower, upper, counts, *moments),
    }


def _quantiles(
    lower: Array, upper: Array, counts: Array, least: float, greatest: float, zeros: int
) -> tuple[float, ...]:
    """Return quantiles that lie in the right cell; `_rank_error` bounds how far off their rank is."""
    ends = np.cumsum(counts)
    rank = np.array(QUANTILES) * (ends[-1] - 1)
    place = np.searchsorted(ends, rank, side="right")
    share = (rank - (ends[place] - counts[place]) + 0.5) / counts[place]
    found = lower[place] + (upper[place] - lower[place]) * np.clip(share, 0, 1)
    found = np.where((np.minimum(abs(lower), abs(upper))[place] == 0) & (zeros > 0), 0.0, found)
    found = np.clip(found, least, greatest)
    found[0], found[-1] = least, greatest
    return tuple(found.tolist())


def _rank_error(values: Array, counts: Array, zeros: int) -> float:
    """Return the share of the fullest cell, that of the zeros left out."""
    counts = np.where(values == 0, 0 if zeros else counts, counts)
    return float(counts.max(initial=0) / max(int(counts.sum()) + zeros, 1))


def _ks(
    lower: Array, upper: Array, counts: Array, mean: float, std: float
) -> tuple[float, float, float] | None:
    """Return the distances times sqrt(n).

    They are only asked for where the cells are those that values were rounded to, or fine: within a coarse
    cell two laws may be anything.
    """
    if std <= 0 or not isfinite(std):
        return None
    number = int(counts.sum())
    found = kernels.distances(lower, upper, counts, number, mean, std)
    normal, uniform, truncated = (float(distance) * sqrt(number) for distance in found)
    return normal, uniform, truncated


def _bars(
    lower: Array,
    upper: Array,
    counts: Array,
    least: float,
    greatest: float,
    mean: float,
    std: float,
) -> tuple[tuple[float, ...], tuple[int, ...]] | None:
    """Return edges and counts for drawing; what a cell holds is spread evenly over it."""
    low, high = max(least, mean - _DRAWN * std), min(greatest, mean + _DRAWN * std)
    if not (isfinite(low) and isfinite(high)):
        return None
    if not high > low:
        low, high = least - 0.5, least + 0.5
    edges = np.linspace(low, high, BARS + 1)
    found = compiled.bars(lower, upper, counts, (least, greatest), edges)
    return tuple(edges.tolist()), tuple(found.tolist())


def _empty(tally: Tally, rows: int, zeros: int) -> dict[str, float]:
    """Return which share of rows and columns holds nothing but zeros."""
    width = tally.width
    if not width or not rows:
        return {}
    found = {}
    for name, sums, entries in (
        ("empty_rows", tally.rows[:rows], width),
        ("empty_columns", tally.columns, rows),
    ):
        # The squares of tiny values vanish as well, and those are no zeros.
        empty = int(np.count_nonzero(sums < entries * _NO_SQUARE))
        found[name] = empty / len(sums) if empty * entries <= zeros else 0.0
    return found


def _copied(tally: Tally, rows: int) -> dict[str, float]:
    """Return which share of the rows has a squared norm that an earlier one has.

    Rows that were all scaled to one norm, as nGPT's or those of a table of sines, say nothing by it.
    """
    if not tally.width:
        return {}
    sums, different = compiled.distinct(tally.rows[:rows])
    if not len(sums):
        return {}
    mean, square = compiled.variance(sums)
    if square * (len(sums) - 1) < (_ONE_NORM * mean) ** 2 * len(sums):
        return {}
    return {"copied_rows": 1 - different / len(sums)}


def _dispersions(
    tally: Tally, rows: int, number: int, moments: tuple[float, float, float, float], broken: int
) -> dict[str, float | None]:
    """Return how much squared norms vary against independent entries of the same kurtosis, as z values."""
    width = tally.width
    mean, second, third, fourth = moments
    if not width or broken or rows * width != number or not isfinite(fourth):
        return {"row_dispersion": None, "column_dispersion": None}
    square = mean * mean  # no ** : it raises where a product is infinite
    raw2 = second / number + square
    raw4 = (
        fourth / number + 4 * mean * third / number + 6 * square * second / number + square * square
    )
    spread = raw4 - raw2 * raw2  # the variance of a squared entry
    if raw2 < _SMALLEST**2 or not spread > 1e-12 * raw2 * raw2:
        return {"row_dispersion": None, "column_dispersion": None}
    return {
        "row_dispersion": _dispersion(tally.rows[:rows], width, spread),
        "column_dispersion": _dispersion(tally.columns, rows, spread),
    }


def _dispersion(sums: Array, entries: int, spread: float) -> float | None:
    if len(sums) < 2:
        return None
    ratio = compiled.variance(sums)[1] / (entries * spread)
    z = (ratio - 1) * sqrt((len(sums) - 1) / 2)
    return z if isfinite(z) else None
