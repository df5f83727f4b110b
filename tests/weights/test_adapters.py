"""A DoRA adapter without its magnitudes is incomplete; any spelling of them is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import workbench
from tests.weights.whole_files.families import Pool
from workbench.weights.adapters import absent_factors, absent_magnitudes, second_factor
from workbench.weights.results import WeightScan

MODULES = [f"base_model.model.layers.{n}.self_attn.q_proj" for n in range(3)]
DORA = {"peft_type": "LORA", "use_dora": True, "r": 128}


def names(pair: str = "{}.lora_{}.weight", magnitude: str = "", count: int = 3) -> list[str]:
    made = [pair.format(module, part) for module in MODULES for part in "AB"]
    return made + [magnitude.format(module) for module in MODULES[:count] if magnitude]


@pytest.mark.parametrize(
    "magnitude",
    [
        "{}.lora_magnitude_vector",
        "{}.lora_magnitude_vector.weight",
        "{}.lora_magnitude_vector.default",
        "{}.lora_magnitude_vector.default.weight",
        "{}.dora_scale",
    ],
)
@pytest.mark.parametrize("pair", ["{}.lora_{}.weight", "{}.lora_{}.default.weight"])
def test_each_spelling_of_a_magnitude_is_one(pair: str, magnitude: str) -> None:
    assert absent_magnitudes(names(pair, magnitude), DORA) == ()
    [(absent, why)] = absent_magnitudes(names(pair, magnitude, count=2), DORA)
    assert absent.startswith(f"{MODULES[2]}.lora_magnitude_vector")
    assert "use_dora: true" in why


@pytest.mark.parametrize("pair", ["{}.lora_embedding_{}", "{}.lora_embedding_{}.default"])
def test_the_factors_of_an_embedding_are_a_pair(pair: str) -> None:
    assert len(absent_magnitudes(names(pair), DORA)) == 3
    assert absent_magnitudes(names(pair, "{}.lora_magnitude_vector"), DORA) == ()


@pytest.mark.parametrize(
    "config", [{}, {"use_rslora": True}, {"use_dora": False}, {"use_dora": "true"}]
)
def test_only_use_dora_wants_magnitudes(config: dict[str, Any]) -> None:
    assert absent_magnitudes(names(), {"peft_type": "LORA", **config}) == ()


def test_a_file_without_lora_pairs_promises_nothing() -> None:
    assert absent_magnitudes(["model.layers.0.mlp.up_proj.weight"], DORA) == ()


def test_of_two_adapters_the_config_describes_one() -> None:
    first = names("{}.lora_{}.one.weight", "{}.lora_magnitude_vector.one.weight")
    second = names("{}.lora_{}.two.weight")
    assert absent_magnitudes([*first, *second], DORA) == ()
    assert len(absent_magnitudes([*first[:-1], *second], DORA)) == 1
    assert absent_magnitudes([*second, *first[:-1]], DORA)[0][0].endswith(".one")
    # The magnitudes of another adapter are not this one's.
    other = names("{}.lora_{}.two.weight", "{}.lora_magnitude_vector.one.weight")
    assert len(absent_magnitudes(other, DORA)) == 3


def scanned(folder: Path, config: object, magnitudes: int, **how: Any) -> WeightScan:
    pool, made = Pool(), {}
    for at, module in enumerate(MODULES):
        made |= {f"{module}.lora_{part}.weight": pool.matrix(256, 256) for part in "AB"}
        if at < magnitudes:
            made[f"{module}.lora_magnitude_vector"] = pool.norm()
    tensors = {k: v.to(torch.float32).contiguous() for k, v in made.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "adapter_config.json").write_text(text)
    return workbench.scan_weights(folder, **how)


@pytest.mark.parametrize(
    ("config", "magnitudes", "ok"),
    [
        (DORA, 3, True),
        (DORA, 2, False),
        (DORA, 0, False),
        ({**DORA, "use_dora": False}, 0, True),
        ({**DORA, "use_dora": False, "use_rslora": True}, 0, True),
    ],
)
def test_an_adapter_without_its_magnitudes_is_wrong(
    config: dict[str, Any], magnitudes: int, ok: bool, tmp_path: Path
) -> None:
    scan = scanned(tmp_path, config, magnitudes)
    assert scan.ok is ok
    assert ("The adapter is incomplete" in scan.summary) is (not ok)
    found = [finding for finding in scan.findings if finding.code == "weights.incomplete_adapter"]
    assert len(found) == (not ok)
    if not ok:
        assert f"{MODULES[2]}.lora_magnitude_vector" in "".join(
            item.name for item in scan.verdict.coverage.having("wrong")
        ).replace("{0...2}", "2")
        assert scan.save(tmp_path / "scan.json")
        assert workbench.load(tmp_path / "scan.json").ok is False


def test_names_that_leave_the_magnitudes_out_say_nothing_of_them(tmp_path: Path) -> None:
    scan = scanned(tmp_path, DORA, 0, names="*.lora_A.*")
    assert "incomplete" not in scan.summary


def test_a_broken_config_of_an_adapter_is_a_note(tmp_path: Path) -> None:
    scan = scanned(tmp_path, "{", 0)
    assert scan.ok is True
    assert any("the adapter's config was not used" in note for note in scan.notes)


MLX = {"fine_tune_type": "dora", "num_layers": 16}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.lora_A.weight", "a.lora_B.weight"),
        ("a.lora_A.default.weight", "a.lora_B.default.weight"),
        ("a.lora_embedding_A", "a.lora_embedding_B"),
        ("model.layers.0.self_attn.q_proj.lora_a", "model.layers.0.self_attn.q_proj.lora_b"),
        ("lora_unet_mid_block_to_q.lora_down.weight", "lora_unet_mid_block_to_q.lora_up.weight"),
        ("a.lora_B.weight", ""),
        ("a.lora_up.weight", ""),
        ("a.lora_a_norm.weight", ""),
        ("model.layers.0.mlp.up_proj.weight", ""),
    ],
)
def test_the_second_factor_of_each_spelling(first: str, second: str) -> None:
    assert second_factor(first) == second


def test_a_magnitude_as_mlx_lm_writes_it() -> None:
    pair = "{}.lora_{}"
    lower = [name.replace("lora_A", "lora_a").replace("lora_B", "lora_b") for name in names(pair)]
    assert absent_magnitudes(lower, {"fine_tune_type": "lora"}) == ()
    absent = absent_magnitudes([*lower, f"{MODULES[0]}.m"], MLX)
    assert [name for name, _ in absent] == [f"{module}.m" for module in MODULES[1:]]
    assert 'fine_tune_type: "dora"' in absent[0][1]
    assert absent_magnitudes([*lower, *(f"{module}.m" for module in MODULES)], MLX) == ()


def test_a_factor_without_the_other_of_its_pair_is_absent() -> None:
    assert list(absent_factors(names())) == []
    [(absent, _)] = absent_factors(names()[:-1])
    assert absent == f"{MODULES[2]}.lora_B.weight"
    shared = ["a.lora_A.weight", "a.lora_B.0.weight", "a.lora_B.1.weight"]  # one first, two second
    assert list(absent_factors(shared)) == []
    [(absent, _)] = absent_factors(["te.lora_up.weight", "te.alpha"])
    assert absent == "te.lora_down.weight"


def test_half_a_pair_keeps_ok_at_none(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"peft_type": "LORA"}, 0)
    assert found.ok is True
    pool = Pool()
    names_of = ("layers.0.q_proj.lora_a", "layers.0.q_proj.lora_b", "layers.1.q_proj.lora_a")
    lone = {name: pool.matrix(256, 256) for name in names_of}
    folder = tmp_path / "lone"
    folder.mkdir()
    save_file({k: v.float().contiguous() for k, v in lone.items()}, folder / "adapters.safetensors")
    found = workbench.scan_weights(folder)
    assert found.ok is None
    assert "layers.1.q_proj.lora_b" in str(found.findings[0].title)
