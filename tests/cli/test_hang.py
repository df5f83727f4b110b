"""`workbench hang` and `workbench collect`: exit codes, files, and mistakes told in three lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HANG = "data/incident/hang"


def run(root: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workbench.cli", *args],
        cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        ("capture-hang", 1, "TP1 is stopped"),
        ("relaunch-graphs-off", 0, "Healthy and idle"),
        ("first-start", 3, "Cannot tell"),
    ],
)
def test_the_exit_code_is_the_verdict(root: Path, case: str, code: int, said: str) -> None:
    done = run(root, "hang", f"{HANG}/{case}")
    assert done.returncode == code, done.stderr
    assert said in done.stdout.splitlines()[0]
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_every_form_at_once(root: Path, tmp_path: Path) -> None:
    page, stacks = tmp_path / "hang.html", tmp_path / "hang.speedscope.json"
    done = run(
        root, "hang", f"{HANG}/capture-hang", "--json", "--html", str(page), "--speedscope", str(stacks),
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["state"], answer["odd_ranks"]) == (
        "workbench.hang/1",
        "hung",
        [1],
    )
    assert "data-wb-mount" in page.read_text()
    assert len(json.loads(stacks.read_text())["profiles"]) == 2
    assert done.stderr.splitlines() == [f"wrote {stacks}", f"wrote {page}"]


@pytest.mark.parametrize(
    "args",
    [
        ("hang", "no/such/folder"),
        ("hang", "999999999"),
        ("hang", f"{HANG}/capture-hang", "--log", "server.log"),
        ("collect", "-o", "case.zip", "999999999"),
    ],
)
def test_a_mistake_is_told_and_exits_2(root: Path, args: tuple[str, ...]) -> None:
    done = run(root, *args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "the workbench itself failed" not in done.stderr
    assert not (root / "case.zip").exists()
