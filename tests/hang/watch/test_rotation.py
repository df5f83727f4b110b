"""The folder of a watch: closed to others, numbered, and only its own cases are removed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workbench.errors import WorkbenchError
from workbench.hang.watch.rotation import Folder

CASE = (ROOT / "tests/hang/cases/gpu/gpu-all-stuck.zip").read_bytes()


def test_a_new_folder_is_its_owners_alone_and_keeps_the_last_cases(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cases", keep=2)
    for _ in range(4):
        folder.next().write_bytes(CASE)
        folder.rotate()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert [number for number, _ in folder.cases()] == [3, 4]
    assert folder.next().name == "case-000005.zip"


def test_what_is_no_case_is_never_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cases", keep=1)
    (folder.path / "case-000001.zip").write_text("mine")
    (folder.path / "notes.txt").write_text("mine")
    for _ in range(2):
        folder.next().write_bytes(CASE)
        folder.rotate()
    assert sorted(one.name for one in folder.path.iterdir()) == [
        "case-000001.zip",
        "case-000003.zip",
        "notes.txt",
    ]


def test_an_open_folder_is_closed_only_where_nothing_else_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    Folder(folder, keep=1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    (folder / "other.txt").touch()
    with pytest.raises(WorkbenchError, match="others may read it, and it holds other files"):
        Folder(folder, keep=1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    with pytest.raises(WorkbenchError, match="it is not a folder"):
        Folder(folder / "other.txt", keep=1)
