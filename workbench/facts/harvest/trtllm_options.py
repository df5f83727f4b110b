"""The options of ``trtllm-serve`` in one release: the decorators of its command, which click reads.

Choices that are the keys of a table are those of the table, where it is written out in the same package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel

SERVE = "tensorrt_llm/commands/serve.py"
# The command was alone first, and then one of a group.
_COMMANDS = ("serve", "trtllm-serve")


def options(wheel: Wheel) -> Iterator[Found]:
    """Yield every option of ``trtllm-serve``, by its first name."""
    tree = wheel.tree(SERVE)
    for function in tree.body if tree is not None else ():
        if isinstance(function, ast.FunctionDef) and _is_serve(function):
            for call in _calls(function, "option"):
                yield _option(wheel, call)


def _calls(function: ast.FunctionDef, name: str) -> Iterator[ast.Call]:
    """Yield the decorators ``@click.NAME(…)``."""
    for one in function.decorator_list:
        if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == name:
            yield one


def _is_serve(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(word, ast.Constant) and word.value in _COMMANDS
        for call in _calls(function, "command")
        for word in call.args
    )


def _option(wheel: Wheel, call: ast.Call) -> Found:
    words = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
    names = [word for word in words if word.startswith("-")]  # the other is the function's argument
    value: dict[str, Any] = {"names": names, "sort": "value"}
    for keyword in call.keywords:
        given = keyword.value
        if keyword.arg == "is_flag" and getattr(given, "value", None) is True:
            value["sort"] = "switch"
        elif keyword.arg == "type":
            value |= _type(wheel, given)
    return Found("option", names[0].lstrip("-"), value, SERVE, call.lineno)


def _type(wheel: Wheel, node: ast.expr) -> dict[str, Any]:
    if isinstance(node, ast.Name):
        return {"type": node.id} if node.id in ("int", "float") else {}
    if not isinstance(node, ast.Call) or not node.args:
        return {}
    # A choice, or one that has other names for some: ChoiceWithAlias(["tensorrt"], {"trt": "tensorrt"}).
    choices = [_words(wheel, one) for one in node.args]
    if "Choice" not in ast.unparse(node.func) or None in choices:
        return {}
    return {"choices": [word for part in choices for word in part or ()]}


def _words(wheel: Wheel, node: ast.expr) -> list[str] | None:
    """Return the words of a list, a mapping's keys, or ``TABLE.keys()``; None where they are not found."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "keys":
        return _keys(wheel, ast.unparse(node.func).removesuffix(".keys"))
    elements = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", None)
    words = [str(one.value) for one in elements or () if isinstance(one, ast.Constant)]
    return words if elements is not None and len(words) == len(elements) else None


def _keys(wheel: Wheel, table: str) -> list[str] | None:
    """Return the keys of a table of the package: ``severity_map``, ``ToolParserFactory.parsers``."""
    owner, _, name = table.rpartition(".")
    for file in wheel.holding(name, owner):
        for scope in ast.walk(wheel.tree(file) or ast.Module([], [])):
            if not isinstance(scope, ast.ClassDef if owner else ast.Module):
                continue
            if isinstance(scope, ast.ClassDef) and scope.name != owner:
                continue
            for node in scope.body:
                if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
                    node.value, ast.Dict
                ):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if name in [getattr(one, "id", "") for one in targets]:
                        return _words(wheel, node.value)
    return None
