"""Integers of a few bits packed into 32-bit words: compressed-tensors, GPTQ and AWQ (see `layouts`)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.number import to_float32

if TYPE_CHECKING:
    from workbench.checkpoint.layouts import Plan, _Parts

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float32]]

_AWQ_PLACE = np.array(
    [0, 4, 1, 5, 2, 6, 3, 7]
)  # of each column in its word: 0 2 4 6 1 3 5 7 inverted
_SPLIT = (2, 4, 8)  # widths that never cross a word


def unpacked(words: Array, bits: int, axis: int, place: Array | None = None) -> Array:
    """Return the codes of 32-bit words, the lowest bits first, along an axis.

    `place` gives, for each of a word's codes, where in the word it lies.
    """
    per = 32 // bits
    shifts = (np.arange(per) if place is None else place).astype(np.uint32) * np.uint32(bits)
    words = np.moveaxis(words.view(np.uint32), axis, -1)
    codes = (words[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    return np.moveaxis(codes.reshape(*words.shape[:-1], -1), -1, axis)


def pack_quantized(parts: _Parts) -> Plan:
    """compressed-tensors' integers: packed along the columns; its zero points along the rows."""
    codes, scales = parts.shape("codes"), parts.shape("scale")
    if "shape" not in parts:
        raise parts.refused("its shape is missing")
    said = parts.units("shape").reshape(-1).tolist() if parts.shape("shape") == (2,) else []
    if len(said) != 2 or len(codes) != 2 or said[0] != codes[0] or said[1] < 1:
        raise parts.refused(
            f"the shape it states, {said}, does not fit {list(codes)} words of codes"
        )
    tall, columns = int(said[0]), int(said[1])
    bits = _bits_of_pack(parts, codes[1], columns)
    groups = scales[1] if len(scales) == 2 else 1
    single = prod(scales) == 1
    if not (single or scales in ((tall, groups), (tall,))) or not groups or columns % groups:
        raise parts.refused(f"{list(scales)} scales do not fit the shape {said}")
    size = columns // groups
    at = _group_of_column(parts, columns, groups, size)
    zeros = _zeros_of_pack(parts, bits, tall, groups)
    offset = np.float32(1 << (bits - 1))

    def lines(start: int, stop: int) -> Floats:
        from workbench.checkpoint.unpack import word_lines

        words = parts.ckpt.flat(parts.members["codes"], start * codes[1], stop * codes[1])
        count = stop - start
        scale = parts.floats("scale") if single else parts.floats("scale", slice(start, stop))
        scale = np.ascontiguousarray(np.broadcast_to(scale.reshape(-1, groups), (count, groups)))
        zero = np.full((count, groups), offset) if zeros is None else zeros[start:stop]
        out = np.empty((count, columns), np.float32)
        word_lines(words.view(np.uint32).reshape(count, -1), bits, scale, zero, at, size, out)
        return out

    return (tall, columns), lines


def weight_arguments(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a compressed-tensors config says of its groups' weights."""
    groups = settings.get("config_groups")
    if not isinstance(groups, dict):
        return []
    weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)]
    return [found for found in weights if isinstance(found, dict)]


