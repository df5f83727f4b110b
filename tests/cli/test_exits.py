"""Exit codes: 0 is earned by a verdict that is True, and the worst of several decides."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import numpy as np
import pytest

from workbench.cli.exits import ExitCode, of_results, of_verdicts

from ..conftest import ROOT


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([True], 0), ([False], 1), ([None], 3), ([], 3),
        ([True, True], 0), ([True, None], 3), ([None, False, True], 1), ([False, None], 1),
        (["yes"], 3), ([1], 3), ([np.True_], 3), ([True, "no"], 3), ([0], 3),
    ],
)  # fmt: skip
def test_the_worst_verdict_decides_and_only_true_is_ok(verdicts: list[object], code: int) -> None:
    assert of_verdicts(verdicts) == code
    assert of_results(*(SimpleNamespace(ok=ok) for ok in verdicts)) == code


def test_a_result_without_a_verdict_is_never_ok() -> None:
    assert of_results(SimpleNamespace()) is ExitCode.CANNOT_TELL
    assert of_results(SimpleNamespace(ok=True), object()) is ExitCode.CANNOT_TELL


def test_no_other_module_of_the_command_line_reads_a_verdict() -> None:
    for path in (ROOT / "workbench" / "cli").glob("*.py"):
        if path.name == "exits.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Attribute) and node.attr == "ok"), path.name
            assert not (isinstance(node, ast.Constant) and node.value == "ok"), path.name
