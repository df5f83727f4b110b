"""Stacks of matrices, ``[experts, m, n]``: each is judged by itself, and the stack by its worst."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.checkpoint.templates import spans
from workbench.weights.checks import check
from workbench.weights.context import Context
from workbench.weights.matrices import by_looking
from workbench.weights.records import Judgement, Measure

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = Callable[[int, int], Floats]

# The worst first. A constant matrix passes nothing on, so it is worse than one that cannot be told.
_ORDER = ("invalid", "at_init", "constant", "undecided", "trained")


def judge_stack(measure: Measure, rows: Rows, context: Context) -> Judgement:
    """Return the worst verdict among the matrices of a stack, with those that have it named.

    Parameters
    ----------
    measure
        Of the whole stack, shape ``[experts, m, n]``.
    rows
        Reads experts, start to stop, as float32 ``[experts, m n]``.
    context
        What the config says.

    Returns
    -------
    Judgement
    """
    count = measure.shape[0]
    found = [_judge_one(measure, rows(at, at + 1), context) for at in range(count)]
    verdict = min((one.verdict for one in found), key=_ORDER.index)
    bad = [at for at, one in enumerate(found) if one.verdict == verdict]
    first = found[bad[0]]
    counts = tuple(
        (f"experts_{name}", float(sum(one.verdict == name for one in found))) for name in _ORDER
    )
    if len(bad) == count:
        reason = f"each of its {count:,} matrices: {first.reason}"
    else:
        few = f"matrices {spans(bad)}" if len(bad) > 1 else f"matrix {bad[0]}"
        reason = f"{few} of {count:,} (counted from 0): {first.reason}"
    others = [one.verdict for one in found if one.verdict != verdict]
    contrast = tuple(
        f"{others.count(name):,} of its {count:,} matrices look {_WORDS[name]}"
        for name in _ORDER
        if verdict != "trained" and name in others
    )
    return dataclasses.replace(
        first,
        reason=reason,
        corroboration=(*first.corroboration, *contrast),
        statistics=(*counts, *first.statistics),
    )


_WORDS = {
    "invalid": "invalid", "at_init": "like an init", "constant": "constant", "undecided": "like either",
    "trained": "trained",
}  # fmt: skip


def _judge_one(stack: Measure, values: Floats, context: Context) -> Judgement:
    _, m, n = stack.shape
    matrix = np.asarray(values, dtype=np.float32).reshape(m, n)
    measure = _measured(stack, matrix)
    return check(measure) or by_looking(measure, lambda start, stop: matrix[start:stop], context)


def _measured(stack: Measure, matrix: Floats) -> Measure:
    """Return the moments of one matrix, in the place of those of the stack."""
    good = matrix[np.isfinite(matrix)].astype(np.float64)
    mean, std = (float(good.mean()), float(good.std())) if good.size else (0.0, 0.0)
    fourth = float(np.mean(((good - mean) / std) ** 4)) - 3 if std else 0.0
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 0.0)
    magnitude = np.abs(good[good != 0])
    outside = int(((magnitude < 2.0**-40) | (magnitude > 2.0**20)).sum())
    return dataclasses.replace(
        stack,
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
        ks=None,
    )
