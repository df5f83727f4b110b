"""The conditions of a module, and what each becomes: comparisons, and/or, thresholds, words, releases."""

from __future__ import annotations

import ast
import copy
import dataclasses
import itertools
import re
from collections.abc import Iterator

from .table import ARGUMENTS, DECIDING_TEXTS, NAMES, NO_JUDGES, SCALES

_RELEASE = re.compile(r"(\d+\.\d+(?:\.\d+)?)((?:\.?(?:rc|post|dev|a|b)\d+)?)")
_EDGE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITE = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
# A smaller count is moved by one; what is larger, or no whole number, by half and by a third.
_SMALL = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One changed condition.

    Attributes
    ----------
    module
        Below workbench/.
    function
        Qualified name, "" at the top of the module.
    decides
        ``confidence``, ``release``, ``verdict`` (what makes ok, a state or an accusation) or ``words``.
    lines
        Those that run when the condition does: of the innermost expression, of its statement, and of the
        function. All empty for what runs when the module is imported.
    names
        The top-level name that is assigned there, "" elsewhere.
    at, change
        Number of the node in a walk of the tree, and of the change to it.
    """

    module: str
    function: str
    line: int
    before: str
    after: str
    decides: str
    lines: tuple[range, range, range]
    name: str
    at: int
    change: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it, wherever its line moves to."""
        return self.module, self.function, self.before, self.after


@dataclasses.dataclass(slots=True)
class _Place:
    """Where the walk is: the chain of parents, the outermost first."""

    parents: tuple[ast.AST, ...]

    def of(self, *kinds: type[ast.AST]) -> list[ast.AST]:
        return [node for node in self.parents if isinstance(node, kinds)]


def listed(module: str, source: str) -> list[Mutant]:
    """Return every mutant of a module's source, in the order of its lines."""
    tree = ast.parse(source)
    found = []
    for at, (node, place) in enumerate(_walk(tree)):
        for change, new in enumerate(_changes(node, place)):
            found.append(_mutant(module, node, new, place, at, change))
    return [m for m in found if m.before != m.after]


def mutated(source: str, mutant: Mutant) -> str:
    """Return the module's source with the one change."""
    tree = ast.parse(source)
    for at, (node, place) in enumerate(_walk(tree)):
        if at == mutant.at:
            _replace(place.parents[-1], node, _changes(node, place)[mutant.change])
            return ast.unparse(ast.fix_missing_locations(tree))
    raise LookupError(f"{mutant.module} has no such condition any more: {mutant.before}")


def _walk(node: ast.AST, parents: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, _Place]]:
    yield node, _Place(parents)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, (*parents, node))


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            setattr(parent, field, [new if one is old else one for one in value])


def _changes(node: ast.AST, place: _Place) -> list[ast.expr]:
    """Return what a node becomes; none where it is no condition."""
    if place.of(ast.JoinedStr) or _is_annotation(node, place):
        return []
    if isinstance(node, ast.Compare):
        return [*_compared(node)]
    if isinstance(node, ast.BoolOp):
        return [*_joined(node)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("any", "all")
    ):
        other = "all" if node.func.id == "any" else "any"
        return [ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)]
    if isinstance(node, ast.Constant):
        return [ast.Constant(value) for value in _constants(node, place)]
    if isinstance(node, ast.expr) and _is_bare_test(node, place):
        return [ast.UnaryOp(ast.Not(), node)]
    return []


def _compared(node: ast.Compare) -> Iterator[ast.expr]:
    for i, op in enumerate(node.ops):
        for table in (_EDGE, _OPPOSITE):
            other = table.get(type(op))
            if other is not None:
                new = copy.copy(node)
                new.ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                yield new


def _joined(node: ast.BoolOp) -> Iterator[ast.expr]:
    yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for i in range(len(node.values)):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _is_bare_test(node: ast.expr, place: _Place) -> bool:
    """Whether an expression is a condition by its place alone: ``if found:``, ``a if found else b``."""
    parent = place.parents[-1] if place.parents else None
    if isinstance(node, ast.Constant) or ast.unparse(node) == "TYPE_CHECKING":
        return False
    if isinstance(parent, ast.If | ast.While | ast.IfExp):
        return node is parent.test
    return isinstance(parent, ast.comprehension) and node in parent.ifs


