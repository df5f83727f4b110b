"""The arithmetic of target and draft: norms, rotary positions, attention, and where an engine rounds.

All is computed in float32. An engine that serves in bfloat16 computes the same with every intermediate
result rounded; `Numerics` says so, and the functions here round where SGLang's kernels do: a linear layer's
output once, a norm's output once (its sum with the residual enters unrounded), rotated queries and keys once,
the attention's weights before they meet the values, its output once.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["float32", "bfloat16", "float16"]


@dataclasses.dataclass(frozen=True, slots=True)
class Numerics:
    """Which type intermediate results are rounded to; ``float32`` rounds nothing."""

    kind: Kind = "float32"

    def round(self, x: Tensor) -> Tensor:
        """Return `x` (float32) with the values that this type can hold, still as float32."""
        if self.kind == "float32":
            return x
        return (x.bfloat16() if self.kind == "bfloat16" else x.half()).float()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, numerics: Numerics) -> Tensor:
    """Return ``x @ weight.T + bias``, rounded once."""
    import torch.nn.functional as F  # noqa: N812

    return numerics.round(F.linear(x, weight, bias))


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, numerics: Numerics) -> Tensor:
    """Return the RMS norm over the last dimension, rounded once."""
    scale = (x * x).mean(-1, keepdim=True).add(epsilon).rsqrt()
    return numerics.round(x * scale * weight)


def add_norm(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float, numerics: Numerics
) -> tuple[Tensor, Tensor]:
    """Return the norm of ``x + residual``, and the new residual: the sum, rounded."""
    total = x + residual
    return rms_norm(total, weight, epsilon, numerics), numerics.round(total)


def heads_of(x: Tensor, width: int) -> Tensor:
    """Return [..., heads · width] as [..., heads, width]."""
    return x.reshape(*x.shape[:-1], -1, width)


def gated(x: Tensor, weights: tuple[Tensor, Tensor, Tensor], numerics: Numerics) -> Tensor:
    """Return the SiLU-gated feed-forward of `x`, by its weights gate, up and down."""
    import torch.nn.functional as F  # noqa: N812

    gate, up, down = weights
    first, second = linear(x, gate, None, numerics), linear(x, up, None, numerics)
    return linear(numerics.round(F.silu(first) * second), down, None, numerics)


@dataclasses.dataclass(frozen=True)
class Rope:
    """Rotary positions: inverse frequencies, how much of a head they turn, and in which order.

    Attributes
    ----------
    inverse
        Inverse frequencies [rotary dimensions / 2], as plain numbers.
    scale
        Factor of cosines and sines (YaRN's attention factor).
    interleaved
        Neighbours are pairs (DeepSeek); else the two halves are (Llama).
    """

    inverse: tuple[float, ...]
    scale: float = 1.0
    interleaved: bool = False

    def turn(self, x: Tensor, positions: Tensor, numerics: Numerics) -> Tensor:
        """Return `x` [..., slots, head_dim] turned by `positions`, which broadcasts to [..., slots]."""
        import torch

        size = 2 * len(self.inverse)
        inverse = torch.tensor(self.inverse, dtype=torch.float32, device=x.device)
        angles = positions[..., None].float() * inverse
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        part, rest = x[..., :size], x[..., size:]
        if self.interleaved:
            first, second = part[..., ::2], part[..., 1::2]
        else:
            first, second = part.chunk(2, dim=-1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.stack(turned, -1).flatten(-2) if self.interleaved else torch.cat(turned, -1)
        joined = numerics.round(joined)
        return torch.cat([joined, rest], dim=-1) if rest.shape[-1] else joined


def attend(
    q: Tensor,
    shared: tuple[Tensor, Tensor, Tensor],
    own: tuple[Tensor, Tensor, Tensor] | None,
    scale: float,
    numerics: Numerics,
) -> Tensor:
    """Return attention outputs [batch, slots, heads, value_dim].

    Parameters
    ----------
    q
        Queries [batch, slots, heads, head_dim].
    shared
        Keys [batch, places, key_heads, head_dim], values [batch, places, key_heads, value_dim] and a bias
        [batch, slots, places]: 0 where a query sees a place, minus infinity where it does not, ln 2 where
        it sees it twice.
    own
        The same for places that one query alone has: [batch, slots, places, key_heads, …] and a bias
        [batch, slots, places].
    scale
        Factor of the scores.
    """
    import torch

    keys, values, bias = shared
    batch, slots, heads, _ = q.shape
    key_heads = keys.shape[2]
    grouped = q.reshape(batch, slots, key_heads, heads // key_heads, -1)
    scores = torch.einsum("bnkgd,bskd->bkgns", grouped, keys) * scale + bias[:, None, None]
    if own is not None:
        mine = torch.einsum("bnkgd,bnakd->bkgna", grouped, own[0]) * scale
        scores = torch.cat([scores, mine + own[2][:, None, None]], dim=-1)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    total = weights.sum(-1)
    weights = numerics.round(weights)
    places = keys.shape[1]
    out = torch.einsum("bkgns,bskd->bkgnd", weights[..., :places], values)
    if own is not None:
        out = out + torch.einsum("bkgna,bnakd->bkgnd", weights[..., places:], own[1])
    out = numerics.round(out / total[..., None])
    return out.permute(0, 3, 1, 2, 4).reshape(batch, slots, heads, -1)


def causal_bias(slots: int, lengths: Tensor) -> Tensor:
    """Return the bias [batch, slots, slots] of causal attention; past a row's length it sees itself alone."""
    import torch

    row = torch.arange(slots, device=lengths.device)
    seen = (row[:, None] >= row[None, :]) & (row[None, None, :] < lengths[:, None, None])
    seen = seen | torch.eye(slots, dtype=torch.bool, device=lengths.device)
    return bias_of(seen)


def bias_of(seen: Tensor) -> Tensor:
    """Return 0 where `seen` is true, minus infinity elsewhere."""
    import torch

    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, -math.inf)
