"""The two models of the shipped case in plain PyTorch: a Llama, and a one-layer EAGLE-3 draft for it.

Parameters have the names of Hugging Face's Llama and of speculators' draft, so that `state_dict()` is what
goes into a file. The draft computes what SGLang 0.5.11 computes: embedding first in the attention's input,
the un-normed `fc` output as the residual, and the un-normed output fed to the next step.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Llama or of a draft's layer."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 480
    num_hidden_layers: int = 12
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    max_position_embeddings: int = 512
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0

    def auxiliary(self) -> list[int]:
        """Return the layers whose input a draft reads."""
        return [2, self.num_hidden_layers // 2, self.num_hidden_layers - 3]

    def config(self) -> dict[str, Any]:
        """Return config.json as transformers 4 and 5 and SGLang read it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "initializer_range": 0.02,
            "mlp_bias": False,
            "pad_token_id": 3,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            **asdict(self),
        }

    @classmethod
    def read(cls, config: dict[str, Any]) -> Sizes:
        """Take the sizes out of a config.json."""
        return cls(**{name: config[name] for name in cls.__dataclass_fields__ if name in config})


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; the kernel sums in float32, whatever the input's type."""
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.epsilon).to(x.dtype)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def rotations(sizes: Sizes, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [positions, head_dim] in Llama's order (two halves)."""
    steps = torch.arange(0, sizes.head_dim, 2, device=positions.device).float() / sizes.head_dim
    angles = positions.float()[:, None] * sizes.rope_theta**-steps
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys [batch, heads, slots, head_dim] by their positions."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    """The projections of grouped-query attention; who attends to whom is the caller's business."""

    def __init__(self, sizes: Sizes, width: int) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        self.q_proj = linear(width, sizes.num_attention_heads * sizes.head_dim)
        self.k_proj = linear(width, sizes.num_key_value_heads * sizes.head_dim)
        self.v_proj = linear(width, sizes.num_key_value_heads * sizes.head_dim)
        self.o_proj = linear(sizes.num_attention_heads * sizes.head_dim, sizes.hidden_size)

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries, rotated keys and values, [batch, heads, slots, head_dim]."""
        q, k, v = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def join(self, x: Tensor) -> Tensor:
        """Project the heads' outputs back."""
        return self.o_proj(x.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """SiLU-gated feed-forward."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate_proj = linear(sizes.hidden_size, sizes.intermediate_size)
        self.up_proj = linear(sizes.hidden_size, sizes.intermediate_size)
        self.down_proj = linear(sizes.intermediate_size, sizes.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to [..., hidden]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A layer of the target."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.input_layernorm = Norm(sizes.hidden_size, sizes.rms_norm_eps)
        self.self_attn = Attention(sizes, sizes.hidden_size)
        self.post_attention_layernorm = Norm(sizes.hidden_size, sizes.rms_norm_eps)
        self.mlp = Mlp(sizes)


class Trunk(nn.Module):
    """The target without its head."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = Norm(sizes.hidden_size, sizes.rms_norm_eps)


class Llama(nn.Module):
    """The target."""

    def __init__(self, sizes: Sizes, dropout: float = 0.0) -> None:
        super().__init__()
        self.sizes, self.dropout = sizes, dropout
        self.model = Trunk(sizes)
        self.lm_head = linear(sizes.hidden_size, sizes.vocab_size)
        initialise(self, sizes.num_hidden_layers)

    def layer(
        self, layer: Any, x: Tensor, turn: tuple[Tensor, Tensor], cache: Any = None
    ) -> Tensor:
        """Run one layer over all slots (cache None), or over the slots that follow those in the cache."""
        q, k, v = layer.self_attn.heads(layer.input_layernorm(x), *turn)
        if cache is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            keys, values, start = cache
            end = start + q.shape[2]
            keys[:, :, start:end], values[:, :, start:end] = k, v
            out = F.scaled_dot_product_attention(
                q, keys[:, :, :end], values[:, :, :end], is_causal=start == 0, enable_gqa=True
            )
        x = x + self.drop(layer.self_attn.join(out))
        return x + self.drop(layer.mlp(layer.post_attention_layernorm(x)))

    def drop(self, x: Tensor) -> Tensor:
        """Drop out, in training."""
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def forward(
        self, ids: Tensor, auxiliary: list[int] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return logits [batch, slots, vocabulary], and the inputs of the auxiliary layers side by side.

        Parameters
        ----------
        ids
            Tokens [batch, slots].
        auxiliary
            Layers k whose input (the output of layer k - 1) is wanted.
        """
        turn = rotations(self.sizes, torch.arange(ids.shape[1], device=ids.device))
        x = self.drop(self.model.embed_tokens(ids))
        if torch.is_autocast_enabled(x.device.type):
            x = x.bfloat16()  # the residual of the engine is bfloat16, too
        kept = []
        for number, layer in enumerate(self.model.layers):
            if auxiliary and number in auxiliary:
                kept.append(x)
            x = self.layer(layer, x, turn)
        return self.lm_head(self.model.norm(x)), torch.cat(kept, dim=-1) if kept else None

    @torch.no_grad()
    def continue_greedily(self, prompts: Tensor, lengths: Tensor, total: int) -> Tensor:
        """Return tokens [batch, total]: the prompts, each of its own length, and greedy continuations.

        Parameters
        ----------
        prompts
            Tokens [batch, longest prompt]; what lies past a prompt's length is not read.
        lengths
            Length of each prompt, at least 1.
        """
        sizes, batch, device = self.sizes, prompts.shape[0], prompts.device
        kind = self.lm_head.weight.dtype
        shape = (batch, sizes.num_key_value_heads, total, sizes.head_dim)
        caches = [
            (
                torch.empty(shape, dtype=kind, device=device),
                torch.empty(shape, dtype=kind, device=device),
            )
            for _ in self.model.layers
        ]
        ids = torch.zeros(batch, total, dtype=torch.long, device=device)
        ids[:, : prompts.shape[1]] = prompts
        cos, sin = rotations(sizes, torch.arange(total, device=device))
        start, end = 0, int(lengths.min())
        while end < total:
            x = self.model.embed_tokens(ids[:, start:end])
            for layer, (keys, values) in zip(self.model.layers, caches, strict=True):
                x = self.layer(layer, x, (cos[start:end], sin[start:end]), (keys, values, start))
            best = self.lm_head(self.model.norm(x[:, -1])).argmax(-1)
            ids[:, end] = torch.where(end < lengths, ids[:, end], best)
            start, end = end, end + 1
        return ids


class DraftLayer(nn.Module):
    """The draft's only layer: attention over embedding and features side by side."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.input_layernorm = Norm(sizes.hidden_size, sizes.rms_norm_eps)
        self.hidden_norm = Norm(sizes.hidden_size, sizes.rms_norm_eps)
        self.self_attn = Attention(sizes, 2 * sizes.hidden_size)
        self.post_attention_layernorm = Norm(sizes.hidden_size, sizes.rms_norm_eps)
        self.mlp = Mlp(sizes)


class Draft(nn.Module):
    """A one-layer EAGLE-3 draft; the embedding is the target's and is not trained."""

    def __init__(self, sizes: Sizes, embedding: Tensor, kept: Tensor) -> None:
        super().__init__()
        self.sizes = sizes
        self.fc = linear(3 * sizes.hidden_size, sizes.hidden_size)
        self.layers = nn.ModuleList([DraftLayer(sizes)])
        self.norm = Norm(sizes.hidden_size, sizes.rms_norm_eps)
        self.lm_head = linear(sizes.hidden_size, len(kept))
        initialise(self, 1)
        self.embedding: Tensor
        self.kept: Tensor
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("kept", kept, persistent=False)  # target id of each draft id

    def step(
        self, tokens: Tensor, hidden: Tensor, past: list[tuple[Tensor, Tensor]], positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run one step of drafting in every slot at once, as training-time test asks.

        Parameters
        ----------
        tokens
            [batch, slots]: the token that each slot is given.
        hidden
            [batch, slots, hidden]: `fc`'s output at first, then this step's own output of the time before.
        past
            Keys and values of the steps before; this step's are added. A slot sees step 0 of all slots up to
            itself, and of later steps its own alone: the chain that it drafted.
        positions
            Of the slots in step 0, [slots].

        Returns
        -------
        logits
            [batch, slots, draft vocabulary].
        hidden
            The features for the next step, before the norm.
        """
        layer = self.layers[0]
        number, slots = len(past), tokens.shape[1]
        embedded = F.embedding(tokens, self.embedding).to(hidden.dtype)
        x = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], dim=-1)
        q, k, v = layer.self_attn.heads(x, *rotations(self.sizes, positions + number))
        past.append((k, v))
        groups = q.shape[1] // k.shape[1]
        keys, values = (
            [pair[which].repeat_interleave(groups, dim=1) for pair in past] for which in (0, 1)
        )
        future = torch.ones(slots, slots, dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ keys[0].transpose(-1, -2)).float().masked_fill(future, -math.inf)
        own = [(q * key).float().sum(-1, keepdim=True) for key in keys[1:]]
        weights = (
            (torch.cat([scores, *own], dim=-1) / math.sqrt(q.shape[-1])).softmax(-1).to(q.dtype)
        )
        out = weights[..., :slots] @ values[0]
        for step, value in enumerate(values[1:]):
            out = out + weights[..., slots + step, None] * value
        hidden = hidden + layer.self_attn.join(out)
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.lm_head(self.norm(hidden)), hidden


def initialise(model: nn.Module, layers: int) -> None:
    """Draw weights: sigma 0.02, smaller where a layer's output joins the residual."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            joins = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if joins else 0.02)


def optimizer(model: nn.Module, rate: float, decay: float = 0.1) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices only."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=parameters[0].is_cuda)


def cosine(share: float, warm: float = 0.02, floor: float = 0.05) -> float:
    """Return the factor of the learning rate when this share of the time is over."""
    if share < warm:
        return share / warm
    share = min(1.0, (share - warm) / (1 - warm))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))
