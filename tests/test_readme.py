"""The README's examples: each call gives the result that the page shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from .conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
READ = ("drafts", "incident")


def test_every_block_of_python_is_an_example() -> None:
    assert BLOCKS
    assert all(block.startswith(">>> ") for block in BLOCKS)
    assert README.count(">>> ") == sum(block.count(">>> ") for block in BLOCKS)


def test_the_examples_give_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are one session: each block continues the one before, in a folder that has the data."""
    (tmp_path / "data").mkdir()
    for name in READ:
        (tmp_path / "data" / name).symlink_to(ROOT / "data" / name)
    monkeypatch.chdir(tmp_path)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    session = parser.get_doctest("".join(BLOCKS), {}, "README.md", "README.md", 0)
    output: list[str] = []
    tried = runner.run(session, out=output.append)
    assert tried.attempted == README.count(">>> ")
    assert not tried.failed, "".join(output)
