"""Text by columns: numpy on the bytes of a JSON text with hundreds of thousands of alike entries.

A `Text` is read in words of eight bytes at any position, many entries at once. Spans are given as two
arrays of byte positions, first and after the last.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]

# Of a longer span only the end goes into its key: keys are compared, and equal ones are looked at.
_LONGEST = 1024
_PAD = _LONGEST
# So many spans at a time that their columns stay in the cache of a core.
_BLOCK = 4096

# Keeps the last n bytes of a word, which little-endian order puts on top.
_KEEP = np.array([(1 << 64) - (1 << (8 * (8 - n))) for n in range(9)], dtype=np.uint64)
# An odd random factor for each word of a span; factors with a pattern would let names with one collide.
_FACTORS = np.random.default_rng(20260101).integers(
    1 << 63, size=_LONGEST // 8, dtype=np.uint64
) * np.uint64(2) + np.uint64(1)

# Eight digits become a number in three steps: pairs, fours, eight.
_STEPS = [
    (np.uint64(lanes), np.uint64(factor), np.uint64(shift))
    for lanes, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 2561, 8),
        (0x00FF00FF00FF00FF, 6553601, 16),
        (0x0000FFFF0000FFFF, 42949672960001, 32),
    )
]
_ZEROS = np.uint64(0x3030303030303030)
_HIGH = np.uint64(0x8080808080808080)
_CARRY = np.uint64(0x7676767676767676)
_POWERS = np.array([10**n for n in range(1, 18)], dtype=np.int64)


class Text:
    """The bytes of a text, with views on them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.chars = np.frombuffer(data, dtype=np.uint8)
        # Zeros around the text let every position be read as a whole word.
        padded = b"".join((b"\0" * _PAD, data, b"\0" * _PAD))
        self._padded = padded
        self._words = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))

    def words(self, at: Ints) -> Words:
        """Return the eight bytes from each position on."""
        result: Words = self._words[at + _PAD]
        return result

    def follows(self, at: Ints, text: bytes) -> bool:
        """Whether that text of at most eight bytes stands at every position."""
        shift = np.uint64(8 * (8 - len(text)))
        wanted = np.uint64(int.from_bytes(text, "little")) << shift
        return bool(((self.words(at) << shift) == wanted).all())

    def find(self, char: int, first: Ints) -> Ints:
        """Return where a character occurs first, within 16 bytes of each position (else the position)."""
        rows = np.ndarray((len(self._padded) - 15,), "V16", self._padded, 0, (1,))
        after = rows[first + _PAD].view(np.uint8).reshape(-1, 16)
        result: Ints = first + (after == char).argmax(axis=1)
        return result

    def numbers(self, first: Ints, after: Ints) -> Ints | None:
        """Return the whole numbers in the spans, or None where one is not written plainly."""
        length = after - first
        if length.min() < 1 or length.max() > 16:
            return None
        low = self.words(after - 8) ^ _ZEROS
        low &= _KEEP[np.minimum(length, 8)]
        high = self.words(after - 16) ^ _ZEROS
        high &= _KEEP[np.maximum(length - 8, 0)]
        if ((low | (low + _CARRY) | high | (high + _CARRY)) & _HIGH).any():
            return None  # a byte above nine
        value = (_eight_digits(high) * np.uint64(100_000_000) + _eight_digits(low)).astype(np.int64)
        # "007" is no JSON: the number of digits must be that of the value.
        digits = np.searchsorted(_POWERS, value, side="right") + 1
        return value if (digits == length).all() else None

    def keys(self, first: Ints, after: Ints) -> Words:
        """Return a 64-bit key of each span: equal texts have equal keys, others hardly ever."""
        blocks = [np.zeros(0, np.uint64)]
        for at in range(0, len(first), _BLOCK):
            length = after[at : at + _BLOCK] - first[at : at + _BLOCK]
            blocks.append(_key(self._table(after[at : at + _BLOCK], length), length))
        return np.concatenate(blocks)

    def distinct(self, first: Ints, after: Ints) -> tuple[Ints, Ints] | None:
        """Return positions of the distinct spans, and for each span which of them it equals.

        None where two texts share a key, or a span is too long.
        """
        length = after - first
        if length.max() > _LONGEST:
            return None
        table = self._table(after, length)
        sample, group = _classes(_key(table, length))
        alike = (length == length[sample][group]).all() and (table == table[sample][group]).all()
        return (sample, group) if alike else None

    def _table(self, after: Ints, length: Ints) -> Words:
        """Return the spans' bytes, one a row, flush right behind zeros, in words."""
        width = min(max(int(length.max(initial=1)) + 7, 8), _LONGEST) // 8 * 8
        size = len(self._padded) - width + 1
        rows = np.ndarray((size,), f"V{width}", self._padded, 0, (1,))[after + (_PAD - width)]
        table = rows.view("<u8").reshape(len(after), -1)
        table &= _masks(width)[np.minimum(length, width)].view("<u8").reshape(len(after), -1)
        return table


@functools.cache
def _masks(width: int) -> np.ndarray[Any, Any]:
    """Return rows of bytes of which the last n are set, for n from 0 to `width`."""
    n, at = np.arange(width + 1), np.arange(width)
    masks = np.where(at >= width - n[:, None], 255, 0).astype(np.uint8)
    return masks.reshape(-1).view(f"V{width}")


def _key(table: Words, length: Ints) -> Words:
    """Return a key of each row; zeros in front of a text change nothing."""
    # Without the shift, what differs in the last byte of a word would reach eight bits of the product only.
    table = table ^ (table >> np.uint64(32))
    key: Words = table @ _FACTORS[-table.shape[1] :]
    key ^= length.astype(np.uint64) * _FACTORS[0]
    return key


def _classes(key: Words) -> tuple[Ints, Ints]:
    """Return the position of the first of each distinct key, and for each key which of them it is."""
    group = np.zeros(len(key), dtype=np.int64)
    rest = np.arange(len(key))
    samples: list[int] = []
    while len(rest):
        if len(samples) == 32:  # many: sorting is faster than going on one by one
            _, sample, group = np.unique(key, return_index=True, return_inverse=True)
            return sample, group
        same = key[rest] == key[rest[0]]
        group[rest[same]] = len(samples)
        samples.append(int(rest[0]))
        rest = rest[~same]
    return np.array(samples, dtype=np.int64), group


def _eight_digits(word: Words) -> Words:
    """Return the number whose digits are the bytes of a word, the first digit lowest."""
    for lanes, factor, shift in _STEPS:
        np.bitwise_and(word, lanes, out=word)
        np.multiply(word, factor, out=word)
        np.right_shift(word, shift, out=word)
    return word


def keys_of(texts: Iterable[str]) -> Words:
    """Return the keys of texts, as `Text.keys` gives them."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    after = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if len(after) == 1:
        return np.zeros(0, dtype=np.uint64)
    return Text(b"".join(encoded)).keys(after[:-1], after[1:])
