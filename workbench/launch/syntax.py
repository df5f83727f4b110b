"""What a syntax tree of bash says without being walked in order: loops, errors, what a loop sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.launch.shell import source

if TYPE_CHECKING:
    from tree_sitter import Node

LOOPS = ("for_statement", "c_style_for_statement", "while_statement")
_MOST_NODES = 200_000


def broken_lines(root: Node) -> list[int]:
    """Return the lines of what the grammar does not know: an open quote, a bracket without its other half."""
    if not root.has_error:
        return []
    wrong = (one for one in _inside(root, anonymous=True) if one.is_error or one.is_missing)
    return sorted({one.start_point[0] + 1 for one in wrong})[:20] or [1]


def has_empty_word(node: Node) -> bool:
    """Whether an empty word of a command is meant: it stands in quotes."""
    return any(source(c).strip() in ('""', "''") for c in node.named_children)


def file_of_tee(node: Node) -> str:
    """Return the file of ``tee``."""
    words = source(node).split()
    named = [word.strip("\"'") for word in words[1:] if not word.startswith("-")]
    return named[0] if words[:1] == ["tee"] and named and "$" not in named[0] else ""


def _inside(node: Node, *, anonymous: bool = False) -> Iterator[Node]:
    todo, left = [node], _MOST_NODES
    while todo and left:
        one = todo.pop()
        left -= 1
        yield one
        todo += one.children if anonymous else one.named_children


def commands_in(node: Node) -> Iterator[Node]:
    """Return the commands inside a node."""
    return (one for one in _inside(node) if one.type == "command")


def assigned_in(node: Node) -> set[str]:
    """Return the variables that a loop sets."""
    found = set()
    for one in _inside(node):
        if one.type == "variable_assignment" or one.type in LOOPS:
            name = one.child_by_field_name("name") or one.child_by_field_name("variable")
            if name is not None:
                found.add(source(name).partition("[")[0])
    return found
