"""Ask one rule about one launch, and get its answer in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.checkpoint.config import Config
from workbench.facts.gpus import gpu_of
from workbench.launch.read import read_launch
from workbench.launch.rules.corrected import corrected
from workbench.launch.rules.records import Edit, Model, Ruled, Served
from workbench.launch.rules.table import RULES, ruled

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 8192,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_attention_heads": 128,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "n_routed_experts": 256, "moe_intermediate_size": 2048,
    "intermediate_size": 18432,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
QWEN_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_attention_heads": 64,
    "num_key_value_heads": 4, "num_experts": 128, "moe_intermediate_size": 1536, "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
DRAFT: dict[str, Any] = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"]}
NEWEST = "0.5.23"


def ask(
    words: str,
    version: str = "0.5.14",
    target: Mapping[str, Any] | Model | None = LLAMA,
    draft: Mapping[str, Any] | Model | None = DRAFT,
    line: str = "sglang serve --model-path t",
    gpu: str = "",
    **env: str,
) -> Served:
    """Return a launch in front of a release; its draft has the given config where it names one."""
    names = " ".join(f"{name}={value}" for name, value in env.items())
    launch = read_launch(f"{names} {line} {words}", version=version)
    named = _model("d", draft) if launch.draft else None
    return Served(launch, version, _model("t", target), named, gpu_of(gpu) if gpu else None)


def _model(name: str, config: Mapping[str, Any] | Model | None) -> Model | None:
    if config is None or isinstance(config, Model):
        return config
    return Model(name, Config(dict(config)))


def found(name: str, served: Served) -> list[Ruled]:
    """Return what the rule of a name finds."""
    return [one for _, one in ruled(served, [rule for rule in RULES if rule.name == name])]


def answer(name: str, served: Served) -> str:
    """Return what the rule of a name finds, in a line: ``open``, ``wrong no_draft``, ``ok a_note``."""
    lines = {
        f"{one.state} {one.finding.code if one.finding is not None else ''}".strip()
        for one in found(name, served)
    }
    if len(lines) > 1:
        lines.discard("ok")  # an item takes the worst
    return "; ".join(sorted(lines))


def repaired(name: str, served: Served) -> str:
    """Return the options as the rule corrects them, without the model."""
    edits: list[Edit] = [edit for one in found(name, served) for edit in one.edits]
    return " ".join(corrected(served.launch.options, edits)[2:])
