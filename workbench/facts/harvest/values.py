"""What an expression of a source comes to, as far as the source alone says.

Constants, names of constants (also imported ones), attributes of a class, sums of lists, and the few calls
that only copy. Everything else is `UNKNOWN`: it is said so, and never guessed.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from workbench.facts.harvest.wheel import Wheel

MOST_STEPS = 40


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""The value of an expression that only a running engine could tell."""


class Values:
    """Evaluates expressions in the scope of one module.

    Parameters
    ----------
    wheel, file
        Where names are looked up: in that file's assignments and classes, then along its imports.
    """

    def __init__(self, wheel: Wheel, file: str) -> None:
        self.wheel, self.file = wheel, file

    def of(
        self,
        node: ast.expr | None,
        scope: dict[str, ast.expr] | None = None,
        left: int = MOST_STEPS,
    ) -> Any:
        """Return the value of an expression, or `UNKNOWN`.

        Parameters
        ----------
        scope
            Local names of the function in which it stands, each with the expression it was given.
        left
            How many steps of looking up are left: a name may be given by itself.
        """
        if node is None or left <= 0:
            return UNKNOWN
        scope = scope or {}
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._all(node.elts, scope, left)
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, left)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.of(node.operand, scope, left - 1)
            return -value if isinstance(value, int | float) else UNKNOWN
        if isinstance(node, ast.BinOp):
            return self._sum(node, scope, left)
        if isinstance(node, ast.Dict):
            keys = self._all([k for k in node.keys if k is not None], scope, left)
            return dict.fromkeys(keys) if isinstance(keys, list) else UNKNOWN
        if isinstance(node, ast.Attribute):
            return self._attribute(node, left)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope, left)
        if isinstance(node, ast.Call):
            return self._call(node, scope, left)
        return UNKNOWN

    def _all(self, nodes: list[ast.expr], scope: dict[str, ast.expr], left: int) -> Any:
        found: list[Any] = []
        for one in nodes:
            starred = isinstance(one, ast.Starred)
            value = self.of(one.value if isinstance(one, ast.Starred) else one, scope, left - 1)
            if value is UNKNOWN:
                return UNKNOWN
            if starred:
                found.extend(value)
            else:
                found.append(value)
        return found

    def _name(self, name: str, scope: dict[str, ast.expr], left: int) -> Any:
        if name in scope:
            rest = {key: value for key, value in scope.items() if key != name}
            return self.of(scope[name], rest, left - 1)
        return self._in_module(self.file, name, left - 1)

    def _in_module(self, file: str, name: str, left: int) -> Any:
        tree = self.wheel.tree(file)
        if tree is None or left <= 0:
            return UNKNOWN
        for node in reversed(tree.body):
            target = _assigned(node, name)
            if target is not None:
                return Values(self.wheel, file).of(target, None, left - 1)
        for inner in ast.walk(tree):
            if isinstance(inner, ast.ImportFrom) and inner.module and not inner.level:
                for alias in inner.names:
                    if (alias.asname or alias.name) == name:
                        other = self.wheel.module(inner.module)
                        return self._in_module(other, alias.name, left - 1) if other else UNKNOWN
        return UNKNOWN

    def _sum(self, node: ast.BinOp, scope: dict[str, ast.expr], left: int) -> Any:
        one, two = self.of(node.left, scope, left - 1), self.of(node.right, scope, left - 1)
        numbers = isinstance(one, int | float) and isinstance(two, int | float)
        if isinstance(node.op, ast.Add) and (numbers or type(one) is type(two) in (list, str)):
            return one + two
        if numbers and isinstance(node.op, ast.Mult):
            return one * two
        if numbers and isinstance(node.op, ast.Pow) and 0 <= two <= 64:
            return one**two
        if numbers and isinstance(node.op, ast.LShift) and 0 <= two <= 64:
            return one << two
        return UNKNOWN

    def _attribute(self, node: ast.Attribute, left: int) -> Any:
        """Return an attribute of a class: what its body assigns."""
        if (
            ast.unparse(node) == "argparse.SUPPRESS"
        ):  # the name is then left out: as good as no default
            return None
        if not isinstance(node.value, ast.Name):
            return UNKNOWN
        found = self.find_class(node.value.id)
        if found is None:
            return UNKNOWN
        file, cls = found
        scope = {name: value for name, value in map(_assignment, cls.body) if value is not None}
        wanted = scope.pop(node.attr, None)
        return Values(self.wheel, file).of(wanted, scope, left - 1)

    def _item(self, node: ast.Subscript, scope: dict[str, ast.expr], left: int) -> Any:
        """Return one item of a list."""
        whole, at = self.of(node.value, scope, left - 1), self.of(node.slice, scope, left - 1)
        if isinstance(whole, list) and isinstance(at, int) and -len(whole) <= at < len(whole):
            return whole[at]
        return UNKNOWN

    def find_class(
        self, name: str, file: str = "", left: int = 8
    ) -> tuple[str, ast.ClassDef] | None:
        """Return the class of a name and the file that defines it, along the imports."""
        file = file or self.file
        tree = self.wheel.tree(file)
        if tree is None or left <= 0:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return file, node
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        other = self.wheel.module(node.module)
                        return self.find_class(alias.name, other, left - 1) if other else None
        return None

    def _call(self, node: ast.Call, scope: dict[str, ast.expr], left: int) -> Any:
        """Return what a call that only copies comes to: list(x), sorted(x), x.keys(), x.copy()."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _COPIES and len(node.args) == 1 and not node.keywords:
            value = self.of(node.args[0], scope, left - 1)
            if isinstance(value, dict | list):
                return sorted(value) if name == "sorted" else list(value)
        if name in _COPIES and not node.args and not node.keywords:
            return []
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "copy"):
            value = self.of(node.func.value, scope, left - 1)
            return list(value) if isinstance(value, dict | list) else UNKNOWN
        if name and not node.args and not node.keywords:
            return self._returned(name, left)
        return UNKNOWN

    def _returned(self, name: str, left: int) -> Any:
        """Return what a function without arguments ends with; an earlier return is a short cut to it."""
        tree = self.wheel.tree(self.file)
        for node in tree.body if tree else ():
            if isinstance(node, ast.FunctionDef) and node.name == name and node.body:
                last = node.body[-1]
                return (
                    self.of(last.value, None, left - 1) if isinstance(last, ast.Return) else UNKNOWN
                )
        return UNKNOWN


_COPIES = ("list", "tuple", "set", "dict", "sorted")


def _assignment(node: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return the name and the value of an assignment to one name, ("", None) for any other statement."""
    target: ast.expr | None = None
    if isinstance(node, ast.AnnAssign):
        target = node.target
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
        return target.id, node.value
    return "", None


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    """Return what a statement assigns to a name, None where it assigns nothing to it."""
    if isinstance(node, ast.AnnAssign):
        if isinstance(node.target, ast.Name) and node.target.id == name:
            return node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                return node.value
    return None
