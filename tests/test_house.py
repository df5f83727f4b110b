"""The rules of the house: who may import whom, what `import workbench` costs, what is public."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import workbench

from .conftest import ROOT

PACKAGE = ROOT / "workbench"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
# From the law in pyproject.toml, lower rooms first.
STOREY = {
    room: floor
    for floor, rooms in enumerate(reversed(CONTRACTS[0]["layers"]))
    for room in re.findall(r"\w+", rooms)
}
# Modules that import what a variable names, and why they may.
DOORS = {
    "__init__.py": "the public names, when they are asked for",
    "core/render.py": "what a result looks like, when it is asked for",
    "loaders/registry.py": "the profiles of an engine",
    "panels/keys.py": "the releases of an engine's profiles",
    "loaders/tracer/trace_load.py": "the files of its folder, in the engine's own Python",
    "loaders/tracer/sglang_loader.py": "the engine's own modules, in the engine's own Python",
    "preflight/engine/ask.py": "the files of its folder, in the engine's own Python",
    "preflight/engine/ask_vllm.py": "the same, and whichever modules a release of vLLM has",
    "loaders/harvest/run.py": "the files of its folder, in the engine's own Python",
    "loaders/harvest/engine.py": "the engine's own modules, in the engine's own Python",
    "loaders/harvest/standins.py": "the engine's own modules, in the engine's own Python",
}
# Which names modules in a text: the public names, and the results by their schemas.
TABLES = ("__init__.py", "core/render.py")
# What may be taken from the package itself: anything else would be a public name, of any room.
OF_THE_PACKAGE = {"__version__", "__file__"}

LONGEST = 500  # lines of a file: beyond that nobody reads it whole


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> list[tuple[int, str]]:
    """The modules that a file imports at its top, those for types left out."""
    found: list[tuple[int, str]] = []
    todo: list[ast.AST] = list(parsed(path).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.module or ""))
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += list(ast.iter_child_nodes(node))
    return found


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in a folder, by the law in pyproject.toml."""
    pytest.importorskip("importlinter")
    code = "import sys; from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_rooms_import_as_the_law_says() -> None:
    done = linted(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_law_sees_relative_imports_and_those_inside_functions(tmp_path: Path) -> None:
    copy = tmp_path / "workbench"
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "static"))
    for file, line in (
        ("keys/verdict.py", "from ..views import parts"),
        ("weights/parts.py", "def later() -> None:\n    from workbench.hang import records"),
        ("hang/read/log.py", "import workbench.hang.judge.waits"),
        ("checkpoint/number.py", "from workbench.checkpoint import packed"),
    ):
        with (copy / file).open("a") as out:
            out.write(f"\n{line}\n")
    done = linted(tmp_path)
    assert done.returncode == 1, done.stderr
    for arrow in (
        "workbench.keys.verdict -> workbench.views.parts",
        "workbench.weights.parts -> workbench.hang.records",
        "workbench.hang.read.log -> workbench.hang.judge.waits",
        "No cycles are allowed in workbench.checkpoint.",
    ):
        assert arrow in done.stdout


def unseen(path: Path, tree: ast.AST) -> list[str]:
    """Return what a file imports past the linter: by a name in a text, or from the package itself."""
    place = path.relative_to(PACKAGE).as_posix()
    found = []
    for node in ast.walk(tree):
        at = f"{place}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ImportFrom) and node.module == "workbench" and not node.level:
            names = {alias.name for alias in node.names} - OF_THE_PACKAGE - set(STOREY)
            found += [f"{at} takes {name} from workbench" for name in sorted(names)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "workbench" and node.attr not in OF_THE_PACKAGE | set(STOREY):
                found.append(f"{at} takes {node.attr} from workbench")
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__") and place not in DOORS:
                found.append(f"{at} imports by name")
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and place not in ("__init__.py", "core/render.py")
        ):
            room = re.fullmatch(r"workbench\.(\w+)[\w.]*", str(node.value))
            mine, other = STOREY[room_of(path)], STOREY.get(room[1], -1) if room else -1
            if room and (other > mine or (other == mine and room[1] != room_of(path))):
                found.append(f"{at} names {node.value}")
    return found


def test_no_import_passes_the_law() -> None:
    wrong = [one for path in MODULES for one in unseen(path, parsed(path))]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "from workbench import diff_keys",
        "import workbench\nworkbench.diff_keys",
        "import importlib\nimportlib.import_module(name)",
        "__import__(name)",
        "ROOM = 'workbench.views.keydiff'",
        "ROOM = 'workbench.hang.records'",
    ],
)
def test_an_import_that_the_linter_does_not_see_is_found(line: str) -> None:
    assert len(unseen(PACKAGE / "keys" / "diff.py", ast.parse(line))) == 1


@pytest.mark.parametrize("heavy", ["torch", "ipywidgets", "anywidget", "matplotlib", "pandas"])
def test_heavy_libraries_are_imported_where_needed_only(heavy: str) -> None:
    allowed = {"torch": {"tracer"}, "ipywidgets": {"panels"}, "anywidget": {"display", "panels"}}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in MODULES
        if not allowed.get(heavy, set()) & set(path.relative_to(PACKAGE).parts)
        for line, name in imports(path)
        if name.split(".")[0] == heavy
    ]
    assert not wrong


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_import_brings_no_heavy_library() -> None:
    heavy = "('torch', 'numpy', 'matplotlib', 'ipywidgets', 'nbconvert', 'pandas')"
    code = f"import sys, workbench; print([m for m in {heavy} if m in sys.modules])"
    assert run(code) == "[]"


def test_checkpoints_are_opened_and_diffed_without_torch() -> None:
    code = (
        "import sys, workbench; workbench.diff_keys('data/drafts/speculators', 'sglang==0.5.8'); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_public_names_work_twice_and_after_all_submodules() -> None:
    code = """
import importlib, json, pkgutil, workbench
first = {name: getattr(workbench, name) for name in workbench.__all__}
for found in pkgutil.walk_packages(workbench.__path__, "workbench."):
    if ".tracer." not in found.name:
        importlib.import_module(found.name)
second = {name: getattr(workbench, name) for name in workbench.__all__}
print(json.dumps({
    "same": all(first[n] is second[n] for n in first),
    "callable": all(callable(v) for v in second.values()),
}))
"""
    assert json.loads(run(code)) == {"same": True, "callable": True}


def test_no_room_bears_a_public_name() -> None:
    rooms = {room_of(path) for path in MODULES} - {"__init__"}
    assert not rooms & set(workbench.__all__)


def test_completion_lists_the_public_names() -> None:
    assert set(workbench.__all__) <= set(dir(workbench))
    assert (PACKAGE / "py.typed").exists()


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        workbench.no_such_name  # noqa: B018


def test_version_is_that_of_the_project() -> None:
    assert PROJECT["project"]["version"] == workbench.__version__


def test_no_file_is_longer_than_can_be_read() -> None:
    files = [
        path
        for folder in ("workbench", "benchmarks", "tests")
        for ending in ("*.py", "*.js", "*.css")
        for path in (ROOT / folder).rglob(ending)
    ]
    assert len(files) > 500
    long = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.read_bytes().count(b"\n") > LONGEST
    }
    assert long == set()
