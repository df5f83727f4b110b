"""Whether a loader's source is the same in two releases: a digest of what it computes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel


def digests(wheel: Wheel, wanted: Iterable[tuple[str, str]]) -> Iterator[Found]:
    """Yield a digest of each wanted file, or of one class or function in it.

    Comments, texts that document and line numbers do not count.

    Parameters
    ----------
    wanted
        The end of the file's path, and the class or function, "" for the whole file.
    """
    for end, name in wanted:
        for file in wheel.under(end):
            tree = wheel.tree(file)
            nodes = [
                node
                for node in (tree.body if tree else ())
                if not name or getattr(node, "name", "") == name
            ]
            if nodes:
                text = "\n".join(_plain(node) for node in nodes)
                value = hashlib.sha256(text.encode()).hexdigest()[:16]
                line = getattr(nodes[0], "lineno", 0)
                yield Found("digest", f"{end}:{name}" if name else end, value, file, line)
                break


def _plain(node: ast.stmt) -> str:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            first = inner.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                inner.body = inner.body[1:] or [ast.Pass()]
    return ast.dump(node, annotate_fields=False)
