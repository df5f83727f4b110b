"""`workbench ledger add` and `show`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from workbench import cli

SERVER = "python -m sglang.launch_server --model-path x"


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["ledger", *words])
    return done.exit_code, done.output or str(done.exception)


def test_launches_are_added_compared_and_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "l.jsonl")
    code, text = run("add", file, f"{SERVER} --tp 8", "--outcome", "hung", "--name", "first")
    assert (code, text) == (0, f"recorded first (hung) in {file}\n")
    code, text = run("add", file, f"{SERVER} --tp 4", "--outcome", "served")
    assert code == 0
    assert "changed   --tp-size: 8 → 4" in text
    code, text = run("show", file)
    assert code == 3  # one success proves nothing
    assert "consistent with the hypothesis" in text
    code, text = run("show", file, "--json")
    assert '"schema": "workbench.launches/1"' in text


def test_a_log_shows_its_own_outcome(root: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "l.jsonl")
    log = root / "data/incident/hang/relaunch-graphs-off/server.log"
    code, text = run("add", file, str(log))
    assert code == 0
    assert "recorded server (" in text


def test_mistakes_are_three_lines(tmp_path: Path) -> None:
    file = str(tmp_path / "l.jsonl")
    code, text = run("show", file)
    assert code == 1
    assert "there is no ledger" in text
    code, text = run("add", file, SERVER, "--outcome", "fine")
    assert code == 1
    assert "An outcome is one of served" in text
    assert not Path(file).exists()
