"""A model at init as a whole: found where nothing moved, open where its norms moved a little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import workbench
from tests.weights.whole_files.families import llama
from workbench.weights.results import WeightScan

Tensors = dict[str, torch.Tensor]
SIZE, STD = 256, 0.02
PARTS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")


def scanned(
    tensors: Tensors, folder: Path, dtype: torch.dtype = torch.float32, kind: str = "llama"
) -> WeightScan:
    save_file({k: v.to(dtype).contiguous() for k, v in tensors.items()}, folder / "m.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return workbench.scan_weights(folder)


def model(law: Any, norm: Any) -> Tensors:
    random = torch.Generator().manual_seed(11)
    found: Tensors = {}
    for layer in range(2):
        for part in PARTS:
            found[f"model.layers.{layer}.{part}.weight"] = law(random)
        found[f"model.layers.{layer}.input_layernorm.weight"] = norm(random)
    return found


def normal(random: torch.Generator) -> torch.Tensor:
    return torch.randn(SIZE, SIZE, generator=random) * STD


def uniform(bound: float) -> Any:
    return lambda random: (torch.rand(SIZE, SIZE, generator=random) * 2 - 1) * bound


def moved(by: float, start: float = 1.0) -> Any:
    return lambda random: start + by * torch.randn(SIZE, generator=random)


def dummy(random: torch.Generator) -> torch.Tensor:
    return (torch.rand(SIZE, generator=random) * 2 - 1) * 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("law", "norm", "kind", "ok"),
    [
        # Nothing moved: initialised again, or never trained.
        (normal, moved(0), "llama", False),
        (normal, moved(0, 0), "gemma2", False),
        # The norms moved a little: a few steps, or a low rate.
        (normal, moved(0.004), "llama", None),
        (normal, moved(0.004, 0), "gemma2", None),
        (normal, moved(1.8 * STD), "llama", None),
        # They moved so far that the matrices would show it, had they been trained as well.
        (normal, moved(2.2 * STD), "llama", False),
        (normal, moved(0.3), "llama", False),
        # An init's edge: a few steps would have carried values over it.
        (uniform(SIZE**-0.5), moved(0.004), "llama", False),
        # An engine's dummy weights, which spare no norm.
        (uniform(1e-3), dummy, "llama", False),
        (uniform(1e-3), dummy, "gemma2", False),
    ],
)
def test_a_model_at_init_is_accused_unless_its_norms_moved_a_little(
    law: Any, norm: Any, kind: str, ok: bool | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    scan = scanned(model(law, norm), tmp_path, dtype, kind)
    assert scan.ok is ok
    how = "All 8 matrices are indistinguishable from random initialisation"
    assert how in scan.summary
    assert ("trained too briefly to show it" in scan.summary) == (ok is None)
    finding = scan.findings[0]
    accused = (finding.severity, finding.confidence)
    assert (accused == ("warning", "unknown")) == (ok is None)


def test_matrices_without_norms_are_accused(tmp_path: Path) -> None:
    tensors = {k: v for k, v in model(normal, moved(0)).items() if "norm" not in k}
    assert scanned(tensors, tmp_path).ok is False


def test_one_that_was_initialised_again_is_accused_next_to_siblings_that_are_far(
    tmp_path: Path,
) -> None:
    tensors = {
        k: torch.ones_like(v) + 0.004 * torch.randn(v.shape) if "norm" in k else v
        for k, v in llama().items()
    }
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = torch.randn(tensors[name].shape) * STD
    scan = scanned(tensors, tmp_path, torch.bfloat16)
    assert scan.ok is False
    assert name in scan.summary
