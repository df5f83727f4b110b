"""Bars of progress: on a terminal and in a notebook run by hand, nowhere else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.conftest import ROOT
from workbench.core import bars
from workbench.export.report import executed, notebook_page

SHOWS = (
    "from workbench.core.bars import bar\nfor _ in bar(range(3), desc='passes'):\n    pass\n'done'"
)


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
    assert list(bars.bar(range(3), desc="passes")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(bars.bar(range(3), desc="passes")) == [0, 1, 2]
    assert "passes" in terminal.text


def test_a_report_holds_none(tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SHOWS}")
    path = tmp_path / "bar.ipynb"
    notebook: Any = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, path)
    run = executed(path)
    assert [output.output_type for output in run.cells[0].outputs] == ["execute_result"]
    assert "passes" not in notebook_page(run, path).split('<div class="nb-output">')[1]


def test_a_notebook_run_by_hand_sees_it_and_keeps_nothing(tmp_path: Path) -> None:
    """As JupyterLab runs a cell: input is allowed."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    shown: list[dict[str, Any]] = []
    try:
        client.execute_interactive(
            SHOWS, allow_stdin=True, timeout=120,
            output_hook=lambda message: shown.append(
                {"type": message["msg_type"], **message["content"]}
            ),
            stdin_hook=lambda _: None,
        )  # fmt: skip
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    seen = [one for one in shown if one["type"] in ("display_data", "update_display_data")]
    assert "application/vnd.jupyter.widget-view+json" in seen[0]["data"]
    assert seen[-1]["type"] == "update_display_data"
    assert seen[-1]["data"] == {"text/plain": ""}
    assert seen[-1]["transient"] == seen[0]["transient"]


def test_every_bar_of_the_workbench_is_this_one() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "workbench").rglob("*.py"))
        if re.search(r"^\s*(from|import) tqdm\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert users == ["workbench/core/bars.py"]
