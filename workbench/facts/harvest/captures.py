"""Which layers a target class captures for an EAGLE-3 draft, given the ids of the draft's ``eagle_config``.

The method ``set_eagle3_layers_to_capture`` decides. A class may inherit it, or hand the ids on to a part of
itself; both are followed, so that each class that config.json may name has its own answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.registered import classes
from workbench.facts.harvest.values import Values
from workbench.facts.harvest.wheel import Wheel

METHOD = "set_eagle3_layers_to_capture"
_IDS = ("layer_ids", "layers_to_capture")
_DEPTH = 6


def captures(wheel: Wheel) -> Iterator[Found]:
    """Yield, for each class that can capture, what it makes of the ids: ``[val + 1 for val in layer_ids]``.

    Conditions follow the expression; several ways are parted by a semicolon. ``? …`` is a way that was not
    understood.
    """
    holders = {name for name in wheel.under("srt/models/") if METHOD in wheel.text(name)}
    for entry in classes(wheel):
        text = wheel.text(entry.file)
        # A class without the method in its file has it from a base class, which is imported by name.
        if entry.file not in holders and not any(_imports(text, name) for name in holders):
            continue
        found = _method(wheel, entry.file, entry.name)
        if found is not None:
            file, cls, method = found
            yield Found(
                "captures", entry.name, _rule(wheel, file, cls, method), file, method.lineno
            )


def _imports(text: str, file: str) -> bool:
    module = file.removesuffix(".py").replace("/", ".")
    return f"from {module} import" in text


_Method = tuple[str, ast.ClassDef, ast.FunctionDef]


def _method(wheel: Wheel, file: str, name: str, left: int = _DEPTH) -> _Method | None:
    """Return the method that a class has, its own or inherited, with the class that defines it."""
    found = Values(wheel, file).find_class(name) if left else None
    if found is None:
        return None
    where, cls = found
    for item in cls.body:
        if isinstance(item, ast.FunctionDef) and item.name == METHOD:
            return where, cls, item
    for base in cls.bases:
        inherited = _method(wheel, where, base.id, left - 1) if isinstance(base, ast.Name) else None
        if inherited is not None:
            return inherited
    return None


def _rule(
    wheel: Wheel, file: str, cls: ast.ClassDef, method: ast.FunctionDef, left: int = _DEPTH
) -> str:
    ways: list[str] = []
    local = dict(_locals(method.body))
    for (target, expression), given in _ways(method.body, ""):
        test = given
        if "hasattr(" in test:  # whether the part has the method: its class says which way is taken
            part = target or ast.unparse(expression)
            has = _part_has(wheel, file, cls, target or "model")
            if has is not None and has is not bool(target):
                continue
            test = "" if has is not None else f"{test} of {part}"
        text = ast.unparse(expression)
        text = local.get(text, text)
        if target:
            inner = _handed_on(wheel, file, cls, target, left)
            if text in _IDS:
                text = inner
            elif inner not in _IDS:
                text = f"? {text}, then {inner}"
        text = "layer_ids" if text in _IDS else text
        ways.append(f"{text} if {test}" if test else text)
    return "; ".join(sorted(set(ways)))


def _locals(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield what the method computes of the ids before it hands them on, the default left out."""
    for node in body:
        if isinstance(node, ast.If) and _is_default(node.test):
            yield from _locals(node.orelse)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = ast.unparse(node.value)
            if "layer_ids" in text:
                yield node.targets[0].id, text


def _is_default(test: ast.expr) -> bool:
    return ast.unparse(test) in ("layer_ids is None", "not layer_ids")


_Way = tuple[tuple[str, ast.expr], str]


def _ways(body: list[ast.stmt], given: str) -> Iterator[_Way]:
    """Yield what is captured: the part that it is handed to ("" for none), the expression, the condition."""
    for node in body:
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            if _is_default(node.test):
                yield from _ways(node.orelse, given)
            elif "pp_group" not in test:
                yield from _ways(node.body, test)
                yield from _ways(node.orelse, f"not ({test})")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            if node.targets[0].attr == "layers_to_capture":
                yield ("", node.value), given
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == METHOD and call.args:
                yield (ast.unparse(call.func.value).removeprefix("self."), call.args[0]), given


def _handed_on(wheel: Wheel, file: str, cls: ast.ClassDef, part: str, left: int) -> str:
    """Return what a part of a class makes of the ids it is handed."""
    for name in _classes_of(cls, part) if left else ():
        found = _method(wheel, file, name)
        if found is not None:
            return _rule(wheel, *found, left - 1)
    return f"? {part}"


def _part_has(wheel: Wheel, file: str, cls: ast.ClassDef, part: str) -> bool | None:
    """Whether a part of a class has the method; None where the part's class is not known."""
    values = Values(wheel, file)
    for name in _classes_of(cls, part):
        if values.find_class(name) is not None:
            return _method(wheel, file, name) is not None
    return None


def _classes_of(cls: ast.ClassDef, part: str) -> Iterator[str]:
    """Yield the names that a part of a class is made by; of a parameter, its default."""
    for function in cls.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        defaults = _defaults(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == f"self.{part}":
                call = node.value
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    yield defaults.get(call.func.id, call.func.id)


def _defaults(function: ast.FunctionDef) -> dict[str, str]:
    named = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    pairs = [*zip(named, function.args.defaults, strict=True)]
    pairs += [
        (name, value)
        for name, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value is not None
    ]
    return {name.arg: value.id for name, value in pairs if isinstance(value, ast.Name)}
