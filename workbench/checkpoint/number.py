"""Stored numbers as float32: the 8-bit floats by table, bfloat16 by its bits, all others by numpy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float32]]

# The 16 values of e2m1, FP4's only form, by code (OCP Microscaling formats 1.0).
E2M1 = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32
)


@cache
def table_of(dtype: str) -> Floats:
    """Return the 256 values of an 8-bit float.

    E4M3 has no infinity, and NaN where all bits but the sign are set; E5M2 is cut from half precision; the
    FNUZ forms have one zero and one NaN, at the code of the negative zero, and a bias larger by one; E8M0 is
    a power of two without sign (OCP 8-bit floating point 1.0; Graphcore and AMD for FNUZ).
    """
    codes = np.arange(256)
    if dtype == "F8_E8M0":
        values = np.ldexp(1.0, codes - 127)
        values[255] = np.nan
        return _frozen(values)
    bits = 2 if "E5M2" in dtype else 3
    bias = {"F8_E4M3": 7, "F8_E5M2": 15, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 16}[dtype]
    exponent = (codes >> bits) & ((1 << (7 - bits)) - 1)
    fraction = (codes & ((1 << bits) - 1)) / (1 << bits)
    magnitude = np.where(
        exponent > 0,
        np.ldexp(1 + fraction, exponent - bias),
        np.ldexp(fraction, 1 - bias),
    )
    if dtype.endswith("FNUZ"):
        magnitude[128] = np.nan
    elif dtype == "F8_E4M3":
        magnitude[[127, 255]] = np.nan
    else:
        magnitude[exponent == 31] = np.nan
        magnitude[[124, 252]] = np.inf
    return _frozen(np.where(codes < 128, magnitude, -magnitude))


def _frozen(values: Array) -> Floats:
    with np.errstate(over="ignore"):
        made: Floats = values.astype(np.float32)
    made.setflags(write=False)
    return made


def to_float32(units: Array, dtype: str) -> Floats:
    """Return stored units as float32; what float64 has beyond its range becomes infinite."""
    if dtype == "BF16":
        return (units.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.startswith("F8_"):
        return table_of(dtype)[units]
    with np.errstate(over="ignore"):
        return units.astype(np.float32)
