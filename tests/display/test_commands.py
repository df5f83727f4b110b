"""A command on a page of text: what is copied from it is the same command."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from workbench.core.commands import broken
from workbench.core.wording import cells

LAUNCH = (
    "HF_HUB_OFFLINE=1 python3 -m sglang.launch_server --model-path /models/target --tp-size 8 "
    '--json-model-override-args \'{"a b": "it is", "c": 1}\' --served-model-name "my model" '
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path /models/a\\ draft --trust-remote-code"
)
LONG = f"sglang serve --model-path /models/{'x' * 90} --tp 2"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("command", [LAUNCH, LONG, "sglang serve --model-path t"])
def test_a_shell_reads_the_broken_command_as_the_whole_one(command: str, width: int) -> None:
    pasted = "\n".join(broken(command, width, "  "))
    words = shlex.split(command)
    echoed = subprocess.run(
        ["bash", "-c", 'printf "%s\\n" ' + pasted.strip()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert echoed.stdout.split("\n")[:-1] == words
    for line in pasted.split("\n"):
        assert cells(line) <= width or len(shlex.split(line.strip(" \\"))) <= 2


@pytest.mark.parametrize(
    "command", ["sglang serve --model-path 'not closed " + "x" * 80, "a  b " * 30]
)
def test_what_cannot_be_broken_safely_stays_one_line(command: str) -> None:
    assert list(broken(command, 40, "  ")) == [f"  {command.rstrip()}"]


def test_lines_of_a_script_stay_lines() -> None:
    assert list(broken("cd run\nsglang serve", 40, "  ")) == ["  cd run", "  sglang serve"]
