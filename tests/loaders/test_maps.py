"""Harvested maps: what they answer, where they abstain, and that they agree with profiles written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from workbench.checkpoint.config import Config
from workbench.keys.diff import diff_keys
from workbench.loaders import registry
from workbench.loaders.harvest.expressions import Observations, column_values, value_of
from workbench.loaders.maps import records
from workbench.loaders.maps.profiles import Mapped
from workbench.loaders.profile import NotCovered, Profile

RELEASE = "0.5.23"
MOE: dict[str, Any] = {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "vocab_size": 192,
    "tie_word_embeddings": False,
}


def tensors() -> dict[str, torch.Tensor]:
    """Return what transformers saves for `MOE`, written down by hand."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (192, 96),
        "model.norm.weight": (96,),
        "lm_head.weight": (192, 96),
    }
    for layer in range(3):
        at = f"model.layers.{layer}"
        for name, rows in (("q", 96), ("k", 32), ("v", 32)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (rows, 96)
            shapes[f"{at}.self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (96, 96)
        shapes[f"{at}.input_layernorm.weight"] = shapes[f"{at}.post_attention_layernorm.weight"] = (
            96,
        )
        shapes[f"{at}.mlp.gate.weight"] = (5, 96)
        shapes[f"{at}.mlp.shared_expert_gate.weight"] = (1, 96)
        parts = [
            (f"{at}.mlp.shared_expert", 64),
            *((f"{at}.mlp.experts.{e}", 32) for e in range(5)),
        ]
        for part, inner in parts:
            shapes[f"{part}.gate_proj.weight"] = shapes[f"{part}.up_proj.weight"] = (inner, 96)
            shapes[f"{part}.down_proj.weight"] = (96, inner)
    return {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}


def written(folder: Path, stored: dict[str, torch.Tensor], **fields: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(MOE | fields))
    save_file(stored, folder / "model.safetensors")
    return folder


def test_a_whole_checkpoint_of_a_class_without_a_profile_loads(tmp_path: Path) -> None:
    found = diff_keys(written(tmp_path, tensors()), f"sglang=={RELEASE}")
    assert (found.ok, found.basis) == (True, "harvested")
    assert len(found.loaded) == len(tensors())
    assert found.verdict.confidence == "likely"


def test_an_expert_that_is_missing_is_named(tmp_path: Path) -> None:
    stored = tensors()
    del stored["model.layers.1.mlp.experts.3.up_proj.weight"]
    found = diff_keys(written(tmp_path, stored), f"sglang=={RELEASE}")
    assert found.ok is False
    assert found.wanted == ("model.layers.1.mlp.experts.3.up_proj.weight",)
    assert found.partial == ("model.layers.1.mlp.experts.w13_weight",)


def test_a_wrong_shape_is_no_all_clear(tmp_path: Path) -> None:
    stored = tensors()
    stored["model.layers.2.mlp.gate.weight"] = torch.zeros(6, 96, dtype=torch.bfloat16)
    found = diff_keys(written(tmp_path, stored), f"sglang=={RELEASE}")
    assert found.ok is False
    assert found.mismatched == ("model.layers.2.mlp.gate.weight",)


def test_a_foreign_prefix_is_lost_and_its_rename_proved(tmp_path: Path) -> None:
    stored = {f"language_model.{name}": tensor for name, tensor in tensors().items()}
    found = diff_keys(written(tmp_path, stored), f"sglang=={RELEASE}")
    assert found.ok is False
    assert [r.text for r in found.renames if r.chosen] == [r"^language_model\. -> (nothing)"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, "bits None"),
        ({"quantization_config": {"quant_method": "exotic"}}, "quantised by exotic"),
        ({"model_type": "other", "num_key_value_heads": None}, "num_key_value_heads"),
        ({"hidden_act": "swiglu_oai"}, "was not tried"),
    ],
)
def test_what_was_not_tried_is_left_open(change: dict[str, Any], said: str) -> None:
    raw = {k: v for k, v in (MOE | change).items() if v is not None}
    with pytest.raises(NotCovered, match=said):
        Mapped("sglang", RELEASE, "Qwen2MoeForCausalLM").build(Config(raw))


