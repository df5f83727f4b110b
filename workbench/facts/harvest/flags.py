"""The flags of a release's server, as its source registers them.

Until 0.5.11 each is a call of ``add_argument`` in ``ServerArgs.add_cli_args``; later most are fields whose
annotation carries the flag (``A[type, Arg(…)]``), from 0.5.2x on in classes of their own.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.values import UNKNOWN, Values
from workbench.facts.harvest.wheel import Wheel

ARGS = "srt/server_args.py"
_ACTIONS = {
    "store_true": "switch",
    "store_false": "off",
    "store_const": "sets",
    "append": "append",
    "BooleanOptionalAction": "optional",
    "DeprecatedAction": "void",
    "DeprecatedStoreTrueAction": "switch",
    "DeprecatedStoreConstAction": "sets",
    "DeprecatedAliasStoreAction": "value",
    "LoRAPathAction": "value",
}
_LISTS = ("list", "List")
_TYPES = {"str", "int", "float"}


@dataclasses.dataclass
class _Flag:
    """A flag while it is read; `fact` is how it is kept."""

    names: list[str]
    field: str
    sort: str = "value"
    type: str = "str"
    default: Any = None
    choices: Any = None
    nargs: Any = None
    const: Any = None
    required: bool = False
    old: bool = False

    def fact(self) -> dict[str, Any]:
        """Return what is not as usual, under plain names."""
        found: dict[str, Any] = {"names": self.names, "field": self.field, "sort": self.sort}
        if self.sort == "value" and self.type != "str":
            found["type"] = self.type
        for name in ("default", "choices", "nargs", "const"):
            value = getattr(self, name)
            if value is UNKNOWN:
                found.setdefault("unknown", []).append(name)
            elif value is not None:
                found[name] = value
        if self.required:
            found["required"] = True
        if self.old:
            found["old"] = True
        return found


def flags(wheel: Wheel) -> Iterator[Found]:
    """Yield every flag of the server's parser, by the first of its names."""
    file = f"{wheel.engine}/{ARGS}"
    found = Values(wheel, file).find_class("ServerArgs")
    if found is None:
        return
    reader = _Reader(wheel, file, found[1])
    for flag, where, line in (*reader.registered(), *reader.annotated()):
        yield Found("flag", flag.names[0], flag.fact(), where, line)


