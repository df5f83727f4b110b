"""The shipped notebooks: kept without outputs, relative, readable, and they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.export.report import report

from tests.conftest import ROOT, assert_told

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == kind]


def test_there_is_one() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_kept_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert "widgets" not in notebook["metadata"]
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_reads_like_a_page(path: Path) -> None:
    first = cells(path, "markdown")[0]
    assert "".join(first["source"]).startswith("# ")
    kinds = [cell["cell_type"] for cell in json.loads(path.read_text())["cells"]]
    assert kinds[0] == "markdown"
    runs = "".join(kind[0] for kind in kinds).split("m")
    assert max(map(len, runs)) <= 2  # no long stretch of code without a sentence


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_names_no_path_of_a_machine(path: Path) -> None:
    text = path.read_text()
    for start in ("/home/", "/root/", "/work/", "/tmp/", "/Users/", "~/"):
        assert start not in text


def test_the_keys_are_found_lost_and_mended(tmp_path: Path) -> None:
    """Of the exported page: each verdict of the story, in its order."""
    page = report(ROOT / "notebooks" / "02_keys.ipynb", tmp_path / "keys.html").read_text()
    story = (
        "refuses this config",
        "15 of 16 keys load in sglang 0.5.14",
        "10 of 16 keys",
        "midlayer.",
        "15 of 16 keys load in sglang 0.5.11",
        "Cannot tell",
        "d2t holds target ids",
        "keys load in sglang 0.5.11",
        "All 75 keys load in sglang 0.5.11",
    )
    assert_told(page, story)
    assert "<title>Where did the weights go?</title>" in page
    assert page.count("data-wb-mount") == 7 + page.count("[data-wb-mount]")


def test_the_layer_that_was_drawn_anew_is_found(tmp_path: Path) -> None:
    """Of the exported page: each verdict of the story, in its order."""
    page = report(ROOT / "notebooks" / "03_weights.ipynb", tmp_path / "weights.html").read_text()
    story = (
        "model.layers.7.*: 7 of 7 matrices are indistinguishable",
        "data:image/png;base64,",
        "All 86 matrices look trained",
        "All 10 matrices look trained",
        "9 of 111 tensors changed",
        "model.midlayer.self_attn.o_proj.weight looks like memory that was never written",
        "3 tensors are constant: all zeros",
    )
    assert_told(page, story)
    assert "<title>Which weights were never trained?</title>" in page


def test_the_lost_acceptance_is_found_and_restored(tmp_path: Path) -> None:
    """Of the exported page: each verdict of the story, in its order."""
    page = report(ROOT / "notebooks" / "04_replay.ipynb", tmp_path / "replay.html").read_text()
    story = (
        "sglang 0.5.11 accepts no draft token",
        "drops 10 keys of the decoder layer",
        "target chose",
        "The cause is the decoder layer",
        "That is what is expected",
        "launched with --speculative-algorithm EAGLE",
        "the target was not run",
        "accept len: 1.00, accept rate: 0.20",
        "The engine accepts no draft token",
    )
    assert_told(page, story)
    assert "<title>Why is no draft token accepted?</title>" in page
