"""The notebook of the hang: it runs, and tells its story in its order."""

from __future__ import annotations

from pathlib import Path

from workbench.export.report import report

from tests.conftest import ROOT, assert_told


def test_the_hang_is_found_and_the_books_are_kept(tmp_path: Path) -> None:
    page = report(ROOT / "notebooks" / "01_hang.ipynb", tmp_path / "hang.html").read_text()
    story = (
        "TP1 is stopped",
        "hung in graph_decode",
        "if wrong:",
        "nothing changed",
        "--cuda-graph-backend-decode: full → disabled",
        "hung 1 of 2 times",
        "hung 3 of 10: 10 clean starts",
        "Healthy and idle: all ranks",
        "A server that runs here",
    )
    assert_told(page, story)
    assert "<title>Which rank, which phase, what to change next?</title>" in page
