"""Stacks of matrices, ``[experts, m, n]``: each is judged by itself, and the stack by its worst."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from workbench.checkpoint.templates import spans
from workbench.weights.blocks import judge_blocks
from workbench.weights.checks import check
from workbench.weights.context import Context
from workbench.weights.matrices import by_looking
from workbench.weights.moments import moments
from workbench.weights.records import JudgedPart, Judgement, Measure, Verdict

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = Callable[[int, int], Floats]

# The worst first. A constant matrix passes nothing on, so it is worse than one that cannot be told.
_SETS = 4  # of equal matrices that are named
_ORDER: tuple[Verdict, ...] = ("invalid", "at_init", "constant", "undecided", "trained")


def judge_stack(measure: Measure, rows: Rows, context: Context) -> Judgement:
    """Return the worst verdict among the matrices of a stack, with those that have it named.

    Parameters
    ----------
    measure
        Of the whole stack, shape ``[..., experts, m, n]``.
    rows
        Reads along the first dimension, start to stop, as float32.
    context
        What the config says.

    Returns
    -------
    Judgement
    """
    found: list[Judgement] = []
    copies: dict[bytes, list[int]] = defaultdict(list)
    for matrix in _matrices(measure.shape, rows):
        one = _judge_one(measure, matrix, context)
        if one.verdict not in ("constant", "invalid"):  # equal by nature
            copies[hashlib.blake2b(matrix.tobytes(), digest_size=16).digest()].append(len(found))
        found.append(one)
    count = len(found)
    equal = [at for at in copies.values() if len(at) > 1]
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
        counts += (("part", 1.0),)
    if equal:
        counts += (("experts_equal", float(sum(map(len, equal)))),)
    others = [one.verdict for one in found if one.verdict != verdict]
    contrast = tuple(
        f"{others.count(name):,} of its {count:,} matrices look {_WORDS[name]}"
        for name in _ORDER
        if verdict != "trained" and name in others
    )
    return dataclasses.replace(
        first,
        reason=reason,
        corroboration=(*first.corroboration, *contrast, *map(_same, equal[:_SETS])),
        statistics=(*counts, *first.statistics),
        parts=_parts(found, verdict),
    )


def _parts(found: list[Judgement], verdict: Verdict) -> tuple[JudgedPart, ...]:
    """Return runs of matrices that have the worst verdict, where others have a better one."""
    bad = [one.verdict == verdict for one in found]
    if verdict == "trained" or all(bad):
        return ()
    edges = np.flatnonzero(np.diff(np.array([False, *bad, False], dtype=np.int8))).tolist()
    return tuple(
        JudgedPart("matrices", start, stop, verdict)
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    )


_WORDS = {
    "invalid": "invalid", "at_init": "like an init", "constant": "constant", "undecided": "like either",
    "trained": "trained",
}  # fmt: skip


def _matrices(shape: tuple[int, ...], rows: Rows) -> Iterator[Floats]:
    m, n = shape[-2:]
    for at in range(shape[0]):
        values = np.asarray(rows(at, at + 1), dtype=np.float32)
        yield from values.reshape(-1, m, n)


def _same(at: list[int]) -> str:
    return f"matrices {spans(at)} are equal, value by value"


def _judge_one(stack: Measure, matrix: Floats, context: Context) -> Judgement:
    measure = moments(stack, matrix)

    def rows(start: int, stop: int) -> Floats:
        return matrix[start:stop]

    found = check(measure)
    return found or judge_blocks(by_looking(measure, rows, context), measure, rows, context)