def _bits_of_pack(parts: _Parts, words: int, columns: int) -> int:
    said = {arguments.get("num_bits") for arguments in weight_arguments(parts.settings)}
    fits = [bits for bits in _SPLIT if -(-columns // (32 // bits)) == words]
    declared = [bits for bits in fits if bits in said]
    if len(declared or fits) != 1 or (said - {None} and not declared):
        raise parts.refused(
            f"{words} words a row and {columns} columns do not fit a width of code that is read "
            f"here"
        )
    return (declared or fits)[0]


def _group_of_column(parts: _Parts, columns: int, groups: int, size: int) -> Array:
    """Return which group each column is of where they are not in order; empty where they are."""
    if "order" not in parts:
        return np.zeros(0, np.int32)
    found = parts.held("order").reshape(-1)
    if len(found) == columns and (found == -1).all():  # "not in use"
        return np.zeros(0, np.int32)
    if len(found) != columns or found.min() < 0 or found.max() >= groups:
        raise parts.refused(
            f"its act-order index does not name {groups} groups for {columns} columns"
        )
    in_order = np.array_equal(found, np.arange(columns) // size)
    return np.zeros(0, np.int32) if in_order else found.astype(np.int32)


def _zeros_of_pack(parts: _Parts, bits: int, tall: int, groups: int) -> Floats | None:
    if "zero_point" not in parts:
        return None
    shape = parts.shape("zero_point")
    if parts.dtype("zero_point") == "I32" and shape == (-(-tall // (32 // bits)), groups):
        codes = unpacked(parts.held("zero_point"), bits, axis=0)[:tall]
        return np.ascontiguousarray(codes.astype(np.float32))
    if parts.dtype("zero_point") == "I8" and shape in ((tall, groups), (tall,)):
        plain = parts.held("zero_point").reshape(tall, groups).astype(np.float32)
        return plain + np.float32(1 << (bits - 1))
    raise parts.refused(f"its zero points are {parts.dtype('zero_point')} of shape {list(shape)}")


def gptq_or_awq(parts: _Parts, awq: bool) -> Plan:
    """GPTQ packs along the inputs, AWQ along the outputs; both keep the matrix as [inputs, outputs]."""
    codes, scales = parts.shape("codes"), parts.shape("scale")
    if len(codes) != 2 or len(scales) != 2 or not all(scales) or not all(codes):
        raise parts.refused(f"{list(codes)} words and {list(scales)} scales make no matrix")
    groups, tall = scales
    bits = _bits(parts, awq)
    per = 32 // bits
    columns = codes[0] if awq else codes[0] * per
    if (codes[1] * per if awq else codes[1]) != tall or columns % groups:
        raise parts.refused(
            f"{list(codes)} words of {bits}-bit codes and {list(scales)} scales do not fit"
        )
    if awq and str(parts.settings.get("version") or "gemm").lower() != "gemm":
        raise parts.refused(f"AWQ's version {parts.settings['version']!r} packs in another order")
    size = columns // groups
    at = _group_of_column(parts, columns, groups, size)
    of_column = at if len(at) else np.arange(columns) // size
    zeros = _zeros(parts, bits, groups, tall, awq)

    def lines(start: int, stop: int) -> Floats:
        if awq:  # words hold eight outputs each
            first, last = start // per, -(-stop // per)
            words = parts.units("codes", (slice(None), slice(first, last)))
            wide = unpacked(words, bits, 1, _AWQ_PLACE)[:, start - first * per : stop - first * per]
        else:
            wide = unpacked(parts.units("codes", (slice(None), slice(start, stop))), bits, 0)
        scale = parts.floats("scale", (slice(None), slice(start, stop)))
        zero = zeros[:, start:stop]
        out = wide.astype(np.float32)
        out -= zero[of_column]
        out *= scale[of_column]
        return np.ascontiguousarray(out.T)

    return (tall, columns), lines


def _bits(parts: _Parts, awq: bool) -> int:
    """Return the width of a code, from the zero points' shape, the act-order index or the config."""
    found: set[Any] = set()
    codes, (_, tall) = parts.shape("codes"), parts.shape("scale")
    if awq:
        found.add(32 * codes[1] / tall)
    elif "order" in parts:
        found.add(32 * codes[0] / max(parts.shape("order")[0], 1))
    if "zero_point" in parts and len(parts.shape("zero_point")) == 2:
        found.add(32 * parts.shape("zero_point")[1] / tall)
    said = parts.settings.get("bits", parts.settings.get("w_bit"))
    if isinstance(said, int) and not found:
        found.add(said)
    widths = (4,) if awq else _SPLIT
    if len(found) != 1 or not found <= set(widths):
        named = ", ".join(f"{x:g}" for x in sorted(found)) or "no width"
        raise parts.refused(
            f"its members and its config name {named} of a code; read here are {widths}"
        )
    return int(found.pop())


def _zeros(parts: _Parts, bits: int, groups: int, tall: int, awq: bool) -> Floats:
    middle = 1 << (bits - 1)
    if "zero_point" not in parts:
        if awq or parts.settings.get("sym") is not False:
            return np.full((groups, tall), middle, np.float32)
        raise parts.refused(
            "its zero points are missing, and the config says that it is not symmetric"
        )
    words = parts.held("zero_point")
    if words.shape != (groups, tall * bits // 32) or parts.dtype("zero_point") != "I32":
        raise parts.refused(f"its zero points have the shape {list(words.shape)}")
    codes = unpacked(words, bits, 1, _AWQ_PLACE if awq else None)
    zeros = to_float32(codes, "U32")
    if awq:
        return zeros
    said = str(parts.settings.get("checkpoint_format") or "").lower()
    if said == "gptq_v2":
        return zeros
    if (codes == 2 * middle - 1).any():
        raise parts.refused("a zero point of version 1 overflows, which kernels read in two ways")
    # Without a config only the symmetric middle, stored as it is or less one, tells the versions apart.
    if (
        said == "gptq"
        or parts.settings.get("quant_method") == "gptq"
        or (codes == middle - 1).all()
    ):
        return zeros + 1
    if (codes == middle).all():
        return zeros
    raise parts.refused(
        "without a config, version 1 (zero points less one) and 2 of GPTQ look alike"
    )
