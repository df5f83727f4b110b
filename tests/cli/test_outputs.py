"""Every verb that writes: foreign files and what is examined stay, and the work does not even begin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.errors import WorkbenchError

from ..conftest import ROOT
from ..display_samples import incident

DATA = ROOT / "data"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of what the verbs examine, and files that the workbench did not write."""
    shutil.copytree(DATA / "drafts" / "specforge", tmp_path / "CK")
    shutil.copytree(DATA / "incident" / "hang" / "capture-hang", tmp_path / "EV")
    (tmp_path / "N.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    (tmp_path / "log").write_text("a log")
    incident_json = tmp_path / "saved.json"
    from workbench.keys.diff import diff_keys

    diff_keys(tmp_path / "CK", "sglang==0.5.14").save(incident_json)
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "link").symlink_to("CK")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


DIFF = ("diff", "CK", "sglang==0.5.14", "--html")
WEIGHTS = ("weights", "CK", "--html")
HANG = ("hang", "EV")
REPLAY = ("replay", "--draft", "CK", "--target", "CK", "--evidence", "EV", "--html")
INSIDE = [
    (*DIFF, "CK/model.safetensors"),
    (*DIFF, "CK/config.json"),
    (*DIFF, "CK/new.html"),
    (*DIFF, "link/new.html"),
    ("diff", "CK/model.safetensors", "sglang==0.5.14", "--html", "CK/config.json"),
    ("diff", "EV", "sglang==0.5.14", "--target", "CK", "--html", "CK/new.html"),
    ("fix", "CK", "sglang==0.5.11", "-o", "fixed", "--html", "CK/new.html"),
    ("fix", "CK", "sglang==0.5.11", "-o", "CK/fixed"),
    ("fix", "EV", "sglang==0.5.11", "--target", "CK", "-o", "link/fixed"),
    (*WEIGHTS, "CK/model.safetensors"),
    ("weights", "EV", "--compare", "CK", "--html", "CK/new.html"),
    (*HANG, "--html", "EV/new.html"),
    (*HANG, "--speedscope", "EV/new.json"),
    (*REPLAY, "CK/new.html"),
    (*REPLAY, "EV/new.html"),
    ("report", "N.ipynb", "-o", "N.ipynb"),
    ("report", "saved.json", "-o", "saved.json"),
    ("collect", "-o", "log", "--log", "log"),
]


@pytest.mark.parametrize("words", INSIDE, ids=" ".join)
def test_what_is_examined_is_never_written_to(words: tuple[str, ...], place: Path) -> None:
    before = state(place)
    for more in ((), ("--force",)):
        error = CliRunner().invoke(app, [*words, *more]).exception
        assert isinstance(error, WorkbenchError), error
        assert "which is examined" in error.why
        assert state(place) == before


# What is examined is absent: the path is refused before it is even opened.
FOREIGN = [
    ("diff", "absent", "sglang==0.5.14", "--html"),
    ("fix", "absent", "sglang==0.5.14", "-o", "fixed", "--html"),
    ("weights", "absent", "--html"),
    ("hang", "absent", "--html"),
    ("hang", "absent", "--speedscope"),
    ("hang", "999999999", "--html"),
    ("replay", "--draft", "absent", "--target", "absent", "--html"),
    ("collect", "999999999", "-o"),
    ("report", "N.ipynb", "-o"),
    ("report", "saved.json", "-o"),
]


@pytest.mark.parametrize("words", FOREIGN, ids=" ".join)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("theirs", "the workbench did not write it"),
        ("no/folder/x", "there is no folder"),
        ("CK", "it is a folder"),
        ("/dev/null", "a device or a pipe"),
    ],
)
def test_a_path_is_checked_before_the_work_begins(
    words: tuple[str, ...], path: str, why: str, place: Path
) -> None:
    before = state(place)
    error = CliRunner().invoke(app, [*words, path]).exception
    assert isinstance(error, WorkbenchError), error
    assert why in error.why
    assert error.next_step
    assert state(place) == before


@pytest.mark.parametrize("words", [DIFF, (*HANG, "--html"), ("report", "saved.json", "-o")])
def test_with_force_a_foreign_file_is_replaced_and_an_own_one_without(
    words: tuple[str, ...], place: Path
) -> None:
    done = CliRunner().invoke(app, [*words, "theirs", "--force"])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    first = (place / "theirs").read_bytes()
    assert b"<html" in first
    done = CliRunner().invoke(app, [*words, "theirs"])
    assert isinstance(done.exception, SystemExit | None)
    assert (place / "theirs").read_bytes() == first


def test_two_outputs_do_not_share_a_path(place: Path) -> None:
    words = [*HANG, "--html", "new", "--speedscope", "./new"]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, WorkbenchError)
    assert "two outputs" in error.what
    assert not (place / "new").exists()


@pytest.mark.parametrize("page", ["fixed/new.html", "to-fixed/new.html", "fixed", "./fixed"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_page_does_not_go_into_the_repaired_copy(place: Path, page: str, exists: bool) -> None:
    if exists:
        (place / "fixed").mkdir()
    (place / "to-fixed").symlink_to("fixed")
    before = state(place)
    words = ["fix", "CK", "sglang==0.5.11", "-o", "fixed", "--html", page, "--force"]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, WorkbenchError)
    assert state(place) == before


def test_a_model_of_the_hub_is_examined_where_it_is_cached(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = place / "hub" / "models--org--draft"
    (cache / "snapshots").mkdir(parents=True)
    shutil.copytree(place / "CK", cache / "snapshots" / "abcdef")
    monkeypatch.setenv("HF_HUB_CACHE", str(place / "hub"))
    for path in ("snapshots/abcdef/model.safetensors", "refs", "snapshots/abcdef/new.html"):
        words = ["diff", "org/draft", "sglang==0.5.14", "--html", str(cache / path), "--force"]
        error = CliRunner().invoke(app, words).exception
        assert isinstance(error, WorkbenchError)
        assert "which is examined" in error.why


def test_the_packed_collector_replaces_nothing_but_a_case(place: Path) -> None:
    from workbench.hang.collect.pack_collector import pack

    pyz = pack(place / "collect.pyz")
    incident().to_html(place / "page.html")
    before = state(place)
    for path in ("theirs", "page.html", "CK/model.safetensors", "CK"):
        done = subprocess.run(
            [sys.executable, str(pyz), "999999999", "-o", path],
            capture_output=True, text=True, check=False, timeout=60, cwd=place,
            env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        assert done.returncode == 2
        assert "cannot write" in done.stderr
    assert state(place) == before
