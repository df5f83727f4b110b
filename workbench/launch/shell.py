"""Words of a shell's command, expanded as far as the text itself says; nothing is executed.

The grammar is tree-sitter's of bash. A variable that is not set, a command and a calculation become holes.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.launch import holes

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

Value = str | tuple[str, ...]
"""A variable's text, or an array's words; either may have holes."""

_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\(\n|[$`"\\])')
_ANSI = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
}
_LONGEST = 256 << 10
_POSITIONAL = re.compile(r"\d+")
_WORDS_IN_HOLES = re.compile(r"(?:[^\s\ue000-\ue002]|[\ue000\ue001][^\ue002]*\ue002)+")


@functools.cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse(text: str) -> Tree:
    """Return the syntax tree of a script."""
    return _parser().parse(text.encode("utf-8", "replace"))


def source(node: Node) -> str:
    """Return a node's own text."""
    return (node.text or b"").decode("utf-8", "replace")


@dataclasses.dataclass(slots=True)
class Scope:
    """What is known of a shell's variables at one place of a script.

    Attributes
    ----------
    values
        Variables that were set, by name; ``@`` are the positional parameters.
    exported
        Names of variables that a program sees.
    foreign
        Whether other code may have set variables (``source``, ``eval``): a default is then not sure.
    """

    values: dict[str, Value] = dataclasses.field(default_factory=dict)
    exported: set[str] = dataclasses.field(default_factory=set)
    foreign: bool = False

    def copy(self) -> Scope:
        """Return a scope of its own with the same values."""
        return Scope(dict(self.values), set(self.exported), self.foreign)

    def text(self, name: str) -> str:
        """Return a variable's text; a hole where it is not known."""
        found = self.values.get(name)
        if found is None:
            return self._positional(name)
        if isinstance(found, tuple):
            return found[0] if found else ""
        return found

    def _positional(self, name: str) -> str:
        words = self.values.get("@")
        if _POSITIONAL.fullmatch(name) and isinstance(words, tuple) and len(name) < 4:
            at = int(name) - 1
            if not any(map(holes.may_be_many, words)):
                return words[at] if 0 <= at < len(words) else ("" if at >= 0 else holes.hole("0"))
        return holes.hole(name)

    def array(self, name: str) -> tuple[str, ...]:
        """Return all words of an array, or of the positional parameters."""
        found = self.values.get(name)
        if found is None:
            return (holes.hole("$@" if name == "@" else name, many=True),)
        return found if isinstance(found, tuple) else (found,)

    def is_set(self, name: str) -> bool | None:
        """Whether a variable is set and not empty; None where that is not known."""
        text = self.values.get(name)
        if text is None and _POSITIONAL.fullmatch(name) and "@" in self.values:
            text = self._positional(name)
        if text is None:
            return None if self.foreign else False
        if isinstance(text, tuple):
            return bool(text)
        return None if holes.has_hole(text) else bool(text)


