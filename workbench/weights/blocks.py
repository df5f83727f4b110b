"""Where in a trained matrix something is still at random initialisation: blocks of rows and of columns.

The strongest structure of a whole hides a block without any: a third of an `fc`, new rows of a vocabulary,
the half of a head. Blocks are screened by the squared cosines between their rows (columns), and those
that show nothing get the full spectrum. They are only reported where the others are far from noise:
otherwise a block has too few values to say anything.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from workbench.weights.context import Context
from workbench.weights.families import fit, is_rounded
from workbench.weights.moments import moments
from workbench.weights.records import Axis, Family, JudgedPart, Judgement, Measure
from workbench.weights.spectrum import spectrum
from workbench.weights.structure import AT_INIT, TRAINED, evidence, slack

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = Callable[[int, int], Floats]

# Rows or columns of a block: half of it where a side has few.
_BLOCK, _FEW = 128, 512
# Values across that the screen looks at, and those that the full look may take.
_ACROSS, _BUDGET = 512, 1 << 19
# How far from noise the other blocks must be on the whole.
_CONTRAST = 2 * TRAINED
# Rows that are read at a time.
_STEP = 4096
# Rows of a vocabulary that no text uses stay as they were made: that many prove no fault.
_VOCABULARY = re.compile(r"(^|\.)(embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|embed_out|lm_head|"
                         r"embeddings?|shared|output)\.weight$")  # fmt: skip
_RESERVED = 1 / 8
_GATED = re.compile(r"gate_up|gate_and_up|w13")


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Rows or columns `start` to `stop`, and how much structure they show."""

    axis: Axis
    start: int
    stop: int
    structure: float
    family: Family = ""


def judge_blocks(whole: Judgement, measure: Measure, rows: Rows, context: Context) -> Judgement:
    """Return the verdict on a matrix that looks trained as a whole, with its blocks that do not.

    Parameters
    ----------
    whole
        What is concluded of all of it.
    measure, rows, context
        As in `workbench.weights.verdict.judge`.

    Returns
    -------
    Judgement
        `whole` where all blocks look alike. Else with `parts`, and as `at_init`; rows of a vocabulary
        leave it `trained` where they are few, and make it `undecided` where they are many.
    """
    if whole.verdict != "trained" or whole.parts or measure.seen < measure.count:
        return whole
    m, n = measure.shape[0], measure.count // max(measure.shape[0], 1)
    bad = [*_of_rows(measure, rows, m, n), *_of_columns(measure, rows, m, n)]
    every_second = list(_interleaved(measure, rows, m, n)) if not bad else []
    if not bad and not every_second:
        return whole
    parts = tuple(JudgedPart(axis, start, stop, "at_init") for axis, start, stop in _merged(bad))
    parts += tuple(
        JudgedPart("rows", one.start, one.stop, "at_init", "interleaved projection")
        for one in every_second
    )
    bad += every_second
    said = " and ".join(part.text() for part in parts[:3])
    more = f" and {len(parts) - 3:,} more parts" if len(parts) > 3 else ""
    text = f"{said}{more} of {m:,} × {n:,} are indistinguishable from random initialisation"
    rest = f"the rest looks trained: {whole.reason}"
    share = sum(part.stop - part.start for part in parts if part.axis == "rows") / m
    is_vocabulary = _VOCABULARY.search(measure.name) is not None
    if is_vocabulary and all(part.axis == "rows" for part in parts):
        text += "; rows of tokens that the training data does not use stay like this"
        if share < _RESERVED:
            return dataclasses.replace(
                whole, corroboration=(*whole.corroboration, text), parts=parts
            )
        return dataclasses.replace(
            whole, verdict="undecided", reason=text, corroboration=(rest,), parts=parts
        )
    return dataclasses.replace(
        whole,
        verdict="at_init",
        reason=text,
        family=bad[0].family,
        corroboration=(*whole.corroboration, rest),
        statistics=(("part", 1.0), *whole.statistics),
        stage=2,
        parts=parts,
    )


def _size(side: int) -> int:
    return _BLOCK if side >= _FEW else _BLOCK // 2


