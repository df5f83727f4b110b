"""Compiled loops over the bytes of a tensor: one pass, no lock of Python, one core each.

A block of values goes through in tiles that stay in a core's nearest cache: counted and hashed while one is
there, and squared along rows and columns soon after. 16-bit values are counted code by code, so that
everything about single elements follows exactly from 65,536 counts; 8-bit ones likewise, two at a time; wider
ones are counted by their upper 16 bits, and their moments are summed beside it.

Counting is what takes the time: a store for each value, and a processor finishes one store a cycle. So the
rest is kept from adding to it. Memory is asked for ahead of the count, which looks too short a way ahead by
itself. Two tables take turns, so that equal values wait less for each other's stores (more would leave the
cache), and words that repeat are counted once a run. Four rows are squared at a time, so that the columns'
sums are stored for one row in four.
"""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from workbench.checkpoint.compiled import kernel

Array = np.ndarray[Any, Any]

CODES = 1 << 16
TABLES = 2
# From one table to the other. Were it a multiple of 4 KiB, a count would wait for the store to the same code
# in the other: processors compare the lower 12 bits of addresses first.
STRIDE = CODES + 272
# Codes that are looked at together, and how many that occur are few enough to be sorted.
BLOCK, FEW = 64, 1 << 11
# 64-bit words that one step of the digest takes: the key stays in the nearest cache.
STEP = 1024
# Bytes a tile: the nearest cache also holds the tables' used places and the key.
TILE = 8 * STEP
# 64-bit words a line of the cache, and how many bytes ahead of the count lines are asked for.
LINE = 8
AHEAD = 4096
# Sums of squares begin with the least normal float32, and `columns` should: a sum below it would cost a
# hundred times as much, and it is far less than what a dispersion is told of (`figures`).
LEAST = np.float32(2.0**-126)
# Four rows are squared together where they are no more values than this, and stay in the second cache.
NEAR = 1 << 18
# What `pass32` sums: about the pivot d, d2, d3, d4; zeros, exact in fp16, values that are not finite, and
# whether any lower half is in use; then least and greatest.
SUMS = 10


