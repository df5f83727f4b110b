"""The runner behind `make mutants` finds the border that no test holds, and no other."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .conftest import ROOT
from .mutants import conditions
from .mutants.__main__ import EQUIVALENT
from .mutants.reach import repeated
from .mutants.table import modules

RULE = '''
"""A rule."""

LIMIT = 6.5


def sure(looks: int) -> str:
    """Confidence."""
    return "certain" if looks > 1 else "likely"


def ok(z: float, lost: int) -> bool | None:
    """Whether all is well."""
    if z > LIMIT and not lost:
        return True
    return None if z > 4.5 else False
'''
SMALL = """
LIMIT = 6.5


def ok(z):
    return z > LIMIT
"""
# Far from the border on both sides; and its number is repeated.
TESTS = """
from workbench import rule


def test_the_limit_is_what_it_is():
    assert rule.LIMIT == 6.5


def test_verdicts():
    assert rule.ok(7.0)
    assert not rule.ok(4.0)
"""
RUN = """
import pathlib, sys
from tests.mutants import table
table.ROOT = pathlib.Path(sys.argv.pop(1))
table.MODULES = {"rule.py": ("test_rule.py",)}
from tests.mutants import __main__ as runner
sys.exit(runner.main())
"""


def functions(source: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(source, "rule.py", "exec"), names)
    return names


def test_each_mutant_is_another_module_that_runs() -> None:
    found = conditions.listed("rule.py", RULE)
    texts = [conditions.mutated(RULE, m) for m in found]
    assert len(set(texts)) == len(texts)
    assert ast.unparse(ast.parse(RULE)) not in texts
    for text in texts:
        functions(text)["ok"](5.0, 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("before", "after", "decides"),
    [
        ("looks > 1", "looks >= 1", "verdict"),
        ("looks > 1", "looks <= 1", "verdict"),
        ("z > LIMIT and (not lost)", "z > LIMIT or not lost", "verdict"),
        ("z > LIMIT and (not lost)", "z > LIMIT", "verdict"),
        ("z > LIMIT and (not lost)", "z > LIMIT and lost", "verdict"),
        ("return True", "return False", "verdict"),
        ("return True", "return None", "verdict"),
        ("return None if z > 4.5 else False", "return True if z > 4.5 else False", "verdict"),
        ("return None if z > 4.5 else False", "return None if z > 3.0 else False", "verdict"),
        ("LIMIT = 6.5", "LIMIT = 9.75", "verdict"),
        ("'likely'", "'possible'", "confidence"),
    ],
)
def test_what_is_listed(before: str, after: str, decides: str) -> None:
    source = RULE.replace("-> str", "-> Literal['certain', 'likely']")
    found = {(m.before, m.after): m.decides for m in conditions.listed("rule.py", source)}
    whole = next(((b, a) for b, a in found if before in b and after in a and a not in b), None)
    assert whole is not None
    assert found[whole] == decides


def test_borders_of_releases_move_by_one() -> None:
    source = 'BORDERS = {"0.5.9": 1, "0.6": 2, "0.5.10rc0": 3}\nNOTE = "see 0.5.9"\n'
    assert sorted(m.after for m in conditions.listed("x.py", source) if m.decides == "release") == [
        "'0.5'", "'0.5.10'", "'0.5.11rc0'", "'0.5.8'", "'0.5.9rc0'", "'0.7'"
    ]  # fmt: skip


def test_the_text_of_a_finding_decides_nothing() -> None:
    source = """
def judge(n: int) -> Finding:
    return Finding(title="one" if n == 1 else "some", changes_output=n > 2)
"""
    found = {m.after: m.decides for m in conditions.listed("x.py", source)}
    assert {kind for text, kind in found.items() if "n > 2)" in text} == {"words"}
    assert {kind for text, kind in found.items() if "n > 2)" not in text} == {"verdict"}


def test_to_repeat_a_threshold_is_no_test_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_rule.py").write_text(TESTS)
    assert repeated(tmp_path, ["test_rule.py"])["LIMIT"] == {
        "test_rule.py::test_the_limit_is_what_it_is"
    }


def test_the_border_that_no_test_holds_survives_and_no_other(tmp_path: Path) -> None:
    for name, text in {"workbench/rule.py": SMALL, "tests/test_rule.py": TESTS}.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), "--sample", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    survivors = [line.strip() for line in done.stdout.splitlines() if line.startswith("  → ")]
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(survivors) == ["→ LIMIT = 4.333333333333333", "→ return z >= LIMIT"], done.stdout
    assert "2 of 4 killed, 2 survive" in done.stdout
    assert (tmp_path / "workbench" / "rule.py").read_text() == SMALL


def test_every_equivalent_mutant_is_still_there_and_has_its_reason() -> None:
    known = {
        m.key
        for module in modules()
        for m in conditions.listed(module.name, (ROOT / module.path).read_text())
    }
    for entry in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", []):
        key = (entry["module"], entry["function"], entry["before"], entry["after"])
        assert key in known, f"listed as equivalent, and no condition any more: {key}"
        assert len(entry["reason"].split()) > 5, key


def test_every_judging_module_has_mirrored_tests() -> None:
    assert all(module.tests for module in modules())