class Expander:
    """Expands the words of one command in a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def words(self, node: Node) -> list[str]:
        """Return the words that a shell makes of an argument."""
        if node.type in ("expansion", "simple_expansion"):
            array = self._array(node)
            if array is not None:
                return [holes.unquoted(one) for word in array for one in split(word)]
            return list(split(holes.unquoted(self._variable(node))))
        if node.type == "string":
            inner = [child for child in node.children if child.type != '"']
            array = self._array(inner[0]) if len(inner) == 1 else None
            if array is not None:
                return list(array)
        if node.type == "command_substitution":
            return [holes.hole(_short(source(node)), many=True)]
        if node.type == "array":
            return [word for child in node.named_children for word in self.words(child)]
        return [self.text(node)]

    def text(self, node: Node) -> str:
        """Return a node's text as one word."""
        kind = node.type
        if kind == "raw_string":
            return source(node).strip()[1:-1]
        if kind == "ansi_c_string":
            return re.sub(r"\\(.)", lambda m: _ANSI.get(m[1], m[0]), source(node).strip()[2:-1])
        if kind in ("string", "translated_string"):
            return self._joined(node, in_quotes=True)
        if kind in ("expansion", "simple_expansion"):
            return self._variable(node)
        if kind == "command_substitution":
            return holes.hole(_short(source(node)))
        if kind in ("arithmetic_expansion", "process_substitution"):
            return holes.hole(_short(source(node)))
        if kind in ("concatenation", "command_name", "brace_expression", "heredoc_body"):
            return self._joined(node, in_quotes=kind == "heredoc_body")
        if node.named_child_count and kind not in ("word", "number"):
            return self._joined(node, in_quotes=False)
        return _ESCAPED.sub(lambda m: "" if m[1] == "\n" else m[1], source(node))

    def _joined(self, node: Node, *, in_quotes: bool) -> str:
        """Return the text of a node's parts, and of what lies between them."""
        data, start = node.text or b"", node.start_byte
        at, pieces = 0, []
        for child in node.children:
            begin, end = child.start_byte - start, child.end_byte - start
            between = data[at:begin].decode("utf-8", "replace")
            at = end
            piece = source(child)
            lead = piece[: len(piece) - len(piece.lstrip())] if in_quotes else ""
            if child.type == '"':
                lead = piece = ""
            elif child.type == "string_content" or (in_quotes and not child.is_named):
                lead, piece = "", _unquote(piece)
            elif child.type == "heredoc_content":
                lead = ""
            else:
                piece = self.text(child)
                if in_quotes and child.type in ("word", "number"):
                    lead = ""
            pieces.append((_unquote(between) if in_quotes else "") + lead + piece)
        rest = data[at:].decode("utf-8", "replace")
        if sum(map(len, pieces)) > _LONGEST:
            return holes.hole("a text that is too long")
        return "".join(pieces) + (_unquote(rest) if in_quotes or not node.children else "")

    def _array(self, node: Node) -> tuple[str, ...] | None:
        """Return the words of ``${NAME[@]}`` and ``$@``; None for anything else."""
        text = source(node).strip()
        if text in ("$@", "$*", "${@}", "${*}"):
            return self.scope.array("@")
        found = re.fullmatch(r"\$\{(\w+)\[[@*]\](?:[+][^}]*)?\}", text)
        return self.scope.array(found[1]) if found else None

    def _variable(self, node: Node) -> str:
        """Return what ``$NAME`` or ``${NAME…}`` stands for."""
        text = source(node).strip()
        simple = re.fullmatch(r"\$(\w+)|\$\{(\w+)\}", text)
        if simple:
            return self.scope.text(simple[1] or simple[2])
        array = self._array(node)
        if array is not None:
            return " ".join(array)
        found = re.match(r"\$\{(\w+)(:?[-=+?])", text)
        if found is None or not text.endswith("}"):
            return holes.hole(_short(text))
        return self._with_default(node, found[1], found[2])

    def _with_default(self, node: Node, name: str, operator: str) -> str:
        """Return what ``${NAME:-default}`` and its like stand for; a default holds where NAME is not set."""
        known = self.scope.is_set(name)
        if operator[0] != ":" and known is False and name in self.scope.values:
            known = True  # without the colon an empty text counts as set
        if operator[-1] == "?":
            return self.scope.text(name)
        if known is None:
            return holes.hole(name)
        if operator[-1] == "+":
            return self._after_operator(node, operator) if known else ""
        if known:
            return self.scope.text(name)
        default = self._after_operator(node, operator)
        if operator[-1] == "=":
            self.scope.values[name] = default
        return default

    def _after_operator(self, node: Node, operator: str) -> str:
        parts, seen = [], False
        for child in node.children:
            if child.type == operator:
                seen = True
            elif seen and child.type != "}":
                parts.append(self.text(child))
        return "".join(parts)


def _unquote(text: str) -> str:
    return _ESCAPED_IN_QUOTES.sub(lambda m: "" if m[1] == "\n" else m[1], text)


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


def split(text: str) -> Iterator[str]:
    """Yield the words that a shell makes of a text outside quotes."""
    return (found.group() for found in _WORDS_IN_HOLES.finditer(text))
