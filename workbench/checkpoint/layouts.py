"""How each quantised layout makes numbers of codes.

`plan` checks the shapes of a weight's members against each other, and returns its own shape and the
function that reads some of its lines (runs along the last dimension) as float32. Whatever does not fit, or
leaves two readings open, raises: a wrong number is worse than none.

|Layout|Value|Source|
|---|---|---|
|pack-quantized|(code - zero) scale; codes and zeros are offset by 2^(bits-1)|compressed-tensors|
|nvfp4|e2m1 (scale / global scale)|compressed-tensors|
|ModelOpt NVFP4|e2m1 (scale x scale_2)|ModelOpt|
|MXFP4|e2m1 2^(scale - 127)|OCP Microscaling 1.0, gpt-oss|
|FP8 and int8|(code - zero) scale, per tensor, row, group or block|DeepSeek-V3, compressed-tensors|
|GPTQ|(code - zero) scale; version 1 stores zero - 1|AutoGPTQ, GPTQModel|
|bitsandbytes nf4, fp4|level of the code x absmax of its block; absmax may be 8-bit codes|bitsandbytes, QLoRA|
|bitsandbytes int8|code x SCB / 127, a scale a row|bitsandbytes|
|GGUF|by the package gguf|llama.cpp|
|AWQ|(code - zero) scale; eight columns a word in the order 0 2 4 6 1 3 5 7|AutoAWQ|
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint import quantized as q
from workbench.checkpoint.number import E2M1, to_float32
from workbench.checkpoint.packed import gptq_or_awq, pack_quantized, weight_arguments
from workbench.errors import CheckpointError, shown

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float32]]
Shape = tuple[int, ...]
Lines = Callable[[int, int], Floats]
Plan = tuple[Shape, Lines]

# Zero points and act-order indices are held in memory; none of a real weight is near that.
_MOST_HELD = 1 << 28


class _Parts:
    """The members of one weight."""

    def __init__(self, ckpt: Checkpoint, name: str, members: Mapping[str, str]) -> None:
        self.ckpt, self.name, self.members = ckpt, name, members
        self.settings: Mapping[str, Any] = ckpt.quantization.settings

    def __contains__(self, role: str) -> bool:
        return role in self.members and self.members[role] in self.ckpt

    def shape(self, role: str) -> Shape:
        return self.ckpt[self.members[role]].shape

    def dtype(self, role: str) -> str:
        return self.ckpt[self.members[role]].dtype

    def units(self, role: str, index: Any = None) -> Array:
        return self.ckpt.units(self.members[role], index)

    def floats(self, role: str, index: Any = None) -> Floats:
        dtype = self.dtype(role)
        if dtype == "U8":  # MXFP4's scales, by gpt-oss as plain bytes
            dtype = "F8_E8M0"
        return to_float32(self.units(role, index), dtype)

    def number(self, role: str) -> float:
        if prod(self.shape(role)) != 1:
            raise self.refused(
                f"its {role.replace('_', ' ')} is not one number but {self.shape(role)}"
            )
        value = float(self.floats(role).reshape(-1)[0])
        if not np.isfinite(value) or value == 0:
            raise self.refused(f"its {role.replace('_', ' ')} is {value}")
        return value

    def held(self, role: str) -> Array:
        if prod(self.shape(role)) > _MOST_HELD:
            raise self.refused(f"its {role.replace('_', ' ')} is larger than any weight's")
        return self.units(role)

    def refused(self, why: str) -> CheckpointError:
        return CheckpointError(f"{shown(self.name)} cannot be dequantised", why=why)


def plan(ckpt: Checkpoint, name: str, layout: str, members: Mapping[str, str]) -> Plan:
    """Return a weight's own shape and the function that reads some of its lines.

    Raises
    ------
    CheckpointError
        A member is missing, the members do not fit each other, or two readings are open.
    """
    parts = _Parts(ckpt, name, members)
    if ckpt.gguf is not None and name in ckpt.gguf.quantized:
        from workbench.checkpoint.gguf import lines_of

        return lines_of(parts, ckpt.gguf.quantized[name])
    if "scale" not in parts:
        raise parts.refused("its scale is missing")
    if layout in (q.NVFP4_PACK, q.NVFP4_MODELOPT):
        if "global_scale" not in parts:
            raise parts.refused("its global scale is missing")
        return _fp4(parts, size=16, divides=layout == q.NVFP4_PACK)
    if layout in (q.MXFP4, q.MXFP4_PACK):
        return _fp4(parts, size=32, divides=False)
    if layout in (q.FP8, q.FP8_BLOCK, q.INT8):
        return _scaled(parts)
    if layout == q.PACK:
        return pack_quantized(parts)
    if layout in (q.GPTQ, q.AWQ):
        return gptq_or_awq(parts, awq=layout == q.AWQ)
    if layout in (q.NF4, q.FP4, q.BNB8):
        from workbench.checkpoint.bitsandbytes import eight_bits, four_bits

        return eight_bits(parts) if layout == q.BNB8 else four_bits(parts)
    raise parts.refused(f"the layout {shown(layout)} is not known here")


def _fp4(parts: _Parts, size: int, divides: bool) -> Plan:
    """Two codes a byte, the even column in the low half; one scale a group of `size` columns."""
    codes, scales = parts.shape("codes"), parts.shape("scale")
    if len(codes) == len(scales) + 1 and codes[-1] == size // 2:  # gpt-oss: [..., groups, 16]
        codes = (*codes[:-2], codes[-2] * codes[-1])
    columns = codes[-1] * 2 if codes else 0
    if len(codes) < 2 or scales != (*codes[:-1], columns // size) or columns % size:
        raise parts.refused(
            f"{list(parts.shape('codes'))} codes and {list(scales)} scales do not make groups of {size}"
        )
    shape, lead = (*codes[:-1], columns), prod(codes[:-1])
    factor = np.ones(1, np.float32)
    if "global_scale" in parts:
        count = prod(parts.shape("global_scale"))
        many = count > 1 and len(shape) == 3 and count == shape[0]
        factor = (
            parts.floats("global_scale").reshape(-1)
            if many
            else np.array([parts.number("global_scale")], np.float32)
        )
        if divides:
            factor = (1 / factor).astype(np.float32)
    a_line, a_scale = columns // 2, columns // size
    per_factor = lead // len(factor) if lead else 1

    def lines(start: int, stop: int) -> Floats:
        from workbench.checkpoint.unpack import fp4_lines

        packed = parts.ckpt.flat(parts.members["codes"], start * a_line, stop * a_line)
        flat = parts.ckpt.flat(parts.members["scale"], start * a_scale, stop * a_scale)
        dtype = parts.dtype("scale")
        scale = to_float32(flat, "F8_E8M0" if dtype == "U8" else dtype).reshape(-1, a_scale)
        scale = scale * factor[np.arange(start, stop) // per_factor][:, None]
        out = np.empty((stop - start, columns), np.float32)
        fp4_lines(packed.reshape(-1, a_line), E2M1, scale, size, out)
        return out

    return shape, lines


def _scaled(parts: _Parts) -> Plan:
    """One code an element; a scale for all, a row, a group of columns or a block."""
    shape, scales = parts.shape("codes"), parts.shape("scale")
    dtype = parts.dtype("codes")
    columns = shape[-1] if shape else 1
    block = _block(parts, shape, scales)
    zero_shape = parts.shape("zero_point") if "zero_point" in parts else None
    if zero_shape is not None and prod(zero_shape) != prod(scales):
        raise parts.refused(f"{list(zero_shape)} zero points do not fit {list(scales)} scales")
    if "order" in parts:
        raise parts.refused(
            "its columns are in act-order, which is not defined for this layout here"
        )
    down, across = block
    tall = shape[-2] if len(shape) > 1 else 1
    grid = (-(-tall // down), -(-columns // across))

    def lines(start: int, stop: int) -> Floats:
        units = parts.ckpt.flat(parts.members["codes"], start * columns, stop * columns)
        out = to_float32(units, dtype).reshape(stop - start, columns)
        line = np.arange(start, stop)
        at = line // tall * grid[0] + line % tall // down
        if prod(scales) == 1:
            at = np.zeros_like(at)
        for role in ("zero_point", "scale"):
            if role not in parts:
                continue
            values = parts.floats(role) if role == "scale" else _zeros(parts)
            picked = values.reshape(-1, grid[1] if prod(scales) > 1 else 1)[at]
            if picked.shape[1] > 1:
                picked = np.repeat(picked, across, axis=1)[:, :columns]
            if role == "scale":
                np.multiply(out, picked, out=out)
            else:
                np.subtract(out, picked, out=out)
        return out

    return shape, lines


def _zeros(parts: _Parts) -> Floats:
    return to_float32(parts.units("zero_point"), parts.dtype("zero_point"))


def _block(parts: _Parts, shape: Shape, scales: Shape) -> tuple[int, int]:
    """Return rows and columns that share a scale."""
    if not shape:
        raise parts.refused("it is a single number")
    tall, columns = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    lead = shape[:-2]
    if prod(scales) == 1:
        return max(tall, 1), max(columns, 1)
    if scales in ((*lead, tall), (*lead, tall, 1)) and len(shape) > 1:
        return 1, columns
    if lead and scales in (lead, (*lead, 1), (*lead, 1, 1)):  # one for each expert
        return tall, columns
    if len(scales) == len(shape) and scales[:-2] == lead and len(shape) > 1 and all(scales):
        for down, across in (*_declared(parts), (128, 128), _even(tall, columns, scales)):
            if down and across and (-(-tall // down), -(-columns // across)) == scales[-2:]:
                return down, across
    raise parts.refused(f"{list(scales)} scales do not show which of {list(shape)} codes share one")


def _even(tall: int, columns: int, scales: Shape) -> tuple[int, int]:
    whole = tall % scales[-2] == 0 and columns % scales[-1] == 0
    return (tall // scales[-2], columns // scales[-1]) if whole else (0, 0)


def _declared(parts: _Parts) -> list[tuple[int, int]]:
    """Return the block sizes that the config names."""
    found = [parts.settings.get("weight_block_size")]
    found += [arguments.get("block_structure") for arguments in weight_arguments(parts.settings)]
    return [
        (pair[0], pair[1])
        for pair in found
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int) for x in pair)
    ]
