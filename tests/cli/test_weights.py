"""``workbench weights``: exit codes, JSON, a page, and mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from workbench.cli import app
from workbench.errors import WorkbenchError

from ..conftest import ROOT

DRAFT = ROOT / "data" / "incident" / "drafts" / "speculators"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["weights", *map(str, arguments)])


@pytest.fixture
def at_init(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    names = ("layers.0.mlp.up_proj.weight", "layers.0.mlp.down_proj.weight")
    file = tmp_path / "init.safetensors"
    save_file({n: random.normal(0, 0.02, (256, 256)).astype(np.float32) for n in names}, file)
    return file


def test_trained_weights_exit_0() -> None:
    done = run(DRAFT)
    assert done.exit_code == 0, done.output
    assert "All 10 matrices look trained" in done.output
    assert all(len(line) <= 80 for line in done.output.splitlines())


def test_weights_at_init_exit_1_and_say_so_as_json_and_as_a_page(
    at_init: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = run(at_init, "--json", "--html", page)
    assert done.exit_code == 1, done.output
    data = json.loads(done.stdout)
    assert data["schema"] == "workbench.weightscan/1"
    assert data["ok"] is False
    assert {row["verdict"] for row in data["tensors"]} == {"at_init"}
    assert page.stat().st_size > 40_000


def test_what_cannot_be_told_exits_3(tmp_path: Path) -> None:
    save_file({"a.bias": np.linspace(0, 1, 64, dtype=np.float32)}, tmp_path / "x.safetensors")
    done = run(tmp_path / "x.safetensors")
    assert done.exit_code == 3, done.output
    assert "Cannot tell" in done.output


def test_names_and_samples() -> None:
    done = run(DRAFT, "--names", "*.q_proj.*", "--names", "fc.weight", "--sample", "64", "--json")
    rows = json.loads(done.stdout)["tensors"]
    assert [row["name"] for row in rows] == ["fc.weight", "layers.0.self_attn.q_proj.weight"]
    assert all(row["seen"] < row["count"] for row in rows)
    share = json.loads(run(DRAFT, "--names", "fc.weight", "--sample", "0.5", "--json").stdout)
    assert share["tensors"][0]["seen"] == share["tensors"][0]["count"] // 2


def test_compared_with_another(tmp_path: Path) -> None:
    shutil.copytree(DRAFT, tmp_path / "copy")
    done = run(DRAFT, "--compare", tmp_path / "copy")
    assert done.exit_code == 0, done.output
    assert "None of 16 tensors changed" in done.output
    some = run(DRAFT, "--names", "fc.weight", "--compare", tmp_path / "copy")
    assert some.exit_code == 0, some.output
    assert "None of 1 tensor changed. Only 1 of 16 weights was requested." in some.output


def test_a_comparison_of_what_is_untrained_is_no_all_clear(at_init: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.safetensors"
    shutil.copyfile(at_init, copy)
    done = run(at_init, "--compare", copy)
    assert done.exit_code == 1, done.output
    assert "The first by itself: All 2 matrices are indistinguishable" in " ".join(
        done.output.split()
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nowhere",), "there is no nowhere"),
        ((DRAFT, "--names", "nothing"), "has no weight 'nothing'"),
        ((DRAFT, "--sample", "many"), "is not a number"),
        ((DRAFT, "--sample", "0"), "neither a share nor a number of rows"),
        ((DRAFT, "--compare", "nowhere"), "there is no nowhere"),
        ((DRAFT, "--compare", DRAFT, "--target", DRAFT), "has no effect with --compare"),
        (("http://127.0.0.1:9", "--names", "x"), "did not answer"),
    ],
)
def test_mistakes_are_told(arguments: tuple[object, ...], why: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, WorkbenchError)
    assert why in str(error)
