"""Which py-spy is run: this Python's own before the one on the PATH, and its version is known."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.hang.collect.collector import find_pyspy
from workbench.hang.collect.collector.pyspy import PySpy

Program = Callable[[str, str], str]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Programs named py-spy in folders of their own; one folder is this Python's, one is on the PATH."""
    for name in ("own", "path"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python"))
    monkeypatch.setattr(find_pyspy.sysconfig, "get_path", lambda name, scheme="": None)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def write(folder: str, script: str) -> str:
        path = tmp_path / folder / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


def test_the_own_one_comes_before_the_path(program: Program) -> None:
    on_path = program("path", "echo py-spy 0.4.9")
    assert find_pyspy.find() == find_pyspy.Found(on_path, "0.4.9")
    own = program("own", "echo py-spy 0.4.3")
    assert find_pyspy.candidates() == [own, on_path]
    assert find_pyspy.find() == find_pyspy.Found(own, "0.4.3")


def test_the_folder_of_scripts_counts_as_own(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("path", "echo py-spy 0.4.9")
    (tmp_path / "scripts").mkdir()
    own = program("scripts", "echo py-spy 0.4.3")
    folder = str(tmp_path / "scripts")
    monkeypatch.setattr(find_pyspy.sysconfig, "get_path", lambda name, scheme="": folder)
    assert find_pyspy.find().path == own


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "exec /no/such/program"])
def test_one_that_does_not_run_gives_way_to_one_that_does(program: Program, script: str) -> None:
    own = program("own", script)
    assert find_pyspy.find().path == own
    assert "does not say its version" in find_pyspy.find().warning
    on_path = program("path", "echo py-spy 0.4.9")
    assert find_pyspy.find() == find_pyspy.Found(on_path, "0.4.9")


@pytest.mark.parametrize(
    ("version", "old"),
    [("0.3.14", True), ("0.3.99", True), ("0.4.0", False), ("0.10.1", False), ("1.0.0", False)],
)
def test_an_old_one_is_named_with_the_remedy(program: Program, version: str, old: bool) -> None:
    program("own", f"echo py-spy {version}")
    found = find_pyspy.find()
    assert found.version == version
    assert ("pip install --upgrade py-spy" in found.warning) is old
    assert (f"py-spy {version} is too old" in found.warning) is old


def test_none_is_none(program: Program) -> None:
    assert find_pyspy.find() == find_pyspy.Found(None)
    assert PySpy().path is None


def test_a_named_program_is_taken_as_it_is(program: Program) -> None:
    named = program("path", "sleep 60")
    assert PySpy(named).found == find_pyspy.Found(named)


def test_the_real_one_says_its_version() -> None:
    found = find_pyspy.find()
    assert found.path is not None
    assert found.version
    assert not found.warning
