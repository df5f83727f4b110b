"""config.json in every form, and speculators' form made flat for SGLang."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workbench.checkpoint.config import Config, parse_config
from workbench.errors import CheckpointError
from workbench.facts.flat_config import flattened

LAYER: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "vocab_size": 256,
    "num_hidden_layers": 1,
    "head_dim": 32,
    "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
}
SPECULATORS: dict[str, Any] = {
    "architectures": ["Eagle3DraftModel"],
    "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
    "draft_vocab_size": 128,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "embed_requires_grad": False,
    "fc_norm": False,
    "norm_before_fc": False,
    "norm_before_residual": False,
    "norm_output": False,
    "speculators_config": {"verifier": {"architectures": ["LlamaForCausalLM"]}},
    "speculators_model_type": "eagle3",
    "speculators_version": "0.9.0",
    "target_hidden_size": None,
    "tie_word_embeddings": False,
    "transformer_layer_config": LAYER,
}


def changed(**fields: Any) -> Config:
    return Config(SPECULATORS | fields)


def test_plain() -> None:
    config = Config(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8}
    )
    assert config.layout == "huggingface"
    assert config.architectures == ("LlamaForCausalLM",)
    assert config.model_type == "llama"
    assert config.get("hidden_size") == 8
    assert config.get("absent", 3) == 3
    assert flattened(config) == config.raw
    assert flattened(config).lost == ()


def test_none() -> None:
    config = Config()
    assert not config
    assert config.layout == "none"
    assert config.text == {}
    assert config.architectures == ()
    assert config.model_type == ""


def test_multimodal() -> None:
    text = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 7168,
        "num_hidden_layers": 61,
    }
    raw = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text | {"quantization_config": {"quant_method": "compressed-tensors"}},
        "vision_config": {"hidden_size": 1152},
        "torch_dtype": "bfloat16",
    }
    config = Config(raw)
    assert config.layout == "multimodal"
    assert config.architectures == ("KimiK25ForConditionalGeneration",)
    assert config.get("hidden_size") == 7168
    assert config.get("torch_dtype") == "bfloat16"
    assert config.quantization == {"quant_method": "compressed-tensors"}


def test_odd_fields() -> None:
    assert Config({"architectures": "X"}).architectures == ("X",)
    assert Config({"architectures": [1, "X"]}).architectures == ("X",)
    assert Config({"architectures": {"a": 1}}).architectures == ()
    assert Config({"model_type": 3}).model_type == ""
    assert Config({"text_config": 3}).layout == "huggingface"
    assert Config({"quantization_config": "int4"}).quantization == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "JSON list"),
        (b"null", "JSON null"),
        (b'"a"', "JSON text"),
        (b"3", "JSON number"),
        (b"\xff\xfe", "not UTF-8"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"<html>", "web page"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_broken(data: bytes, why: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_config(data, "x/config.json")
    assert why in caught.value.why
    assert "x/config.json" in caught.value.what


def test_what_transformers_writes() -> None:
    config = parse_config(b'\xef\xbb\xbf{"a": NaN, "b": -Infinity}', "x")
    assert config.get("b") == float("-inf")


def test_speculators() -> None:
    config = Config(SPECULATORS)
    assert config.layout == "speculators"
    assert config.architectures == ("Eagle3DraftModel",)
    assert config.model_type == ""
    assert config.get("hidden_size") == 128
    assert config.get("draft_vocab_size") == 128


def test_flattened() -> None:
    flat = flattened(Config(SPECULATORS))
    assert flat["architectures"] == ["LlamaForCausalLMEagle3"]
    assert flat["model_type"] == "llama"
    assert flat["hidden_size"] == 128
    assert flat["vocab_size"] == 256
    assert flat["draft_vocab_size"] == 128
    assert flat["tie_word_embeddings"] is False
    assert flat["rope_theta"] == 5e5
    assert flat["rope_parameters"] == LAYER["rope_parameters"]
    assert "rope_scaling" not in flat
    for gone in (
        "transformer_layer_config",
        "speculators_config",
        "auto_map",
        "target_hidden_size",
    ):
        assert gone not in flat
    assert flat.lost == ()
    json.dumps(flat, allow_nan=False)


@pytest.mark.parametrize(
    ("target", "ids", "written", "lost"),
    [
        ("LlamaForCausalLM", [2, 4, 5], [1, 3, 4], ""),  # SGLang adds one
        ("Qwen3MoeForCausalLM", [2, 24, 45], [1, 23, 44], ""),
        ("DeepseekV3ForCausalLM", [2, 30, 58], [2, 30, 58], ""),  # taken as they are
        ("KimiK25ForConditionalGeneration", [2, 30, 58], [2, 30, 58], ""),
        ("DeepseekV3ForCausalLM", [1, 30, 58], [1, 30, 58], "begin with 1"),
        ("LlamaForCausalLM", [0, 4, 5], [0, 4, 5], "auxiliary layer 0"),
        ("NewForCausalLM", [2, 4, 5], [2, 4, 5], "NewForCausalLM"),
        ("", [2, 4, 5], [2, 4, 5], "not named"),
    ],
)
def test_auxiliary_layers(target: str, ids: list[int], written: list[int], lost: str) -> None:
    verifier = {"verifier": {"architectures": [target]}} if target else {}
    flat = flattened(
        changed(eagle_aux_hidden_state_layer_ids=ids, speculators_config=verifier), "0.5.14"
    )
    assert flat["eagle_config"] == {
        "eagle_aux_hidden_state_layer_ids": written,
        "use_aux_hidden_state": True,
    }
    assert lost in " ".join(flat.lost)
    assert bool(flat.lost) == bool(lost)


def test_no_auxiliary_layers() -> None:
    for ids in (None, [], "2", [True]):
        flat = flattened(changed(eagle_aux_hidden_state_layer_ids=ids))
        assert flat["eagle_config"] == {"use_aux_hidden_state": True}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"norm_before_residual": True}, "norm_before_residual (true)"),
        ({"norm_output": True}, "norm_output"),
        ({"norm_before_fc": True}, "norm_before_fc"),
        ({"embed_requires_grad": True}, "embed_requires_grad"),
        ({"transformer_layer_config": LAYER | {"model_type": "qwen3"}}, "q_norm and k_norm"),
        ({"transformer_layer_config": LAYER | {"attention_bias": True}}, "attention_bias"),
        ({"new_block": {"a": 1}}, "new_block"),
    ],
)
def test_lost(fields: dict[str, Any], word: str) -> None:
    (lost,) = flattened(changed(**fields)).lost
    assert word in lost


def test_norm_before_residual_is_true_by_default() -> None:
    raw = {key: value for key, value in SPECULATORS.items() if key != "norm_before_residual"}
    assert "by default" in flattened(Config(raw)).lost[0]


def test_flags_and_sizes_are_kept() -> None:
    flat = flattened(changed(norm_output=True, fc_norm=True, target_hidden_size=64, new_flag=3))
    assert flat["norm_output"] is True
    assert flat["fc_norm"] is True
    assert flat["target_hidden_size"] == 64
    assert flat["new_flag"] == 3


def test_rope_as_transformers_4_wants_it() -> None:
    rope = {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    flat = flattened(changed(transformer_layer_config=LAYER | {"rope_parameters": rope}))
    assert flat["rope_theta"] == 5e5
    assert flat["rope_scaling"] == {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    nested = LAYER | {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}
    assert "by layer type" in flattened(changed(transformer_layer_config=nested)).lost[0]
    layer = {key: value for key, value in LAYER.items() if key != "rope_parameters"}
    assert flattened(changed(transformer_layer_config=layer))["rope_theta"] == 10000.0
