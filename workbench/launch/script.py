"""A script, walked from top to bottom: which commands it holds, with the variables as they are there.

Nothing is executed. Of a branch each way is walked; where they leave a variable with different values, it is
not known behind it. What a loop sets is not known in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.launch import holes
from workbench.launch.shell import Expander, Scope, Value, parse, source
from workbench.launch.syntax import (
    LOOPS,
    assigned_in,
    broken_lines,
    commands_in,
    file_of_tee,
    has_empty_word,
)

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_SCRIPT = 256 << 10
_DEEPEST = 60
_MOST_COMMANDS = 2000
_MOST_WALKED = 200_000
_CALLS_DEEP = 4
_LONGEST_VALUE = 32 << 10
_MOST_VALUES = 2000
_MOST_VARIABLES = 300
# Files that are sourced and set no variables of a launch: environments of Python and modules.
_ACTIVATES = re.compile(
    r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|\.bashrc|\.profile|modules\.sh|bash)$"
)
_SETS_LAST = {"read": 1, "mapfile": 1, "readarray": 1, "getopts": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command of a script.

    Attributes
    ----------
    words
        Its words; they may have holes.
    environment
        What is exported, and what stands before the command.
    log
        The file that its output goes to, "" where it is not redirected.
    files
        Files that the script wrote before, by name, where all of their text is known.
    input
        What it reads from a here-document, "" without one.
    """

    words: tuple[str, ...]
    environment: dict[str, str]
    line: int = 0
    log: str = ""
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    input: str = ""


@dataclasses.dataclass(slots=True)
class Script:
    """What a script holds: its commands, the text that it evaluates, the lines that are not shell."""

    commands: list[Command] = dataclasses.field(default_factory=list)
    evaluated: list[str] = dataclasses.field(default_factory=list)
    broken: list[int] = dataclasses.field(default_factory=list)


def read_script(
    text: str, environment: dict[str, str] | None = None, *, foreign: bool = False
) -> Script:
    """Return the commands of a script's text.

    Parameters
    ----------
    environment
        Variables that the script is started with: those of its container, say.
    foreign
        Whether there may be more of them: a default is then not sure.

    Raises
    ------
    WorkbenchError
        It is larger than a script is.
    """
    if len(text) > MOST_SCRIPT:
        raise WorkbenchError(
            "the script is too long to be read",
            why=f"{len(text):,} characters; {MOST_SCRIPT:,} are read",
            next_step="Give the launch command alone.",
        )
    given = dict(environment or {})
    walker = _Walker(Scope(dict(given), set(given), foreign))
    # A backslash at the very end joins the last line with nothing.
    root = parse(re.sub(r"\\\s*\Z", "", text)).root_node
    walker.walk(root)
    walker.uncalled()
    walker.script.broken += broken_lines(root)
    return walker.script


