"""`diff_keys` against what is in memory: modules, their own loaders, state dicts, other checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import workbench
from workbench.errors import WorkbenchError

DRAFT = "data/drafts/speculators"


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


class Block(torch.nn.Module):
    """A fused pair beside a norm, as engines build them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Linear(8, 24, bias=False)
        self.norm = torch.nn.LayerNorm(8, bias=False)


class Served(Block):
    """With a loader of its own: it fuses by name, drops what it does not know, and warns nobody."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        parameters = dict(self.named_parameters())
        for name, tensor in weights:
            if name == "gate_proj.weight":
                parameters["gate_up_proj.weight"].data[:12].copy_(tensor)
            elif name == "up_proj.weight":
                parameters["gate_up_proj.weight"].data[12:].copy_(tensor)
            elif name in parameters:
                parameters[name].data.copy_(tensor)


def saved(folder: Path, **shapes: tuple[int, ...]) -> Path:
    file = folder / "model.safetensors"
    save_file({n.replace("__", "."): torch.zeros(*s) for n, s in shapes.items()}, file)
    return file


def test_plain_module_that_fits(tmp_path: Path) -> None:
    diff = workbench.diff_keys(
        saved(tmp_path, gate_up_proj__weight=(24, 8), norm__weight=(8,)), Block()
    )
    assert diff.ok is True
    assert set(diff.written) == {"gate_up_proj.weight", "norm.weight"}


def test_plain_module_gets_fused_and_renamed_suggestions(tmp_path: Path) -> None:
    file = saved(
        tmp_path,
        mlp__gate_proj__weight=(12, 8),
        mlp__up_proj__weight=(12, 8),
        mlp__norm__weight=(8,),
    )
    diff = workbench.diff_keys(file, Block())
    assert diff.ok is False
    assert diff.outcome == "raises"
    (rename,) = diff.renames
    assert rename.proved
    assert rename.fuses == (("gate_proj + up_proj", "gate_up_proj"),)


def test_own_loader_is_observed(tmp_path: Path) -> None:
    file = saved(tmp_path, gate_proj__weight=(12, 8), norm__weight=(8,), stray__weight=(2,))
    model = Served()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    diff = workbench.diff_keys(file, model)
    assert diff.basis == "traced"
    assert diff.outcome == "loads"
    assert diff.ok is False
    assert diff.dropped == ("stray.weight",)
    assert diff.partial == ("gate_up_proj.weight",)
    (part,) = [g for g in diff.parameters if g.status == "partial"]
    assert part.fraction == pytest.approx(0.5)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]), "the module itself is left alone"


def test_own_loader_that_raises(tmp_path: Path) -> None:
    diff = workbench.diff_keys(saved(tmp_path, norm__weight=(5,)), Served())
    assert diff.outcome == "raises"
    assert diff.mismatched == ("norm.weight",)
    assert diff.ok is False


def test_state_dict_and_checkpoint_as_model() -> None:
    state = {"fc.weight": torch.zeros(128, 384), "more.weight": torch.zeros(3)}
    diff = workbench.diff_keys(DRAFT, state)
    assert diff.missing == ("more.weight",)
    assert "fc.weight" in diff.loaded
    assert workbench.diff_keys(DRAFT, DRAFT).ok is True
    other = workbench.diff_keys(DRAFT, workbench.open_checkpoint("data/drafts/specforge"))
    (rename,) = other.renames[:1]
    assert rename.steps == ((r"^layers\.0\.", "midlayer."),)
    assert other.dropped


@pytest.mark.parametrize("model", [3, object(), {"a": 1}, None])
def test_what_is_no_model_is_told(model: object) -> None:
    with pytest.raises(WorkbenchError, match="not a model to compare with"):
        workbench.diff_keys(DRAFT, model)
