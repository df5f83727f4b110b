"""Compiled loops that make float32 of packed codes; they hold no lock of Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.checkpoint.compiled import kernel

Array = np.ndarray[Any, Any]


@kernel()
def fp4_lines(packed: Array, values: Array, scale: Array, size: int, out: Array) -> None:
    """Two codes a byte, the lower half first; one scale each `size` columns."""
    half = size // 2
    for i in range(packed.shape[0]):
        line, into = packed[i], out[i]
        for group in range(scale.shape[1]):
            s = scale[i, group]
            for j in range(group * half, (group + 1) * half):
                byte = line[j]
                into[2 * j] = values[byte & np.uint8(15)] * s
                into[2 * j + 1] = values[byte >> np.uint8(4)] * s


@kernel()
def word_lines(
    words: Array, bits: int, scale: Array, zero: Array, at: Array, size: int, out: Array
) -> None:
    """Codes of `bits` in 32-bit words; the group of a column is ``at[column]`` or ``column // size``."""
    per = 32 // bits
    mask = np.uint32((1 << bits) - 1)
    width = np.uint32(bits)
    for i in range(words.shape[0]):
        line, into = words[i], out[i]
        for j in range(line.size):
            word = line[j]
            for column in range(j * per, min((j + 1) * per, into.size)):
                into[column] = np.float32(word & mask)
                word >>= width
        if at.size:
            for column in range(into.size):
                group = at[column]
                into[column] = (into[column] - zero[i, group]) * scale[i, group]
        else:
            for group in range(scale.shape[1]):
                z, s = zero[i, group], scale[i, group]
                for column in range(group * size, (group + 1) * size):
                    into[column] = (into[column] - z) * s