class _Reader:
    def __init__(self, wheel: Wheel, file: str, cls: ast.ClassDef) -> None:
        self.wheel, self.file, self.cls = wheel, file, cls
        self.values = Values(wheel, file)

    # -- calls of add_argument ----------------------------------------------------------------

    def registered(self) -> Iterator[tuple[_Flag, str, int]]:
        """Yield the flags that ``add_cli_args`` registers by hand."""
        for node in ast.walk(self.cls):
            if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
                scope = _locals(node)
                for call in ast.walk(node):
                    if isinstance(call, ast.Call) and _called(call) == "add_argument":
                        flag = self._argument(call, scope)
                        if flag is not None:
                            yield flag, self.file, call.lineno

    def _argument(self, call: ast.Call, scope: dict[str, ast.expr]) -> _Flag | None:
        names = [self.values.of(arg, scope) for arg in call.args]
        if not names or not all(isinstance(name, str) and name.startswith("--") for name in names):
            return None
        said = {key.arg: key.value for key in call.keywords if key.arg}
        dest = self.values.of(said.get("dest"), scope) if "dest" in said else names[0][2:]
        flag = _Flag([name[2:] for name in names], str(dest).replace("_", "-"))
        help_text = _text(said.get("help"))
        self._kind(flag, said, scope, help_text)
        if "default" in said:
            flag.default = self._default(said["default"], scope)
        return flag

    def _kind(
        self, flag: _Flag, said: dict[str, ast.expr], scope: dict[str, ast.expr], help_text: str
    ) -> None:
        """Fill in what the keywords of a registration say, those of `Arg` alike."""
        action = _action(said.get("action"))
        flag.sort = _ACTIONS.get(action, "value") if action else "value"
        if action and action not in _ACTIONS:
            flag.type = "?"
        flag.old = action.startswith("Deprecated") or "eprecated" in help_text[:40]
        if "type" in said:
            flag.type = _type(said["type"])
        if "choices" in said and not self._grows(said["choices"], scope):
            flag.choices = _plain(self.values.of(said["choices"], scope), said["choices"])
        elif "choices" in said:
            flag.choices = UNKNOWN
        for name in ("nargs", "const"):
            if name in said:
                setattr(flag, name, self.values.of(said[name], scope))
        if flag.sort == "sets" and "nargs" in said and flag.nargs is None:
            flag.sort = "value"  # an old flag with a value, of which one meaning is left
        if flag.sort == "switch":
            flag.default = False
        if "const_value" in said:
            flag.const = self.values.of(said["const_value"], scope)
        flag.required = "required" in said and self.values.of(said["required"], scope) is True

    def _grows(self, node: ast.expr, scope: dict[str, ast.expr]) -> bool:
        """Whether a local list is added to before it is used: under conditions that no source tells."""
        return isinstance(node, ast.Name) and node.id in scope and node.id in self._grown

    @cached_property
    def _grown(self) -> frozenset[str]:
        return frozenset(
            _base(call.func)
            for call in ast.walk(self.cls)
            if isinstance(call, ast.Call)
            and _called(call) in ("add", "append", "extend", "update")
            and isinstance(call.func, ast.Attribute)
        )

    def _default(self, node: ast.expr, scope: dict[str, ast.expr]) -> Any:
        if isinstance(node, ast.Call) and _called(node) == "_declared_default" and node.args:
            name = self.values.of(node.args[0], scope)
            return next(
                (self._field_default(v, f) for f, n, _, v, _ in self._fields() if n == name),
                UNKNOWN,
            )
        if isinstance(node, ast.Attribute) and _base(node) in ("ServerArgs", "cls"):
            for file, name, _, value, _ in self._fields():
                if name == node.attr:
                    return self._field_default(value, file)
            return UNKNOWN
        return self.values.of(node, scope)

    # -- fields whose annotation is the flag ----------------------------------------------------

    def annotated(self) -> Iterator[tuple[_Flag, str, int]]:
        """Yield the flags that fields of ServerArgs carry in their annotations."""
        for file, name, annotation, value, line in self._fields():
            parts = _annotation(annotation)
            if parts is None:
                continue
            raw, said, help_text = parts
            values = Values(self.wheel, file)
            if "no_cli" in said and values.of(said["no_cli"]) is True:
                continue
            cli = (
                values.of(said["cli_name"]) if "cli_name" in said else "--" + name.replace("_", "-")
            )
            aliases = values.of(said["aliases"]) if "aliases" in said else []
            names = [str(one)[2:] for one in (cli, *(aliases if isinstance(aliases, list) else []))]
            flag = _Flag(names, name.replace("_", "-"))
            reader = _Reader(self.wheel, file, self.cls)
            extra = said.get("action_kwargs")
            if isinstance(extra, ast.Dict):
                said |= {
                    str(k.value): v
                    for k, v in zip(extra.keys, extra.values, strict=True)
                    if isinstance(k, ast.Constant)
                }
            reader._kind(flag, said, {}, help_text)
            self._by_type(flag, raw, said, values)
            flag.default = self._field_default(value, file) if value is not None else None
            required = values.of(said["required"]) if "required" in said else None
            flag.required = flag.sort == "value" and (
                required is True or (required is None and value is None and not flag.nargs)
            )
            yield flag, file, line

    def _by_type(
        self, flag: _Flag, raw: ast.expr, said: dict[str, ast.expr], values: Values
    ) -> None:
        """Fill in what the field's own type says, as the engine's registration derives it."""
        if "action" in said:
            return
        inner = _inner(raw)
        if "type_parser" in said:
            flag.type = _type(said["type_parser"])
        name = inner.id if isinstance(inner, ast.Name) else _base(inner)
        if isinstance(inner, ast.Subscript) and name == "Literal":
            options = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            first = values.of(options[0])
            if flag.choices is None:
                flag.choices = [values.of(one) for one in options]
            if "type_parser" not in said and type(first).__name__ in _TYPES:
                flag.type = type(first).__name__
        elif name in _LISTS and "type_parser" not in said:
            element = inner.slice if isinstance(inner, ast.Subscript) else None
            flag.type = (
                element.id if isinstance(element, ast.Name) and element.id in _TYPES else "str"
            )
            flag.nargs = flag.nargs or "+"
        elif name == "bool":
            flag.sort = "switch"
            flag.nargs = None
        elif "type_parser" not in said:
            flag.type = name if name in _TYPES else "str"

    def _fields(self) -> Iterator[tuple[str, str, ast.expr, ast.expr | None, int]]:
        """Yield the fields of ServerArgs: file, name, annotation, default, line."""
        for file, cls in self._classes():
            for item in cls.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield file, item.target.id, item.annotation, item.value, item.lineno

    def _classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        yield self.file, self.cls
        tree = self.wheel.tree(self.file)
        for node in tree.body if tree else ():
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "_INPUT_NAMESPACES"
                for target in node.targets
            ):
                for name in ast.walk(node.value):
                    found = self.values.find_class(name.id) if isinstance(name, ast.Name) else None
                    if found is not None:
                        yield found

    def _field_default(self, value: ast.expr | None, file: str) -> Any:
        if isinstance(value, ast.Call) and _called(value) == "field":
            said = {key.arg: key.value for key in value.keywords}
            if "default" in said:
                return Values(self.wheel, file).of(said["default"])
            factory = said.get("default_factory")
            if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set", "tuple"):
                return []
            if isinstance(factory, ast.Lambda):
                return Values(self.wheel, file).of(factory.body)
            return UNKNOWN
        return Values(self.wheel, file).of(value)


