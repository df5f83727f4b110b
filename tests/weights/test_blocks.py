"""Where a trained matrix is still at initialisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.weights.stored import Array, judged, normal, trained
from workbench.core.saving import load
from workbench.weights.records import JudgedPart
from workbench.weights.scan import scan_weights


def like(values: Array, seed: int = 0) -> Array:
    return normal(*values.shape, seed=seed) * (values.std() / 0.02)


def fc() -> Array:
    return trained("fc.weight", "drafts/speculators")


def test_a_third_of_fc(tmp_path: Path) -> None:
    values = fc()
    values[:, 512:] = like(values[:, 512:])
    found = judged(tmp_path, values, "fc.weight")
    assert found.parts == (JudgedPart("columns", 512, 768, "at_init"),)
    assert (found.verdict, found.family) == ("at_init", "normal")
    assert found.reason.startswith("columns 512 to 767 of 256 × 768 are indistinguishable")


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_rows_in_16_bits(tmp_path: Path, kind: torch.dtype) -> None:
    values = trained("model.layers.3.mlp.gate_proj.weight")
    values[192:320] = like(values[192:320])
    found = judged(tmp_path, torch.from_numpy(values).to(kind))
    assert [(part.axis, part.start, part.stop) for part in found.parts] == [("rows", 192, 320)]


def test_nothing_is_accused_in_a_trained_one(tmp_path: Path) -> None:
    for name in ("mlp.gate_proj", "mlp.down_proj", "self_attn.q_proj"):
        found = judged(tmp_path, trained(f"model.layers.3.{name}.weight"))
        assert (found.verdict, found.parts) == ("trained", ())
    assert judged(tmp_path, fc(), "fc.weight").parts == ()


def test_a_whole_init_has_no_parts(tmp_path: Path) -> None:
    assert judged(tmp_path, normal(512, 512)).parts == ()


@pytest.mark.parametrize(
    ("rows", "verdict"), [(100, "trained"), (384, "trained"), (1024, "undecided")]
)
def test_new_rows_of_a_vocabulary_prove_no_fault(tmp_path: Path, rows: int, verdict: str) -> None:
    values = trained("embed_tokens.weight", "drafts/speculators")
    values[-rows:] = like(values[-rows:])
    found = judged(tmp_path, values, "model.embed_tokens.weight")
    assert found.verdict == verdict
    if rows > 200:
        assert [(p.axis, p.stop) for p in found.parts] == [("rows", len(values))]
        said = "; ".join((found.reason, *found.corroboration))
        assert "tokens that the training data does not use" in said


def test_parts_are_saved(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    values = fc()
    values[:, 512:] = like(values[:, 512:])
    save_file({"fc.weight": torch.from_numpy(values)}, tmp_path / "model.safetensors")
    scan = scan_weights(tmp_path)
    scan.save(tmp_path / "scan.json")
    again = load(tmp_path / "scan.json")
    assert again.tensors["fc.weight"].parts == (JudgedPart("columns", 512, 768, "at_init"),)
    assert next(iter(again.rows()))["parts"] == "columns 512 to 767"
    assert again.ok is False


def test_new_rows_are_named_in_a_note(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    values = trained("embed_tokens.weight", "drafts/speculators")
    values[-384:] = like(values[-384:])
    save_file(
        {"model.embed_tokens.weight": torch.from_numpy(values)}, tmp_path / "model.safetensors"
    )
    scan = scan_weights(tmp_path)
    (found,) = (one for one in scan.findings if one.code == "weights.unused_rows")
    assert (scan.ok, found.severity) == (True, "note")
    assert found.evidence_for == ("model.embed_tokens.weight: rows 3,712 to 4,095",)


def test_experts_of_a_stack_and_parts_of_one(tmp_path: Path) -> None:
    names = [f"model.layers.{at}.mlp.gate_proj.weight" for at in range(4)]
    stack = [trained(name) for name in names]
    stack[1] = like(stack[1])
    stack[3][256:] = like(stack[3][256:])
    values = torch.from_numpy(np.stack(stack))
    found = judged(tmp_path, values, "model.layers.0.mlp.experts.gate_proj")
    assert found.verdict == "at_init"
    assert [(p.axis, p.start, p.stop) for p in found.parts] == [
        ("matrices", 1, 2),
        ("matrices", 3, 4),
    ]
    stack[1] = stack[0]
    values = torch.from_numpy(np.stack(stack))
    found = judged(tmp_path, values, "model.layers.0.mlp.experts.gate_proj")
    assert "matrix 3 of 4 (counted from 0): rows 256 to 479" in found.reason


@pytest.mark.parametrize("untrained", [0, 1])
def test_gate_and_up_that_alternate(tmp_path: Path, untrained: int) -> None:
    both = [trained(f"model.layers.3.mlp.{name}_proj.weight") for name in ("gate", "up")]
    name = "model.layers.3.mlp.experts.gate_up_proj"
    values = np.stack(both, axis=1).reshape(-1, 256)
    assert judged(tmp_path, np.stack([values, values * 2]), name).verdict == "trained"
    both[untrained] = like(both[untrained])
    values = np.stack(both, axis=1).reshape(-1, 256)
    found = judged(tmp_path, np.stack([values, values * 2]), name)
    assert found.verdict == "at_init"
    assert f"its interleaved projection (rows {untrained} to 959)" in found.reason
