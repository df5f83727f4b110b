"""Bars of progress: on a terminal and in a notebook run by hand, nowhere else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from workbench.display import progress
from workbench.export.report import executed, notebook_page

from .conftest import ROOT

SHOWS = "from workbench.display.progress import bar\nfor _ in bar(range(3), desc='passes'):\n    pass\n'done'"


class Terminal:
    """Standard error that is a terminal, and remembers."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_it_pass_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(progress.bar(range(3), desc="passes")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress.bar(range(3), desc="passes")) == [0, 1, 2]
    assert "passes" in terminal.text


def test_a_report_holds_none(tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SHOWS}")
    path = tmp_path / "bar.ipynb"
    notebook: Any = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, path)
    run = executed(path)
    assert [output.output_type for output in run.cells[0].outputs] == ["execute_result"]
    assert "passes" not in notebook_page(run, path).split('<div class="nb-output">')[1]


def test_every_bar_of_the_workbench_is_this_one() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "workbench").rglob("*.py"))
        if re.search(r"^\s*(from|import) tqdm\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert users == ["workbench/display/progress.py"]
