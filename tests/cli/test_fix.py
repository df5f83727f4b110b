"""`workbench fix`: exit 0 only if the copy was written and the engine loads it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from workbench.cli import app

from ..conftest import ROOT

SPECULATORS = str(ROOT / "data" / "drafts" / "speculators")


def test_the_verdict_on_the_copy_is_the_exit_code(tmp_path: Path) -> None:
    words = ["fix", SPECULATORS, "sglang==0.5.11", "-o", str(tmp_path / "fixed")]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "fixed" / "config.json").exists()
    again = CliRunner().invoke(app, ["diff", str(tmp_path / "fixed"), "sglang==0.5.11"])
    assert again.exit_code == 0


def test_a_copy_that_cannot_be_judged_is_not_ok(tmp_path: Path) -> None:
    words = ["fix", SPECULATORS, "sglang==99.0.0", "-o", str(tmp_path / "fixed")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
