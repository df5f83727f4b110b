"""Ways to initialise a matrix, and the number formats that it is saved in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Random = np.random.Generator


def normal(shape: tuple[int, int], sigma: float, random: Random) -> Array:
    return random.standard_normal(shape, dtype=np.float32) * np.float32(sigma)


def uniform(shape: tuple[int, int], bound: float, random: Random) -> Array:
    return (random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(bound)


def truncated(shape: tuple[int, int], sigma: float, random: Random, at: float = 2.0) -> Array:
    """Return a normal law cut off at ``at`` standard deviations, as JAX' truncated_normal."""
    values = random.standard_normal(shape, dtype=np.float32)
    outside = np.abs(values) > at
    while outside.any():
        values[outside] = random.standard_normal(int(outside.sum()), dtype=np.float32)
        outside = np.abs(values) > at
    return values * np.float32(sigma)


def orthogonal(shape: tuple[int, int], random: Random) -> Array:
    """Return rows or columns that are orthogonal, as torch.nn.init.orthogonal_ does."""
    m, n = shape
    q, r = np.linalg.qr(random.standard_normal((max(m, n), min(m, n)), dtype=np.float32))
    q = q * np.sign(np.diag(r))
    return np.ascontiguousarray(q if m >= n else q.T)


SCHEMES: dict[str, Callable[[tuple[int, int], float, Random], Array]] = {
    "normal 0.02": lambda shape, _, random: normal(shape, 0.02, random),
    "normal, same σ": normal,
    "Kaiming uniform": lambda shape, _, random: uniform(shape, shape[1] ** -0.5, random),
    "Xavier uniform": lambda shape, _, random: uniform(shape, (6 / sum(shape)) ** 0.5, random),
    "truncated normal": lambda shape, _, random: truncated(shape, 0.02, random),
    "orthogonal": lambda shape, _, random: orthogonal(shape, random),
}


def to_bf16(values: Array) -> Array:
    """Return the nearest bfloat16 values, as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def _groups(values: Array) -> Array:
    """Return the values in groups of 32 along the rows."""
    return np.ascontiguousarray(values, dtype=np.float32).reshape(len(values), -1, 32)


def fp8_block(name: str, values: Array) -> dict[str, Any]:
    """Return float8_e4m3fn codes with a scale a block of 128 x 128, as DeepSeek-V3 stores a weight."""
    import torch

    m, n = values.shape
    scales = np.empty((-(-m // 128), -(-n // 128)), dtype=np.float32)
    codes = np.empty_like(values)
    for i, j in np.ndindex(scales.shape):
        at = np.s_[128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
        scales[i, j] = max(float(np.abs(values[at]).max()) / 448, 1e-12)
        codes[at] = values[at] / scales[i, j]
    return {
        name: torch.from_numpy(codes).to(torch.float8_e4m3fn),
        f"{name}_scale_inv": torch.from_numpy(scales),
    }


def int4(name: str, values: Array) -> dict[str, Any]:
    """Return symmetric int4 codes with a bfloat16 scale a group of 32, as compressed-tensors packs them."""
    import torch

    groups = _groups(values)
    scale = to_bf16(np.maximum(np.abs(groups).max(axis=2) / 7.5, 1e-12))
    codes = np.clip(np.rint(groups / scale[:, :, None]), -8, 7).astype(np.int32) + 8
    eights = codes.reshape(len(values), -1, 8).astype(np.uint32)
    packed = (eights << (4 * np.arange(8, dtype=np.uint32))).sum(axis=2, dtype=np.uint32)
    return {
        f"{name}_packed": torch.from_numpy(packed.view(np.int32)),
        f"{name}_scale": torch.from_numpy(scale).to(torch.bfloat16),
        f"{name}_shape": torch.tensor(values.shape),
    }


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def mxfp4(name: str, values: Array) -> dict[str, Any]:
    """Return e2m1 codes with a power of two a group of 32 (OCP Microscaling 1.0, section 6.3)."""
    import torch

    groups = _groups(values)
    largest = np.maximum(np.abs(groups).max(axis=2), 1e-30)
    exponent = np.clip(np.floor(np.log2(largest)) - 2, -127, 127).astype(np.int32)
    scaled = np.ldexp(groups, -exponent[:, :, None])
    nearest = np.searchsorted((_E2M1[1:] + _E2M1[:-1]) / 2, np.abs(scaled)).astype(np.uint8)
    codes = (nearest | ((scaled < 0).astype(np.uint8) << 3)).reshape(len(values), -1, 2)
    return {
        f"{name}_packed": torch.from_numpy(codes[:, :, 0] | (codes[:, :, 1] << 4)),
        f"{name}_scale": torch.from_numpy((exponent + 127).astype(np.uint8)),
    }


def plain(kind: str) -> Callable[[str, Array], dict[str, Any]]:
    """Return what stores a matrix as it is, in one of torch's types."""

    def store(name: str, values: Array) -> dict[str, Any]:
        import torch

        return {name: torch.from_numpy(values).to(getattr(torch, kind))}

    return store


# Name: what makes the tensors of a checkpoint of a matrix.
FORMATS: dict[str, Callable[[str, Array], dict[str, Any]]] = {
    "fp32": plain("float32"),
    "bf16": plain("bfloat16"),
    "fp16": plain("float16"),
    "fp8 blocks": fp8_block,
    "int4, groups of 32": int4,
    "mxfp4": mxfp4,
}
# Formats with groups of 32 columns: other matrices are cut to whole groups.
GROUPED = ("int4, groups of 32", "mxfp4")
