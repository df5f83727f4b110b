"""bitsandbytes' 4-bit codes (nf4, fp4) and its 8-bit rows (see `layouts`).

Two values of 4 bits lie in a byte, the first in the high half; they run on along the flat weight, and each
`blocksize` of them share one absmax. A value is its level in `quant_map` times that absmax. With double
quantisation the absmax values are 8-bit codes themselves, of levels in `nested_quant_map`, around
`nested_offset`. The weight's own shape is in `quant_state`, a JSON text stored as bytes.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from workbench.checkpoint.layouts import Floats, Plan, _Parts

# A state is a few hundred bytes.
_LONGEST_STATE = 1 << 16


def four_bits(parts: _Parts) -> Plan:
    """Return the shape of an nf4 or fp4 weight, and what reads its lines."""
    state = _state(parts)
    shape = _shape(parts, state)
    size = _whole(parts, state, "blocksize")
    count = prod(shape)
    if prod(parts.shape("codes")) != -(-count // 2):
        raise parts.refused(
            f"{prod(parts.shape('codes')):,} bytes do not hold {count:,} codes of 4 bits"
        )
    if prod(parts.shape("scale")) != -(-count // size):
        raise parts.refused(
            f"{prod(parts.shape('scale')):,} absmax values do not fit {count:,} values in blocks of {size}"
        )
    levels = parts.floats("map").reshape(-1) if prod(parts.shape("map")) == 16 else None
    if levels is None or not np.isfinite(levels).all():
        raise parts.refused("its quant_map is not 16 finite levels")
    scales = _absmax(parts, state)
    columns = shape[-1]

    def lines(start: int, stop: int) -> Floats:
        first, last = start * columns, stop * columns
        packed = parts.ckpt.flat(parts.members["codes"], first // 2, -(-last // 2)).view(np.uint8)
        codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1)[first % 2 :][: last - first]
        block = np.arange(first, last, dtype=np.int64) // size
        values: Floats = levels[codes] * scales[block]
        return values.reshape(stop - start, columns)

    return shape, lines


def eight_bits(parts: _Parts) -> Plan:
    """Return the shape of an int8 weight with one scale a row (`SCB`, 127 times the step)."""
    shape = parts.shape("codes")
    if len(shape) != 2 or prod(parts.shape("scale")) != shape[0]:
        raise parts.refused(
            f"{list(parts.shape('scale'))} scales do not fit the rows of {list(shape)} codes"
        )
    steps = parts.floats("scale").reshape(-1, 1) / np.float32(127)
    columns = shape[1]

    def lines(start: int, stop: int) -> Floats:
        codes = parts.ckpt.flat(parts.members["codes"], start * columns, stop * columns)
        values: Floats = (
            codes.view(np.int8).reshape(-1, columns).astype(np.float32) * steps[start:stop]
        )
        return values

    return shape, lines


def _state(parts: _Parts) -> dict[str, Any]:
    if prod(parts.shape("state")) > _LONGEST_STATE:
        raise parts.refused("its quant_state is far longer than any")
    raw = parts.units("state").reshape(-1).view(np.uint8).tobytes()
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise parts.refused("its quant_state is not a JSON object")
    return found


def _shape(parts: _Parts, state: dict[str, Any]) -> tuple[int, ...]:
    shape = state.get("shape")
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
        raise parts.refused("its quant_state has no shape")
    if not all(type(size) is int and 0 < size < 1 << 40 for size in shape):
        raise parts.refused(
            f"the shape in its quant_state, {str(shape)[:60]}, is not one of a weight"
        )
    return tuple(shape)


def _whole(parts: _Parts, state: dict[str, Any], name: str) -> int:
    value = state.get(name)
    if type(value) is not int or not 1 <= value <= 1 << 20:
        raise parts.refused(f"its quant_state has no usable {name}")
    return value


def _absmax(parts: _Parts, state: dict[str, Any]) -> Floats:
    """Return one absmax a block, whether stored as numbers or as 8-bit codes."""
    if "nested_scale" not in parts:
        if parts.dtype("scale") == "U8":
            raise parts.refused("its absmax values are codes, and their nested_absmax is missing")
        return parts.floats("scale").reshape(-1)
    if "nested_map" not in parts or prod(parts.shape("nested_map")) != 256:
        raise parts.refused("its nested_quant_map is missing, or not 256 levels")
    size, offset = _whole(parts, state, "nested_blocksize"), state.get("nested_offset")
    if not isinstance(offset, int | float) or isinstance(offset, bool):
        raise parts.refused("its quant_state has no nested_offset")
    codes = parts.units("scale").reshape(-1).view(np.uint8)
    tops = parts.floats("nested_scale").reshape(-1)
    if len(tops) != -(-len(codes) // size):
        raise parts.refused(
            f"{len(tops):,} nested_absmax values do not fit {len(codes):,} absmax codes"
        )
    levels = parts.floats("nested_map").reshape(-1)
    found: Floats = (levels[codes] * tops[np.arange(len(codes)) // size] + offset).astype(
        np.float32
    )
    return found