def _is_annotation(node: ast.AST, place: _Place) -> bool:
    chain = (*place.parents, node)
    for parent, child in itertools.pairwise(chain):
        if isinstance(parent, ast.AnnAssign | ast.arg) and child is parent.annotation:
            return True
        if isinstance(parent, ast.FunctionDef) and child is parent.returns:
            return True
        if isinstance(parent, ast.FunctionDef | ast.ClassDef) and child in parent.decorator_list:
            return True
        if isinstance(parent, ast.Expr) and isinstance(child, ast.Constant):  # a docstring
            return True
    return False


def _constants(node: ast.Constant, place: _Place) -> list[object]:
    value = node.value
    if value is None or isinstance(value, bool):
        if _is_ok(place):
            return [other for other in (True, False, None) if other is not value]
        return [] if value is None or _is_option(place) else [not value]
    if isinstance(value, str):
        for scale in SCALES:
            if value in scale:
                at = scale.index(value)
                return [scale[i] for i in (at - 1, at + 1) if 0 <= i < len(scale)]
        return [*_releases(value)]
    if isinstance(value, int | float) and _is_threshold(value, place):
        if isinstance(value, int) and abs(value) < _SMALL:
            return [value - 1, value + 1]
        more, less = value * 3 / 2, value * 2 / 3
        return [round(less), round(more)] if isinstance(value, int) else [less, more]
    return []


def _releases(text: str) -> Iterator[str]:
    match = _RELEASE.fullmatch(text)
    if match:
        *front, last = match[1].split(".")
        for number in (int(last) - 1, int(last) + 1):
            if number >= 0:
                yield ".".join((*front, str(number))) + match[2]


def _is_option(place: _Place) -> bool:
    """Whether a boolean is an option of the library or of a dataclass: ``strict=True``, ``frozen=True``."""
    parent = place.parents[-1]
    return isinstance(parent, ast.keyword) and parent.arg in (
        "strict",
        "frozen",
        "slots",
        "reverse",
    )


def _is_ok(place: _Place) -> bool:
    """Whether a value is a verdict's: returned where True, False and None are three answers, or ``ok``."""
    inner = place.parents[-1]
    if isinstance(inner, ast.Compare):
        return False
    for parent in reversed(place.parents):
        if isinstance(parent, ast.Call | ast.Lambda | ast.Subscript):
            return False
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return all(isinstance(t, ast.Name) and t.id == "ok" for t in targets)
        if isinstance(parent, ast.keyword):
            return parent.arg == "ok"
        if isinstance(parent, ast.Return):
            function: ast.FunctionDef = place.of(ast.FunctionDef)[-1]  # type: ignore[assignment]
            return function.returns is not None and "bool | None" in ast.unparse(function.returns)
    return False


def _is_threshold(value: float, place: _Place) -> bool:
    if place.of(ast.Subscript, ast.FormattedValue):
        return False
    if place.of(ast.Compare) or (isinstance(value, float) and not value.is_integer()):
        return True
    if place.of(ast.FunctionDef, ast.Lambda):
        return False
    # At the top: a number or a few of them under a name, or the default of a field.
    inner = [p for p in place.parents if not isinstance(p, ast.Module | ast.ClassDef)]
    plain = (ast.Assign, ast.AnnAssign, ast.Tuple, ast.UnaryOp, ast.BinOp)
    return bool(inner) and all(isinstance(p, plain) for p in inner)


