"""Compiled loops over the bytes of a tensor: one pass, no lock of Python, one core each.

A block of values goes through in tiles that stay in a core's nearest cache: counted, squared along rows and
columns, and hashed while it is there. 16-bit values are counted code by code, so that everything about single
elements follows exactly from 65,536 counts; wider ones are counted by their upper 16 bits, and their moments
are summed beside it. Four tables take turns in counting: with one, a run of equal values waits for its own
last store.
"""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from workbench.checkpoint.compiled import kernel

Array = np.ndarray[Any, Any]

CODES = 1 << 16
TABLES = 4
# 64-bit words that one step of the digest takes: the key stays in the nearest cache.
STEP = 1024
# Values a tile: 32 KiB of 16-bit codes.
TILE = 1 << 14
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
def _count16(words: Array, table: Array) -> None:
    code, one = np.uint64(0xFFFF), np.uint32(1)
    second, third, fourth = np.uint64(1 << 16), np.uint64(2 << 16), np.uint64(3 << 16)
    for i in range(words.size):
        word = words[i]
        table[word & code] += one
        table[((word >> np.uint64(16)) & code) + second] += one
        table[((word >> np.uint64(32)) & code) + third] += one
        table[(word >> np.uint64(48)) + fourth] += one


@kernel()
def _count_upper(words: Array, table: Array) -> None:
    """Count the upper halves of 32-bit values, two a word."""
    code, one = np.uint64(0xFFFF), np.uint32(1)
    second, third, fourth = np.uint64(1 << 16), np.uint64(2 << 16), np.uint64(3 << 16)
    pairs = words.size // 2
    for i in range(pairs):
        word, after = words[2 * i], words[2 * i + 1]
        table[(word >> np.uint64(16)) & code] += one
        table[(word >> np.uint64(48)) + second] += one
        table[((after >> np.uint64(16)) & code) + third] += one
        table[(after >> np.uint64(48)) + fourth] += one
    if words.size % 2:
        word = words[words.size - 1]
        table[(word >> np.uint64(16)) & code] += one
        table[(word >> np.uint64(48)) + second] += one


@kernel()
def _count8(words: Array, table: Array) -> None:
    """Count 8-bit codes, eight a word; the tables are those of 16 bits, of which 256 places are used."""
    code, one = np.uint64(0xFF), np.uint32(1)
    second, third, fourth = np.uint64(1 << 16), np.uint64(2 << 16), np.uint64(3 << 16)
    for i in range(words.size):
        word = words[i]
        table[word & code] += one
        table[((word >> np.uint64(8)) & code) + second] += one
        table[((word >> np.uint64(16)) & code) + third] += one
        table[((word >> np.uint64(24)) & code) + fourth] += one
        table[((word >> np.uint64(32)) & code)] += one
        table[((word >> np.uint64(40)) & code) + second] += one
        table[((word >> np.uint64(48)) & code) + third] += one
        table[(word >> np.uint64(56)) + fourth] += one


@kernel(fast=True)
def _squares_bf16(codes: Array, columns: Array) -> Any:
    """Add the squares to the columns' sums and return their own sum."""
    total, shift = np.float32(0), np.uint32(16)
    for j in range(codes.size):
        x: Any = _as_float(np.uint32(codes[j]) << shift)
        x *= x
        total += x
        columns[j] += x
    return total


@kernel(fast=True)
def _squares_fp16(codes: Array, columns: Array) -> Any:
    total, shift = np.float32(0), np.uint32(13)
    for j in range(codes.size):
        # The exponent is 112 too small, and multiplying puts that right for subnormal values as well.
        x = _as_float((np.uint32(codes[j]) & np.uint32(0x7FFF)) << shift) * np.float32(2.0**112)
        x *= x
        total += x
        columns[j] += x
    return total


@kernel(fast=True)
def _squares_fp8(codes: Array, columns: Array, squares: Array) -> Any:
    total = np.float32(0)
    for j in range(codes.size):
        x = squares[codes[j]]
        total += x
        columns[j] += x
    return total


@kernel(fast=True)
def _squares_fp32(values: Array, columns: Array) -> Any:
    total = np.float32(0)
    for j in range(values.size):
        x = values[j] * values[j]
        total += x
        columns[j] += x
    return total


@kernel()
def pass16(
    codes: Array, half: bool, at: int, width: int, table: Array, rows: Array, columns: Array, keys: Array,
    state: Any,
) -> Any:  # fmt: skip
    """Take a block of 16-bit codes.

    Parameters
    ----------
    codes
        uint16, contiguous; a multiple of four, so that they are 64-bit words too.
    half
        Whether they are fp16 (else bf16).
    at, width
        Where in a matrix of `width` columns the block begins, counted along its values from the row that
        ``rows[0]`` stands for; `width` 0: no sums of rows and columns.
    table
        uint32, four tables of counts.
    rows, columns
        float64 and float32: sums of squares, added to.
    keys, state
        Of the digest.

    Returns
    -------
    int
        The digest's new state.
    """
    for first in range(0, codes.size, TILE):
        tile = codes[first : first + TILE]
        words = tile.view(np.uint64)
        _count16(words, table)
        state = digest(words, keys, state)
        done = 0
        while width and done < tile.size:
            row, column = divmod(at + first + done, width)
            stop = min(tile.size, done + width - column)
            part, sums = tile[done:stop], columns[column : column + stop - done]
            rows[row] += _squares_fp16(part, sums) if half else _squares_bf16(part, sums)
            done = stop
    return state


@kernel()
def pass8(
    codes: Array, squares: Array, at: int, width: int, table: Array, rows: Array, columns: Array,
    keys: Array, state: Any,
) -> Any:  # fmt: skip
    """Take a block of 8-bit codes, whose squares are ``squares[code]``; else as `pass16`."""
    for first in range(0, codes.size, TILE):
        tile = codes[first : first + TILE]
        words = tile.view(np.uint64)
        _count8(words, table)
        state = digest(words, keys, state)
        done = 0
        while width and done < tile.size:
            row, column = divmod(at + first + done, width)
            stop = min(tile.size, done + width - column)
            part, sums = tile[done:stop], columns[column : column + stop - done]
            rows[row] += _squares_fp8(part, sums, squares)
            done = stop
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

    The others are those of `pass16`.
    """
    for first in range(0, values.size, TILE // 2):
        tile = values[first : first + TILE // 2]
        words = tile.view(np.uint64)
        _count_upper(words, table)
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
        done = 0
        while width and done < tile.size:
            row, column = divmod(at + first + done, width)
            stop = min(tile.size, done + width - column)
            part, square = tile[done:stop], columns[column : column + stop - done]
            rows[row] += _squares_fp32(part, square)
            done = stop
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
    """Add the four tables to 64-bit counts and clear them."""
    for code in range(CODES):
        for at in range(code, TABLES * CODES, CODES):
            if table[at]:
                counts[code] += table[at]
                table[at] = np.uint32(0)


@kernel()
def occupied(counts: Array, order: Array, found: Array) -> int:
    """Write the places in `order` whose codes occur, and return how many there are."""
    many = 0
    for place in range(order.size):
        if counts[order[place]]:
            found[many] = place
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
