"""Launches as they come from a page, a chat, a PDF or another shell: read as they were meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import workbench
from workbench.errors import WorkbenchError
from workbench.launch.pasted import joined, typed, without_prompts
from workbench.launch.read import read_launch

LINE = "python3 -m sglang.launch_server --model-path m --tp 2"
WORDS = ("--model-path", "m", "--tp", "2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LINE, ()),
        (LINE.replace("--", "\u2013"), ("2 dashes that are no hyphens",)),
        (LINE.replace("--", "\u2014"), ("2 dashes that are no hyphens",)),
        (LINE.replace("--", "\u2013\u2013"), ("4 dashes that are no hyphens",)),
        (LINE.replace("--", "\u2212\u2212"), ("4 dashes that are no hyphens",)),
        (LINE.replace("--tp", "\u2013tp"), ("1 dash that is no hyphen",)),
        (LINE.replace("model-path", "model\u2010path"), ("1 dash that is no hyphen",)),
        (LINE.replace(" -m ", " \u2013m "), ("1 dash that is no hyphen",)),
        (LINE.replace(" ", "\u00a0"), ("6 spaces that a shell does not split at",)),
        (LINE.replace("--tp", "\u200b--tp"), ("1 character that is not seen",)),
        (LINE.replace(" m ", " \u201cm\u201d "), ("1 pair of typographic quotes",)),
        (LINE.replace(" m ", " \u2018m\u2019 "), ("1 pair of typographic quotes",)),
    ],
)
def test_a_line_is_read_as_it_was_meant_and_says_what_was_changed(
    text: str, said: tuple[str, ...]
) -> None:
    found = read_launch(text, version="0.5.14")
    assert found.options == WORDS
    assert found.pasted == said


def test_what_changes_no_word_is_not_reported() -> None:
    dashes = f"# a comment \u2013 with a dash, and don\u2019t\n{LINE}\n"
    assert read_launch(dashes).pasted == ()
    named = f"{LINE} --served-model-name \u201cmine\u201d"
    assert read_launch(named).pasted == ()


def test_a_dash_inside_a_value_stays() -> None:
    assert typed("--model-path /models/a\u2013b")[0] == "--model-path /models/a\u2013b"


def test_the_corrected_line_is_shown_and_has_no_fault_left(root: Path) -> None:
    target = root / "data" / "incident" / "target"
    line = LINE.replace(" m ", f" {target} ").replace("--", "\u2013")
    found = workbench.check(line, engine="sglang==0.5.14")
    assert found.ok is False
    assert [one.code for one in found.faults] == ["not_as_typed"]
    assert found.corrected == LINE.replace(" m ", f" {target} ")
    assert found.left == ()
    assert workbench.check(found.corrected, engine="sglang==0.5.14").ok is True


@pytest.mark.parametrize("engine", ["vllm serve", "sglang serve --model-path"])
def test_the_fault_is_that_of_every_engine(engine: str, root: Path) -> None:
    target = root / "data" / "incident" / "target"
    release = "vllm==0.32.0" if "vllm" in engine else "sglang==0.5.14"
    found = workbench.check(f"{engine} {target} \u2013\u2013trust-remote-code", engine=release)
    assert "not_as_typed" in [one.code for one in found.faults]


@pytest.mark.parametrize(
    "text",
    [
        "{line}\r\n".format(line=LINE.replace(" --", " \\\r\n  --")),
        LINE.replace(" ", "\t"),
        f"\ufeff{LINE}",
        f"$ {LINE}",
        f"root@gpu-1:/srv# {LINE}",
        f"[me@gpu-1 srv]$ {LINE}",
        f"(venv) me@gpu-1:~$ {LINE}",
    ],
)
def test_line_ends_tabs_and_prompts(text: str) -> None:
    found = read_launch(text)
    assert found.options == WORDS
    assert found.pasted == ()


def test_a_comment_is_no_prompt() -> None:
    assert without_prompts("# serve it\n  #not@a:prompt") == "# serve it\n  #not@a:prompt"


@pytest.mark.parametrize(("mark", "shell"), [("`", "PowerShell"), ("^", "cmd.exe")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_that_another_shell_continues(mark: str, shell: str, end: str) -> None:
    found = read_launch(LINE.replace(" --", f" {mark}{end}  --") + end)
    assert found.options == WORDS
    (said,) = found.not_read
    assert shell in said.why
    assert not said.essential


def test_a_mark_that_continues_nothing_stays() -> None:
    assert joined("echo `date`\nls ^\nfoo") == ("echo `date`\nls ^\nfoo", ())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings_with_a_mark(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "launch.sh"
    file.write_bytes(LINE.encode(encoding))
    assert read_launch(file).options == WORDS


@pytest.mark.parametrize("name", ["launch.sh", "server.log", "launch.yaml"])
def test_bytes_are_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(bytes(range(128, 256)) * 64)
    with pytest.raises(WorkbenchError, match="it is no text"):
        read_launch(file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "launch.sh"
    file.write_text(LINE)
    file.chmod(0)
    with pytest.raises(WorkbenchError, match="cannot read"):
        read_launch(file)


SUPERVISED = """
[supervisord]
nodaemon=true

