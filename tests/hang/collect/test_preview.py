"""What a preview shows is what a case holds, and nothing is written."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests import planted
from tests.hang.collect.test_collector import server  # noqa: F401 - a fixture
from workbench.errors import WorkbenchError
from workbench.hang.attach import collect, preview
from workbench.hang.collect.pack_collector import pack


def test_a_preview_shows_what_would_leave_and_writes_nothing(
    server: int,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = preview(server)
    assert list(tmp_path.iterdir()) == []
    assert planted.found_in(shown) == []
    for said in (
        "Nothing was written", "snapshot-1/processes.json", "logs/server.log", "sglang::scheduler_TP0",
        "--api-key <left out>", "NCCL_DEBUG=INFO", "Load weight begin. avail mem=1 GB", "words left out",
    ):  # fmt: skip
        assert said in shown
    with pytest.raises(WorkbenchError, match="no process"):
        preview(2**22 - 3)


def run(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("form", ["command", "one file"])
def test_preview_is_an_option_of_both_programs(form: str, server: int, tmp_path: Path) -> None:  # noqa: F811
    program = ["-m", "workbench.cli", "collect"]
    if form == "one file":
        (tmp_path / "packed").mkdir()
        program = [str(pack(tmp_path / "packed" / "collect.pyz"))]
    work = tmp_path / "work"
    work.mkdir()
    done = run(*program, str(server), "--preview", folder=work)
    assert done.returncode == 0, done.stderr
    assert "Nothing was written" in done.stdout
    assert planted.found_in(done.stdout + done.stderr) == []
    for words in (["--preview", "-o", "case.zip"], []):
        done = run(*program, str(server), *words, folder=work)
        assert done.returncode == 2
        assert "--preview" in done.stderr
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_a_case_is_its_owners_alone(mask: int, server: int, tmp_path: Path) -> None:  # noqa: F811
    import os

    from tests.case_files import writing_case

    before = os.umask(mask)
    try:
        paths = [collect(tmp_path / "case.zip", server, snapshots=1), tmp_path / "written.zip"]
        with writing_case(paths[1], "host-5f2c91") as case:
            case.add("a.txt", "b")
        paths.append(tmp_path / "packed.zip")
        program = pack(tmp_path / "collect.pyz")
        done = run(
            str(program), str(server), "-o", str(paths[2]), "--snapshots", "1", folder=tmp_path
        )
        assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600] * 3
