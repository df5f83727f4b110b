"""Multi-head latent attention of DeepSeek and Kimi drafts, unfolded into ordinary heads.

An engine absorbs `kv_b_proj` into queries and outputs and attends in the latent space; the result is the
same but for rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.speculation.model.layers import Numerics, Rope, heads_of, linear, rms_norm

if TYPE_CHECKING:
    from torch import Tensor

NAMES = (
    "q_a_proj",
    "q_a_layernorm",
    "q_b_proj",
    "kv_a_proj_with_mqa",
    "kv_a_layernorm",
    "kv_b_proj",
    "o_proj",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Latent:
    """Sizes: of the latent vectors, and of the parts of a head without and with a position."""

    q_rank: int
    kv_rank: int
    plain: int
    turned: int
    value: int


def latent_heads(
    x: Tensor,
    positions: Tensor,
    weights: Mapping[str, Tensor],
    name: str,
    sizes: Latent,
    rope: Rope,
    epsilon: float,
    numerics: Numerics,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return turned queries, turned keys and values [batch, slots, heads, …] of one layer.

    Parameters
    ----------
    x
        The attention's input [batch, slots, width].
    positions
        [batch, slots].
    weights, name
        All tensors, and what the names of this layer's attention begin with.
    """
    import torch

    def norm(part: str, value: Tensor) -> Tensor:
        return rms_norm(value, weights[f"{name}{part}.weight"], epsilon, numerics)

    def project(part: str, value: Tensor) -> Tensor:
        weight, bias = weights[f"{name}{part}.weight"], weights.get(f"{name}{part}.bias")
        return linear(value, weight, bias, numerics)

    places = positions[..., None]
    q = project("q_b_proj", norm("q_a_layernorm", project("q_a_proj", x)))
    q = heads_of(q, sizes.plain + sizes.turned)
    q_plain, q_turned = torch.split(q, [sizes.plain, sizes.turned], dim=-1)
    down = project("kv_a_proj_with_mqa", x)
    latent, shared = torch.split(down, [sizes.kv_rank, sizes.turned], dim=-1)
    kv = project("kv_b_proj", norm("kv_a_layernorm", latent))
    kv = heads_of(kv, sizes.plain + sizes.value)
    k_plain, values = torch.split(kv, [sizes.plain, sizes.value], dim=-1)
    k_turned = rope.turn(shared[..., None, :], places, numerics)  # one for all heads
    queries = torch.cat([q_plain, rope.turn(q_turned, places, numerics)], dim=-1)
    keys = torch.cat([k_plain, k_turned.expand(*k_plain.shape[:-1], sizes.turned)], dim=-1)
    return queries, keys, values
