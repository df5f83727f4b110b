"""No file of torch.save is read by a torch that such a file could harm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from workbench.checkpoint import pickles
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import CheckpointError
from workbench.loaders.tracer import files
from workbench.speculation.evidence.read_features import load_pickle

VERSIONS = {
    "2.6.0": False, "2.9.1+cu128": False, "2.9.1": False, "1.13.1": False, "2.10.0a0+git1234": False,
    "2.10.0.dev20251201+cpu": False, "2.10.0rc3": False, "unknown": False, "2.10.0": True,
    "2.10.0+cpu": True, "2.10.1": True, "2.13.0+cpu": True, "2.14.0a0+nv25.11": True, "3.0.0": True,
}  # fmt: skip


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save({"a.weight": torch.ones(2, 2)}, tmp_path / "pytorch_model.bin")
    return tmp_path / "pytorch_model.bin"


@pytest.mark.parametrize(("version", "safe"), VERSIONS.items())
def test_a_torch_without_the_fix_reads_no_pickle(
    version: str, safe: bool, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert pickles.is_safe(version) is safe
    assert files.reads_pickles_safely() is safe
    if safe:
        assert list(open_checkpoint(weights).names) == ["a.weight"]
        assert list(load_pickle(weights)) == ["a.weight"]
        assert files.Files(weights.parent).keys() == ["a.weight"]
        return
    for read in (open_checkpoint, load_pickle):
        with pytest.raises(CheckpointError, match="CVE-2026-24747") as raised:
            read(weights)
        assert version in raised.value.what
        assert "safetensors" in raised.value.next_step
    with pytest.raises(files.Unsupported, match="CVE-2026-24747"):
        files.Files(weights.parent)


def test_safetensors_are_read_by_any_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0")
    folder = ROOT / "data" / "drafts" / "specforge"
    assert len(open_checkpoint(folder).names) == 15
    assert len(files.Files(folder).keys()) == 15


def test_nothing_else_calls_torch_load() -> None:
    allowed = {"workbench/checkpoint/pickles.py", "workbench/loaders/tracer/files.py"}
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "workbench").rglob("*.py")
        if "torch.load(" in path.read_text()
    }
    assert found == allowed
