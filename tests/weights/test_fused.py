"""A projection that was never trained, inside a matrix whose other projections were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import ROOT
from workbench.weights.parts import parts_of
from workbench.weights.scan import scan_weights

LAYER = "model.layers.5"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "hidden_size": 256,
}


@pytest.fixture(scope="module")
def trained() -> dict[str, torch.Tensor]:
    """The projections of one layer of the shipped target."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted((ROOT / "data/incident/target").glob("*.safetensors")):
        found |= load_file(file)
    return {
        name.split(".")[-2]: value.float()
        for name, value in found.items()
        if name.startswith(LAYER) and value.ndim == 2
    }


def drawn(like: torch.Tensor, seed: int = 7) -> torch.Tensor:
    values = np.random.default_rng(seed).standard_normal(tuple(like.shape)) * float(like.std())
    return torch.from_numpy(values.astype(np.float32))


def verdict(
    folder: Path, name: str, value: torch.Tensor, config: dict[str, Any] | None = None
) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | (config or {})))
    save_file({name: value.to(torch.bfloat16).contiguous()}, folder / "model.safetensors")
    scan = scan_weights(folder)
    told = [finding for finding in scan.findings if finding.severity == "error"]
    part = scan.tensors[name].reason.startswith("its ")
    assert all(finding.title.lower().startswith("a part of") == part for finding in told)
    return scan.tensors[name]


def qkv(trained: dict[str, torch.Tensor], **put: torch.Tensor) -> torch.Tensor:
    return torch.cat([put.get(name, trained[name]) for name in ("q_proj", "k_proj", "v_proj")])


def test_all_parts_trained(tmp_path: Path, trained: dict[str, torch.Tensor]) -> None:
    name = f"{LAYER}.self_attn.qkv_proj.weight"
    heads = {"num_key_value_heads": trained["k_proj"].shape[0] * 8 // 256}
    assert verdict(tmp_path, name, qkv(trained), heads).verdict == "trained"


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj"])
def test_the_part_at_init_is_named(
    tmp_path: Path, trained: dict[str, torch.Tensor], part: str
) -> None:
    value = qkv(trained, **{part: drawn(trained[part])})
    heads = {"num_key_value_heads": trained["k_proj"].shape[0] * 8 // 256}
    found = verdict(tmp_path, f"{LAYER}.self_attn.qkv_proj.weight", value, heads)
    assert (found.verdict, found.family) == ("at_init", "normal")
    assert f"its {part} (rows " in found.reason
    assert any("the rest looks trained" in text for text in found.corroboration)


def test_a_part_of_zeros_is_named(tmp_path: Path, trained: dict[str, torch.Tensor]) -> None:
    value = torch.cat([trained["gate_proj"], torch.zeros_like(trained["up_proj"])])
    found = verdict(tmp_path, f"{LAYER}.mlp.gate_up_proj.weight", value)
    assert found.verdict == "constant"
    assert "its up_proj" in found.reason


def test_half_of_a_gated_projection(tmp_path: Path, trained: dict[str, torch.Tensor]) -> None:
    value = torch.cat([drawn(trained["gate_proj"]), trained["up_proj"]])
    found = verdict(tmp_path, f"{LAYER}.mlp.gate_up_proj.weight", value)
    assert found.verdict == "at_init"
    assert "its gate_proj" in found.reason


def test_columns_of_gpt2(tmp_path: Path, trained: dict[str, torch.Tensor]) -> None:
    square = trained["q_proj"]
    good = torch.cat([square, square.T, trained["o_proj"]]).T
    name = "h.0.attn.c_attn.weight"
    assert verdict(tmp_path / "good", name, good).verdict == "trained"
    bad = torch.cat([square, drawn(square), trained["o_proj"]]).T
    found = verdict(tmp_path / "bad", name, bad)
    assert found.verdict == "at_init"
    assert "its k_proj (columns 256 to 511)" in found.reason


def test_projections_that_are_interleaved_are_accused_of_nothing(
    tmp_path: Path, trained: dict[str, torch.Tensor]
) -> None:
    parts = [trained[name].reshape(8, -1, 256) for name in ("q_proj", "o_proj")]
    mixed = torch.cat([*parts, parts[0].flip(0)], dim=1).reshape(-1, 256)
    name = "gpt_neox.layers.0.attention.query_key_value.weight"
    assert verdict(tmp_path, name, mixed).verdict == "trained"


def test_a_whole_init_stays_one(tmp_path: Path, trained: dict[str, torch.Tensor]) -> None:
    value = drawn(qkv(trained))
    found = verdict(tmp_path, f"{LAYER}.self_attn.qkv_proj.weight", value)
    assert found.verdict == "at_init"
    assert "its " not in found.reason.split(":")[0]


def test_where_the_parts_lie() -> None:
    def ends(*arguments: Any) -> list[tuple[str, int, int, int]]:
        return [(part.name[0], part.axis, part.start, part.stop) for part in parts_of(*arguments)]

    grouped = ends("a.qkv_proj.weight", (96, 64), (8, 2, 8))
    assert grouped == [("q", 0, 0, 64), ("k", 0, 64, 80), ("v", 0, 80, 96)]
    assert ends("a.qkv_proj.weight", (96, 64), None)[1] == ("k", 0, 32, 64)
    assert ends("a.qkv_proj.weight", (97, 64), (8, 2, 8)) == []
    assert ends("h.c_attn.weight", (64, 192), None)[2] == ("v", 1, 128, 192)
    assert ends("mlp.gate_up_proj.weight", (96, 64), None) == [("g", 0, 0, 48), ("u", 0, 48, 96)]
    assert ends("mlp.gate_up_proj.weight", (4, 96, 64), None) == []
    assert ends("mlp.up_proj.weight", (96, 64), None) == []
