"""`workbench report`: the page is written, and its worst result decides the exit code."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.keys.diff import diff_keys

from ..conftest import ROOT

OK = "workbench.diff_keys('specforge', 'sglang==0.5.14')"
WRONG = "workbench.diff_keys('speculators', 'sglang==0.5.11')"
UNSURE = "workbench.diff_keys('specforge', 'sglang==99.0.0')"


def report(source: Path, out: Path) -> int:
    done = CliRunner().invoke(app, ["report", str(source), "-o", str(out)])
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert "<html" in out.read_text()
    return done.exit_code


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ((OK,), 0),
        ((WRONG,), 1),
        ((UNSURE,), 3),
        ((OK, WRONG), 1),
        ((OK, UNSURE), 3),
        ((UNSURE, WRONG, OK), 1),
        (("1 + 1",), 3),
        (("print('data-wb-verdict=\"ok: fine\"')",), 3),
    ],
)
def test_the_worst_result_of_a_notebook_decides(
    cells: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    for name in ("specforge", "speculators"):
        (tmp_path / name).symlink_to(ROOT / "data" / "drafts" / name)
    first = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import workbench"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in (first, *cells)])
    nbformat.write(made, tmp_path / "N.ipynb")
    assert report(tmp_path / "N.ipynb", tmp_path / "out.html") == code


@pytest.mark.parametrize(
    ("draft", "model", "code"),
    [
        ("specforge", "sglang==0.5.14", 0),
        ("speculators", "sglang==0.5.11", 1),
        ("specforge", "sglang==99.0.0", 3),
    ],
)
def test_a_saved_result_decides_by_its_verdict(
    draft: str, model: str, code: int, tmp_path: Path
) -> None:
    diff_keys(ROOT / "data" / "drafts" / draft, model).save(tmp_path / "saved.json")
    assert report(tmp_path / "saved.json", tmp_path / "out.html") == code
