"""The arithmetic of target and draft: norms, rotary positions, attention, and where an engine rounds.

All is computed in float32. An engine that serves in bfloat16 computes the same with every intermediate
result rounded; `Numerics` says so, and the functions here round where SGLang's kernels do: a linear layer's
output once, a norm's output once (its sum with the residual enters unrounded), rotated queries and keys once,
the attention's weights before they meet the values, its output once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["float32", "bfloat16", "float16"]


@dataclasses.dataclass(frozen=True, slots=True)
class Numerics:
    """Which type intermediate results are rounded to, and how a GPU's tensor cores add.

    Attributes
    ----------
    kind
        ``float32`` rounds nothing.
    block
        How many products a tensor core adds to its float32 sum at once, rounding toward zero: 16 on NVIDIA's
        Hopper, as its recorded results show. 0: sums are as exact as float32 has them.
    """

    kind: Kind = "float32"
    block: int = 0

    def round(self, x: Tensor) -> Tensor:
        """Return `x` (float32) with the values that this type can hold, still as float32."""
        if self.kind == "float32":
            return x
        return (x.bfloat16() if self.kind == "bfloat16" else x.half()).float()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, numerics: Numerics) -> Tensor:
    """Return ``x @ weight.T + bias``, rounded once."""
    import torch.nn.functional as F  # noqa: N812

    if numerics.block:
        out = blockwise(x, weight, numerics.block)
        return numerics.round(out if bias is None else out + bias)
    return numerics.round(F.linear(x, weight, bias))


# The bits of a float64 that a float32 has no room for.
_LOST = ~((1 << 29) - 1)
_SLICE = 128  # rows at a time: the sums stay in the processor's cache


def blockwise(x: Tensor, weight: Tensor, block: int) -> Tensor:
    """Return ``x @ weight.T`` as a tensor core sums it: some products at once, then cut to float32."""
    import torch

    rows, columns = x.reshape(-1, x.shape[-1]).double(), weight.double().t().contiguous()
    out = torch.empty(len(rows), columns.shape[1], dtype=torch.float32, device=x.device)
    for start in range(0, len(rows), _SLICE):
        part = rows[start : start + _SLICE]
        total = torch.zeros(len(part), columns.shape[1], dtype=torch.float64, device=x.device)
        for at in range(0, columns.shape[0], block):
            total.addmm_(part[:, at : at + block], columns[at : at + block])
            total.view(torch.int64).bitwise_and_(_LOST)
        out[start : start + _SLICE] = total.float()
    return out.reshape(*x.shape[:-1], -1)


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


# Keys that SGLang's Triton kernels take at once on Hopper and newer: when a sequence is extended (prefill,
# verification), and when it is decoded, where each run of keys is summed for itself.
EXTEND_TILE = 64
DECODE_TILE = 32


@dataclasses.dataclass(frozen=True)
class AttentionContext:
    """Keys, values, and which query sees them.

    Attributes
    ----------
    keys, values
        [batch, places, key_heads, …], or [batch, slots, places, key_heads, …] where each query has its own.
    bias
        [batch, slots, places]: 0 where a query sees a place, minus infinity where it does not.
    tiles
        Which tile of keys a place falls into, [batch, slots, places]: a kernel rounds its weights tile by
        tile, each against the largest score up to there. None: all at once.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor
    tiles: Tensor | None = None


