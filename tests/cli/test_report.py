"""`workbench report`: the page is written, and its worst result decides the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.display import HTML, Markdown
from typer.testing import CliRunner

from workbench.cli import app
from workbench.export.report import notebook_page, verdicts
from workbench.keys.diff import diff_keys
from workbench.keys.records import KeyDiff

from ..conftest import ROOT

OK = "workbench.diff_keys('specforge', 'sglang==0.5.14')"
WRONG = "workbench.diff_keys('speculators', 'sglang==0.5.11')"
FAILS = "# raises-exception\n"
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
        ((OK, FAILS + "1 / 0", "import ipywidgets; ipywidgets.HBox([ipywidgets.Text()])"), 3),
        ((OK, f"import ipywidgets; ipywidgets.VBox([{OK}.view(), {WRONG}.view()])"), 1),
        (
            (
                OK,
                f"import ipywidgets; o = ipywidgets.Output(); display(o)\nwith o: display({UNSURE})",
            ),
            3,
        ),
    ],
)
def test_the_worst_result_of_a_notebook_decides(
    cells: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    for name in ("specforge", "speculators"):
        (tmp_path / name).symlink_to(ROOT / "data" / "drafts" / name)
    first = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import workbench"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in (first, *cells)])
    for cell in made.cells:
        cell.metadata["tags"] = ["raises-exception"] if cell.source.startswith(FAILS) else []
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


Shows = Callable[[KeyDiff, KeyDiff, KeyDiff], list[Any]]


def displayed(value: Any) -> Any:
    """Return an output as IPython makes it; text is what was printed."""
    if isinstance(value, str):
        return nbformat.v4.new_output("stream", text=value)
    if isinstance(value, Exception):
        return nbformat.v4.new_output("error", ename=type(value).__name__, evalue=str(value))
    data, metadata = DisplayFormatter().format(value)
    return nbformat.v4.new_output("display_data", data=data, metadata=metadata)


# What is shown as text: a fault or a doubt counts, an all-clear does not.
TEXTS: dict[str, tuple[Shows, list[bool | None]]] = {
    "printed": (lambda ok, wrong, unsure: [ok, str(wrong)], [True, False]),
    "printed narrow": (lambda ok, wrong, unsure: [ok, wrong.to_text(40)], [True, False]),
    "printed doubt": (lambda ok, wrong, unsure: [str(unsure), ok], [None, True]),
    "printed all-clear": (lambda ok, wrong, unsure: [str(ok)], []),
    "printed twice": (lambda ok, wrong, unsure: [str(wrong), str(wrong)], [False]),
    "two in one text": (lambda ok, wrong, unsure: [f"{wrong}\n{unsure}"], [False, None]),
    "in a list": (lambda ok, wrong, unsure: [[1, wrong]], [False]),
    "in a dict": (lambda ok, wrong, unsure: [{"a": unsure, "b": ok}], [None]),
    "Markdown": (lambda ok, wrong, unsure: [Markdown(wrong.to_markdown())], [False]),
    "HTML of one's own": (lambda ok, wrong, unsure: [HTML(f"<pre>{wrong}</pre>")], [False]),
    "a view": (lambda ok, wrong, unsure: [wrong.view()], [False]),
    "another's text": (lambda ok, wrong, unsure: [ok, "\u2717 the disk is full\n? why\n"], [True]),
    "a row of a table": (lambda ok, wrong, unsure: [ok, "  \u2717 2 hung\n  checked: 2"], [True]),
    "an error": (lambda ok, wrong, unsure: [ok, ZeroDivisionError("division")], [True, None]),
}  # fmt: skip


@pytest.fixture(scope="module")
def results() -> list[KeyDiff]:
    drafts = ROOT / "data" / "drafts"
    return [
        diff_keys(drafts / "specforge", "sglang==0.5.14"),
        diff_keys(drafts / "speculators", "sglang==0.5.11"),
        diff_keys(drafts / "specforge", "sglang==99.0.0"),
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_a_fault_counts_however_it_is_shown(
    name: str, results: list[KeyDiff], tmp_path: Path
) -> None:
    show, expected = TEXTS[name]
    ok, wrong, unsure = results
    cell = nbformat.v4.new_code_cell(
        "…",
        outputs=[displayed(one) for one in show(ok, wrong, unsure)],
        metadata={"workbench_marks": '<b data-wb-verdict="wrong: not ours">x</b>'},
    )
    made = nbformat.v4.new_notebook(cells=[cell])
    (tmp_path / "out.html").write_text(notebook_page(made, tmp_path / "N.ipynb"))
    assert Counter(verdicts(tmp_path / "out.html")) == Counter(expected)
