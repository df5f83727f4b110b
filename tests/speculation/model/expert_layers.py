"""Prediction layers with experts, put together from transformers' own modules of each family."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

H, V, HEADS = 32, 60, 4
COMMON: dict[str, Any] = {
    "hidden_size": H, "vocab_size": V, "num_attention_heads": HEADS, "num_hidden_layers": 2,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_experts_per_tok": 2,
    "norm_topk_prob": True, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
GROUPED: dict[str, Any] = {
    "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
    "routed_scaling_factor": 1.7, "first_k_dense_replace": 1,
}  # fmt: skip
ROPE = {"rope_type": "default", "rope_theta": 500.0}
YARN = {
    "rope_type": "yarn", "factor": 8.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.8,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Family:
    """How a family is built by transformers, and what SGLang calls its prediction layer."""

    module: str
    begins: str
    engine_class: str
    config: dict[str, Any]
    rope: dict[str, Any]
    more: dict[str, Any] = dataclasses.field(default_factory=dict)  # what only an engine reads
    gain: float = 1.0  # about which the gains of norms are drawn
    apart: bool = False  # Qwen keeps the layer apart from its own, and calls its parts otherwise

    @property
    def classes(self) -> Any:
        """The module of transformers."""
        from importlib import import_module

        return import_module(f"transformers.models.{self.module}.modeling_{self.module}")

    def named(self, part: str) -> Any:
        """Return a class of the module."""
        return getattr(self.classes, self.begins + part)

    def settings(self, **changes: Any) -> Any:
        """Return the config object."""
        from importlib import import_module

        module = import_module(f"transformers.models.{self.module}.configuration_{self.module}")
        fields = {**COMMON, **self.config, "rope_parameters": {**ROPE, **self.rope}, **changes}
        return getattr(module, f"{self.begins}Config")(**fields, attn_implementation="eager")

    def written(self, **changes: Any) -> dict[str, Any]:
        """Return config.json as it is published: rope_theta by itself."""
        plain = {**COMMON, **self.config, "rope_theta": ROPE["rope_theta"]}
        scaled = "rope_type" in self.rope
        plain |= {"rope_scaling": {**self.rope, "type": "yarn"}} if scaled else self.rope
        named = {"architectures": [self.engine_class], "model_type": self.module}
        return {**plain, **named, **self.more, **changes}


FAMILIES = {
    "deepseek": Family(
        "deepseek_v3",
        "DeepseekV3",
        "DeepseekV3ForCausalLMNextN",
        {
            **GROUPED,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "num_key_value_heads": HEADS,
        },
        YARN,
        {
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "moe_layer_freq": 1,
            "num_nextn_predict_layers": 1,
        },
    ),
    "glm": Family(
        "glm4_moe",
        "Glm4Moe",
        "Glm4MoeForCausalLMNextN",
        {
            **GROUPED,
            "n_group": 1,
            "topk_group": 1,
            "routed_scaling_factor": 1.0,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "attention_bias": True,
            "use_qk_norm": True,
        },
        {"partial_rotary_factor": 0.5},
        {"num_nextn_predict_layers": 1},
    ),
    "qwen3": Family(
        "qwen3_moe",
        "Qwen3Moe",
        "Qwen3MoeForCausalLMMTP",
        {
            "num_experts": 8,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        {},
        apart=True,
    ),
    "qwen3-next": Family(
        "qwen3_next",
        "Qwen3Next",
        "Qwen3NextForCausalLMMTP",
        {
            "num_experts": 8,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "shared_expert_intermediate_size": 24,
            "layer_types": ["full_attention", "full_attention"],
        },
        {"partial_rotary_factor": 0.5},
        gain=0.0,
        apart=True,
    ),
}
APART = {
    "enorm.": "pre_fc_norm_embedding.", "hnorm.": "pre_fc_norm_hidden.", "eh_proj.": "fc.",
    "last.": "norm.",
}  # fmt: skip


class Layer(torch.nn.Module):
    """A prediction layer: two norms, the joining matrix, a decoder layer of the family, the last norm."""

    def __init__(self, family: Family, seed: int = 5, **changes: Any) -> None:
        super().__init__()
        config = family.settings(**changes)
        norm = family.named("RMSNorm")
        self.enorm, self.hnorm = norm(H, eps=1e-5), norm(H, eps=1e-5)
        self.eh_proj = torch.nn.Linear(2 * H, H, bias=False)
        self.layer = family.named("DecoderLayer")(config, 1)
        self.last = norm(H, eps=1e-5)
        self.rotary = family.named("RotaryEmbedding")(config)
        # transformers gives the norms of latent vectors an epsilon of their own; engines have the config's.
        for module in self.modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = 1e-5
        scattered(self, seed, family.gain)
        self.apart = family.apart

    def forward(self, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of all slots of one text [slots, H]: head and next step read it."""
        count = len(embedded)
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1))[None]
        places = torch.arange(count)[None]
        mask = torch.full((count, count), -math.inf).triu(1)[None, None]
        turn = self.rotary(x, places)
        x = self.layer(x, attention_mask=mask, position_ids=places, position_embeddings=turn)
        x = x[0] if isinstance(x, tuple) else x
        out: torch.Tensor = self.last(x.reshape(count, H))
        return out


def scattered(model: torch.nn.Module, seed: int, gain: float = 1.0) -> None:
    """Draw all weights, and the experts' corrections."""
    g = torch.Generator().manual_seed(seed)
    buffers = [(n, b) for n, b in model.named_buffers() if n.endswith("correction_bias")]
    for name, value in sorted([*model.named_parameters(), *buffers]):
        noise = torch.randn(value.shape, generator=g)
        if "norm" in name:
            value.data = gain + noise / 5
        elif value.dim() == 1:
            value.data = noise / 4
        else:
            value.data = noise / value.shape[-1] ** 0.5


def named(key: str, apart: bool) -> str:
    """Return what a checkpoint calls a tensor of the layer, within the layer."""
    if not apart:
        return key.removeprefix("layer.").replace("last.", "shared_head.norm.")
    for own, other in APART.items():
        if key.startswith(own):
            return other + key.removeprefix(own)
    return key.replace("layer.", "layers.0.", 1)


def saved(layer: Layer) -> dict[str, torch.Tensor]:
    """Return the tensors by the names of a checkpoint, each expert by itself."""
    out: dict[str, torch.Tensor] = {}
    for key, value in layer.state_dict().items():
        begin = "mtp." if layer.apart else "model.layers.2."
        name = named(key, layer.apart)
        if name.startswith("rotary."):
            continue
        if ".mlp.experts." in name:
            at = name.index("mlp.experts.")
            begin, name = begin + name[:at], name[at:]
        if name == "mlp.experts.gate_up_proj":
            for number, both in enumerate(value):
                gate, up = both.chunk(2)
                out[f"{begin}mlp.experts.{number}.gate_proj.weight"] = gate
                out[f"{begin}mlp.experts.{number}.up_proj.weight"] = up
        elif name == "mlp.experts.down_proj":
            for number, one in enumerate(value):
                out[f"{begin}mlp.experts.{number}.down_proj.weight"] = one
        else:
            out[begin + name] = value
    return {name: value.detach().clone() for name, value in out.items()}


def write(folder: Path, family: Family, layer: Layer, **changes: Any) -> Path:
    """Write the layer as a draft, under the number that it has behind its target's two layers."""
    folder.mkdir(parents=True)
    save_file(saved(layer), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(family.written(**changes)))
    return folder