class _Walker:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.script = Script()
        self.functions: dict[str, Node] = {}
        self.called: set[str] = set()
        self.files: dict[str, str] = {}
        self.depth = 0
        self.calls = 0
        self.left = _MOST_WALKED
        self.kinds: dict[str, Callable[[Node], None]] = {
            "command": self._command,
            "redirected_statement": self._redirected,
            "pipeline": self._pipeline,
            "variable_assignment": self._assign,
            "declaration_command": self._declare,
            "unset_command": self._unset,
            "function_definition": self._define,
            "if_statement": self._if,
            "case_statement": self._case,
            "list": self._list,
            "subshell": self._subshell,
            **dict.fromkeys(LOOPS, self._loop),
        }

    def walk(self, node: Node) -> None:
        self.left -= 1
        if self.depth > _DEEPEST or self.left < 0 or len(self.script.commands) > _MOST_COMMANDS:
            self._broken(node)
            return
        self.depth += 1
        try:
            kind = self.kinds.get(node.type)
            if kind is not None:
                kind(node)
            elif node.type not in ("comment", "test_command", "heredoc_body"):
                for child in node.named_children:
                    self.walk(child)
        finally:
            self.depth -= 1

    def _broken(self, node: Node) -> None:
        if len(self.script.broken) < 20:
            self.script.broken.append(node.start_point[0] + 1)

    def _command(self, node: Node, log: str = "", text: str = "") -> None:
        expander = Expander(self.scope)
        words: list[str] = []
        before: dict[str, str] = {}
        for child in node.named_children:
            if child.type == "variable_assignment":
                before.update(self._assigned(child))
            elif child.type in ("herestring_redirect", "heredoc_redirect", "file_redirect"):
                continue
            elif child.type == "command_name":
                inner = child.named_children
                words += expander.words(inner[0]) if len(inner) == 1 else [expander.text(child)]
            else:
                words += expander.words(child)
        words = [word for word in words if word or has_empty_word(node)]
        if not words:
            self.scope.values.update(before)
            return
        self._run(words, before, node.start_point[0] + 1, log, text)

    def _run(
        self, words: list[str], before: dict[str, str], line: int, log: str, text: str
    ) -> None:
        name = words[0]
        if len(self.script.commands) > _MOST_COMMANDS:
            return
        if name in self.functions and self.calls < _CALLS_DEEP:
            self._call(name, words[1:])
            return
        if name == "set" and "--" in words:
            self.scope.values["@"] = tuple(words[words.index("--") + 1 :])
        elif name == "shift":
            self._shift(words)
        elif name in ("source", "."):
            self._sourced(words[1:])
        elif name == "eval":
            self._evaluated(words[1:])
        elif name in _SETS_LAST:
            for one in words[_SETS_LAST[name] :]:
                if re.fullmatch(r"[A-Za-z_]\w*", one):
                    self.scope.values[one] = holes.hole(one)
        elif name == "tee" and text and len(words) > 1:
            self.files[words[-1]] = text
        exported = {one: self.scope.text(one) for one in sorted(self.scope.exported)}
        self.script.commands.append(
            Command(tuple(words), exported | before, line, log, dict(self.files), text)
        )

    def _shift(self, words: list[str]) -> None:
        known = self.scope.values.get("@")
        count = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1
        if isinstance(known, tuple) and not any(map(holes.may_be_many, known[:count])):
            self.scope.values["@"] = known[count:]
        else:
            self.scope.values.pop("@", None)

    def _sourced(self, words: list[str]) -> None:
        if words and _ACTIVATES.search(words[0]):
            return
        self.scope.foreign = True
        for name in self.scope.values:
            self.scope.values[name] = holes.hole(name)

    def _evaluated(self, words: list[str]) -> None:
        text = " ".join(words)
        if not holes.has_hole(text) and self.calls < _CALLS_DEEP:
            self.calls += 1
            self.walk(parse(text).root_node)
            self.calls -= 1
        else:
            self.script.evaluated.append(holes.shown(text))
            self.scope.foreign = True

    def _call(self, name: str, words: list[str]) -> None:
        self.called.add(name)
        before = self.scope.values.get("@")
        self.scope.values["@"] = tuple(words)
        self.calls += 1
        self.walk(self.functions[name])
        self.calls -= 1
        if before is None:
            self.scope.values.pop("@", None)
        else:
            self.scope.values["@"] = before

    def uncalled(self) -> None:
        """Walk the functions that the script itself does not call."""
        self.scope.values.pop("@", None)
        for name, body in self.functions.items():
            if name not in self.called:
                self.walk(body)

    def _redirected(self, node: Node) -> None:
        log, text, append = self._redirects(node)
        body = node.child_by_field_name("body") or next(iter(node.named_children), None)
        if body is None:
            return
        first = source(body).split(maxsplit=1)[:1]
        if body.type == "command" and first == ["cat"] and text and log:
            self._wrote(log, text, append)
        if body.type == "command":
            self._command(body, log, text)
        elif body.type == "pipeline":
            self._pipeline(body, log, text)
        else:
            self.walk(body)

    def _wrote(self, name: str, text: str, append: bool) -> None:
        before = self.files.get(name, "") if append else ""
        if holes.has_hole(text) or holes.has_hole(name):
            self.files.pop(name, None)
        else:
            self.files[name] = before + text

    def _redirects(self, node: Node) -> tuple[str, str, bool]:
        """Return the file that the output goes to, what a here-document holds, and whether it is appended."""
        log, text, append = "", "", False
        expander = Expander(self.scope)
        for child in node.children_by_field_name("redirect"):
            if child.type == "heredoc_redirect":
                text = self._heredoc(child)
                inner = self._redirects(child)  # `cat <<EOF > file` holds its redirection inside
                log, append = inner[0] or log, inner[2] or append
            elif child.type == "file_redirect":
                target = child.child_by_field_name("destination")
                mark = "".join(source(c) for c in child.children if not c.is_named).strip()
                if target is not None and ">" in mark and not mark.startswith(">&"):
                    name = expander.text(target)
                    log = name if name != "/dev/null" else log
                    append = ">>" in mark
        return log, text, append

    def _heredoc(self, node: Node) -> str:
        start = next((c for c in node.children if c.type == "heredoc_start"), None)
        body = next((c for c in node.children if c.type == "heredoc_body"), None)
        if body is None:
            return ""
        if start is not None and source(start)[:1] in "'\"\\":
            return source(body)
        return Expander(self.scope).text(body) if body.named_child_count else source(body)

    def _pipeline(self, node: Node, log: str = "", text: str = "") -> None:
        parts = node.named_children
        for number, part in enumerate(parts):
            rest = parts[number + 1] if number + 1 < len(parts) else None
            into = (file_of_tee(rest) if rest is not None else "") or log
            if part.type == "command":
                self._command(part, into, text if number == 0 else "")
            elif part.type == "redirected_statement":
                inner, inner_text, _ = self._redirects(part)
                body = part.child_by_field_name("body")
                if body is not None and body.type == "command":
                    self._command(body, inner or into, inner_text)
                else:
                    self.walk(part)
            else:
                self._apart(part)

    def _assigned(self, node: Node) -> dict[str, str]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        return (
            {source(name): "" if value is None else Expander(self.scope).text(value)}
            if name
            else {}
        )

    def _assign(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":  # an element of an array
            if name is not None:
                self.scope.values[source(name).partition("[")[0]] = holes.hole(source(name))
            return
        key = source(name)
        expander = Expander(self.scope)
        new: Value = "" if value is None else expander.text(value)
        if value is not None and value.type == "array":
            new = tuple(expander.words(value))
        if any(child.type == "+=" for child in node.children):
            old = self.scope.array(key) if isinstance(new, tuple) else self.scope.text(key)
            new = (*old, *new) if isinstance(old, tuple) else f"{old}{new}"
        if len(self.scope.values) > _MOST_VARIABLES:
            self.scope.foreign = True  # what is not kept may be set
            return
        self.scope.values[key] = _bounded(key, new)

    def _declare(self, node: Node) -> None:
        exports = source(node).startswith(("export", "declare -x", "typeset -x"))
        for child in node.named_children:
            name = (
                child.child_by_field_name("name") if child.type == "variable_assignment" else child
            )
            if child.type == "variable_assignment":
                self._assign(child)
            if exports and name is not None and name.type == "variable_name":
                self.scope.exported.add(source(name))

    def _unset(self, node: Node) -> None:
        for child in node.named_children:
            self.scope.values[source(child)] = ""
            self.scope.exported.discard(source(child))

    def _define(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[source(name)] = body

    def _if(self, node: Node) -> None:
        ways: list[list[Node]] = [[]]
        complete = False
        condition = True
        for child in node.children:
            if child.type == "then":
                condition = False
            elif child.type == "elif_clause":
                ways.append(list(child.named_children))
            elif child.type == "else_clause":
                ways.append(list(child.named_children))
                complete = True
            elif child.is_named and not condition:
                ways[0].append(child)
        self._ways(ways, complete)

    def _case(self, node: Node) -> None:
        found = [child for child in node.named_children if child.type == "case_item"]
        ways = [list(item.named_children)[1:] for item in found]
        self._ways(ways, any(source(item).lstrip("(").startswith("*)") for item in found))

    def _list(self, node: Node) -> None:
        """Walk ``a && b`` and ``a || b``: what follows may not be run."""
        for number, child in enumerate(node.named_children):
            if number:
                self._ways([[child]], False)
            else:
                self.walk(child)

    def _loop(self, node: Node) -> None:
        for name in assigned_in(node):
            self.scope.values[name] = holes.hole(name)
        if any(source(n).split()[:1] == ["shift"] for n in commands_in(node)):
            self.scope.values.pop("@", None)
        self._ways([list(node.named_children)], False)

    def _subshell(self, node: Node) -> None:
        self._apart(node, inside=True)

    def _apart(self, node: Node, *, inside: bool = False) -> None:
        """Walk what runs in a shell of its own: its variables end with it."""
        before = self.scope
        self.scope = before.copy()
        for child in node.named_children if inside else (node,):
            self.walk(child)
        self.scope = before

    def _ways(self, ways: Iterable[list[Node]], complete: bool) -> None:
        """Walk each way of a branch from the same start; of the variables, what all agree on is kept."""
        before = self.scope
        self.left -= len(before.values)
        ends = [] if complete else [before]
        for way in ways:
            self.scope = before.copy()
            for child in way:
                self.walk(child)
            ends.append(self.scope)
        self.scope = _merged(ends) if ends else before


def _bounded(name: str, value: Value) -> Value:
    """Return a value that a script did not blow up; a longer one is not known."""
    if isinstance(value, tuple):
        long = len(value) > _MOST_VALUES or sum(map(len, value)) > _LONGEST_VALUE
        return (holes.hole(name, many=True),) if long else value
    return holes.hole(name) if len(value) > _LONGEST_VALUE else value


def _merged(ends: list[Scope]) -> Scope:
    first = ends[0].copy()
    for name in {name for end in ends for name in end.values}:
        one, *others = (end.values.get(name) for end in ends)
        if any(other is not one and other != one for other in others):
            array = any(isinstance(end.values.get(name), tuple) for end in ends)
            shown = "$@" if name == "@" else name
            whole = holes.hole(shown, many=array)
            first.values[name] = (whole,) if array else whole
    first.exported = set.union(*(end.exported for end in ends))
    first.foreign = any(end.foreign for end in ends)
    return first
