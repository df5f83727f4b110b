"""The measure of a part of a tensor, from its values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from workbench.weights.records import Measure

Floats = np.ndarray[Any, np.dtype[np.float32]]


def moments(whole: Measure, matrix: Floats) -> Measure:
    """Return the measure of one matrix, in the place of that of the whole."""
    good = matrix[np.isfinite(matrix)].astype(np.float64)
    mean, std = (float(good.mean()), float(good.std())) if good.size else (0.0, 0.0)
    fourth = float(np.mean(((good - mean) / std) ** 4)) - 3 if std else 0.0
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 0.0)
    magnitude = np.abs(good[good != 0])
    outside = int(((magnitude < 2.0**-40) | (magnitude > 2.0**20)).sum())
    return dataclasses.replace(
        whole,
        shape=matrix.shape,
        count=matrix.size,
        seen=matrix.size,
        mean=mean,
        std=std,
        min=low,
        max=high,
        absmax=max(-low, high),
        zeros=int(good.size - magnitude.size),
        nan=int(np.isnan(matrix).sum()),
        inf=int(np.isinf(matrix).sum()),
        kurtosis=fourth,
        top_exponent_share=outside / matrix.size,
        row_dispersion=None,
        column_dispersion=None,
        empty_rows=0.0,
        empty_columns=0.0,
        ks=None,
    )
