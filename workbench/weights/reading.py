"""What is read of a weight: all of it in blocks, or rows spread over it."""

from __future__ import annotations

import dataclasses
from math import ceil, prod
from numbers import Integral
from zlib import crc32

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeight, matrix_shape
from workbench.errors import WorkbenchError, shown

# Values a block, 8 MiB of 16-bit codes: between blocks a core does something else, and finds cold caches.
BLOCK = 1 << 22
# Values a piece: what one thread takes of a large tensor at a time.
PIECE = 8 * BLOCK
# Sums of more rows or columns than this are not kept.
MOST_SUMS = 1 << 24
# Sampled rows lie in this many runs, spread over the tensor.
RUNS = 32
# Fewer rows say too little (docs/weights.md).
FEWEST_ROWS = 64

Span = tuple[
    int, int, int
]  # first value, end, and where the span lies among the values that are read


@dataclasses.dataclass(frozen=True)
class Reading:
    """What is read of one weight.

    Attributes
    ----------
    rows, width
        The matrix that is seen: of a sample the rows that are read; `width` 0 for a vector, and where
        the sums would not fit.
    pieces
        Spans of values, in pieces for one thread each.
    seen, count
        How many values are read, and how many there are.
    """

    rows: int
    width: int
    pieces: tuple[tuple[Span, ...], ...]
    seen: int
    count: int


def check_sample(sample: float | None) -> None:
    """Refuse what is neither a share nor a number of rows."""
    whole = isinstance(sample, Integral) and not isinstance(sample, bool)  # numpy's, too
    if sample is None or (whole and sample > 0):
        return
    if not isinstance(sample, float) or not 0 < sample <= 1:
        raise WorkbenchError(
            f"sample={shown(sample)} is neither a share nor a number of rows",
            next_step="Give sample=0.05 for a twentieth of the rows of every tensor, or sample=128 for 128.",
        )


def plan_reading(
    weight: LogicalWeight, sample: float | None = None, stack: bool = False
) -> Reading:
    """Return what to read of a weight.

    Parameters
    ----------
    weight
        The weight.
    sample
        A share of its rows (float), or so many rows; at least `FEWEST_ROWS`, in runs spread over it. Vectors
        are read whole.
    stack
        Whether three dimensions are a stack of matrices, whose rows are the last dimension.
    """
    shape = weight.shape
    count = prod(shape)
    rows, width = matrix_shape(shape)
    if stack:
        rows, width = prod(shape[:-1]), shape[-1]
    runs = [(0, rows)]
    if sample is not None and len(shape) > 1 and count:
        runs = _spread(rows, sample, weight.name)
    step = BLOCK
    if weight.layout and shape:  # whole lines at a time
        step = max(1, BLOCK // max(shape[-1], 1)) * shape[-1]
    elif 1 < width < BLOCK:
        step = BLOCK // width * width
    pieces: list[tuple[Span, ...]] = []
    spans: list[Span] = []
    at = held = 0
    for start, stop in runs:
        for first in range(start * width, stop * width, step or 1):
            last = min(first + step, stop * width)
            spans.append((first, last, at))
            at += last - first
            held += last - first
            if held >= PIECE:
                pieces.append(tuple(spans))
                spans, held = [], 0
    if spans or not pieces:
        pieces.append(tuple(spans))
    taken = sum(stop - start for start, stop in runs)
    vector = sum(size > 1 for size in shape) < 2
    return Reading(
        rows=taken,
        width=0 if vector or max(width, taken) > MOST_SUMS else width,
        pieces=tuple(pieces),
        seen=at,
        count=count,
    )


def _spread(rows: int, sample: float, name: str) -> list[tuple[int, int]]:
    """Return runs of rows, one at a random place in each of equal parts; the same for the same name."""
    wanted = ceil(sample * rows) if isinstance(sample, float) else int(sample)
    wanted = min(rows, max(wanted, FEWEST_ROWS))
    runs = min(RUNS, wanted)
    if wanted == rows:
        return [(0, rows)]
    random = np.random.default_rng(crc32(name.encode("utf-8", "surrogatepass")))
    parts = np.linspace(0, rows, runs + 1).astype(np.int64)
    lengths = np.diff(np.linspace(0, wanted, runs + 1).astype(np.int64))
    found = []
    for begin, end, length in zip(parts, parts[1:], lengths, strict=False):
        first = int(random.integers(begin, max(begin, end - length) + 1))
        found.append((first, min(first + int(length), int(end))))
    return found
