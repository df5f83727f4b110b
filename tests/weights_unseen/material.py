"""Trained weights, and what real tools do to them.

The trained values are those of the shipped target and draft, and of modules that are trained here for a
few seconds (a byte model with Muon, LoRA and DoRA adapters, a router, Medusa heads).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

INCIDENT = Path(__file__).resolve().parents[2] / "data" / "incident"
BF = torch.bfloat16
H, MLP, V = 256, 480, 1024
LAYERS = (0, 4, 8)
ATTENTION = tuple(f"self_attn.{one}_proj" for one in "qkvo")
LINEARS = (*ATTENTION, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": H,
    "intermediate_size": MLP,
    "num_hidden_layers": len(LAYERS),
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": V,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
}
# A family that no profile knows: what counts is what is in the file.
PLAIN: dict[str, Any] = {"model_type": "of_our_own"}


@functools.cache
def _file(name: str) -> dict[str, Tensor]:
    return load_file(INCIDENT / name / "model.safetensors")


def target() -> dict[str, Tensor]:
    """The shipped target's tensors."""
    return _file("target")


def draft() -> dict[str, Tensor]:
    """A copy of the shipped draft in SGLang's names, without an embedding."""
    return {name: value.clone() for name, value in _file("drafts/specforge").items()}


def draft_config(**changes: Any) -> dict[str, Any]:
    """The config of `draft()`."""
    return json.loads((INCIDENT / "drafts/specforge/config.json").read_text()) | changes


def linear(name: str, layer: int) -> Tensor:
    """A trained linear of the target, as float32."""
    return target()[f"model.layers.{layer}.{name}.weight"].float()


def llama(layers: tuple[int, ...] = LAYERS) -> dict[str, Tensor]:
    """Some layers of the target, numbered again, with the first rows of its embedding and head."""
    theirs = target()
    made = {
        "model.embed_tokens.weight": theirs["model.embed_tokens.weight"][:V].clone(),
        "lm_head.weight": theirs["lm_head.weight"][:V].clone(),
        "model.norm.weight": theirs["model.norm.weight"].clone(),
    }
    for index, layer in enumerate(layers):
        for part in (*LINEARS, *NORMS):
            name = f"{part}.weight"
            made[f"model.layers.{index}.{name}"] = theirs[f"model.layers.{layer}.{name}"].clone()
    return made


def is_linear(name: str) -> bool:
    """Whether a name is one of a layer's projections."""
    return name.endswith("_proj.weight")


def write(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any] | None) -> None:
    """Write a checkpoint of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous().clone() for name, value in tensors.items()},
        folder / "model.safetensors",
    )
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


def normal(*shape: int, seed: int, std: float = 0.02) -> Tensor:
    """An init of the normal law."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * std


def uniform(*shape: int, seed: int, bound: float) -> Tensor:
    """An init of the uniform law."""
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1) * bound


def hadamard(size: int) -> Tensor:
    """Sylvester's matrix of a power of two, normalised."""
    made = torch.ones(1, 1)
    while len(made) < size:
        made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)])
    return made / size**0.5


def rotated(tensors: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """QuaRot's first rotation: norms folded into what they feed, the stream turned by a random Hadamard."""
    signs = torch.randint(0, 2, (H,), generator=torch.Generator().manual_seed(seed)) * 2 - 1
    turn = hadamard(H) * signs
    made = {name: value.clone() for name, value in tensors.items()}
    for name, value in tensors.items():
        if "layernorm" in name:
            readers = (
                ("q_proj", "k_proj", "v_proj") if "input" in name else ("gate_proj", "up_proj")
            )
            for reader in readers:
                part = "self_attn" if "input" in name else "mlp"
                key = f"{name.rsplit('.', 2)[0]}.{part}.{reader}.weight"
                made[key] = made[key].float() * value.float()
            made[name] = torch.ones(H, dtype=BF)
    made["lm_head.weight"] = made["lm_head.weight"].float() * made["model.norm.weight"].float()
    made["model.norm.weight"] = torch.ones(H, dtype=BF)
    for name, value in made.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            made[name] = (turn.T @ value.float()).to(BF)
        elif value.ndim == 2:
            made[name] = (value.float() @ turn).to(BF)
    return made


def int4(value: Tensor, group: int = 32) -> tuple[Tensor, Tensor]:
    """compressed-tensors' pack-quantized: eight signed codes an int32, and a scale a group."""
    rows, columns = value.shape
    parts = value.float().reshape(rows, columns // group, group)
    scale = parts.abs().amax(-1) / 7
    codes = (parts / scale[..., None]).round().clamp(-8, 7).reshape(rows, columns).to(
        torch.int64
    ) + 8
    packed = torch.zeros(rows, columns // 8, dtype=torch.int64)
    for place in range(8):
        packed |= codes[:, place::8] << (4 * place)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
    return packed, scale.to(BF)


INT4 = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "group",
                    "group_size": 32,
                },
            }
        },
    }
}
INT8 = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
                "input_activations": {
                    "num_bits": 8,
                    "type": "int",
                    "dynamic": True,
                    "strategy": "token",
                },
            }
        },
    }
}
FP8 = {
    "quantization_config": {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "activation_scheme": "dynamic",
    }
}
FP8_TENSOR = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}


