"""What a user reads is in plain words, by the word check and its ratchet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import words
from .conftest import ROOT


def test_every_file_is_clean_or_pending() -> None:
    results = {path.relative_to(ROOT).as_posix(): words.check(path) for path in words.files()}
    assert words.complaints(results, words.pending()) == []


def names(text: str) -> list[str]:
    return [word.name for _, word, _ in words.words_in(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a rename that mends it", ["mend"]),
        ("which is which cannot be told", ["told"]),
        ("Idle is only said where", ["said"]),
        ("the ranks stand in a barrier", ["stands"]),
        ("there is only one look", ["look (noun)"]),
        ("unlike between two\nlooks", ["look (noun)"]),
        ("still as they were drawn", ["drawn"]),
        ("a copy beside it", ["beside"]),
        ("drops it without\na word", ["without a word"]),
        ("No draft token is ever accepted", ["no X is"]),
        ("memory that nobody wrote", ["nobody"]),
    ],
)
def test_each_word_is_found(text: str, found: list[str]) -> None:
    assert names(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "a standalone file, outstanding, amended, saidiya, withdrawn",
        "rank 0 looks idle; look at its frame; both look like noise",
        "the look-ups of an index",
        "there is no file that is read, with no key and a value",
        "it no longer is there",
        "run `told beside` and see",
        'the log line "no rank is left" and nothing else',
        "see [the page](docs/beside.md) or https://example.org/told",
    ],
)
def test_others_are_not(text: str) -> None:
    assert names(text) == []


def checked(path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [line.removeprefix(f"{path}:").split(":")[0] for line in words.check(path)]


def test_python_strings_count_and_code_does_not(tmp_path: Path) -> None:
    source = '''"""Told in a docstring."""
import re
PATTERN = re.compile("what was told here")
told = {"told": 1}  # told in a comment
def f(x):
    """Say what was told."""
    print("it was told", f"{x['told']} and {f'{x} said so'} beside {x}")
    return "drawn" in x
'''
    assert checked(tmp_path / "one.py", source) == ["7", "7", "7"]
    (tmp_path / "cli").mkdir()
    assert checked(tmp_path / "cli" / "one.py", source) == ["6", "7", "7", "7"]


def test_scripts_and_markdown_and_notebooks(tmp_path: Path) -> None:
    script = "// told a reader's\nconst a = told('it is told', `${b} said so`);\n/* said */\n"
    assert checked(tmp_path / "one.js", script) == ["2", "2"]
    page = "# Told\n\n    told in code\n\n```\ntold\n```\n<!-- told -->\nwithout\na word\n"
    assert checked(tmp_path / "one.md", page) == ["1", "9"]
    cells = [
        {"cell_type": "code", "source": ["told = 'it is told'"]},
        {"cell_type": "markdown", "source": ["So\n", "\n", "it is told."]},
    ]
    assert checked(tmp_path / "one.ipynb", json.dumps({"cells": cells})) == ["cell 2"]


def test_the_list_only_shrinks() -> None:
    results = {"a.md": ["a.md:1: told"], "b.md": []}
    assert words.complaints(results, ["a.md"]) == []
    assert words.complaints(results, []) == ["a.md:1: told"]
    assert words.complaints(results, ["a.md", "b.md", "c.md"]) == [
        "b.md: take it off words_pending.txt: it is clean",
        "c.md: take it off words_pending.txt: it is not there",
    ]


def test_the_style_page_lists_the_words_that_are_checked() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = page.split("| drop | write |")[1].split("\n\n")[0]
    listed = [row.split('"')[1] for row in rows.splitlines() if '"' in row]
    assert listed == [word.name for word in words.WORDS]


def test_main_says_where_and_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.md"
    path.write_text("It is told.\n")
    assert words.main([str(path)]) == 1
    assert capsys.readouterr().out == f"{path}:1: 'told' (told): write reported, known, says\n"
    path.write_text("It is reported.\n")
    assert words.main([str(path)]) == 0


def test_prune_takes_off_what_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "pending.txt"
    listed.write_text("# why\na.md\nb.md\nc.md\n")
    monkeypatch.setattr(words, "PENDING", listed)
    words.prune({"a.md": ["a.md:1: told"], "b.md": []})
    assert listed.read_text() == "# why\na.md\n"
