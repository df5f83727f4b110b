"""The rules of the house: who may import whom, what `import workbench` costs, what is public."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import workbench

from .conftest import ROOT

PACKAGE = ROOT / "workbench"
MODULES = sorted(PACKAGE.rglob("*.py"))
# Lower rooms first: a room imports only from rooms of a lower storey, and from itself.
STOREYS = (
    {"secret_shapes"},
    {"errors"},
    {"core"},
    {"checkpoint", "evidence"},
    {"facts"},
    {"launch"},
    {"loaders"},
    {"drafts"},
    {"keys", "weights", "hang", "speculation"},
    {"case"},
    {"views"},
    {"display"},
    {"export"},
    {"panels"},
    {"cli", "magics", "__init__"},
)
STOREY = {room: floor for floor, rooms in enumerate(STOREYS) for room in rooms}
JOBS = {"keys", "weights", "hang", "speculation"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, *, everywhere: bool) -> list[tuple[int, str]]:
    """The modules a file imports: at its top, or in its functions too (typing-only ones excepted)."""
    tree = ast.parse(path.read_text())
    found: list[tuple[int, str]] = []
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.module or ""))
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += list(ast.iter_child_nodes(node))
    return found


def test_rooms_import_downwards_only() -> None:
    wrong = []
    for path in MODULES:
        mine = room_of(path)
        if mine in ("__init__", "py"):
            continue
        # The one door: what a result looks like is imported when it is asked for.
        for line, name in imports(path, everywhere=path.name != "render.py"):
            if not name.startswith("workbench."):
                continue
            other = name.split(".")[1]
            if other == mine or other not in STOREY:
                continue
            same_floor_jobs = {mine, other} <= JOBS
            if STOREY[other] > STOREY[mine] or same_floor_jobs:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong


def test_every_room_has_its_storey() -> None:
    rooms = {room_of(path) for path in MODULES}
    assert rooms <= set(STOREY), rooms - set(STOREY)


@pytest.mark.parametrize("heavy", ["torch", "ipywidgets", "anywidget", "matplotlib", "pandas"])
def test_heavy_libraries_are_imported_where_needed_only(heavy: str) -> None:
    allowed = {"torch": {"tracer"}, "ipywidgets": {"panels"}, "anywidget": {"display", "panels"}}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in MODULES
        if not allowed.get(heavy, set()) & set(path.relative_to(PACKAGE).parts)
        for line, name in imports(path, everywhere=False)
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == workbench.__version__
