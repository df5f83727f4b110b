"""Codes of findings: in one spelling wherever one is made, and read in it from files of version 0.1."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import workbench

ROOT = Path(__file__).parents[2]
SAVED = sorted((ROOT / "tests" / "golden" / "saved-0.1").glob("*.json"))
CODE = re.compile(r"([a-z]+\.)?[a-z0-9]+(_[a-z0-9]+)*")


def arguments(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is given to `Finding` as its code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
            yield from node.args[:1]
            yield from (one.value for one in node.keywords if one.arg == "code")


@cache
def codes() -> frozenset[str]:
    """Return all codes, and parts of composed codes, that stand in a call of `Finding`."""
    found = set()
    for file in (ROOT / "workbench").rglob("*.py"):
        for argument in arguments(ast.parse(file.read_text())):
            branches = [argument]
            if isinstance(argument, ast.IfExp):
                branches = [argument.body, argument.orelse]
            if isinstance(argument, ast.Subscript) and isinstance(argument.value, ast.Dict):
                branches = argument.value.values
            found |= {one.value for one in branches if isinstance(one, ast.Constant)}
    return frozenset(found)


def test_codes_are_words_with_underscores() -> None:
    assert len(codes()) > 90
    assert [code for code in sorted(codes()) if not CODE.fullmatch(code)] == []


@pytest.mark.parametrize("file", SAVED, ids=lambda file: file.stem)
def test_a_file_of_version_01_has_todays_codes(file: Path) -> None:
    old = [one["code"] for one in json.loads(file.read_text())["findings"]]
    now = [one.code for one in workbench.load(file).findings]
    if not file.stem.startswith(
        "hang-"
    ):  # the rules' codes are others: tests/hang/judge/test_old_codes.py
        assert now == [code.replace("-", "_") for code in old]
    assert [code for code in now if not CODE.fullmatch(code)] == []
