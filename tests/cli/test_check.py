"""``workbench check`` and ``workbench doctor``: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.cli.program import app

GOOD = (
    "sglang serve --model-path data/incident/target --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path data/incident/drafts/specforge"
)


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (GOOD, 0),
        (GOOD.replace("EAGLE3", "EAGLE"), 1),
        (f"{GOOD} --tp $TP", 3),
        ("/no/such/file.sh", 2),
    ],
)
def test_exit_codes_of_check(line: str, code: int) -> None:
    done = CliRunner().invoke(app, ["check", line, "--engine", "sglang==0.5.14"])
    found = (
        done.exit_code if done.exception is None or isinstance(done.exception, SystemExit) else 2
    )
    assert found == code, done.output


def test_a_launch_from_standard_input_as_json() -> None:
    done = CliRunner().invoke(
        app, ["check", "-", "--engine", "sglang==0.5.14", "--json"], input=GOOD
    )
    assert json.loads(done.output)["schema"] == "workbench.launchcheck/1"


def test_doctor_lists_and_asks_where_nothing_is_given(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "data" / "drafts")
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 3
    assert "specforge" in done.output


def test_doctor_of_a_run() -> None:
    done = CliRunner().invoke(
        app, ["doctor", "data/incident/runs/sglang-0.5.11/incident-eagle", "--markdown"]
    )
    assert done.exit_code == 1
    assert "EAGLE3" in done.output