def _mutant(
    module: str, node: ast.AST, new: ast.expr, place: _Place, at: int, change: int
) -> Mutant:
    functions = place.of(ast.FunctionDef, ast.AsyncFunctionDef)
    scopes = place.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    inside = bool(functions or place.of(ast.Lambda)) and not _is_default(node, place)
    statements = place.of(ast.stmt)
    top = place.parents[1] if len(place.parents) > 1 else None
    empty = range(0)
    outer = functions[-1] if functions else None
    body = range(outer.body[0].lineno, outer.end_lineno + 1) if outer is not None else empty  # type: ignore[attr-defined]
    shown, changed = _shown(node, new, place)
    return Mutant(
        module=module,
        function=".".join(s.name for s in scopes),  # type: ignore[attr-defined]
        line=node.lineno,  # type: ignore[attr-defined]
        before=shown,
        after=changed,
        decides=_decides(module, node, place),
        lines=(_span(node), _header(statements[-1]), body) if inside else (empty, empty, body),
        name=_assigned(top),
        at=at,
        change=change,
    )


def _shown(node: ast.AST, new: ast.expr, place: _Place) -> tuple[str, str]:
    """Return the condition before and after, with as much around it as says what it is."""
    whole = node
    for parent in reversed(place.parents):
        if isinstance(parent, ast.stmt | ast.comprehension | ast.arguments):
            if (
                isinstance(parent, ast.Assign | ast.AnnAssign | ast.Return)
                and len(ast.unparse(parent)) < 160
            ):
                whole = parent
            break
        if len(ast.unparse(parent)) > 110 or isinstance(parent, ast.Dict):
            break
        whole = parent
    before = ast.unparse(whole)
    if whole is node:
        return before, ast.unparse(ast.fix_missing_locations(new))
    chain = [
        p for p in place.parents if p is whole or whole in place.parents[: place.parents.index(p)]
    ]
    changed: ast.AST = new
    child: ast.AST = node
    for parent in reversed(chain):
        twin = copy.copy(parent)
        _replace(twin, child, changed)
        child, changed = parent, twin
    return before, ast.unparse(ast.fix_missing_locations(changed))


def _span(node: ast.AST) -> range:
    return range(node.lineno, node.end_lineno + 1)  # type: ignore[attr-defined]


def _header(statement: ast.AST) -> range:
    """Return the lines of a statement without those of the block below it."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if isinstance(body, list) and body else statement.end_lineno + 1  # type: ignore[attr-defined]
    return range(statement.lineno, max(end, statement.lineno + 1))  # type: ignore[attr-defined]


def _is_default(node: ast.AST, place: _Place) -> bool:
    """Whether it is the default of an argument of the innermost function: that runs on import."""
    chain = (*place.parents, node)
    inner = max(i for i, p in enumerate(chain) if isinstance(p, ast.FunctionDef | ast.Lambda))
    return any(isinstance(p, ast.arguments) for p in chain[inner:])


def _assigned(top: ast.AST | None) -> str:
    targets: list[ast.expr] = []
    if isinstance(top, ast.Assign):
        targets = top.targets
    elif isinstance(top, ast.AnnAssign):
        targets = [top.target]
    return " ".join(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def _decides(module: str, node: ast.AST, place: _Place) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "confidence" if node.value in SCALES[0] + SCALES[1] else "release"
    if any(_is_sentence(parent) for parent in place.parents):
        return "words"
    functions = place.of(ast.FunctionDef)
    if functions:
        inner: ast.FunctionDef = functions[-1]  # type: ignore[assignment]
        returns = ast.unparse(inner.returns) if inner.returns else ""
        if "Confidence" in returns:
            return "confidence"
        # Whether there is a reason is asked of properties: ``doubtful``, ``unlike``.
        asked = place.of(ast.ClassDef) and not inner.name.startswith("__")
        tells = returns == "str" and not asked and inner.name not in DECIDING_TEXTS.get(module, ())
        if tells or inner.name in NO_JUDGES.get(module, ()):
            return "words"
    return "verdict"


def _is_sentence(parent: ast.AST) -> bool:
    """Whether what is below becomes a part of a sentence: an argument or a name for one."""
    if isinstance(parent, ast.Assign | ast.AugAssign):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return all(isinstance(t, ast.Name) and t.id in NAMES for t in targets)
    return isinstance(parent, ast.keyword) and parent.arg in ARGUMENTS
