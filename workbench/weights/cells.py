"""Which numbers the counted codes stand for: every code is a cell of the real line."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from workbench.checkpoint.number import table_of, to_float32

Array = np.ndarray[Any, Any]
Doubles = np.ndarray[Any, np.dtype[np.float64]]

UPPER = "upper half of F32"


@dataclasses.dataclass(frozen=True)
class Cells:
    """The finite codes of a type in the order of their values.

    Attributes
    ----------
    order
        The codes.
    place
        Where each code is in that order; -1 for those that are no numbers.
    values
        What each stands for.
    lower, upper
        What rounds to it lies between these; for `UPPER`, what is cut to it.
    subnormal
        Whether each code is subnormal in its type.
    nan, inf
        The codes that are no numbers.
    """

    order: Array
    place: Array
    values: Doubles
    lower: Doubles
    upper: Doubles
    subnormal: Array
    nan: Array
    inf: Array


@cache
def cells_of(kind: str) -> Cells:
    """Return the cells of a 16-bit or 8-bit float type, or of `UPPER`."""
    if kind.startswith("F8_"):
        table = table_of(kind)
        codes = np.arange(256, dtype=np.uint16)
    else:
        codes = np.arange(1 << 16, dtype=np.uint16)
        table = (
            codes.view(np.float16).astype(np.float32)
            if kind == "F16"
            else to_float32(codes, "BF16")
        )
    finite = np.isfinite(table)
    with np.errstate(invalid="ignore"):  # NaN of the signalling kind
        values = table.astype(np.float64)
    # The negative zero goes before the positive one.
    order = np.lexsort((~np.signbit(values), values))
    order = order[finite[order]]
    values = values[order]
    gaps = np.diff(values)
    if kind == UPPER:
        magnitude = np.abs(values)
        beyond = np.append(gaps[magnitude[1:] > magnitude[:-1]], gaps[-1])  # outwards, from zero up
        step = np.concatenate([beyond[::-1], beyond])
        negative = np.signbit(values)
        lower = np.where(negative, values - step, values)
        upper = np.where(negative, values, values + step)
    else:
        gaps = np.concatenate([gaps[:1], gaps, gaps[-1:]])
        lower, upper = values - gaps[:-1] / 2, values + gaps[1:] / 2
    place = np.full(len(codes), -1, np.int64)
    place[order] = np.arange(len(order))
    return Cells(
        order=codes[order],
        place=place,
        values=values,
        lower=lower,
        upper=upper,
        subnormal=(np.abs(values) < _smallest_normal(kind)) & (values != 0),
        nan=codes[np.isnan(table)],
        inf=codes[np.isinf(table)],
    )


def _smallest_normal(kind: str) -> float:
    exponents = {"F16": -14, "F8_E4M3": -6, "F8_E5M2": -14, "F8_E4M3FNUZ": -7, "F8_E5M2FNUZ": -15}
    return float(2.0 ** exponents.get(kind, -126)) if kind != "F8_E8M0" else 0.0
