"""From the statistics of a spectrum to a verdict, and to the change that it could not have seen."""

from __future__ import annotations

import dataclasses
from typing import Literal

from workbench.weights.families import is_rounded
from workbench.weights.records import Measure
from workbench.weights.spectrum import Spectrum

# A matrix that is smaller can be called trained, never at init: real trained ones of that size were seen to
# have no structure at all (docs/weights.md names them).
SMALLEST_SIDE, SMALLEST_SIZE = 32, 4096
# Where the format hides the law of the values, structure alone has to tell. The largest trained matrix that
# is known without structure has 2^14 values (its law tells in other formats); this is four times that.
SMALLEST_SIZE_4_BITS = 1 << 16

# Fewer rows or columns have no spectrum.
_FEWEST = 8
# So many values beside zeros a row and column: with fewer the laws of large matrices do not hold.
_FEWEST_FILLED = 12

# Thresholds on |z|, fixed on one half of the corpus of benchmarks/weights_accuracy.
TRAINED, AT_INIT = 6.5, 4.0
# Two signs of different sorts, each so strong, are as unlikely as one beyond the first.
TRAINED_TWICE = 4.5
# Of values whose scale is not that of a known init: a trained matrix is known that shows 3.4.
AT_INIT_OF_UNKNOWN_SCALE = 3.0
# One that was trained is known whose rows are more orthogonal than chance by 3.4, and nothing else.
_AT_INIT_BELOW = 3.0
# What the rounding of a format does to the norms of rows of an init: groups that share a power of two as
# their scale have errors in common.
_SLACK, _SLACK_ROUNDED, _SLACK_POWERS = 0.05, 0.1, 0.5
# An orthogonal init leaves the mean squared cosine at the square of its format's rounding error.
_ORTHOGONAL, _ORTHOGONAL_ROUNDED = 0.002, 0.08

_KURTOSIS_OF_A_BASIS = 1.0
# What rounding does to the kurtosis of an orthogonal init.
_KURTOSIS_OF_A_TYPE, _ROUNDED_KURTOSIS = 0.02, 0.3

