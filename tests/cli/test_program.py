"""The command line: words, exit codes, and no traceback for a user's mistake."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import workbench
from workbench import cli
from workbench.cli import program

from ..conftest import ROOT

SPECULATORS = "data/drafts/speculators"
SPECFORGE = "data/drafts/specforge"


def run(root: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process: the libraries are imported once, not for each line."""
    with (
        contextlib.chdir(root),
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr(sys, "argv", ["workbench", *args])
        with pytest.raises(SystemExit) as left:
            cli.main()
    return subprocess.CompletedProcess(args, left.value.code, out.getvalue(), err.getvalue())  # type: ignore[arg-type]


def test_a_process_of_its_own_says_the_same(root: Path) -> None:
    words = ("diff", SPECULATORS, "sglang==0.5.11")
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", *words],
        cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    here = run(root, *words)
    assert (done.returncode, done.stdout, done.stderr) == (1, here.stdout, "")


def test_diff_that_loads_exits_0(root: Path) -> None:
    done = run(root, "diff", SPECFORGE, "sglang==0.5.14")
    assert done.returncode == 0, done.stderr
    assert "14 of 15 keys load in sglang 0.5.14" in done.stdout


def test_diff_that_loses_exits_1_and_names_the_rename(root: Path) -> None:
    done = run(root, "diff", SPECULATORS, "sglang==0.5.11")
    assert done.returncode == 1, done.stderr
    text = " ".join(done.stdout.split())
    assert "silently ignore 10 of 16 keys and leave 7 parameters unfilled" in text
    assert r"^layers\.0\. -> midlayer." in text
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_a_version_nobody_knows_is_never_certain(root: Path) -> None:
    done = run(root, "diff", SPECFORGE, "sglang==99.0.0")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("? Cannot tell")


def test_no_version_is_certain_only_where_all_agree(root: Path) -> None:
    done = run(root, "diff", SPECULATORS, "sglang", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == {True: 0, False: 1, None: 3}[answer["ok"]]
    assert len(answer["versions"]) > 3


def test_json_is_what_to_dict_says(root: Path) -> None:
    done = run(root, "diff", SPECULATORS, "sglang==0.5.11", "--json")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "workbench.keydiff/1"
    assert len(answer["dropped"]) == 10
    assert len(answer["missing"]) == 7
    assert answer["ignored"] == ["t2d"]
    keys = [*answer["loaded"], *answer["dropped"], *answer["ignored"], *answer["mismatched"]]
    assert len(keys) == len(set(keys)) == 16


def test_fix_writes_a_copy_that_loads(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "fixed"
    done = run(root, "fix", SPECULATORS, "sglang==0.5.11", "-o", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(root, "diff", str(out), "sglang==0.5.11").returncode == 0
    with pytest.raises(workbench.WorkbenchError, match="needs no repair"):
        workbench.fix_checkpoint(out, "sglang==0.5.11", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["diff", "no/such/folder", "sglang==0.5.11"], "no/such/folder"),
        (["diff", SPECULATORS, "slang==0.5.11"], "slang"),
        (["diff", SPECULATORS, "sglang==x.y"], "x.y"),
        (["diff", SPECULATORS, "sglang==0.3.0"], "0.3.0"),
        (["diff", SPECULATORS, "sglang==0.5.11:NoSuchClass"], "NoSuchClass"),
        (["diff", SPECULATORS, "sglang", "--python", "/no/python"], "/no/python"),
        (["fix", SPECFORGE, "sglang==0.5.14", "-o", "never"], "needs no repair"),
        (["diff", "README.md", "sglang==0.5.11"], "README.md"),
        (["report", "README.md", "-o", "never.html"], "README.md"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_mistakes_exit_2_with_what_why_and_next(root: Path, args: list[str], said: str) -> None:
    done = run(root, *args)
    assert done.returncode == 2, done.stdout
    assert said.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (root / "never").exists()
    assert not (root / "never.html").exists()


def test_a_page_that_cannot_be_written_is_refused_before_the_work(root: Path) -> None:
    for page in ("/no/such/folder/x.html", ".", "/dev/null"):
        done = run(root, "diff", "no/such/checkpoint", "sglang==0.5.14", "--html", page)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "cannot write" in done.stderr
        assert "Traceback" not in done.stderr


def test_version_and_full_disk(root: Path) -> None:
    assert run(root, "--version").stdout.strip() == workbench.__version__
    done = subprocess.run(
        f"{sys.executable} -m workbench.cli diff {SPECFORGE} sglang==0.5.14 > /dev/full",
        shell=True, cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr


VERBS = {
    "check": ("no/such.sh",),
    "doctor": ("no/such",),
    "gate": ("no/such", "--target", "no/such", "--engines", "sglang"),
    "diff": ("no/such", "sglang==0.5.14"),
    "fix": ("no/such", "sglang==0.5.14", "-o", "never"),
    "weights": ("no/such",),
    "hang": ("no/such",),
    "collect": ("999999999", "-o", "never"),
    "watch": ("999999999", "-o", "never"),
    "replay": ("--target", "no/such", "--draft", "no/such"),
    "report": ("no/such.ipynb", "-o", "never.html"),
}


def test_every_verb_is_tried_here() -> None:
    assert set(VERBS) == {verb.__name__ for verb in program.VERBS}
    text = CliRunner().invoke(cli.app, ["--help"]).output
    assert all(f"\n  {verb} " in text for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_that_of_the_verb(root: Path, verb: str) -> None:
    done = run(root, verb, "--help")
    assert done.returncode == 0, done.stderr
    assert f" {verb} [OPTIONS]" in done.stdout
    assert "Exit codes: 0 ok; 1 something is wrong" in done.stdout
    summary = next(v.__doc__ for v in program.VERBS if v.__name__ == verb)
    assert summary is not None
    assert " ".join(summary.split())[:60] in " ".join(done.stdout.split())
    assert done.stdout != run(root, "--help").stdout


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_file_exits_2_and_prints_no_version(root: Path, verb: str) -> None:
    done = run(root, verb, *VERBS[verb])
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert "next:" in done.stderr
    assert "the workbench itself failed" not in done.stderr
    assert run(root, verb, "--no-such-option").returncode == 2


def test_options_may_come_before_and_after_arguments(root: Path) -> None:
    words = ("data/drafts/specforge", "sglang==0.5.14")
    first = run(root, "diff", "--json", *words)
    assert first.returncode == 0, first.stderr
    assert run(root, "diff", *words, "--json").stdout == first.stdout
    assert run(root, "diff", words[0], "--json", words[1]).stdout == first.stdout


def test_no_words_are_a_mistake_and_a_question_at_once(root: Path) -> None:
    done = run(root)
    assert done.returncode == 2
    assert "Usage:" in done.stdout + done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_misread_command_line_is_never_ok(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that skips the verb and exits 0, as typer 0.12 did with a newer click."""

    def misread() -> None:
        sys.exit(0)

    monkeypatch.setattr(program, "app", misread)
    monkeypatch.setattr(sys, "argv", ["workbench", verb, *VERBS[verb]])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "nothing was examined" in capsys.readouterr().err


def test_a_verb_without_a_verdict_is_a_mistake_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workbench.keys import diff

    monkeypatch.setattr(diff, "diff_keys", lambda *words, **options: object())
    monkeypatch.setattr(sys, "argv", ["workbench", "diff", SPECFORGE, "sglang"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "this is not a verdict" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_still_gets_its_answer(root: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", "diff", SPECULATORS, "sglang==0.5.11"],
        cwd=root, capture_output=True, check=False, timeout=120,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.isascii()
    assert b"ignore 10 of 16 keys" in done.stdout.replace(b"\n ", b"")


def test_our_own_mistake_is_no_accusation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workbench.keys import diff

    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(diff, "diff_keys", broken)
    monkeypatch.setattr(sys, "argv", ["workbench", "diff", SPECFORGE, "sglang"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "this is not a verdict" in said
    assert "ZeroDivisionError: ours" in said


def test_a_reader_that_goes_away_is_no_error(root: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m workbench.cli diff {SPECULATORS} sglang==0.5.11 | head -1",
        shell=True, cwd=root, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""


def test_html_is_written_next_to_the_text(root: Path, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    done = run(root, "diff", SPECFORGE, "sglang==0.5.14", "--html", str(page))
    assert done.returncode == 0
    assert "<html" in page.read_text()


@pytest.mark.parametrize(
    "arguments", [["diff", "/nonexistent", "sglang==0.5.11"], ["frobnicate"], []], ids=str
)
def test_a_full_standard_error_is_not_an_accusation(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "workbench.cli", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=full,
            cwd=ROOT,
            check=False,
            timeout=120,
        )
    assert done.returncode == 2
