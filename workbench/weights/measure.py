"""One pass over a weight: blocks are taken in any order by any thread, and added up to a `Measure`."""

from __future__ import annotations

import threading
from hashlib import blake2b
from math import inf, isnan, nan, prod
from typing import Any

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeight
from workbench.checkpoint.number import table_of
from workbench.weights import kernels
from workbench.weights.reading import Reading, Span, plan_reading
from workbench.weights.records import QUANTILES, Measure

Array = np.ndarray[Any, Any]

# Of tensors of so many values the quantiles are taken from the values.
KEPT = 1 << 16
_COUNTED = frozenset({"BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"})


class _Scratch(threading.local):
    """What a thread works in: the tables of counts."""

    def __init__(self) -> None:
        self.table = np.zeros(kernels.TABLES * kernels.STRIDE, np.uint32)


_SCRATCH = _Scratch()
_NO_VALUES = np.empty(0, np.float32)


class Tally:
    """What is added up over the blocks of a weight, or of a piece of it."""

    def __init__(
        self, kind: str, width: int, first_row: int = 0, rows: int = 0, keep: bool = False
    ) -> None:
        self.kind = kind  # a counted type, or the type that is summed as float32 or float64
        self.width, self.first_row = width, first_row
        self.counts = np.zeros(kernels.CODES, np.int64)
        self.rows = np.zeros(rows + 9 if width else 1)
        self.columns = np.zeros(width or 1)
        self.moments = (0, 0.0, 0.0, 0.0, 0.0)  # number, mean, and sums of the central powers
        self.zeros = self.exact = 0
        self.joined = False
        self.least, self.greatest = inf, -inf
        self.hashes: dict[int, int] = {}
        self.keep = keep and not self.counted
        self.kept: dict[int, Array] = {}  # the values themselves where they are few
        self._columns32 = np.full(width or 1, kernels.LEAST)

    @property
    def counted(self) -> bool:
        """Whether all follows from the counts."""
        return self.kind in _COUNTED

    def take(self, units: Array, at: int) -> None:
        """Add a block: stored units of a plain weight, or float32.

        `at` is where it lies among the values that are read.
        """
        if units.size == 0:
            return
        if self.keep:
            with np.errstate(invalid="ignore"):  # a signalling NaN
                self.kept[at] = units.astype(np.float64)
        if self.counted:
            self._take_codes(units.view(f"u{units.itemsize}"), at)
        elif units.dtype == np.float32:
            self._take_floats(units, at)
        else:
            self._take_others(units, at)
        if self.width:
            self.columns += self._columns32
            self._columns32[:] = kernels.LEAST

    def _whole(self, units: Array) -> tuple[Array, Array]:
        """Return the part that is whole 64-bit words, and the rest."""
        per = 8 // units.itemsize
        end = units.size // per * per
        return np.ascontiguousarray(units[:end]), units[end:]

    def _take_codes(self, units: Array, at: int) -> None:
        body, tail = self._whole(units)
        state = self._pass_codes(body, at, self.width, np.uint64(at))
        if tail.size:
            padded = np.zeros(8 // units.itemsize, units.dtype)
            padded[: tail.size] = tail
            state = self._pass_codes(padded, 0, 0, np.uint64(state))
            self.counts[0] -= padded.size - tail.size
            values = _values(tail, self.kind)
            self._squares(values, at + body.size)
        self.hashes[at] = int(state)

    def digest(self, codes: Array, at: int) -> None:
        """Hash a block of codes that is counted elsewhere, as `take` does."""
        body, tail = self._whole(codes)
        state = kernels.digest(body.view(np.uint64), kernels.KEYS, np.uint64(at))
        if tail.size:
            padded = np.zeros(8 // codes.itemsize, codes.dtype)
            padded[: tail.size] = tail
            state = kernels.digest(padded.view(np.uint64), kernels.KEYS, np.uint64(state))
        self.hashes[at] = int(state)

    def _pass_codes(self, codes: Array, at: int, width: int, state: Any) -> Any:
        table = _SCRATCH.table
        place = at - self.first_row * width
        rest = (place, width, table, self.rows, self._columns32, kernels.KEYS, state)
        values = _NO_VALUES
        if codes.itemsize == 1:
            values = table_of(self.kind).astype(np.float32)
        elif self.kind == "F16":
            codes = codes.view(np.int16)
        return kernels.pass_codes(codes, values, *rest)

    def _squares(self, values: Array, at: int) -> None:
        """Add the squares of a few values."""
        for place, value in enumerate(values.tolist() if self.width else (), at):
            row, column = divmod(place, self.width)
            square = min(value * value, 3e38)
            self.rows[row - self.first_row] += square
            self._columns32[column] += square

    def _take_floats(self, values: Array, at: int) -> None:
        pivot = _pivot(values)
        sums = _sums()
        body, tail = self._whole(values)
        place = at - self.first_row * self.width
        rest = (_SCRATCH.table, self.rows, self._columns32, kernels.KEYS)
        state = kernels.pass32(body, pivot, place, self.width, *rest, np.uint64(at), sums)
        if tail.size:  # the pivot is one of the values, and its differences are zero
            padded = np.array([tail[0], pivot], np.float32)
            state = kernels.pass32(padded, pivot, 0, 0, *rest, np.uint64(state), sums)
            self.counts[np.float32(pivot).view(np.uint32) >> 16] -= 1
            sums[4] -= pivot == 0
            sums[5] -= _is_exact(pivot)
            self._squares(tail.astype(np.float64), at + body.size)
        self.hashes[at] = int(state)
        self._add(sums, values.size, pivot)

    def _take_others(self, units: Array, at: int) -> None:
        """Take float64 and whole numbers: moments in float64, all else by their float32."""
        with np.errstate(invalid="ignore"):
            values = units.astype(np.float64)
        limit = float(np.finfo(np.float32).max)
        finite = np.isfinite(values)
        narrow = np.where(finite, np.clip(values, -limit, limit), values).astype(np.float32)
        pivot = _pivot(narrow)
        body, tail = self._whole(narrow)
        place = at - self.first_row * self.width
        rest = (_SCRATCH.table, self.rows, self._columns32, kernels.KEYS, np.uint64(0), _sums())
        kernels.pass32(body, pivot, place, self.width, *rest)
        if tail.size:
            self.counts[tail.view(np.uint32)[0] >> 16] += 1
            self._squares(tail.astype(np.float64), at + body.size)
        sums = _sums()
        kernels.pass64(values, pivot, sums)
        self.joined = True
        if self.kind == "F64":
            with np.errstate(over="ignore"):
                halves = values.astype(np.float16).astype(np.float64)
            sums[5] = np.count_nonzero((halves == values) & finite)
        padded = np.zeros(-(-units.nbytes // 8) * 8, np.uint8)
        padded[: units.nbytes] = units.view(np.uint8)
        self.hashes[at] = int(kernels.digest(padded.view(np.uint64), kernels.KEYS, np.uint64(at)))
        self._add(sums, values.size, pivot)

    def _add(self, sums: Array, size: int, pivot: float) -> None:
        one, two, three, four, zeros, exact, bad, joined, least, greatest = sums.tolist()
        number = size - int(bad)
        self.moments = _joined(self.moments, _central(number, pivot, one, two, three, four))
        self.zeros += int(zeros)
        self.exact += int(exact)
        self.joined = self.joined or bool(joined)
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)

    def settle(self) -> Tally:
        """Move the thread's counts to this tally, once its blocks are taken."""
        if self.kind.startswith("F8"):
            pairs = np.zeros(kernels.CODES, np.int64)
            kernels.settle(_SCRATCH.table, pairs)
            square = pairs.reshape(256, 256)
            self.counts[:256] += square.sum(0) + square.sum(1)
        else:
            kernels.settle(_SCRATCH.table, self.counts)
        return self

    def add(self, other: Tally) -> None:
        """Add the tally of another piece of the same weight."""
        self.counts += other.counts
        if self.width:
            first = other.first_row - self.first_row
            end = min(first + len(other.rows), len(self.rows))
            self.rows[first:end] += other.rows[: end - first]
            self.columns += other.columns
        self.moments = _joined(self.moments, other.moments)
        self.zeros += other.zeros
        self.exact += other.exact
        self.joined = self.joined or other.joined
        self.least = min(self.least, other.least)
        self.greatest = max(self.greatest, other.greatest)
        self.hashes |= other.hashes
        self.kept |= other.kept


def _sums() -> Array:
    sums = np.zeros(kernels.SUMS)
    sums[8:] = inf, -inf
    return sums


def _pivot(values: Array) -> float:
    """Return a finite value out of the middle of a block, 0 where none is finite."""
    some = values[:4095]
    some = some[np.isfinite(some)]
    if some.size == 0:
        some = values[np.isfinite(values)][:1]
    return float(np.partition(some, some.size // 2)[some.size // 2]) if some.size else 0.0


def _is_exact(value: float) -> bool:
    return abs(value) <= 65504 and float(np.float16(value)) == value


def _values(codes: Array, kind: str) -> Array:
    if codes.itemsize == 1:
        return table_of(kind)[codes].astype(np.float64)
    if kind == "F16":
        return codes.view(np.float16).astype(np.float64)
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


Moments = tuple[int, float, float, float, float]


def _central(
    number: int, pivot: float, one: float, two: float, three: float, four: float
) -> Moments:
    """Return moments about the mean from sums of powers about a pivot."""
    if not number:
        return 0, 0.0, 0.0, 0.0, 0.0
    d = one / number
    second = two - number * d * d
    third = three - 3 * d * two + 2 * number * d * d * d
    fourth = four - 4 * d * three + 6 * d * d * two - 3 * number * d * d * d * d
    return number, pivot + d, _power(second), third, _power(fourth)


def _power(total: float) -> float:
    """Return a sum of even powers: at least zero, and infinite where float64 could not hold it."""
    return inf if isnan(total) else max(total, 0.0)


def _joined(a: Moments, b: Moments) -> Moments:
    """Return the moments of both parts (Pébay 2008, SAND2008-6212)."""
    na, mean_a, a2, a3, a4 = a
    nb, mean_b, b2, b3, b4 = b
    if not na or not nb:
        return a if na else b
    n, d = na + nb, mean_b - mean_a
    square = d * d  # no ** : it raises where a product is infinite
    second = a2 + b2 + square * na * nb / n
    third = a3 + b3 + square * d * na * nb * (na - nb) / n**2 + 3 * d * (na * b2 - nb * a2) / n
    fourth = (
        a4 + b4 + square * square * na * nb * (na * na - na * nb + nb * nb) / n**3
        + 6 * square * (na * na * b2 + nb * nb * a2) / n**2 + 4 * d * (na * b3 - nb * a3) / n
    )  # fmt: skip
    return n, mean_a + d * nb / n, _power(second), third, _power(fourth)


def kind_of(weight: LogicalWeight) -> str:
    """Return how a weight is tallied: a counted type, ``F32`` for what is dequantised, or its own type."""
    return "dequantised" if weight.layout else weight.dtype


def take_piece(weight: LogicalWeight, reading: Reading, piece: int) -> Tally:
    """Read one piece of a weight and tally it."""
    spans = reading.pieces[piece]
    width = reading.width
    first_row, rows = rows_of(spans, width)
    tally = Tally(kind_of(weight), width, first_row, rows, keep=reading.seen <= KEPT)
    try:
        for first, end, at in spans:
            tally.take(_read(weight, first, end), at)
    except BaseException:
        _SCRATCH.table[:] = 0  # what was counted belongs to nothing
        raise
    return tally.settle()


def rows_of(spans: tuple[Span, ...], width: int) -> tuple[int, int]:
    """Return the first row that a piece has values of, and how many rows."""
    if not width or not spans:
        return 0, 0
    first_row = spans[0][2] // width
    first, end, at = spans[-1]
    return first_row, -(-(at + end - first) // width) - first_row


def _read(weight: LogicalWeight, first: int, end: int) -> Array:
    if not weight.layout:
        return weight.units(first, end)
    columns = weight.shape[-1]
    return weight.lines(first // columns, end // columns).reshape(-1)


def measure(weight: LogicalWeight, *, sample: float | None = None, stack: bool = False) -> Measure:
    """Measure one weight in the calling thread.

    Parameters
    ----------
    weight
        One of `logical_weights`.
    sample, stack
        As in `plan_reading`.

    Returns
    -------
    Measure

    Raises
    ------
    CheckpointError
        Its values cannot be read (`LogicalWeight.flaw`), or its file cannot be read.
    """
    reading = plan_reading(weight, sample, stack)
    tallies = [take_piece(weight, reading, piece) for piece in range(len(reading.pieces))]
    return measured(weight, reading, joined(tallies, reading, kind_of(weight)))


def joined(tallies: list[Tally], reading: Reading, kind: str) -> Tally:
    """Return one tally of all pieces."""
    if len(tallies) == 1:
        return tallies[0]
    whole = Tally(kind, reading.width, 0, reading.rows)
    for tally in tallies:
        whole.add(tally)
    return whole


def unmeasured(weight: LogicalWeight) -> Measure:
    """Return the measure of a weight whose values cannot be told: nothing but what the header says."""
    return Measure(
        name=weight.name, shape=weight.shape, dtype=weight.dtype, layout=weight.layout,
        count=prod(weight.shape), seen=0, mean=nan, std=nan, min=nan, max=nan, absmax=nan, zeros=0, nan=0,
        inf=0, denormal=0, skew=nan, kurtosis=nan, quantiles=(nan,) * len(QUANTILES),
    )  # fmt: skip


def measured(weight: LogicalWeight, reading: Reading, tally: Tally) -> Measure:
    """Return what the counts and sums of a weight say."""
    from workbench.weights.figures import figures

    found = figures(tally, reading.rows)
    whole = reading.seen == reading.count and bool(reading.count)
    return Measure(
        name=weight.name,
        shape=weight.shape,
        dtype=weight.dtype,
        layout=weight.layout,
        count=reading.count,
        seen=reading.seen,
        digest=_digest(weight, tally) if whole else "",
        **found,
    )


def _digest(weight: LogicalWeight, tally: Tally) -> str:
    """Return a digest of shape, type, values and counts: equal for equal tensors. It resists no attack."""
    made = blake2b(digest_size=16)
    made.update(f"{list(weight.shape)} {weight.dtype} {weight.layout}".encode())
    made.update(np.array([tally.hashes[at] for at in sorted(tally.hashes)], np.uint64).tobytes())
    counted = kernels.digest(tally.counts.view(np.uint64), kernels.KEYS, np.uint64(0))
    made.update(int(counted).to_bytes(8, "little"))
    return made.hexdigest()
