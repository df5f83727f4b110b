"""`fix`: tensors left out on demand, and copies that link what stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import workbench
from workbench.checkpoint.overlay import padded
from workbench.cli import app

DRAFT = Path(__file__).parents[2] / "data" / "drafts" / "speculators"
ENGINE = "sglang==0.5.11"


def with_strays(folder: Path) -> Path:
    """Return the speculators draft with two tensors of its verifier, which no engine takes."""
    folder.mkdir()
    stored = load_file(DRAFT / "model.safetensors")
    stored |= {"verifier_norm.weight": torch.ones(8), "verifier_lm_head.weight": torch.ones(4, 8)}
    save_file(stored, folder / "model.safetensors")
    (folder / "config.json").write_bytes((DRAFT / "config.json").read_bytes())
    return folder


def in_two_files(folder: Path) -> Path:
    """Return the same draft in two files: in the first no name changes."""
    folder.mkdir()
    stored = load_file(DRAFT / "model.safetensors")
    parts = ({}, {})  # type: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
    for name, tensor in stored.items():
        parts[name.startswith("layers.")][name] = tensor
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for file, part in zip(files, parts, strict=True):
        save_file(part, folder / file)
    where = {name: file for file, part in zip(files, parts, strict=True) for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_bytes((DRAFT / "config.json").read_bytes())
    return folder


def test_strays_keep_a_draft_from_its_repair_until_they_are_dropped(tmp_path: Path) -> None:
    source = with_strays(tmp_path / "source")
    with pytest.raises(workbench.WorkbenchError, match="not repaired") as caught:
        workbench.fix_checkpoint(source, ENGINE, tmp_path / "out")
    assert "fix --drop" in str(caught.value)
    words = ["fix", str(source), ENGINE, "-o", str(tmp_path / "out"), "--drop", "verifier_*"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        names = set(file.keys())
    assert not any("verifier" in name for name in names)
    assert "midlayer.mlp.up_proj.weight" in names


def test_only_what_is_named_is_dropped(tmp_path: Path) -> None:
    source = with_strays(tmp_path / "source")
    with pytest.raises(workbench.WorkbenchError, match="1 stay lost"):
        workbench.fix_checkpoint(source, ENGINE, tmp_path / "a", drop=["verifier_norm.weight"])
    with pytest.raises(workbench.WorkbenchError, match="has no tensor verifer_"):
        workbench.fix_checkpoint(source, ENGINE, tmp_path / "b", drop=["verifer_*"])
    with pytest.raises(workbench.WorkbenchError, match="a list"):
        workbench.fix_checkpoint(source, ENGINE, tmp_path / "c", drop="verifier_*")
    assert not any((tmp_path / name).exists() for name in "abc")


def test_an_overlay_links_the_file_that_stays_as_it_is(tmp_path: Path) -> None:
    source = in_two_files(tmp_path / "source")
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    plain = workbench.fix_checkpoint(source, ENGINE, tmp_path / "copy")
    fixed = workbench.fix_checkpoint(source, ENGINE, tmp_path / "over", overlay=True)
    assert fixed.ok is plain.ok is True
    first, second = (tmp_path / "over" / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    assert first.samefile(source / first.name)
    assert not first.is_symlink()
    assert not second.samefile(source / second.name)
    for file in (first, second):
        copied = load_file(tmp_path / "copy" / file.name)
        linked = load_file(file)
        assert linked.keys() == copied.keys()
        for name, tensor in linked.items():
            assert np.array_equal(tensor.view(torch.uint8), copied[name].view(torch.uint8))
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before


@pytest.mark.parametrize(("length", "begin"), [(40, 4136), (4096, 8192), (48, 9000), (9000, 48)])
def test_a_header_is_padded_to_the_block_of_its_source(length: int, begin: int) -> None:
    text = b"{" + b" " * (length - 9 - 1) + b"}"
    made = padded(len(text).to_bytes(8, "little") + text, begin)
    assert (len(made) - begin) % 4096 == 0
    assert int.from_bytes(made[:8], "little") == len(made) - 8
    assert made[8:].strip() == text.strip()
