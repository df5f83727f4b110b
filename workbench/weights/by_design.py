"""Tensors that stay at their start on purpose, or start at values that are not random."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.weights.records import Judgement, Measure

Rows = Callable[[int, int], np.ndarray[Any, np.dtype[np.float32]]]

FIXED = "fixed_start"
"""The statistic that marks a tensor at a start that is the same in every model."""

_A_LOG = re.compile(r"(^|\.)A_log$")
# Random features, hash planes and frozen projections: training never moves them.
_RANDOM = re.compile(
    r"(^|\.)(projection_matrix|random_projection\w*|rotations|random_features?|gaussian_matrix|"
    r"positional_encoding_gaussian_matrix|fourier_\w*weight|vera_[AB])(\.|$)"
)


def judge_fixed(measure: Measure, rows: Rows) -> Judgement | None:
    """Return the judgement of a tensor that lies at its fixed start; None for any other.

    Mamba's `A_log` starts at the logarithms of 1 to the size of the state, the same in every row.
    """
    if not _A_LOG.search(measure.name) or len(measure.shape) != 2 or measure.seen != measure.count:
        return None
    start = np.log(np.arange(1, measure.shape[1] + 1, dtype=np.float32))
    tolerance = 2.0**-7 if measure.dtype in ("BF16", "F16") else 1e-5
    if not np.allclose(rows(0, measure.shape[0]), start[None], rtol=tolerance, atol=tolerance):
        return None
    text = (
        f"log(1) to log({measure.shape[1]}) in every row: where Mamba starts it, or not changed by more than "
        f"the resolution of {measure.dtype}"
    )
    return Judgement("at_init", text, stage=0, statistics=((FIXED, 1.0),))


def is_random_by_design(name: str) -> bool:
    """Say whether a tensor is random on purpose, in every trained model of its kind."""
    return _RANDOM.search(name) is not None