def _bitcast(to: Any) -> Any:
    def typed(context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FloatType() if to == types.float32 else ir.IntType(32)
            return builder.bitcast(arguments[0], kind)

        return to(types.uint32 if to == types.float32 else types.float32), generate

    return typed


_as_float = intrinsic(_bitcast(types.float32))
_as_bits = intrinsic(_bitcast(types.uint32))


def _half(context: Any, code: Any) -> Any:
    """Return an fp16 code's value. By the processor's own conversion subnormals cost nothing more."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = builder.bitcast(arguments[0], ir.HalfType())
        return builder.fpext(half, ir.FloatType())

    return types.float32(types.uint16), generate


def _fuse(context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z``, in one instruction where the processor has one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        float32 = ir.FloatType()
        shape = ir.FunctionType(float32, [float32] * 3)
        function = builder.module.declare_intrinsic("llvm.fmuladd", [float32], shape)
        return builder.call(function, arguments, fastmath=("reassoc", "contract", "nsz"))

    return types.float32(types.float32, types.float32, types.float32), generate


def _ask(context: Any, address: Any) -> Any:
    """Let the cache line at an address be fetched; an address that is nobody's does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], shape)
        to_read, second_cache, data = number(0), number(2), number(1)
        builder.call(prefetch, [place, to_read, second_cache, data])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


_of_half: Any = intrinsic(_half)
_fused: Any = intrinsic(_fuse)
_ask_for: Any = intrinsic(_ask)


def _keys() -> Array:
    """Return the digest's key: the outputs of SplitMix64 from zero, the same on every machine."""
    at = (np.arange(STEP, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    at = (at ^ (at >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    at = (at ^ (at >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return at ^ (at >> np.uint64(31))


KEYS = _keys()


@kernel()
def digest(words: Array, keys: Array, state: Any) -> Any:
    """Continue a 64-bit hash: products of the halves of keyed words, as in UMAC's NH."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for first in range(0, words.size, STEP):
        part = words[first : first + STEP]
        total = np.uint64(0)
        for j in range(part.size):
            mixed = part[j] ^ keys[j]
            total += (mixed & low) * (mixed >> half)
        state = (state ^ total) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state


@kernel()
def _add(word: Any, times: Any, wide: bool, table: Array) -> None:
    """Count the four 16-bit codes of a word, or the upper halves of its two 32-bit values."""
    code, other = np.uint64(0xFFFF), np.uint64(STRIDE)
    table[(word >> np.uint64(16)) & code] += times
    table[(word >> np.uint64(48)) + other] += times
    if not wide:
        table[word & code] += times
        table[((word >> np.uint64(32)) & code) + other] += times


@kernel()
def _count(words: Array, wide: bool, table: Array) -> None:
    """Count the codes of a tile, those of equal words in a row at once."""
    ahead, one = np.uint64(words.ctypes.data + AHEAD), np.uint32(1)
    before, run = words[0], np.uint32(0)
    lines = words.size // LINE
    for line in range(lines):
        _ask_for(ahead + np.uint64(8 * LINE * line))
        for i in range(LINE):
            word = words[np.uint64(LINE * line + i)]
            if word == before:
                run += one
            else:
                _add(before, run, wide, table)
                before, run = word, one
    _add(before, run, wide, table)
    for i in range(LINE * lines, words.size):
        _add(words[i], one, wide, table)


def _value(unit: Any, values: Array) -> Any:
    """Return what a stored unit stands for: uint16 is bf16, int16 fp16, and uint8 a place in `values`."""
    raise NotImplementedError  # compiled below, for each type


@overload(_value, strict=False)
def _value_of(unit: Any, values: Any) -> Any:
    return {
        types.uint16: lambda unit, values: _as_float(np.uint32(unit) << np.uint32(16)),
        types.int16: lambda unit, values: _of_half(np.uint16(unit)),
        types.float32: lambda unit, values: unit,
        types.uint8: lambda unit, values: values[unit],
    }[unit]


@kernel(fast=True)
def _squares(units: Array, values: Array, columns: Array) -> Any:
    """Add the squares to the columns' sums and return their own sum."""
    total = LEAST
    for j in range(units.size):
        x = _value(units[j], values)
        total = _fused(x, x, total)
        columns[j] = _fused(x, x, columns[j])
    return total


@kernel(fast=True)
def _squares_of_four(units: Array, values: Array, columns: Array, rows: Array) -> None:
    """Do that for four rows in a row."""
    width = columns.size
    first, second = units[:width], units[width : 2 * width]
    third, fourth = units[2 * width : 3 * width], units[3 * width :]
    a = b = c = d = LEAST
    for j in range(width):
        w, x = _value(first[j], values), _value(second[j], values)
        y, z = _value(third[j], values), _value(fourth[j], values)
        a, b, c, d = _fused(w, w, a), _fused(x, x, b), _fused(y, y, c), _fused(z, z, d)
        columns[j] = _fused(w, w, _fused(x, x, _fused(y, y, _fused(z, z, columns[j]))))
    rows[0] += a
    rows[1] += b
    rows[2] += c
    rows[3] += d


@kernel()
def _norms(
    units: Array, values: Array, done: int, end: int, at: int, width: int, rows: Array, columns: Array
) -> int:  # fmt: skip
    """Square what has come of a block, and return up to where: four rows wait until they are whole."""
    four = 4 * width
    while width and done < end:
        row, column = divmod(at + done, width)
        if column == 0 and four <= NEAR and done + four <= units.size:
            if done + four > end:
                break
            _squares_of_four(units[done : done + four], values, columns, rows[row : row + 4])
            done += four
        else:
            stop = min(end, done + width - column)
            sums = columns[column : column + stop - done]
            rows[row] += _squares(units[done:stop], values, sums)
            done = stop
    return done


@kernel()
def pass_codes(
    codes: Array, values: Array, at: int, width: int, table: Array, rows: Array, columns: Array,
    keys: Array, state: Any,
) -> Any:  # fmt: skip
    """Take a block of 8- or 16-bit codes.

    Parameters
    ----------
    codes
        Contiguous and whole 64-bit words: uint16 for bf16, int16 for fp16, uint8 for what is narrower.
    values
        float32, of each 8-bit code.
    at, width
        Where in a matrix of `width` columns the block begins, counted along its values from the row that
        ``rows[0]`` stands for; `width` 0: no sums of rows and columns.
    table
        uint32, the tables of counts: of codes of 16 bits, so of pairs of 8-bit ones.
    rows, columns
        float64 and float32: sums of squares, added to.
    keys, state
        Of the digest.

    Returns
    -------
    int
        The digest's new state.
    """
    tile, done = TILE // codes.itemsize, 0
    for first in range(0, codes.size, tile):
        words = codes[first : first + tile].view(np.uint64)
        _count(words, False, table)
        state = digest(words, keys, state)
        end = min(first + tile, codes.size)
        done = _norms(codes, values, done, end, at, width, rows, columns)
    return state


@kernel(fast=True)
def _powers(values: Array, pivot: float) -> tuple[float, float, float, float]:
    one = two = three = four = 0.0
    for j in range(values.size):
        d = np.float64(values[j]) - pivot
        square = d * d
        one += d
        two += square
        three += square * d
        four += square * square
    return one, two, three, four


@kernel(fast=True)
def _bits(values: Array) -> tuple[Any, Any, Any, Any]:
    """Return the largest magnitude as bits, all lower halves joined, zeros, and values exact in fp16."""
    largest = joined = np.uint32(0)
    zeros = exact = np.uint32(0)
    for j in range(values.size):
        bits: Any = _as_bits(values[j])
        magnitude = bits & np.uint32(0x7FFFFFFF)
        largest = max(largest, magnitude)
        joined |= bits
        zeros += np.uint32(magnitude == 0)
        # Exponents -14 .. 15 with ten bits behind the point; below them whole multiples of 2^-24.
        normal = (magnitude >= np.uint32(0x38800000)) & (magnitude < np.uint32(0x47800000))
        scaled = _as_float(magnitude) * np.float32(2.0**24)
        small = (magnitude < np.uint32(0x38800000)) & (scaled == np.floor(scaled))
        exact += np.uint32((normal & ((bits & np.uint32(0x1FFF)) == 0)) | small)
    return largest, joined, zeros, exact


@kernel()
def _extremes(values: Array) -> tuple[Any, Any]:
    """Return the least and the greatest of finite values, as whole numbers that are in the same order."""
    least, greatest = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for j in range(values.size):
        bits: Any = np.int32(_as_bits(values[j]))
        key = bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))
        least = min(least, key)
        greatest = max(greatest, key)
    return least, greatest


@kernel()
def _of_key(key: Any) -> Any:
    return _as_float(np.uint32(key ^ ((key >> np.int32(31)) & np.int32(0x7FFFFFFF))))


@kernel()
def _some_finite(values: Array, pivot: float, sums: Array) -> None:
    """Take a tile with values that are not finite, and leave those out."""
    for j in range(values.size):
        x = np.float64(values[j])
        if not np.isfinite(x):
            sums[6] += 1
            continue
        d = x - pivot
        sums[0] += d
        sums[1] += d * d
        sums[2] += d * d * d
        sums[3] += d * d * d * d
        sums[8] = min(sums[8], x)
        sums[9] = max(sums[9], x)


@kernel()
def pass32(
    values: Array, pivot: float, at: int, width: int, table: Array, rows: Array, columns: Array,
    keys: Array, state: Any, sums: Array,
) -> Any:  # fmt: skip
    """Take a block of float32 values, an even number of them.

    Parameters
    ----------
    values
        float32, contiguous.
    pivot
        A finite value near the mean: powers are summed about it, in float64.
    sums
        float64, `SUMS` of them, added to; ``sums[8:]`` begin as +Inf and -Inf.

    The others are those of `pass_codes`.
    """
    done = 0
    for first in range(0, values.size, TILE // 4):
        tile = values[first : first + TILE // 4]
        words = tile.view(np.uint64)
        _count(words, True, table)
        state = digest(words, keys, state)
        largest, joined, zeros, exact = _bits(tile)
        sums[4] += zeros
        sums[5] += exact
        if joined & np.uint32(0xFFFF):
            sums[7] = 1
        if largest < np.uint32(0x7F800000):
            one, two, three, four = _powers(tile, pivot)
            sums[0] += one
            sums[1] += two
            sums[2] += three
            sums[3] += four
            least, greatest = _extremes(tile)
            sums[8] = min(sums[8], _of_key(least))
            sums[9] = max(sums[9], _of_key(greatest))
        else:
            _some_finite(tile, pivot, sums)
        end = first + tile.size
        done = _norms(values, values, done, end, at, width, rows, columns)
    return state


@kernel()
def pass64(values: Array, pivot: float, sums: Array) -> None:
    """Sum powers, zeros and extremes of float64 values; `pass32` takes their float32 for all else."""
    for j in range(values.size):
        x = values[j]
        if not np.isfinite(x):
            sums[6] += 1
            continue
        d = x - pivot
        square = d * d
        sums[0] += d
        sums[1] += square
        sums[2] += square * d
        sums[3] += square * square
        sums[4] += x == 0
        sums[8] = min(sums[8], x)
        sums[9] = max(sums[9], x)


@kernel()
def settle(table: Array, counts: Array) -> None:
    """Add the tables to 64-bit counts and clear them; of a small tensor most of them is empty."""
    for first in range(0, CODES, BLOCK):
        for start in range(first, TABLES * STRIDE, STRIDE):
            some = np.uint32(0)
            for at in range(start, start + BLOCK):
                some |= table[at]
            if some:
                for at in range(BLOCK):
                    counts[first + at] += table[start + at]
                    table[start + at] = np.uint32(0)


@kernel()
def occupied(counts: Array, order: Array, place: Array, found: Array) -> int:
    """Write the places in `order` whose codes occur, and return how many there are.

    `place` is the inverse of `order`, -1 for codes that it leaves out. Few codes are found faster in the
    order that they lie in, and sorted then.
    """
    many = 0
    for first in range(0, place.size, BLOCK):
        some = np.int64(0)
        for at in range(first, first + BLOCK):
            some |= counts[at]
        if not some:
            continue
        for at in range(first, first + BLOCK):
            if counts[at] and place[at] >= 0:
                found[many] = place[at]
                many += 1
        if many > FEW:
            break
    if many <= FEW:
        found[:many].sort()
        return many
    many = 0
    for at in range(order.size):
        if counts[order[at]]:
            found[many] = at
            many += 1
    return many


@kernel()
def distances(
    lower: Array, upper: Array, counts: Array, total: int, mean: float, std: float
) -> tuple[float, float, float]:
    """Return the Kolmogorov-Smirnov distances to the normal, uniform and truncated normal of that spread.

    Values are known by cells (what rounds to one code, or shares its upper bits), so the two distribution
    functions are compared at the cells' edges.
    """
    normal = uniform = truncated = 0.0
    wide = sqrt(3.0) * std
    narrow = std / 0.8796256610342398  # of the normal that is cut at two of its deviations
    cut = erf(sqrt(2.0))
    below = 0
    for i in range(lower.size):
        for side in range(2):
            x = (lower[i] if side == 0 else upper[i]) - mean
            if side:
                below += counts[i]
            share = below / total
            normal = max(normal, abs(share - 0.5 * (1 + erf(x / (std * sqrt(2.0))))))
            uniform = max(uniform, abs(share - min(1.0, max(0.0, 0.5 + x / (2 * wide)))))
            at = erf(min(2.0, max(-2.0, x / narrow)) / sqrt(2.0)) / cut
            truncated = max(truncated, abs(share - 0.5 * (1 + at)))
    return normal, uniform, truncated