def _locals(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the names that a function assigns once, with what they were given."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                found[target.id] = node.value
    return found


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _base(node: ast.expr) -> str:
    inner = node.value if isinstance(node, ast.Attribute | ast.Subscript) else node
    return inner.id if isinstance(inner, ast.Name) else getattr(inner, "attr", "")


def _text(node: ast.expr | None) -> str:
    """Return the beginning of a text, as far as it is written down."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _action(node: ast.expr | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "?")


def _type(node: ast.expr) -> str:
    """Return the name of a converter: ``int``, ``json.loads``, ``human_readable_int``."""
    return "callable" if isinstance(node, ast.Lambda) else ast.unparse(node)[:80]


def _plain(value: Any, node: ast.expr) -> Any:
    """Return choices in a fixed order: those of a set as text sorts."""
    if isinstance(value, dict):
        value = list(value)
    if not isinstance(value, list):
        return UNKNOWN
    return sorted(value, key=str) if isinstance(node, ast.Set) else value


def _annotation(node: ast.expr) -> tuple[ast.expr, dict[str, ast.expr], str] | None:
    """Return type, keywords of `Arg` and help of ``A[type, Arg(…)]``; None for any other annotation."""
    if not isinstance(node, ast.Subscript) or _base(node) not in ("A", "Annotated"):
        return None
    if not isinstance(node.slice, ast.Tuple):
        return None
    raw, *rest = node.slice.elts
    for one in rest:
        if isinstance(one, ast.Call) and _called(one) == "Arg":
            said = {key.arg: key.value for key in one.keywords if key.arg}
            return raw, said, _text(said.get("help") or (one.args[0] if one.args else None))
        if isinstance(one, ast.Constant | ast.JoinedStr | ast.BinOp):
            return raw, {}, _text(one)
    return None


def _inner(node: ast.expr) -> ast.expr:
    """Return the type in ``Optional[X]`` or ``X | None``."""
    if isinstance(node, ast.Subscript) and _base(node) in ("Optional", "Union"):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        rest = [
            part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)
        ]
        return _inner(rest[0]) if len(rest) == 1 else node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [node.left, node.right]
        rest = [
            part for part in sides if not (isinstance(part, ast.Constant) and part.value is None)
        ]
        return _inner(rest[0]) if len(rest) == 1 else node
    return node
