"""Reports: a notebook or a result as one file, errors that name the cell, the index of all."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.conftest import ROOT
from tests.display_samples import big, hostile, incident
from workbench.errors import WorkbenchError
from workbench.export import demo
from workbench.export.index import read_entry, write_index
from workbench.export.report import executed, report

SHOW = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.display_samples import *\n"


def notebook(path: Path, *cells: str) -> Path:
    made = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(cell[3:])
            if cell.startswith("md:")
            else nbformat.v4.new_code_cell(cell)
            for cell in cells
        ]
    )
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(made, path)
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("export")
    source = notebook(
        folder / "story.ipynb",
        "md:# A `draft` that is lost\n\nSome *words*, and a picture:\n\n![dot](dot.png)",
        SHOW + "incident()",
        "big()",
        "print('\\x1b[31mred\\x1b[0m')\nfrom IPython.display import Javascript, HTML\n"
        "display(Javascript('window.ow' + 'ned = 1'))",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    )
    (folder / "dot.png").write_bytes(
        bytes.fromhex(
            "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360"
            "60606000000005000165d3c5d60000000049454e44ae426082"
        )
    )
    before = source.read_bytes()
    out = report(source, folder / "story.html")
    assert source.read_bytes() == before
    return out.read_text()


def test_a_notebook_becomes_one_file(exported: str) -> None:
    assert "<title>A draft that is lost</title>" in exported
    assert exported.count("<div data-wb-mount") == 2
    assert "<em>words</em>" in exported
    assert 'src="dot.png"' not in exported
    assert exported.count("data:image/png;base64,") == 2
    assert "ansi-red-fg" in exported
    assert "window.owned" not in exported


def test_what_views_repeat_is_there_once(exported: str) -> None:
    assert re.findall(r'data-wb-piece="(\w+)-', exported) == ["core", "keydiff"]
    assert exported.count("<script type=") == 1
    assert exported.count("data-wb-data=") == 2


def test_nothing_is_asked_of_the_network(exported: str) -> None:
    for name in ("require.js", "requirejs", "mathjax", "mermaid", "jquery", "unpkg", "cdnjs"):
        assert name not in exported.lower()
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", exported)
    assert "application/vnd.jupyter.widget-state+json" not in exported
    assert "default-src 'none'" in exported


def test_the_index_finds_the_verdict(exported: str, tmp_path: Path) -> None:
    (tmp_path / "01.html").write_text(exported)
    hostile().to_html(tmp_path / "02 <b>.html")
    (tmp_path / "03.html").write_text("<title>Foreign</title>")
    entry = read_entry(tmp_path / "01.html")
    assert entry.title == "A draft that is lost"
    assert entry.state == "wrong"
    assert entry.verdict.startswith("sglang 0.5.11 silently drops 10 of 16 keys")
    index = write_index(tmp_path).read_text()
    write_index(tmp_path)  # it does not list itself
    assert index.count("<li>") == 3
    assert 'href="02%20%3Cb%3E.html"' in index
    assert "<img" not in index
    assert "silently drops 10 of 16 keys" in index


def test_nbconvert_knows_the_exporter(tmp_path: Path) -> None:
    source = notebook(tmp_path / "short.ipynb", "md:# Short", SHOW + "incident()")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "jupyter", "nbconvert", "--to", "workbench", "--execute"),
            *("--no-input", "--theme", "dark", str(source)),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "short.html").read_text()
    assert '<html lang="en" data-wb-theme="dark">' in text
    assert "display_samples" not in text
    assert text.count('data-wb-piece="core-') == 1
    assert len(text) < 60_000  # of which the view takes 26 KB


def test_a_saved_result_becomes_a_page(tmp_path: Path) -> None:
    out = report(incident(), tmp_path / "result.html")
    assert "silently drops" in out.read_text()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda d: d / "absent.ipynb", "no such file"),
        (lambda d: d, "it is a folder"),
        (lambda d: _write(d / "x.txt", "hello"), ".txt is not a kind it knows"),
        (lambda d: _write(d / "x.json", "{"), "not JSON"),
        (lambda d: _write(d / "x.json", '{"schema": "other/1"}'), "its schema is 'other/1'"),
        (lambda d: _write(d / "x.ipynb", "{"), "not a notebook"),
        (lambda d: _write(d / "x.ipynb", '{"cells": 3}'), "not a notebook"),
        (lambda d: _write(d / "x.ipynb", "[]"), "not a notebook"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(tmp_path: Path, make: Any, says: str) -> None:
    source = make(tmp_path)
    with pytest.raises(WorkbenchError, match=re.escape(says)) as caught:
        report(source, tmp_path / "out.html")
    assert caught.value.next_step
    assert not (tmp_path / "out.html").exists()


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    source = notebook(
        tmp_path / "bad.ipynb", "md:# Bad", "x = 1", "x / 0\n# more", "print('never')"
    )
    with pytest.raises(WorkbenchError) as caught:
        report(source, tmp_path / "out.html")
    assert str(caught.value).splitlines()[:2] == [
        f"cell 3 of {source}, which begins 'x / 0', failed",
        "  why:  ZeroDivisionError: division by zero",
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.ipynb"]


def test_a_kernel_that_is_not_here_is_named(tmp_path: Path) -> None:
    source = notebook(tmp_path / "other.ipynb", "1")
    text = source.read_text().replace('"python3"', '"no-such-kernel"')
    source.write_text(text)
    with pytest.raises(WorkbenchError, match="no-such-kernel"):
        report(source, tmp_path / "out.html")


def test_the_demo_writes_reports_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notebooks").mkdir()
    notebook(tmp_path / "notebooks" / "01_good.ipynb", "md:# Good", "1 + 1")
    notebook(tmp_path / "notebooks" / "02_bad.ipynb", "1 / 0")
    arguments = ["--notebooks", str(tmp_path / "notebooks"), "--out", str(tmp_path / "reports")]
    assert demo.main(arguments) == 2
    said = capsys.readouterr()
    assert (tmp_path / "reports" / "index.html").as_uri() in said.out
    assert "cell 1 of" in said.err
    assert sorted(p.name for p in (tmp_path / "reports").iterdir()) == [
        "01_good.html",
        "index.html",
    ]


def test_two_hundred_thousand_rows_in_a_report_of_a_result(tmp_path: Path) -> None:
    out = report(big(), tmp_path / "big.html")
    assert out.stat().st_size < 1_000_000


def test_a_notebook_runs_where_an_event_loop_runs_already(tmp_path: Path) -> None:
    """As in a notebook that makes a report of another one."""
    source = tmp_path / "N.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("6 * 7")]), source)

    async def inside() -> Any:
        return executed(source)

    # In a thread of its own: a browser's loop may run in this one.
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asyncio.run, inside()).result(60)
    assert done.cells[0].outputs[0]["data"]["text/plain"] == "42"