# Coherent relative change that is seen with 95 %: (m n)^(-1/4) (1 + 4.9 (m n)^(-1/6)). The limit is
# theory, the way beyond it follows from the edge's width, and 4.9 is measured
# (docs/weights.md, power curve; the same in formats of 16, 8 and 4 bits).
_BEYOND = 4.9


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What the structure of a matrix says; ``none``: independent entries as far as can be seen."""

    verdict: Literal["trained", "none", "undecided", "orthogonal"]
    text: str
    is_thin: bool = False  # too few values beside zeros for any statistic
    strongest: float = 0.0  # z value of what is most like structure


_TEXTS = {
    "gram": "rows that depend on each other",
    "edge": "a largest singular value beyond the edge of noise",
    "row_scale": "norms of rows that do not follow one law",
    "column_scale": "norms of columns that do not follow one law",
    "row_neighbours": "rows like their neighbours",
    "column_neighbours": "columns like their neighbours",
    "row_means": "rows with means of their own",
    "column_means": "columns with means of their own",
    "mean": "values whose mean is not zero",
}


# No sign of training: rows are normalised when they are drawn, too, and signs have one norm.
_LESS = {
    "gram": "rows that depend on each other less than by chance, as in a part of an orthogonal init",
    "row_scale": "norms of rows that are more alike than by chance: normalised, or of one magnitude",
    "column_scale": "norms of columns that are more alike than by chance: normalised, or of one "
    "magnitude",
}


_SCALES = ("row_scale", "column_scale")
# Statistics that know nothing of each other under independence.
_SORTS = (
    ("gram", "edge"), ("row_neighbours",), ("column_neighbours",), ("row_means",), ("column_means",),
    ("mean",),
)  # fmt: skip


def slack(measure: Measure) -> float:
    """Return the share by which the format of the values may change how much the norms of rows differ."""
    if "mxfp4" in measure.layout:
        return _SLACK_POWERS
    return _SLACK_ROUNDED if is_rounded(measure) else _SLACK


def evidence(seen: Spectrum, rounded: bool, whole: bool = True) -> Evidence:
    """Return the verdict on the statistics of one matrix.

    Parameters
    ----------
    seen
        Its statistics.
    rounded
        Whether its values have a few bits only (`is_rounded`).
    whole
        Whether all of the matrix was looked at. A part of an orthogonal one has rows that are more
        orthogonal than chance makes them: no sign of training then.

    Returns
    -------
    Evidence
    """
    sides = min(seen.rows - seen.empty_rows, seen.columns - seen.empty_columns)
    if seen.filled < min(_FEWEST_FILLED, sides / 2):
        return Evidence(
            "undecided",
            f"about {seen.filled:.3g} values a row or column, the rest zeros: an identity, a mask, or pruned",
            is_thin=True,
        )
    if min(seen.rows, seen.columns) < _FEWEST:
        return Evidence(
            "none", f"a matrix of {seen.rows:,} × {seen.columns:,} is too small to have structure"
        )
    limit = _ORTHOGONAL_ROUNDED if rounded else _ORTHOGONAL
    # A Fourier basis is orthogonal too: its entries are like their neighbours, or few of them are not zero.
    beside = max(abs(seen.row_neighbours), abs(seen.column_neighbours))
    random = beside < TRAINED and abs(seen.kurtosis) < _KURTOSIS_OF_A_BASIS
    if seen.orthogonality < limit and seen.gram < -TRAINED and random:
        off = _off_haar(seen, rounded)
        if off > TRAINED:
            return Evidence(
                "undecided",
                f"its rows are orthogonal to each other, but its entries (kurtosis {seen.kurtosis:.2f}, z = "
                f"{off:.0f}) do not follow the law of an orthogonal init: training under a constraint, or "
                "Muon, leaves this",
            )
        return Evidence(
            "orthogonal",
            f"its rows are orthogonal to each other (mean squared cosine {seen.orthogonality:.2g} of chance)",
        )
    by_name = {
        "gram": -seen.gram if whole and seen.gram < -TRAINED else seen.gram,
        "row_scale": seen.row_scale,
        "column_scale": seen.column_scale,
        "edge": seen.edge,
        "row_neighbours": abs(seen.row_neighbours),
        "column_neighbours": abs(seen.column_neighbours),
        "row_means": seen.row_means,
        "column_means": seen.column_means,
        "mean": 0.0 if rounded else seen.mean,
    }
    strongest = sorted(by_name, key=lambda name: by_name[name], reverse=True)
    decisive = [name for name in strongest if by_name[name] > TRAINED]
    beyond_scale = max(by_name[name] for name in by_name if name not in _SCALES)
    if decisive and decisive[0] in _SCALES and beyond_scale < AT_INIT:
        return Evidence(
            "undecided",
            f"{_TEXTS[decisive[0]]} (z = {by_name[decisive[0]]:.1f}), and noise once they are divided out: "
            "an init with a folded norm or quantiser scale looks like this, and so do a few trained matrices",
        )
    if decisive:
        return Evidence("trained", _said(decisive, by_name))
    faint = [name for name in strongest if by_name[name] > AT_INIT]
    twice = [max(sort, key=by_name.__getitem__) for sort in _SORTS]
    twice = [name for name in twice if by_name[name] > TRAINED_TWICE]
    if len(twice) > 1:
        return Evidence("trained", _said(twice, by_name))
    if faint:
        known = [name for name in faint if name not in _SCALES]
        return Evidence(
            "undecided", _said(faint, by_name), strongest=by_name[known[0]] if known else 0.0
        )
    less = min(by_name, key=lambda name: by_name[name] if name in _LESS else 0.0)
    if by_name[less] < -(_AT_INIT_BELOW if less == "gram" else AT_INIT):
        return Evidence("undecided", f"{_LESS[less]} (z = {by_name[less]:.1f})")
    text = f"gram z = {seen.gram:.1f}, largest singular value z = {seen.edge:.1f}"
    return Evidence("none", text, strongest=by_name[strongest[0]])


def _said(names: list[str], by_name: dict[str, float]) -> str:
    return "; ".join(f"{_TEXTS[name]} (z = {by_name[name]:.1f})" for name in names[:2])


def _off_haar(seen: Spectrum, rounded: bool) -> float:
    """Return how far the kurtosis is from that of a matrix drawn orthogonal, -6 / (n + 2), as a z value."""
    longer, size = max(seen.rows, seen.columns), seen.rows * seen.columns
    allowed = _ROUNDED_KURTOSIS if rounded else _KURTOSIS_OF_A_TYPE
    off = max(abs(seen.kurtosis + 6 / (longer + 2)) - allowed, 0.0)
    return float(off / (24 / size) ** 0.5)


def visible_change(rows: int, columns: int) -> float:
    """Return the relative size of a change of rank one that is seen with 95 % in so many rows and columns."""
    size = float(rows * columns)
    change: float = size**-0.25 * (1 + _BEYOND * size ** (-1 / 6))
    return min(change, 1.0)


def power(seen: Spectrum, measure: Measure, orthogonal: bool) -> tuple[float | None, str]:
    """Return the smallest relative change that would have been seen with 95 %, and the same in words.

    A change that pulls the whole matrix one way (of rank one) shows in the spectrum once it exceeds
    (m n)^(-1/4) of the weight's norm (Baik, Ben Arous and Péché 2005), m and n being what was read.
    """
    if seen.rows * seen.columns == 0:
        return None, ""
    size = visible_change(seen.rows, seen.columns)
    if orthogonal:
        size = (_ORTHOGONAL_ROUNDED if is_rounded(measure) else _ORTHOGONAL) ** 0.5
        return (
            size,
            f"a change of less than about {100 * size:.2g} % of the weight's norm would not be seen",
        )
    text = (
        f"a change along one direction of less than {100 * size:.2g} % of the weight's norm would not be "
        "seen, nor a larger one that is spread over many directions"
    )
    total = measure.count // max(measure.shape[0], 1)
    if seen.rows * seen.columns < measure.count:
        text += f" (from {seen.rows:,} of {measure.shape[0]:,} rows"
        text += f" and {seen.columns:,} of {total:,} columns)" if seen.columns < total else ")"
    return size, text