def int8(value: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and a scale a row."""
    scale = value.float().abs().amax(1, keepdim=True) / 127
    return (value.float() / scale).round().to(torch.int8), scale


def fp8_blocks(value: Tensor, block: int = 128) -> tuple[Tensor, Tensor]:
    """DeepSeek's fp8: codes, and one scale a block (`weight_scale_inv` multiplies)."""
    rows, columns = value.shape
    high, wide = -(-rows // block), -(-columns // block)
    scale = torch.zeros(high, wide)
    codes = torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
    for i in range(high):
        for j in range(wide):
            at = (slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block))
            scale[i, j] = value[at].float().abs().max() / 448
            codes[at] = (value[at].float() / scale[i, j]).to(torch.float8_e4m3fn)
    return codes, scale


# --- trained here --------------------------------------------------------------------------------------


def inputs() -> Tensor:
    """Rows of the target's embedding, normalised, as inputs of the modules that are trained here."""
    rows = target()["model.embed_tokens.weight"].float()
    return rows / rows.pow(2).mean(1, keepdim=True).sqrt()


@functools.cache
def adapter(name: str, layer: int, rank: int = 16, steps: int = 300) -> tuple[Tensor, Tensor]:
    """A LoRA pair trained with AdamW so that a linear of `layer` answers as that of another layer."""
    torch.manual_seed(layer)
    base, teacher = linear(name, layer), linear(name, layer + 1)
    first, second = torch.empty(rank, base.shape[1]), torch.zeros(base.shape[0], rank)
    torch.nn.init.kaiming_uniform_(first, a=5**0.5)
    pair = [first.requires_grad_(), second.requires_grad_()]
    optimiser = torch.optim.AdamW(pair, lr=5e-4)
    data = inputs() if base.shape[1] == H else torch.relu(inputs() @ linear("mlp.up_proj", layer).T)
    for step in range(steps):
        at = data[torch.arange(step * 64, step * 64 + 64) % len(data)]
        error = at @ (base - teacher).T + 2 * (at @ pair[0].T) @ pair[1].T
        optimiser.zero_grad()
        error.pow(2).mean().backward()
        optimiser.step()
    return first.detach().clone(), second.detach().clone()


@functools.cache
def router(experts: int, steps: int = 200) -> Tensor:
    """A gate trained to send tokens to experts by how frequent they are (ids are in that order)."""
    torch.manual_seed(experts)
    gate = torch.nn.Linear(H, experts, bias=False)
    data, n = inputs(), len(inputs())
    optimiser = torch.optim.AdamW(gate.parameters(), lr=5e-3)
    for step in range(steps):
        at = (torch.arange(128) * 37 + step * 101) % n
        loss = functional.cross_entropy(gate(data[at]), at * experts // n)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return gate.weight.detach().clone()


@functools.cache
def medusa_block(head: int, steps: int = 200) -> tuple[Tensor, Tensor]:
    """A residual block, zero at first, trained so that the frozen head names a later token."""
    block = torch.nn.Linear(H, H)
    torch.nn.init.zeros_(block.weight)
    torch.nn.init.zeros_(block.bias)
    data, out = inputs()[:V], target()["lm_head.weight"][:V].float()
    optimiser = torch.optim.AdamW(block.parameters(), lr=2e-3)
    for step in range(steps):
        at = (torch.arange(128) * 29 + step * 83) % V
        hidden = data[at] + functional.silu(block(data[at]))
        loss = functional.cross_entropy(hidden @ out.T, (at + head + 1) % V)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return block.weight.detach().clone(), block.bias.detach().clone()


class _Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norms[0](x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.relu(self.up(self.norms[1](x))).square())


def _newton_schulz(value: Tensor) -> Tensor:
    x = value / (value.norm() + 1e-7)
    x = x.T if value.shape[0] > value.shape[1] else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if value.shape[0] > value.shape[1] else x


@functools.cache
def muon_model(steps: int = 120, width: int = 128) -> dict[str, Tensor]:
    """A byte model whose matrices Muon trained, and whose embedding and head AdamW did."""
    torch.manual_seed(7)
    text = np.frombuffer((INCIDENT / "training" / "prompts.jsonl").read_bytes(), np.uint8)
    data = torch.from_numpy(text.astype(np.int64))
    embed, head = torch.nn.Embedding(256, width), torch.nn.Linear(width, 256, bias=False)
    blocks, norm = torch.nn.ModuleList(_Block(width) for _ in range(2)), torch.nn.RMSNorm(width)
    matrices = [one for one in blocks.parameters() if one.ndim == 2]
    others = [*embed.parameters(), *head.parameters(), *norm.parameters()]
    others += [one for one in blocks.parameters() if one.ndim == 1]
    adam = torch.optim.AdamW(others, lr=3e-3)
    momentum = [torch.zeros_like(one) for one in matrices]
    draw = torch.Generator().manual_seed(8)
    for _ in range(steps):
        at = torch.randint(0, len(data) - 65, (8,), generator=draw)
        batch = torch.stack([data[one : one + 65] for one in at.tolist()])
        x = embed(batch[:, :-1])
        for block in blocks:
            x = block(x)
        loss = functional.cross_entropy(head(norm(x)).flatten(0, 1), batch[:, 1:].flatten())
        for one in matrices:
            one.grad = None
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            for one, kept in zip(matrices, momentum, strict=True):
                assert one.grad is not None
                kept.mul_(0.95).add_(one.grad)
                step = _newton_schulz(one.grad + 0.95 * kept)
                one.add_(step, alpha=-0.02 * max(1.0, one.shape[0] / one.shape[1]) ** 0.5)
    if loss.item() > 2.9:  # uniform over bytes is 5.5
        raise RuntimeError(f"the byte model did not learn: {loss.item():.2f}")
    made = {"embed.weight": embed.weight, "head.weight": head.weight, "norm.weight": norm.weight}
    for index, block in enumerate(blocks):
        made |= {f"blocks.{index}.{name}": value for name, value in block.named_parameters()}
    return {name: value.detach().to(BF) for name, value in made.items()}