[program:sglang]
command=/usr/bin/python3 -m sglang.launch_server --model-path m
    --tp 2
environment=CUDA_VISIBLE_DEVICES="0,1",SGLANG_X='1'
autostart=true
"""


def test_a_program_of_supervisord() -> None:
    found = read_launch(SUPERVISED)
    assert (found.form, found.options) == ("supervisord file", WORDS)
    assert dict(found.environment) == {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_X": "1"}


def test_what_supervisord_fills_in_is_not_known() -> None:
    found = read_launch(SUPERVISED.replace("--tp 2", "--tp %(ENV_TP)s"))
    assert found.value("tp-size") is None
    assert found.variables == ("TP",)


VALUES = """
replicaCount: 1
image:
  repository: lmsysorg/sglang
  tag: v0.5.14-cu129
command: ["python3", "-m", "sglang.launch_server"]
args:
  - --model-path
  - m
  - --tp
  - "2"
"""


def test_the_values_of_a_chart() -> None:
    found = read_launch(VALUES)
    assert (found.version, found.options) == ("0.5.14", WORDS)


def test_the_values_of_a_chart_without_a_command() -> None:
    text = 'engine:\n  image: lmsysorg/sglang:v0.5.14\n  args: ["--model-path", "m", "--tp", "2"]\n'
    found = read_launch(text)
    assert (found.version, found.options, found.program) == ("0.5.14", WORDS, "")


def test_values_that_hold_no_launch_accuse_nobody() -> None:
    text = 'server:\n  extraArgs:\n  - --tp\n  - "2"\nmodel: m\n'
    found = workbench.check(text, engine="sglang==0.5.14")
    assert found.ok is None
    assert found.faults == ()


BATCH = """#!/bin/bash
#SBATCH --nodes=2
export HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
srun --ntasks-per-node=1 --container-image=lmsysorg/sglang:v0.5.14 \\
  python3 -m sglang.launch_server --model-path m --tp 2 --node-rank $SLURM_PROCID --dist-init-addr $HEAD:5000
"""


def test_an_address_that_is_not_known_decides_nothing(root: Path) -> None:
    target = root / "data" / "incident" / "target"
    found = workbench.check(BATCH.replace(" m ", f" {target} "), engine="sglang==0.5.14")
    assert found.ok is True
    listed = [item for item in found.verdict.coverage.items if item.name == "--dist-init-addr"]
    assert [(item.state, item.essential) for item in listed] == [("open", False)]


def test_two_launches_in_one_script_are_not_guessed(root: Path) -> None:
    target = root / "data" / "incident" / "target"
    line = LINE.replace(" m ", f" {target} ")
    found = workbench.check(
        f"{line} &\n{line.replace('--tp 2', '--tp 3')}\n", engine="sglang==0.5.14"
    )
    assert found.ok is None
    assert "2 different launches" in found.summary
