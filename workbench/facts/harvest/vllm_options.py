"""The options of ``vllm serve`` in one release, and what its speculative configuration takes.

Most options are made from a field of a configuration class: ``add_argument("--seed", **kwargs["seed"])``.
Their types follow from the annotations, as ``_compute_kwargs`` of vLLM derives them. What is not understood
takes any value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel

ARGS = "vllm/engine/arg_utils.py"
SPECULATIVE = ("vllm/config/speculative.py", "vllm/config/__init__.py", "vllm/config.py")
# Made from these, an option takes a number with a suffix, or words, so its type is not kept.
_READABLE = re.compile(
    r"max_model_len|max_num_(?:batched|scheduled|queued)_tokens|bytes|block_size"
)
_ACTIONS = {"store_true": "switch", "store_false": "switch", "BooleanOptionalAction": "optional"}


class Options:
    """Reads the options of one release."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel

    @cached_property
    def classes(self) -> dict[str, tuple[str, ast.ClassDef]]:
        """Every class of the configuration and of the frontend, with its file."""
        found: dict[str, tuple[str, ast.ClassDef]] = {}
        for name in self._files:
            tree = self.wheel.tree(name)
            for node in tree.body if tree is not None else ():
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, (name, node))
        return found

    @cached_property
    def _files(self) -> list[str]:
        return [
            name
            for name in self.wheel.modules
            if name.startswith(("vllm/config", "vllm/engine/arg_utils"))
            or name.endswith("/cli_args.py")
            or "layers/quantization/__init__" in name
        ]

    @cached_property
    def literals(self) -> dict[str, ast.expr]:
        """What a name of a type is given as: ``ModelDType = Literal[…]``."""
        found: dict[str, ast.expr] = {}
        for name in self._files:
            tree = self.wheel.tree(name)
            for node in tree.body if tree is not None else ():
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    found.setdefault(node.targets[0].id, node.value)
        return found

    def fields(self, name: str) -> dict[str, ast.expr]:
        """Return the annotated fields of a class and of those that it inherits from."""
        if name not in self.classes:
            return {}
        node = self.classes[name][1]
        found: dict[str, ast.expr] = {}
        for base in node.bases:
            if isinstance(base, ast.Name):
                found |= self.fields(base.id)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                found[one.target.id] = one.annotation
        return found

    def found(self) -> Iterator[Found]:
        """Yield every option by its first name."""
        seen: set[str] = set()
        for found in (*self._registered(), *self._frontend()):
            if found.name not in seen:
                seen.add(found.name)
                yield found

    def _frontend(self) -> Iterator[Found]:
        """Yield the options that a loop makes of all fields of the frontend's class."""
        if "FrontendArgs" not in self.classes:
            return
        file, node = self.classes["FrontendArgs"]
        for name in self.fields("FrontendArgs"):
            sort = self._sort(self.fields("FrontendArgs")[name])
            kept = sort if sort.get("sort") == "optional" else {}
            yield _found([f"--{name.replace('_', '-')}"], kept, file, node.lineno)

    def _registered(self) -> Iterator[Found]:
        for file in (ARGS, *(name for name in self._files if name.endswith("/cli_args.py"))):
            tree = self.wheel.tree(file)
            for function in ast.walk(tree) if tree is not None else ():
                if isinstance(function, ast.FunctionDef) and re.search(
                    r"^add_cli_args$|^make_arg_parser$|^add_\w*args\w*$", function.name
                ):
                    yield from self._in_function(function, file)

    def _in_function(self, function: ast.FunctionDef, file: str) -> Iterator[Found]:
        tables: dict[str, str] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                call = node.value
                if getattr(call.func, "id", "") == "get_kwargs" and isinstance(
                    call.args[0], ast.Name
                ):
                    tables |= {
                        t.id: call.args[0].id for t in node.targets if isinstance(t, ast.Name)
                    }
            if isinstance(node, ast.For):  # names in a table of the loop: any value
                for one in ast.walk(node):
                    if isinstance(one, ast.Constant) and re.match(r"--[a-z]", str(one.value)):
                        yield _found([str(one.value)], {}, file, one.lineno)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                names = [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
                if names and all(one.startswith("-") for one in names):
                    yield _found(names, self._of_call(node, tables), file, node.lineno)

    def _of_call(self, call: ast.Call, tables: dict[str, str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg is None:
                given |= self._of_field(value, tables)
            elif keyword.arg == "action":
                name = (
                    value.value if isinstance(value, ast.Constant) else getattr(value, "attr", "")
                )
                given["sort"] = _ACTIONS.get(str(name), "any")
            elif keyword.arg == "type" and getattr(value, "id", "") in ("int", "float"):
                given["type"] = getattr(value, "id", "")
            elif keyword.arg == "nargs":
                given["nargs"] = value.value if isinstance(value, ast.Constant) else "*"
            elif keyword.arg in ("choices", "type"):
                given = {"sort": given.get("sort", "value")}
        return given

    def _of_field(self, value: ast.expr, tables: dict[str, str]) -> dict[str, Any]:
        """Return what ``**kwargs["field"]`` says, also where it is part of another mapping."""
        for node in ast.walk(value):
            if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in tables:
                field = node.slice.value if isinstance(node.slice, ast.Constant) else ""
                annotation = self.fields(tables[getattr(node.value, "id", "")]).get(str(field))
                if annotation is not None:
                    return {} if _READABLE.search(str(field)) else self._sort(annotation)
        return {"sort": "any"}

    def _sort(self, annotation: ast.expr) -> dict[str, Any]:
        """Return sort, type and choices of an annotation; {} for one that takes anything."""
        parts = list(self.parts(annotation, 8))
        names = {part for part in parts if isinstance(part, str)}
        choices = [one for part in parts if isinstance(part, list) for one in part]
        optional = "None" in names
        if "bool" in names:
            return (
                {"sort": "optional"}
                if names <= {"bool", "None"} and not choices
                else {"sort": "any"}
            )
        if any(name.endswith("Config") for name in names):
            return {"type": "json"}
        if choices and names <= {"None"} and all(isinstance(one, str) for one in choices):
            return {"choices": sorted(choices) + (["None"] if optional else [])}
        for name in ("int", "float"):
            if names <= {name, "None"} and name in names:
                return {"type": name, **({"empty": True} if optional else {})}
        if names <= {"str", "None"} and not choices:
            return {}
        return {"nargs": "*"} if names & {"list", "tuple", "set"} else {}

    def parts(self, node: ast.expr, left: int) -> Iterator[str | list[Any]]:
        """Yield the names of the types of a union, and the values of a literal."""
        if left <= 0:
            yield "?"
        elif isinstance(node, ast.Constant):
            yield "None" if node.value is None else "?"
        elif isinstance(node, ast.BinOp):
            yield from self.parts(node.left, left - 1)
            yield from self.parts(node.right, left - 1)
        elif isinstance(node, ast.Name):
            alias = self.literals.get(node.id)
            yield from self.parts(alias, left - 1) if alias is not None else (node.id,)
        elif isinstance(node, ast.Subscript):
            outer = getattr(node.value, "id", getattr(node.value, "attr", ""))
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if outer == "Literal":
                yield from self._literal(inner, left)
            elif outer in ("Optional", "Union", "SkipValidation", "Annotated"):
                for one in inner[:1] if outer == "Annotated" else inner:
                    yield from self.parts(one, left - 1)
                if outer == "Optional":
                    yield "None"
            else:
                yield outer or "?"
        else:
            yield getattr(node, "attr", "?")

    def _literal(self, nodes: list[ast.expr], left: int) -> Iterator[str | list[Any]]:
        values = [one.value for one in nodes if isinstance(one, ast.Constant)]
        if values:
            yield values
        for one in nodes:
            if not isinstance(one, ast.Constant):
                yield from self.parts(one, left - 1)


def _found(names: list[str], given: dict[str, Any], file: str, line: int) -> Found:
    plain = [one.lstrip("-").replace("_", "-") for one in names]
    long = [n for n, one in zip(plain, names, strict=True) if one.startswith("--")] or plain
    value = {"names": [one.replace("_", "-") for one in names], "sort": "value"} | given
    return Found("option", long[0], value, file, line)


def options(wheel: Wheel) -> Iterator[Found]:
    """Yield every option of ``vllm serve``."""
    return Options(wheel).found()


def speculation(wheel: Wheel) -> Iterator[Found]:
    """Yield the fields of the speculative configuration, its methods, and the targets of EAGLE-3."""
    reader = Options(wheel)
    if "SpeculativeConfig" not in reader.classes:
        return
    file, node = reader.classes["SpeculativeConfig"]
    for name, annotation in reader.fields("SpeculativeConfig").items():
        yield Found("speculative field", name, True, file, annotation.lineno)
        if name == "method":
            for part in reader.parts(annotation, 8):
                for one in part if isinstance(part, list) else ():
                    yield Found("method", str(one), True, file, annotation.lineno)
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Assign)
            and getattr(inner.targets[0], "id", "") == "eagle3_target_supported"
        ):
            for one in getattr(inner.value, "elts", ()):
                if isinstance(one, ast.Constant):
                    yield Found("eagle3 target", str(one.value), True, file, one.lineno)


# What the checks of the configuration refuse, by words of the refusal.
REFUSALS = {
    "tokens_missing": "num_speculative_tokens must be provided with",
    "model_missing": "was provided but without speculative model",
    "lookup_crossed": "be <= prompt_lookup_max=",
    "draft_tp": "cannot be other value than 1 or target model tensor_parallel_size",
    "draft_longer": "{speculative_max_model_len=} cannot be larger than {draft_max_model_len=}",
    "plain_draft": "Speculative decoding with draft model is not supported yet",
    "heads": "must be divisible by tensor parallel size",
    "context": "is greater than the derived max_model_len",
    "quantisation": "does not match the quantization method specified in the `quantization` argument",
}


def refusals(wheel: Wheel) -> Iterator[Found]:
    """Yield each refusal of `REFUSALS` that the configuration of a release has, with its place."""
    for file in wheel.modules:
        if not file.startswith("vllm/config"):
            continue
        lines = wheel.text(file).splitlines()
        # A message is written in several parts, one a line.
        whole = re.sub(r"\"\s*\n\s*f?\"", "", wheel.text(file))
        for name, text in REFUSALS.items():
            if text in whole:
                start = re.escape(text[:24])
                at = next((n for n, one in enumerate(lines, 1) if re.search(start, one)), 0)
                yield Found("refusal", name, True, file, at)
