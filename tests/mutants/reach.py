"""Which of the mirrored tests run a changed line, quickest files first."""

from __future__ import annotations

import ast
import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from .conditions import Mutant
from .table import Module
from .tracing import Lines


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """What was traced of the mirrored tests.

    Attributes
    ----------
    lines
        Test -> file -> lines.
    seconds
        Test -> how long it took.
    uses
        Name at the top of a module -> file -> the lines in functions that use it; whether another name at the
        top is made of it is marked by line 0.
    repeats
        Name -> tests that compare it with a number: to repeat a threshold is no test of it.
    """

    lines: dict[str, Lines]
    seconds: dict[str, float]
    uses: dict[str, Lines]
    repeats: dict[str, frozenset[str]]

    def tests(self, mutant: Mutant, module: Module) -> list[str]:
        """Return the tests to run for a mutant."""
        files = set(module.tests)
        mine = [test for test in self.lines if test.split("::")[0] in files]
        found = [test for test in mine if self._runs(test, mutant, module)]
        repeating = frozenset().union(*(self.repeats.get(n, ()) for n in mutant.name.split()))
        found = [test for test in found if test.split("[")[0] not in repeating]
        cost: dict[str, float] = defaultdict(float)
        for test in found:
            cost[test.split("::")[0]] += self.seconds[test]
        return sorted(found, key=lambda test: cost[test.split("::")[0]])

    def cost(self, tests: Iterable[str]) -> float:
        """Return how long these took."""
        return sum(self.seconds[test] for test in tests)

    def _runs(self, test: str, mutant: Mutant, module: Module) -> bool:
        reached = self.lines[test].get(module.path, set())
        for lines in mutant.lines[:2]:
            if lines:
                return any(line in reached for line in lines)
        if mutant.lines[2]:  # the default of an argument
            return any(line in reached for line in mutant.lines[2])
        if not mutant.name:  # the default of a field
            return bool(reached)
        uses = {
            path: numbers
            for name in mutant.name.split()
            for path, numbers in self.uses[name].items()
        }
        if not uses or any(0 in numbers for numbers in uses.values()):
            return bool(reached)
        return any(numbers & self.lines[test].get(path, set()) for path, numbers in uses.items())


def uses_of_names(root: Path, modules: Iterable[Module]) -> dict[str, Lines]:
    """Return where the judging modules use names that stand at the top of one of them."""
    found: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
    for module in modules:
        tree = ast.parse((root / module.path).read_text())
        for top in tree.body:
            for name, line in _read(top, inside=False):
                found[name][module.path].add(line)
    return found


def _read(node: ast.AST, *, inside: bool) -> Iterable[tuple[str, int]]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id, node.lineno if inside else 0
    if isinstance(node, ast.Attribute):
        yield node.attr, node.lineno if inside else 0
    for child in ast.iter_child_nodes(node):
        deeper = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
        yield from _read(child, inside=deeper)


def repeated(root: Path, files: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return, for each name, the tests that assert that it is a certain number."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for function in ast.walk(ast.parse((root / file).read_text())):
            if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test"):
                continue
            for node in ast.walk(function):
                for name in _pinned(node):
                    found[name].add(f"{file}::{function.name}")
    return {name: frozenset(tests) for name, tests in found.items()}


def _pinned(node: ast.AST) -> Iterable[str]:
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        return
    sides = [node.test.left, *node.test.comparators]
    if any(_is_literal(side) for side in sides):
        for side in sides:
            if isinstance(side, ast.Name | ast.Attribute):
                yield side.id if isinstance(side, ast.Name) else side.attr


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
