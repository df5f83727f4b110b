"""Commands as lines that a shell takes as one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workbench.core.wording import cells
from workbench.errors import clean

PASTED = 100
"""Columns of a command on a page."""
# A word of a shell, with what is quoted in it.
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""")


def broken(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Yield the lines of a command, long ones broken between options, so that a shell takes them as one."""
    for line in (clean(line).rstrip() for line in text.split("\n")):
        words = _WORD.findall(line)
        if cells(line) <= width - 2 or " ".join(words) != line.strip():
            # Also what is quoted across lines: the terminal breaks it, and no copy does.
            yield f"{indent}{line}"
            continue
        taken = f"{indent}{words[0]}"
        for option in _options(words[1:], width - 8):
            if cells(taken) + cells(option) + 3 > width:
                yield taken + " \\"
                taken = f"{indent}    {option}"
            else:
                taken += f" {option}"
        yield taken


def _options(words: list[str], room: int) -> Iterator[str]:
    """Yield the words, an option together with its values where both fit a line."""
    held: list[str] = []
    for word in words:
        joined = bool(held) and held[0].startswith("-") and not word.startswith("-")
        if held and not (joined and cells(" ".join([*held, word])) <= room):
            yield " ".join(held)
            held = []
        held.append(word)
    if held:
        yield " ".join(held)