def attend(
    q: Tensor,
    seen: AttentionContext,
    own: AttentionContext | None,
    scale: float,
    numerics: Numerics,
    running: bool = True,
) -> Tensor:
    """Return attention outputs [batch, slots, heads, value_dim].

    Parameters
    ----------
    q
        Queries [batch, slots, heads, head_dim].
    seen, own
        Places that all queries of a row share, and places that each query has for itself.
    scale
        Factor of the scores.
    running
        Whether a tile is rounded against the largest score so far (extending) or its own (decoding).
    """
    import torch

    batch, slots, heads, _ = q.shape
    key_heads = seen.keys.shape[2]
    grouped = q.reshape(batch, slots, key_heads, heads // key_heads, -1)
    scores = torch.einsum("bnkgd,bskd->bkgns", grouped, seen.keys) * scale
    scores = scores + seen.bias[:, None, None]
    tiles = seen.tiles
    if own is not None:
        mine = torch.einsum("bnkgd,bnakd->bkgna", grouped, own.keys) * scale
        scores = torch.cat([scores, mine + own.bias[:, None, None]], dim=-1)
        if tiles is not None and own.tiles is not None:
            tiles = torch.cat([tiles, own.tiles], dim=-1)
    largest = scores.amax(-1, keepdim=True)
    if tiles is None or numerics.kind == "float32":
        weights = (scores - largest).exp()
        total = weights.sum(-1)
        weights = numerics.round(weights)
    else:
        against = _against(scores, tiles, running)
        weights, rest = (scores - against).exp(), (against - largest).exp()
        total = (weights * rest).sum(-1)
        weights = numerics.round(weights) * rest
    places = seen.keys.shape[1]
    out = torch.einsum("bkgns,bskd->bkgnd", weights[..., :places], seen.values)
    if own is not None:
        out = out + torch.einsum("bkgna,bnakd->bkgnd", weights[..., places:], own.values)
    out = numerics.round(out / total[..., None])
    return out.permute(0, 3, 1, 2, 4).reshape(batch, slots, heads, -1)


Pair = tuple["Tensor", "Tensor"]
"""Keys and values [rows, places, heads, …] that are kept, in the order in memory in which `attend`
multiplies them: it would copy them into it in every step."""


def rows_of(pair: Pair, at: Tensor) -> Pair:
    """Return some rows of keys and values."""
    keys, values = _laid(pair)
    return _original_layout(keys.index_select(0, at), values.index_select(0, at))


def joined(pairs: Iterable[Pair]) -> Pair:
    """Put keys and values of more places behind one another."""
    import torch

    keys, values = zip(*map(_laid, pairs), strict=True)
    return _original_layout(torch.cat(keys, dim=3), torch.cat(values, dim=2))


def below(pairs: Iterable[Pair]) -> Pair:
    """Put keys and values of more rows below one another."""
    import torch

    keys, values = zip(*map(_laid, pairs), strict=True)
    return _original_layout(torch.cat(keys), torch.cat(values))


def _laid(pair: Pair) -> Pair:
    """Return keys [rows, heads, width, places] and values [rows, heads, places, width]."""
    return pair[0].permute(0, 2, 3, 1), pair[1].transpose(1, 2)


def _original_layout(keys: Tensor, values: Tensor) -> Pair:
    """Return what `_laid` made of a pair as it was."""
    return keys.permute(0, 3, 1, 2), values.transpose(1, 2)


def _against(scores: Tensor, tiles: Tensor, running: bool) -> Tensor:
    """Return the score that each weight is taken against: the largest of its tile, or so far."""
    import torch

    tiles = tiles[:, None, None].expand_as(scores)
    count = int(tiles.max()) + 1
    none = torch.full(
        (*scores.shape[:-1], count), -math.inf, dtype=scores.dtype, device=scores.device
    )
    largest = none.scatter_reduce(-1, tiles, scores, "amax")
    if running:
        largest = largest.cummax(-1).values
    # A tile without any key that is seen weighs nothing, whatever it is taken against.
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    return largest.gather(-1, tiles)


def extend_tiles(begins: Tensor, places: Tensor) -> Tensor:
    """Return the tile of each place for queries whose block of the text begins at `begins`.

    Parameters
    ----------
    begins
        [batch, slots]: the first place that was computed together with the query; what lies before is its
        prefix, and the tiles begin anew behind it.
    places
        [places].
    """
    before = (begins + EXTEND_TILE - 1) // EXTEND_TILE
    begin, inside = begins[..., None], places[None, None, :]
    behind = before[..., None] + (inside - begin).clamp(min=0) // EXTEND_TILE
    return (inside // EXTEND_TILE).where(inside < begin, behind)


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
