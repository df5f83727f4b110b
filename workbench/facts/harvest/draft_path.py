"""What a release does with a draft: config fields it reads, layers it captures, positions, formulas."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel

_CONFIGS = re.compile(r"(?:^|[._])(?:config|hf_config|eagle_config|dflash_config)$")
_DRAFT_FILE = re.compile(r"/srt/(?:models/\w*eagle3\w*\.py|speculative/\w*eagle\w*\.py)$")
_RUNNERS = ("model_executor/model_runner.py", "model_runner_components/spec_aux_hidden_state.py")


def reads(wheel: Wheel) -> Iterator[Found]:
    """Yield each field of a draft's config.json that the draft's path reads, by the file that reads it.

    The value is the default where the source gives one, True where it reads the field without one.
    """
    files = [name for name in wheel.modules if _DRAFT_FILE.search(name)]
    for name in [*files, *wheel.under(*_RUNNERS)]:
        tree = wheel.tree(name)
        seen: set[str] = set()
        short = name.rpartition("/")[2]
        for node in _ordered(tree) if tree else ():
            field = _field(node)
            if field is None or field[0] in seen:
                continue
            if "/models/" not in name and not field[0].startswith("eagle_config."):
                continue  # these read other configs, too; only the draft's table is of interest
            seen.add(field[0])
            yield Found("reads", f"{short}:{field[0]}", field[1], name, getattr(node, "lineno", 0))


def _ordered(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes in the order in which the source has them."""
    nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]


def _field(node: ast.AST) -> tuple[str, object] | None:
    """Return ``config.norm_output`` and its default, where a node reads a field of a config."""
    if isinstance(node, ast.Call):
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
            and len(node.args) > 1
        ):
            owner, name, *rest = node.args
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            owner, name, *rest = node.func.value, *node.args
        else:
            return None
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_config(owner):
            return f"{_owner(owner)}.{name.value}", ast.unparse(rest[0]) if rest else True
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        if isinstance(node.slice.value, str) and _is_config(node.value):
            return f"{_owner(node.value)}.{node.slice.value}", True
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and _is_config(node.value)
    ):
        if node.attr in ("get", "hf_config", "eagle_config") and _owner(node.value) != "config":
            return None
        return f"{_owner(node.value)}.{node.attr}", True
    return None


def _is_config(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and bool(_CONFIGS.search(ast.unparse(node)))


def _owner(node: ast.expr) -> str:
    last = ast.unparse(node).rpartition(".")[2]
    return last if last in ("eagle_config", "dflash_config") else "config"


def positions(wheel: Wheel) -> Iterator[Found]:
    """Yield whether a worker moves the positions on before or after a step of the draft."""
    for name in wheel.under("speculative/eagle_worker.py", "speculative/eagle_worker_v2.py"):
        tree = wheel.tree(name)
        for function in ast.walk(tree) if tree else ():
            if not isinstance(function, ast.FunctionDef) or function.name != "draft_forward":
                continue
            moved = _first(function, r"positions\.add_\(1\)")
            forward = _first(
                function, r"(?:draft_model_runner|draft_runner|draft_runner_list\[\w+\])\.forward\("
            )
            if moved and forward:
                value = "before" if moved < forward else "after"
                yield Found("positions", name.rpartition("/")[2], value, name, moved)


def _first(function: ast.FunctionDef, pattern: str) -> int:
    lines = [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and re.search(pattern, ast.unparse(node)[:200])
    ]
    return min(lines, default=0)


_NAMES = {"spec_accept_rate": "log accept rate", "spec_accept_length": "log accept length"}


def formulas(wheel: Wheel) -> Iterator[Found]:
    """Yield the formulas of what the log and a request's meta_info say about acceptance.

    The value is the expression with its local names filled in, and without the way to a counter.
    """
    for name in wheel.holding("accept len: {"):
        tree = wheel.tree(name)
        for function in ast.walk(tree) if tree else ():
            if isinstance(function, ast.FunctionDef) and _says(function, "accept len: "):
                for target, kept in _NAMES.items():
                    # The length was printed long before the rate; a rate that is not printed is none.
                    if _says(function, "accept rate: ") or target.endswith("length"):
                        yield from _formula(function, target, kept, name)
    for name in wheel.under("managers/tokenizer_manager.py"):
        tree = wheel.tree(name)
        for function in ast.walk(tree) if tree else ():
            if isinstance(function, ast.FunctionDef):
                for key in ("spec_accept_rate", "spec_accept_length"):
                    yield from _formula(function, f"meta_info['{key}']", f"meta_info {key}", name)
    yield from _counted(wheel)


def _says(function: ast.FunctionDef, text: str) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and text in node.value
        for node in ast.walk(function)
    )


def _formula(function: ast.FunctionDef, target: str, kept: str, file: str) -> Iterator[Found]:
    given: dict[str, list[str]] = {}
    found: tuple[ast.expr, int] | None = None
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            name = ast.unparse(node.targets[0])
            if name == target and not isinstance(node.value, ast.Constant):
                found = node.value, node.lineno
            elif re.fullmatch(r"\w+", name):
                given.setdefault(name, []).append(_spelled(node.value))
    if found is not None:
        yield Found("formula", kept, _filled_in(_spelled(found[0]), given), file, found[1])


def _spelled(node: ast.expr) -> str:
    """Return an expression without the way to a counter, and without its guard against zero."""
    if isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.Constant):
        node = node.body
    text = ast.unparse(node)
    text = re.sub(
        r"\b(?:self\.scheduler|self\.server_args|self|server_args|get_spec\(\)|recv_obj)\.",
        "",
        text,
    )
    return re.sub(r"\b(?:server_args)\.|\[i\]", "", text)


def _filled_in(text: str, given: dict[str, list[str]], left: int = 6) -> str:
    for name, values in sorted(given.items(), key=lambda item: -len(item[0])):
        itself = re.search(rf"\b{name}\b", " ".join(values))
        if left and itself is None and re.search(rf"\b{name}\b", text):
            whole = "(" + " | ".join(dict.fromkeys(values)) + ")"
            filled = whole.join(re.split(rf"\b{name}\b", text))
            text = _filled_in(filled, given, left - 1)
    return text


def _counted(wheel: Wheel) -> Iterator[Found]:
    """Yield what a round adds to the counter of accepted tokens."""
    for name in wheel.holding("spec_num_"):
        tree = wheel.tree(name)
        for node in ast.walk(tree) if tree else ():
            if (
                isinstance(node, ast.AugAssign)
                and re.search(
                    r"spec_num_(?:total_)?accept(?:ed)?_tokens$", ast.unparse(node.target)
                )
                and not re.search(r"_total_num_", ast.unparse(node.target))
            ):
                yield Found("formula", "counted per round", _spelled(node.value), name, node.lineno)
                return
