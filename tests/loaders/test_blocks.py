"""FP8 blocks and the parts of stacked parameters; two tensors for one map of ids; empty tensors."""

from __future__ import annotations

import pytest

from workbench.checkpoint.config import Config
from workbench.loaders import registry
from workbench.loaders.profile import Refused

QWEN = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 64,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({}, ""),
        ({"num_key_value_heads": 2}, ""),
        ({"num_key_value_heads": 1}, "k_proj"),
        ({"intermediate_size": 192}, "gate_proj"),
        ({"hidden_size": 200}, ""),  # nothing is stacked along it
        ({"num_key_value_heads": 1, "quantization_config": None}, ""),
    ],
)
def test_parts_of_a_stacked_parameter_are_whole_blocks(
    change: dict[str, object], part: str
) -> None:
    config = Config(QWEN | change)
    [(_, profile)] = registry.select(registry.parse("sglang==0.5.23"), config).profiles
    if part:
        with pytest.raises(Refused, match=f"{part} has .* does not divide"):
            profile.build(config)
    else:
        assert profile.build(config).slots
