"""Whether a loader's source is the same in two releases: a digest of what it computes."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator

from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel


def digests(wheel: Wheel, wanted: Iterable[tuple[str, str]]) -> Iterator[Found]:
    """Yield a digest of each wanted file, or of one class or function in it.

    Only what builds a module and what loads into it counts (`_LOADS`): not how it computes, and neither
    comments, texts that document nor line numbers.

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
    """Return what counts of a statement of a module; "" for one of which nothing does."""
    if isinstance(node, ast.ClassDef):
        inside = [text for item in node.body if (text := _plain(item))]
        bases = [ast.dump(base) for base in node.bases]
        return "\n".join([node.name, *bases, *inside]) if inside else ""
    if not isinstance(node, ast.FunctionDef) or not _LOADS.search(node.name):
        return ""
    body = node.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        body = body[1:]
    return "\n".join([node.name, ast.dump(node.args), *map(ast.dump, body)])


_LOADS = re.compile(r"^__init__$|load|weight|embed|nextn_conf")