def test_a_name_that_no_probe_has_met_is_never_called_dropped(tmp_path: Path) -> None:
    stored = tensors() | {"model.layers.0.novelty.weight": torch.zeros(4)}
    found = diff_keys(written(tmp_path, stored), f"sglang=={RELEASE}")
    assert found.ok is None
    assert "has not met the name model.layers" in found.summary


def test_a_release_that_was_not_harvested_is_left_open(tmp_path: Path) -> None:
    found = diff_keys(written(tmp_path, tensors()), "sglang==0.5.21")
    assert found.ok is None
    assert "were not harvested" in found.summary


BOTH = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLMEagle3")
DENSE: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 192,
    "draft_vocab_size": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 256,
}


def wants(profile: Profile, config: Config) -> set[tuple[str, tuple[int, ...], str]]:
    """Return every tensor that a class must find in a file, with its shape and where it lands."""
    model = profile.build(config)
    return {
        (
            profile.route(slot.template.format(*row), model).name or slot.template.format(*row),
            slot.shape or (),
            slot.parameter.format(*row),
        )
        for slot in model.slots
        if not (slot.alternative or slot.optional)
        for row in slot.index.tolist()
    }


@pytest.mark.parametrize("model_class", BOTH)
@pytest.mark.parametrize("tied", [False, True])
def test_maps_agree_with_the_profiles_written_by_hand(model_class: str, tied: bool) -> None:
    kind = next((k for k in ("qwen2", "qwen3") if model_class.lower().startswith(k)), "llama")
    raw = DENSE | {"architectures": [model_class], "model_type": kind, "tie_word_embeddings": tied}
    config = Config(raw)
    [(_, by_hand)] = registry.select(registry.parse(f"sglang=={RELEASE}"), config).profiles
    assert by_hand.basis(RELEASE) != "harvested"
    harvested = Mapped("sglang", RELEASE, model_class).profile(RELEASE)
    assert wants(harvested, config) == wants(by_hand, config)


def test_expressions_are_found_from_few_configs() -> None:
    def rows(heads: int, nope: int, rope: int) -> int:
        return heads * (nope + rope)

    base = {"heads": 4, "nope": 32, "rope": 16}
    seen = Observations(base)
    values = {0: rows(**base)}
    for field, size in base.items():
        point = base | {field: 2 * size}
        values[seen.add(point, field)] = rows(**point)
    for pair in sorted(map(sorted, seen.pairs_needed(values))):
        point = base | {field: 2 * base[field] for field in pair}
        values[seen.add(point, *pair)] = rows(**point)
    terms = seen.fit(values)
    assert terms is not None
    assert value_of(terms, {"heads": 7, "nope": 100, "rope": 3}) == rows(7, 100, 3)
    other = {"heads": 7, "nope": 100, "rope": 3}
    at = seen.add(other)
    assert seen.fit(values | {at: rows(**other)}) == terms
    assert seen.fit(values | {at: rows(**other) + 1}) is None


def test_columns_are_ranges_or_picked_by_a_list_or_a_step() -> None:
    layers = [[1, 1, [["n", 1]]]]
    pick = ["pick", ["list", "kinds", ["full"]], ["step", "every", 3, False], layers]
    assert column_values(["range", [[1, 1, []]], layers], {"n": 4}, {}) == [1, 2, 3]
    assert column_values(pick, {"n": 3, "every": 4}, {"kinds": ["full", "x", "full"]}) == [0, 2]
    assert column_values(pick, {"n": 8, "every": 4}, {}) == [3, 7]
    assert column_values(pick, {"n": 8}, {}) is None
    assert column_values(pick, {"n": 2, "every": 4}, {"kinds": ["full"]}) is None


def test_the_data_are_small_and_can_be_read() -> None:
    for release in records.harvested("sglang"):
        maps = records.maps_of("sglang", release)
        assert maps.release == release
        assert all(found.complete or found.why for found in maps.classes.values())
    size = sum(file.stat().st_size for file in records._data().iterdir())
    assert size <= 3 << 20
