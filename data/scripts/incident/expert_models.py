"""A target with latent attention and experts, and a one-layer EAGLE-3 draft with latent attention for it.

The target computes what transformers' DeepseekV3ForCausalLM does, with one group of experts as Kimi-K2 has;
the draft what SGLang's Eagle3DeepseekV2ForCausalLM does. The experts of a layer are trained as one wide
feed-forward part whose inner values are weighted expert by expert; `saved` takes them apart.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from models import Draft, Llama, Mlp, Norm, Sizes, initialise, linear
from torch import Tensor, nn

BALANCE = 1e-3  # step of the correction bias, after DeepSeek-V3


@dataclass(frozen=True)
class ExpertSizes(Sizes):
    """Sizes of the target; `head_dim` is the width of a query, without and with a position."""

    hidden_size: int = 128
    intermediate_size: int = 256
    num_hidden_layers: int = 8
    num_key_value_heads: int = 4
    q_lora_rank: int = 64
    kv_lora_rank: int = 96
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 32
    v_head_dim: int = 64
    first_k_dense_replace: int = 2
    n_routed_experts: int = 12
    n_shared_experts: int = 1
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 48
    routed_scaling_factor: float = 1.5

    def config(self) -> dict[str, Any]:
        """Return config.json as transformers 4 and 5 and SGLang read it."""
        plain = {k: v for k, v in super().config().items() if k != "head_dim"}
        return plain | {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "moe_layer_freq": 1,
            "rope_interleave": True,
            "rope_scaling": None,
        }

    def draft(self, intermediate: int) -> ExpertSizes:
        """Return the sizes of a draft: one dense layer of the same attention."""
        changed = {"num_hidden_layers": 1, "intermediate_size": intermediate}
        return ExpertSizes(**{**asdict(self), **changed, "first_k_dense_replace": 1})

    def draft_config(self, vocabulary: int) -> dict[str, Any]:
        """Return the config.json of a draft of these sizes."""
        named = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "draft_vocab_size": vocabulary}
        return self.config() | named


class LatentAttention(nn.Module):
    """The projections of multi-head latent attention, unfolded into ordinary heads."""

    def __init__(self, sizes: ExpertSizes, width: int) -> None:
        super().__init__()
        self.sizes = sizes
        heads, epsilon = sizes.num_attention_heads, sizes.rms_norm_eps
        query = sizes.qk_nope_head_dim + sizes.qk_rope_head_dim
        self.q_a_proj = linear(width, sizes.q_lora_rank)
        self.q_a_layernorm = Norm(sizes.q_lora_rank, epsilon)
        self.q_b_proj = linear(sizes.q_lora_rank, heads * query)
        self.kv_a_proj_with_mqa = linear(width, sizes.kv_lora_rank + sizes.qk_rope_head_dim)
        self.kv_a_layernorm = Norm(sizes.kv_lora_rank, epsilon)
        self.kv_b_proj = linear(
            sizes.kv_lora_rank, heads * (sizes.qk_nope_head_dim + sizes.v_head_dim)
        )
        self.o_proj = linear(heads * sizes.v_head_dim, sizes.hidden_size)

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, [batch, heads, slots, width]; the turned part lies behind."""
        s, count = self.sizes, self.sizes.num_attention_heads
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.unflatten(-1, (count, -1)).transpose(1, 2)
        latent, shared = self.kv_a_proj_with_mqa(x).split(
            [s.kv_lora_rank, s.qk_rope_head_dim], dim=-1
        )
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (count, -1)).transpose(1, 2)
        k, v = kv.split([s.qk_nope_head_dim, s.v_head_dim], dim=-1)
        plain, turned = q.split([s.qk_nope_head_dim, s.qk_rope_head_dim], dim=-1)
        one = self.turn(shared[:, None], cos, sin).expand(-1, count, -1, -1)
        return torch.cat([plain, self.turn(turned, cos, sin)], -1), torch.cat([k, one], -1), v

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn neighbours as pairs; every second angle of a head twice as wide is one of this one's."""
        step = self.sizes.head_dim // self.sizes.qk_rope_head_dim
        half = self.sizes.qk_rope_head_dim // 2
        cos, sin = (t[:, : half * step : step] for t in (cos, sin))
        first, second = x[..., ::2], x[..., 1::2]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)

    def join(self, x: Tensor) -> Tensor:
        """Project the heads' outputs back."""
        return self.o_proj(x.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """All experts of a layer as one wide feed-forward part, and a shared one beside it."""

    def __init__(self, sizes: ExpertSizes) -> None:
        super().__init__()
        self.sizes = sizes
        wide = sizes.n_routed_experts * sizes.moe_intermediate_size
        self.gate = linear(sizes.hidden_size, sizes.n_routed_experts)
        self.gate_proj = linear(sizes.hidden_size, wide)
        self.up_proj = linear(sizes.hidden_size, wide)
        self.down_proj = linear(wide, sizes.hidden_size)
        width = sizes.moe_intermediate_size * sizes.n_shared_experts
        self.shared_experts = Mlp(Sizes(hidden_size=sizes.hidden_size, intermediate_size=width))
        self.correction: Tensor
        self.register_buffer("correction", torch.zeros(sizes.n_routed_experts))

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to [..., hidden]."""
        s = self.sizes
        scores = self.gate(x).float().sigmoid()
        chosen = (scores.detach() + self.correction.float()).topk(s.num_experts_per_tok, -1).indices
        if self.training:
            self.balance(chosen)
        weights = scores.gather(-1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * s.routed_scaling_factor
        spread = torch.zeros_like(scores).scatter(-1, chosen, weights).to(x.dtype)
        inner = F.silu(self.gate_proj(x)) * self.up_proj(x)
        inner = inner * spread.repeat_interleave(s.moe_intermediate_size, -1)
        return self.down_proj(inner) + self.shared_experts(x)

    @torch.no_grad()
    def balance(self, chosen: Tensor) -> None:
        """Make experts that are chosen too rarely likelier to be chosen."""
        load = torch.bincount(chosen.flatten(), minlength=self.sizes.n_routed_experts).float()
        self.correction += BALANCE * (load.mean() - load).sign()

    def saved(self) -> dict[str, Tensor]:
        """Return the tensors by the names of a checkpoint, each expert by itself."""
        width = self.sizes.moe_intermediate_size
        out = {"gate.weight": self.gate.weight, "gate.e_score_correction_bias": self.correction}
        for n in range(self.sizes.n_routed_experts):
            rows = slice(n * width, (n + 1) * width)
            out[f"experts.{n}.gate_proj.weight"] = self.gate_proj.weight[rows]
            out[f"experts.{n}.up_proj.weight"] = self.up_proj.weight[rows]
            out[f"experts.{n}.down_proj.weight"] = self.down_proj.weight[:, rows]
        shared = self.shared_experts.state_dict()
        return out | {f"shared_experts.{name}": value for name, value in shared.items()}


class ExpertTarget(Llama):
    """The target."""

    def __init__(self, sizes: ExpertSizes, dropout: float = 0.0) -> None:
        super().__init__(sizes, dropout)
        for number, layer in enumerate(self.model.layers):
            layer.self_attn = LatentAttention(sizes, sizes.hidden_size)
            if number >= sizes.first_k_dense_replace:
                layer.mlp = Experts(sizes)
        initialise(self, sizes.num_hidden_layers)

    def saved(self) -> dict[str, Tensor]:
        """Return bfloat16 tensors by the names of a checkpoint; the correction stays in float32."""
        found: dict[str, Tensor] = {}
        wide = {n: m for n, m in self.named_modules() if isinstance(m, Experts)}
        for name, value in self.state_dict().items():
            if not any(name.startswith(f"{n}.") for n in wide):
                found[name] = value
        for name, module in wide.items():
            found |= {f"{name}.{part}": value for part, value in module.saved().items()}
        return {
            name: value.detach().to(torch.float32 if name.endswith("_bias") else torch.bfloat16)
            for name, value in found.items()
        }


class LatentDraft(Draft):
    """The draft."""

    def __init__(self, sizes: ExpertSizes, embedding: Tensor, kept: Tensor) -> None:
        super().__init__(sizes, embedding, kept)
        self.layers[0].self_attn = LatentAttention(sizes, 2 * sizes.hidden_size)
        initialise(self, 1)


def parameters(model: nn.Module) -> int:
    """Return how many numbers a model has."""
    return sum(math.prod(p.shape) for p in model.parameters())
