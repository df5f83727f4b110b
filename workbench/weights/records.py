"""What is measured of one tensor, and what is concluded of it: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from typing import Literal

Verdict = Literal["trained", "at_init", "constant", "invalid", "undecided"]
Axis = Literal["rows", "columns", "matrices"]
Kind = Literal["checkpoint", "server"]
Family = Literal[
    "", "normal", "uniform", "truncated", "orthogonal", "zeros", "ones", "constant", "memory"
]

QUANTILES = (0.0, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
"""Levels of `Measure.quantiles`."""


_FEWEST_BARS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """What one pass over a tensor's values gives (after dequantising); no judgement yet.

    Attributes
    ----------
    name, shape, dtype
        Of the logical weight; `dtype` is the storage type as the header writes it.
    layout
        The quantised layout that it was read from, "" for a plain tensor.
    count, seen
        Number of elements, and how many of them were read (fewer under `sample`).
    mean, std, skew, kurtosis
        Of the finite values; the kurtosis is the excess.
    zeros, nan, inf, denormal
        Counts. `denormal`: subnormal in the storage type.
    quantiles, rank_error
        Values at `QUANTILES`, and the largest error of their ranks as a share of `count` (0 = exact).
    row_dispersion, column_dispersion
        Variance of the squared norms of rows (columns) over what i.i.d. entries of this kurtosis give,
        as a z value; None for a vector.
    empty_rows, empty_columns
        Share of the rows (columns) that were read which are all zeros.
    copied_rows
        Share of the rows with values whose squared norm an earlier row has to the last digit.
    ks
        Kolmogorov-Smirnov distance x sqrt(n) to the fitted normal, uniform and truncated normal.
    exact_in_fp16
        Share of the values that are exact in fp16 (of a wider type), None for 16 bits and fewer.
    top_exponent_share
        Share of values whose magnitude lies outside 2^-40 .. 2^20: garbage of memory that was never written.
    digest
        Hash of shape, type and bytes: equal tensors have equal digests. "" where not all was read.
    bins
        Edges and counts of a histogram of 64 bins, for drawing.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    count: int
    seen: int
    mean: float
    std: float
    min: float
    max: float
    absmax: float
    zeros: int
    nan: int
    inf: int
    denormal: int
    skew: float
    kurtosis: float
    quantiles: tuple[float, ...]
    rank_error: float = 0.0
    row_dispersion: float | None = None
    column_dispersion: float | None = None
    empty_rows: float = 0.0
    empty_columns: float = 0.0
    copied_rows: float = 0.0
    ks: tuple[float, float, float] | None = None
    exact_in_fp16: float | None = None
    top_exponent_share: float = 0.0
    digest: str = ""
    bins: tuple[tuple[float, ...], tuple[int, ...]] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class JudgedPart:
    """A part of a matrix, or of a stack of them, with a verdict of its own.

    Attributes
    ----------
    axis
        ``rows``, ``columns``, or ``matrices`` of a stack.
    start, stop
        Where it lies, counted from 0, without `stop`.
    name
        A projection's name inside a fused matrix, "" for a block.
    """

    axis: Axis
    start: int
    stop: int
    verdict: Verdict
    name: str = ""

    def text(self) -> str:
        """Return what it is, as a sentence names it."""
        where = f"{self.axis} {self.start:,} to {self.stop - 1:,}"
        return f"its {self.name} ({where})" if self.name else where


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """What is concluded of one tensor, and how.

    Attributes
    ----------
    reason
        One sentence with the figures that decided.
    corroboration
        What speaks for it beside the decisive figures (zero bias, siblings, known formula).
    power
        The smallest relative change, norm of change / norm of weight, that would have been seen with 95 %
        at this shape and type; None where it does not apply. `power_text` says it in words.
    statistics
        The statistics behind it by name (``kurtosis_z``, ``ks``, ``gram``, ``tracy_widom``, ...).
    stage
        1: the cheap statistics decided. 2: the spectrum did. 0: a deterministic check did.
    parts
        Parts with a verdict other than the rest has: blocks at initialisation in a trained matrix.
    """

    verdict: Verdict
    reason: str
    family: Family = ""
    sigma: float | None = None
    corroboration: tuple[str, ...] = ()
    power: float | None = None
    power_text: str = ""
    statistics: tuple[tuple[str, float], ...] = ()
    stage: int = 1
    parts: tuple[JudgedPart, ...] = ()


def has_few_values(bins: tuple[tuple[float, ...], tuple[int, ...]]) -> bool:
    """Say whether a histogram has so few bars that the values are of one or two bits."""
    return sum(count > 0 for count in bins[1]) < _FEWEST_BARS
