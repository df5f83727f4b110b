"""Several projections in one matrix: a part that was never trained hides behind the trained ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.weights.checks import check
from workbench.weights.context import Context
from workbench.weights.matrices import by_looking, sample
from workbench.weights.moments import moments
from workbench.weights.parts import Part
from workbench.weights.records import Axis, JudgedPart, Judgement, Measure
from workbench.weights.structure import SMALLEST_SIDE, SMALLEST_SIZE

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = Callable[[int, int], Floats]

# Values of a part that its moments are taken from.
_MOMENTS = 1 << 20
_WORSE = ("constant", "at_init")
_AXES: tuple[Axis, Axis] = ("rows", "columns")


def judge_parts(whole: Judgement, measure: Measure, rows: Rows, context: Context) -> Judgement:
    """Return the verdict on a fused matrix that looks trained as a whole.

    Parameters
    ----------
    whole
        What is concluded of all of it.
    measure, rows, context
        As in `workbench.weights.verdict.judge`; ``context.parts`` says where the parts lie.

    Returns
    -------
    Judgement
        The worst part's, with that part named, where one is constant or looks like an init; else `whole`.
    """
    if whole.verdict != "trained" or len(measure.shape) != 2:
        return whole
    bad: list[tuple[Part, Judgement]] = []
    for part in context.parts:
        one = _judge_one(part, measure, rows, context)
        if one is not None and one.verdict in _WORSE:
            bad.append((part, one))
    if not bad or len(bad) == len(context.parts):
        return whole
    bad.sort(key=lambda pair: _WORSE.index(pair[1].verdict))
    part, first = bad[0]
    others = tuple(f"so does {_text(other)}: {one.reason}" for other, one in bad[1:])
    return dataclasses.replace(
        first,
        reason=f"{_text(part)} of {measure.shape[part.axis]:,}: {first.reason}",
        corroboration=(*first.corroboration, *others, f"the rest looks trained: {whole.reason}"),
        statistics=(("part", 1.0), *first.statistics),
        parts=tuple(
            JudgedPart(_AXES[part.axis], part.start, part.stop, one.verdict, part.name)
            for part, one in bad
        ),
    )


def _text(part: Part) -> str:
    return JudgedPart(_AXES[part.axis], part.start, part.stop, "at_init", part.name).text()


def _judge_one(part: Part, measure: Measure, rows: Rows, context: Context) -> Judgement | None:
    """Return the verdict on one part; None where it is too small for any."""
    size = part.stop - part.start
    m, n = (measure.shape[0], size) if part.axis else (size, measure.shape[1])
    if min(m, n) < SMALLEST_SIDE or m * n < SMALLEST_SIZE:
        return None

    def read(start: int, stop: int) -> Floats:
        if part.axis:
            return np.ascontiguousarray(rows(start, stop)[:, part.start : part.stop])
        return rows(part.start + start, part.start + stop)

    seen = moments(measure, sample(read, m, n, _MOMENTS))
    one = dataclasses.replace(seen, shape=(m, n), count=m * n)
    return check(one) or by_looking(one, read, context)
