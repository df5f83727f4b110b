"""All forms of the notebook's story, word for word (``UPDATE_GOLDEN=1`` rewrites them)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

import workbench
from tests.conftest import ROOT
from tests.forms import check_forms
from workbench.keys.records import KeyDiff

DRAFTS = ROOT / "data" / "drafts"


def flattened_by_hand(folder: Path) -> KeyDiff:
    workbench.fix_checkpoint(DRAFTS / "speculators", "sglang==0.5.14", folder / "draft")
    return workbench.diff_keys("draft", "sglang==0.5.11")


def repaired(folder: Path) -> KeyDiff:
    flattened_by_hand(folder)
    return workbench.fix_checkpoint("draft", "sglang==0.5.11", "repaired")


def one_shard_missing(folder: Path) -> KeyDiff:
    repaired(folder)
    shutil.copytree(folder / "repaired", folder / "partial")
    file = folder / "partial" / "model.safetensors"
    tensors = load_file(file)
    del tensors["midlayer.self_attn.k_proj.weight"]
    save_file(tensors, file)
    return workbench.diff_keys("partial", "sglang==0.5.11")


def target(folder: Path) -> KeyDiff:
    shutil.copytree(DRAFTS / "target", folder / "target")
    return workbench.diff_keys("target", "sglang==0.5.14")


CASES = (flattened_by_hand, repaired, one_shard_missing, target)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_form_is_as_it_was(
    case: Callable[[Path], KeyDiff], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names are shown as they were given
    check_forms(case(tmp_path), f"keys-{case.__name__.replace('_', '-')}", monkeypatch)
