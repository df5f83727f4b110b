"""Programs of supervisord: ``[program:NAME]`` with its command and its environment."""

from __future__ import annotations

import configparser
import re

from workbench.launch import holes
from workbench.launch.units import Start, split

_PROGRAM = re.compile(r"(?m)^\s*\[(?:program|eventlistener):[^\]\n]+\][ \t]*$")
_EXPANDED = re.compile(r"%(?:(%)|\((\w+)\)[sd])")
_VARIABLE = re.compile(r'([A-Za-z_]\w*)=("[^"]*"|\'[^\']*\'|[^,]*)')


def is_supervised(text: str) -> bool:
    """Whether a text is a configuration file of supervisord that starts a program."""
    return bool(_PROGRAM.search(text)) and bool(re.search(r"(?m)^\s*command\s*[=:]", text))


def read(text: str) -> list[Start]:
    """Return what the programs of a file start; no shell reads their commands."""
    parser = configparser.RawConfigParser(
        strict=False, inline_comment_prefixes=(";",), delimiters=("=", ":")
    )
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    starts = []
    for name in parser.sections():
        command = parser.get(name, "command", fallback="").strip()
        if not name.startswith("program:") or not command:
            continue
        given = _expanded(parser.get(name, "environment", fallback=""))
        environment = {found[1]: found[2].strip("\"' ") for found in _VARIABLE.finditer(given)}
        words = tuple(split(_expanded(" ".join(command.split("\n")))))
        starts.append(Start(words, "", environment, _line(text, name)))
    return starts


def _expanded(text: str) -> str:
    """Return a text with a hole for each ``%(ENV_NAME)s`` that supervisord fills in."""
    return _EXPANDED.sub(
        lambda found: "%" if found[1] else holes.hole(found[2].removeprefix("ENV_")), text
    )


def _line(text: str, section: str) -> int:
    before = text.partition(f"[{section}]")[0]
    return before.count("\n") + 1
