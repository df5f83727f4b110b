"""Quantised weights of harvested classes: what is answered, and where the answer is "cannot tell"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from workbench.keys.diff import diff_keys
from workbench.keys.records import KeyDiff
from workbench.loaders.maps import ignored, schemes
from workbench.loaders.maps.ignored import Asked
from workbench.loaders.profile import NotCovered, Refused

RELEASE = "0.5.23"
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 320,
    "tie_word_embeddings": False,
    "dtype": "float16",
}
LINEAR = {
    "self_attn.q_proj": (256, 256),
    "self_attn.k_proj": (128, 256),
    "self_attn.v_proj": (128, 256),
    "self_attn.o_proj": (256, 256),
    "mlp.gate_proj": (512, 256),
    "mlp.up_proj": (512, 256),
    "mlp.down_proj": (256, 512),
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
State = dict[str, torch.Tensor]


def awq(out: int, size: int) -> State:
    """Return a weight as AutoAWQ stores it, by hand."""
    return {
        "qweight": torch.zeros(size, out // 8, dtype=torch.int32),
        "qzeros": torch.zeros(size // 128, out // 8, dtype=torch.int32),
        "scales": torch.ones(size // 128, out, dtype=torch.float16),
    }


def blocks(out: int, size: int) -> State:
    """Return a weight as deepseek-ai stores it, by hand."""
    return {
        "weight": torch.zeros(out, size).to(torch.float8_e4m3fn),
        "weight_scale_inv": torch.ones(-(-out // 128), -(-size // 128)),
    }


def plain(out: int, size: int) -> State:
    return {"weight": torch.zeros(out, size, dtype=torch.float16)}


def tensors(store: Any) -> State:
    """Return all tensors of the model, its linear layers stored in one way."""
    found = {
        name: torch.zeros(shape, dtype=torch.float16)
        for name, shape in (
            ("model.embed_tokens.weight", (320, 256)),
            ("lm_head.weight", (320, 256)),
            ("model.norm.weight", (256,)),
        )
    }
    for layer in range(2):
        at = f"model.layers.{layer}"
        for norm, size in (("input_layernorm", 256), ("post_attention_layernorm", 256)):
            found[f"{at}.{norm}.weight"] = torch.zeros(size, dtype=torch.float16)
        for norm in ("q_norm", "k_norm"):
            found[f"{at}.self_attn.{norm}.weight"] = torch.zeros(64, dtype=torch.float16)
        for name, (out, size) in LINEAR.items():
            found |= {f"{at}.{name}.{end}": t for end, t in store(out, size).items()}
    return found


def asked(folder: Path, stored: State, quant: Any, **fields: Any) -> KeyDiff:
    config = CONFIG | {"quantization_config": quant} | fields
    (folder / "config.json").write_text(json.dumps(config))
    save_file(stored, folder / "model.safetensors")
    return diff_keys(folder, f"sglang=={RELEASE}")


def restored(stored: State, module: str, out: int, size: int) -> None:
    """Store a module unquantised."""
    for key in [k for k in stored if k.startswith(f"{module}.")]:
        del stored[key]
    stored[f"{module}.weight"] = plain(out, size)["weight"]


def test_a_whole_quantised_checkpoint_loads(tmp_path: Path) -> None:
    found = asked(tmp_path, tensors(awq), AWQ)
    assert (found.ok, found.basis) == (True, "harvested")
    assert len(found.loaded) == len(tensors(awq))
    assert any("compute capability 9.0 and 10.0" in note for note in found.notes)


def test_scales_that_are_missing_are_named(tmp_path: Path) -> None:
    stored = tensors(awq)
    del stored["model.layers.1.mlp.up_proj.scales"]
    found = asked(tmp_path, stored, AWQ)
    assert found.ok is False
    assert "model.layers.1.mlp.gate_up_proj.scales" in found.partial


def test_another_group_size_than_the_file_has_does_not_load(tmp_path: Path) -> None:
    assert asked(tmp_path, tensors(awq), AWQ | {"group_size": 64}).ok is False


@pytest.mark.parametrize(
    ("quant", "said"),
    [
        (AWQ | {"group_size": 16}, "group_size 16"),
        (AWQ | {"bits": 8}, "bits 8"),
        (AWQ | {"surprise": 1}, "surprise"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128, "sym": True}, "bits 3"),
    ],
)
def test_what_was_not_tried_is_named(tmp_path: Path, quant: Any, said: str) -> None:
    found = asked(tmp_path, tensors(awq), quant)
    assert found.ok is None
    assert said in found.summary


def test_sizes_that_were_not_tried_are_not_answered(tmp_path: Path) -> None:
    found = asked(tmp_path, tensors(awq), AWQ, intermediate_size=480)
    assert found.ok is None
    assert "multiples of 64" in found.summary


def test_codes_of_another_dtype_are_not_answered(tmp_path: Path) -> None:
    stored = tensors(awq)
    name = "model.layers.0.mlp.down_proj.qweight"
    stored[name] = stored[name].to(torch.int64)
    found = asked(tmp_path, stored, AWQ)
    assert found.ok is None
    assert "I64" in found.summary


def test_a_layer_left_out_by_both_is_fine_and_by_one_alone_is_not(tmp_path: Path) -> None:
    module = "model.layers.1.mlp.down_proj"
    quant = AWQ | {"modules_to_not_convert": ["layers.1.mlp.down_proj"]}
    whole = tensors(awq)
    (tmp_path / "config alone").mkdir()
    assert asked(tmp_path / "config alone", whole, quant).ok is False
    restored(whole, module, *LINEAR["mlp.down_proj"])
    (tmp_path / "both").mkdir()
    assert asked(tmp_path / "both", whole, quant).ok is True
    (tmp_path / "file alone").mkdir()
    assert asked(tmp_path / "file alone", whole, AWQ).ok is False


def test_blocks_are_told_layer_by_layer(tmp_path: Path) -> None:
    """The profile written by hand looked at one layer for all: it called both of these wrong."""
    quant = BLOCKS | {"modules_to_not_convert": ["model.layers.1.mlp.down_proj"]}
    stored = tensors(blocks)
    (tmp_path / "quantised").mkdir()
    assert asked(tmp_path / "quantised", stored, quant).ok is False
    restored(stored, "model.layers.1.mlp.down_proj", *LINEAR["mlp.down_proj"])
    (tmp_path / "plain").mkdir()
    assert asked(tmp_path / "plain", stored, quant).ok is True


def test_half_of_a_fused_layer_left_out_is_refused(tmp_path: Path) -> None:
    quant = BLOCKS | {"modules_to_not_convert": ["model.layers.1.mlp.gate_proj"]}
    found = asked(tmp_path, tensors(blocks), quant)
    assert (found.ok, found.outcome) == (False, "refused")


def test_where_gpus_differ_it_is_said(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        tensors(awq),
        AWQ,
        architectures=["Qwen3MoeForCausalLM"],
        model_type="qwen3_moe",
    )
    assert found.ok is None
    assert "compute capability 9.0 take awq-128" in found.summary


def test_a_plain_name_means_other_layers_to_each_method() -> None:
    fused = Asked("QKVParallelLinear", "model.layers.0.self_attn.qkv_proj")
    parts = [f"model.layers.0.self_attn.{p}_proj" for p in "qkv"]
    packed = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    assert ignored.compressed(parts, packed)(fused)
    assert not ignored.compressed(parts, {})(fused)  # the class does not say what is in it
    assert ignored.fp8(parts, {})(fused)
    assert not ignored.awq(parts)(fused)
    assert ignored.modelopt(parts, {})(fused)
    with pytest.raises(Refused):
        ignored.fp8(parts[:2], {})(fused)
    with pytest.raises(NotCovered):
        ignored.compressed(["re:("], packed)


def test_one_is_not_true_in_a_config() -> None:
    with pytest.raises(NotCovered):
        schemes.read(AWQ | {"zero_point": 1}, {})
