"""What an engine computes between its matrix products, on a CUDA card and in its order of summation.

Norm, rotary positions and gate add and multiply as SGLang's own kernels do on Hopper: eight values a
thread, one after the other, then across a warp. Attention is the engine's own: its two Triton files.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl

SPLITS = 8  # parts of a decoded sequence, --triton-attention-num-kv-splits


@triton.jit
def _norm(x, r, w, o, eps, D: tl.constexpr, HAS: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    row = tl.program_id(0)
    lane = tl.arange(0, 32)
    acc = tl.zeros([32], tl.float32)
    for c in tl.static_range(D // 256):
        for j in tl.static_range(8):
            at = row * D + c * 256 + lane * 8 + j
            v = tl.load(x + at).to(tl.float32)
            if HAS:
                v += tl.load(r + at).to(tl.float32)
            acc = tl.fma(v, v, acc)
    scale = tl.rsqrt(tl.sum(acc, 0) / D + eps)
    for c in tl.static_range(D // 256):
        for j in tl.static_range(8):
            at = row * D + c * 256 + lane * 8 + j
            v = tl.load(x + at).to(tl.float32)
            if HAS:
                v += tl.load(r + at).to(tl.float32)
                tl.store(r + at, v.to(tl.bfloat16))
            g = tl.load(w + c * 256 + lane * 8 + j).to(tl.float32)
            tl.store(o + at, (v * scale * g).to(tl.bfloat16))


@triton.jit
def _gate(x, o, N: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    row = tl.program_id(0)
    c = tl.arange(0, B)
    m = c < N
    a = tl.load(x + row * 2 * N + c, m, 0.0).to(tl.float32)
    b = tl.load(x + row * 2 * N + N + c, m, 0.0).to(tl.float32)
    tl.store(o + row * N + c, (a / (1.0 + tl.exp(-a)) * b).to(tl.bfloat16), m)


@triton.jit
def _turn(x, pos, table, S, W: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    row = tl.program_id(0)
    c = tl.arange(0, W // 2)
    p = tl.load(pos + row)
    cos = tl.load(table + p * W + c)
    sin = tl.load(table + p * W + W // 2 + c)
    base = x + row * S + tl.program_id(1) * W
    a = tl.load(base + c).to(tl.float32)
    b = tl.load(base + W // 2 + c).to(tl.float32)
    tl.store(base + c, tl.fma(a, cos, -b * sin).to(tl.bfloat16))
    tl.store(base + W // 2 + c, tl.fma(b, cos, a * sin).to(tl.bfloat16))


class CardOps:
    """The operations of `replay_on_card.PlainOps` in bfloat16 on a card.

    Parameters
    ----------
    kernels
        Folder with the engine's ``extend_attention.py`` and ``decode_attention.py``
        (``sglang/srt/layers/attention/triton_ops``).
    """

    device, dtype = "cuda", torch.bfloat16

    def __init__(self, kernels: Path) -> None:
        self._extend = _engine_file(kernels / "extend_attention.py").extend_attention_fwd
        self._decode = _engine_file(kernels / "decode_attention.py").decode_attention_fwd

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, epsilon: float, residual: Any = None
    ) -> torch.Tensor:
        """Return the norm of `x`, or of its sum with `residual`, which becomes that sum."""
        assert x.shape[1] % 256 == 0
        out, has = torch.empty_like(x), residual is not None
        other = residual if has else x
        _norm[(len(x),)](x, other, weight, out, epsilon, D=x.shape[1], HAS=has, num_warps=1)
        return out

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        """Return SiLU of the first half of each row times the second."""
        size = x.shape[1] // 2
        out = torch.empty(len(x), size, device=x.device, dtype=x.dtype)
        _gate[(len(x),)](x, out, N=size, B=triton.next_power_of_2(size), num_warps=4)
        return out

    def turn(self, x: torch.Tensor, places: torch.Tensor, table: torch.Tensor, heads: int) -> None:
        """Turn the first `heads` heads of each row in place."""
        _turn[(len(x), heads)](x, places, table, x.stride(0), W=table.shape[1], num_warps=1)

    def extend(
        self, pool: Any, layer: int, qkv: tuple[torch.Tensor, ...], prefix: torch.Tensor, mask: Any
    ) -> torch.Tensor:
        """Attend to the places `prefix` of the pool and to the rows themselves, causally or by `mask`."""
        q, k, v = qkv
        out, rows = torch.empty_like(q), _ints(0, len(q))
        ends = None if mask is None else _ints(0, mask.numel()).long()
        flat = None if mask is None else mask.flatten()
        self._extend(
            q, k, v, out, pool.keys[layer], pool.values[layer], rows, _ints(0, len(prefix)),
            prefix.int(), flat, True, ends, len(q), 1.0, 1.0, sm_scale=q.shape[-1] ** -0.5,
        )  # fmt: skip
        return out

    def decode(self, pool: Any, layer: int, q: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Attend to each row's own places of the pool, [rows, places]."""
        out, rows = torch.empty_like(q), len(q)
        sums = torch.empty(rows, q.shape[1], SPLITS, q.shape[2], device=q.device)
        logs = torch.empty(rows, q.shape[1], SPLITS, device=q.device)
        parts = torch.full((rows,), SPLITS, dtype=torch.int32, device=q.device)
        begins = (torch.arange(rows + 1, device=q.device) * places.shape[1]).int()
        self._decode(
            q, pool.keys[layer], pool.values[layer], out, begins, places.int().flatten(), sums,
            logs, parts, SPLITS, q.shape[-1] ** -0.5, 1.0, 1.0,
        )  # fmt: skip
        return out


def _ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, device="cuda", dtype=torch.int32)


def _engine_file(path: Path) -> ModuleType:
    """Load one file of an engine without the engine: what it takes from the rest is answered here."""
    utils, other = ModuleType("sglang.srt.utils"), "sglang.srt.layers.attention.triton_ops"
    utils.is_cuda, utils.is_hip = lambda: True, lambda: False  # type: ignore[attr-defined]
    utils.is_gfx95_supported = lambda: False  # type: ignore[attr-defined]
    prefill = ModuleType(f"{other}.prefill_attention")
    prefill.context_attention_fwd = None  # type: ignore[attr-defined]
    given = {"sglang.srt.utils": utils, f"{other}.prefill_attention": prefill}
    parts = other.split(".")
    given |= {".".join(parts[:n]): ModuleType("") for n in range(1, len(parts) + 1)}
    kept = {name: sys.modules.get(name) for name in given}
    sys.modules.update(given)
    try:
        spec = importlib.util.spec_from_file_location(f"engine_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
    finally:
        for name, old in kept.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old
    return module
