"""Launches that cannot serve the checkpoint: no draft, no prediction layer, heads that do not divide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from workbench.keys.diff import diff_keys
from workbench.keys.records import KeyDiff

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "vocab_size": 64,
    "tie_word_embeddings": True,
}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    at = "model.layers.0"
    shapes = {"model.embed_tokens.weight": (64, 48), "model.norm.weight": (48,)}
    shapes |= {f"{at}.self_attn.{n}_proj.weight": (48, 48) for n in "qkvo"}
    shapes |= {f"{at}.mlp.{n}_proj.weight": (64, 48) for n in ("gate", "up")}
    shapes |= {f"{at}.mlp.down_proj.weight": (48, 64)}
    shapes |= {f"{at}.{n}_layernorm.weight": (48,) for n in ("input", "post_attention")}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    stored = {name: torch.ones(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    save_file(stored, tmp_path / "model.safetensors")
    return tmp_path


def launched(target: Path, options: str) -> KeyDiff:
    line = f"python -m sglang.launch_server --model-path {target} {options}"
    return diff_keys(target, "sglang==0.5.23", launch=line)


def codes(found: KeyDiff) -> set[str]:
    return {finding.code for finding in found.findings if finding.severity == "error"}


@pytest.mark.parametrize(
    ("ranks", "wrong"),
    [
        (1, set()),
        (2, set()),
        (6, {"width_not_divided"}),  # 6 heads can be divided, an MLP that is 64 wide cannot
        (4, {"heads_not_divided"}),
        (12, {"heads_not_divided"}),
    ],
)
def test_heads_and_widths_divide_among_the_ranks(target: Path, ranks: int, wrong: set[str]) -> None:
    found = launched(target, f"--tp {ranks}")
    assert found.ok is (not wrong)
    assert codes(found) == wrong


def test_a_target_is_no_eagle3_draft_of_its_own(target: Path) -> None:
    assert codes(launched(target, "--speculative-algorithm EAGLE3")) == {"no_draft"}
    with_draft = launched(
        target, "--speculative-algorithm EAGLE3 --speculative-draft-model-path /draft"
    )
    assert "no_draft" not in codes(with_draft)