def _of_rows(measure: Measure, rows: Rows, m: int, n: int) -> Iterator[Block]:
    """Yield blocks of rows without structure among blocks that have much."""
    size = _size(m)
    if m < 2 * size or n < size:
        return
    columns = np.unique(np.linspace(0, n - 1, min(n, _ACROSS)).astype(np.int64))
    found: list[Block] = []
    starts = _starts(m, size)
    for first in range(0, len(starts), _STEP // size):
        some = starts[first : first + _STEP // size]
        values = rows(some[0], some[-1] + size)
        if n > len(columns):
            values = values[:, columns]
        at = [start - some[0] for start in some]
        stack = np.stack([values[start : start + size] for start in at])
        for start, structure in zip(some, _screen(stack), strict=True):
            found.append(Block("rows", start, start + size, structure))
    for block in _suspects(found):
        values = rows(block.start, block.stop)
        yield from _noise(measure, values, block)


def _of_columns(measure: Measure, rows: Rows, m: int, n: int) -> Iterator[Block]:
    """Yield blocks of columns without structure among blocks that have much."""
    size = _size(n)
    if n < 2 * size or m < size:
        return
    values = _some_rows(rows, m, min(m, _ACROSS))
    starts = _starts(n, size)
    turned = np.ascontiguousarray(values.T)
    stack = np.stack([turned[start : start + size] for start in starts])
    found = [
        Block("columns", start, start + size, structure)
        for start, structure in zip(starts, _screen(stack), strict=True)
    ]
    suspects = _suspects(found)
    more = _some_rows(rows, m, min(m, _BUDGET // size)) if suspects and m > _ACROSS else values
    for block in suspects:
        across = np.ascontiguousarray(more[:, block.start : block.stop].T)
        yield from _noise(measure, across, block)


def _interleaved(measure: Measure, rows: Rows, m: int, n: int) -> Iterator[Block]:
    """Yield the even or the odd rows, where gate and up projection alternate and one was never trained."""
    if not _GATED.search(measure.name) or m % 2 or m < 2 * _BLOCK or n < _BLOCK // 2:
        return
    values = rows(0, min(m, 2 * _ACROSS))[:, : max(_BUDGET // _ACROSS, 64)]
    halves = [np.ascontiguousarray(values[first::2]) for first in (0, 1)]
    seen = _screen(np.stack(halves))
    for first, other in ((0, 1), (1, 0)):
        if abs(seen[first]) < TRAINED and seen[other] > _CONTRAST:
            yield from _noise(measure, halves[first], Block("rows", first, m, seen[first]))


def _starts(side: int, size: int) -> list[int]:
    """Return where blocks begin; the last one ends with the side."""
    starts = list(range(0, side - size + 1, size))
    if side % size:
        starts.append(side - size)
    return starts


def _some_rows(rows: Rows, m: int, wanted: int) -> Floats:
    """Return rows spread over a matrix, in runs."""
    if wanted >= m:
        return rows(0, m)
    run = max(wanted // 32, 1)
    starts = np.linspace(0, m - run, wanted // run).astype(np.int64)
    return np.concatenate([rows(int(start), int(start) + run) for start in starts])


def _screen(stack: Floats) -> list[float]:
    """Return the z value of the squared cosines between the rows of each block."""
    a, n = stack.shape[1:]
    stack = np.asarray(stack - stack.mean(axis=(1, 2), keepdims=True), dtype=np.float32)
    # Scales of columns first: one that is loud alone makes all rows alike.
    for axis in (1, 2, 1, 2):
        power = np.sqrt(np.square(stack).mean(axis=axis, keepdims=True))
        stack /= np.where(power > 0, power, np.float32(1))
    gram = stack @ stack.transpose(0, 2, 1)
    own = np.einsum("bii->bi", gram)
    total = np.square(gram).sum(axis=(1, 2)) - np.square(own).sum(axis=1)
    cosines = total / (a * (a - 1) * n**2)
    fourth = np.square(np.square(stack)).mean(axis=(1, 2))
    return list(((n * cosines - (a - fourth) / (a - 1)) * a / 2).tolist())


def _suspects(blocks: list[Block]) -> list[Block]:
    """Return the blocks that the screen saw nothing in, where most of the others are far from noise."""
    quiet = [block for block in blocks if abs(block.structure) < TRAINED]
    loud = [block.structure for block in blocks if block.structure >= TRAINED]
    if not loud or not quiet or np.median(loud) < _CONTRAST:
        return []
    return quiet


def _noise(measure: Measure, values: Floats, block: Block) -> Iterator[Block]:
    """Yield a block that is indistinguishable from an init by all statistics, with the family of that."""
    if not np.isfinite(values).all() or not values.any():
        return
    values = values[:, : max(_BUDGET // len(values), 64)]
    seen = spectrum(values, slack(measure))
    if evidence(seen, is_rounded(measure)).verdict != "none" or seen.empty_rows > len(values) // 8:
        return
    law = fit(moments(measure, values))
    if max(seen.row_scale, seen.column_scale) < AT_INIT and law.fits:
        yield dataclasses.replace(block, family=law.law.family)


def _merged(blocks: list[Block]) -> Iterator[tuple[Axis, int, int]]:
    """Yield ranges: blocks that touch or overlap are one."""
    at: tuple[Axis, int, int] | None = None
    for block in blocks:
        if at and at[0] == block.axis and block.start <= at[2]:
            at = (at[0], at[1], max(at[2], block.stop))
        else:
            if at:
                yield at
            at = (block.axis, block.start, block.stop)
    if at:
        yield at
