"""Buffers and tables: training does not move them, and still they must hold what the model reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from workbench.weights.columns import ScannedTensor
from workbench.weights.doubts import Doubt, Doubts
from workbench.weights.masks import MASK

if TYPE_CHECKING:
    from workbench.weights.seen import Seen

_FREQUENCIES = re.compile(r"(^|\.)(inv_freq|freqs)$")
_POSITIONS = re.compile(r"(^|\.)position_ids$")
_MAP = re.compile(r"(^|\.)(d2t|t2d)$")
# A buffer of a mask may hold minus infinity.
_MASK = re.compile(r"mask|attn\.bias$")
_LARGE = 2.0**20


def buffer_doubts(seen: Seen) -> Doubts:
    """Return what is wrong with the values of what is not a weight."""
    found: Doubts = {}
    for i in np.flatnonzero(~seen.counts).tolist():
        row = seen.tensors[i]
        doubt = _doubt(row, seen) if row.seen else None
        if doubt is not None:
            found[i] = doubt
    return found


def _doubt(row: ScannedTensor, seen: Seen) -> Doubt | None:
    if _is_mask(row):
        return Doubt("wrong", "a mask that holds NaN") if row.nan else None
    if row.nan + row.inf:
        return Doubt(
            "wrong", f"{row.nan + row.inf:,} of its {row.count:,} values are NaN or infinite"
        )
    if _FREQUENCIES.search(row.name):
        if row.max == row.min == 0:
            return Doubt("wrong", "all zero: without frequencies all positions are the same")
        if row.absmax > _LARGE:
            return Doubt(
                "wrong", f"values up to {row.absmax:.2g}: no frequencies, memory never written"
            )
    if _POSITIONS.search(row.name) and row.count > 1 and row.min == row.max:
        return Doubt("wrong", f"all {row.count:,} positions are {row.min:g}")
    if (
        _MAP.search(row.name)
        and row.count > 1
        and row.min == row.max == 0
        and not _is_whole(row, seen)
    ):
        return Doubt(
            "open", "all zero: each draft token is taken for the target's token of the same number"
        )
    return None


def _is_mask(row: ScannedTensor) -> bool:
    return (MASK, 1.0) in row.statistics or bool(_MASK.search(row.name))


def _is_whole(row: ScannedTensor, seen: Seen) -> bool:
    """Say whether the draft has the whole vocabulary: its map is then rightly zero."""
    size = seen.config.get("vocab_size", None) if seen.config is not None else None
    return row.name.endswith("d2t") and row.count == size
