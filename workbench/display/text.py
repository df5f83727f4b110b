"""Text for a terminal: wrapping, columns and glyphs that stay readable at 80 columns.

Names come from files that somebody else made, so nothing is printed before `clean` took the control
characters out of it. Colour is only added where `colour_wanted` says so, and never carries meaning
alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING

from workbench.core.finding import SURE
from workbench.core.palette import tone, verdict_state
from workbench.core.wording import cells, middle
from workbench.errors import clean

if TYPE_CHECKING:
    from workbench.core.finding import Experiment, Finding

WIDTH = 80
LONGEST = 120  # longer lines are hard to read, however wide the terminal is
SHORTEST = 40
LONGEST_NAME = 400  # no model has one; a file from somebody else may


def columns(width: int | None = None, stream: IO[str] | None = None) -> int:
    """Return the width to write for: `width`, else the terminal's, else 80; 40 at least."""
    if width is not None:
        return max(width, SHORTEST)
    stream = sys.stdout if stream is None else stream
    if not _is_terminal(stream):
        return WIDTH
    return max(SHORTEST, min(shutil.get_terminal_size((WIDTH, 24)).columns, LONGEST))


def colour_wanted(stream: IO[str] | None = None) -> bool:
    """Say whether to colour what goes to `stream`: a terminal, and ``NO_COLOR`` is not set."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and _is_terminal(
        sys.stdout if stream is None else stream
    )


def unicode_wanted(stream: IO[str] | None = None) -> bool:
    """Say whether `stream` can show the glyphs; where it cannot, ASCII signs replace them."""
    encoding = getattr(sys.stdout if stream is None else stream, "encoding", None) or "utf-8"
    return "utf" in encoding.lower()


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


_PLAIN = str.maketrans({"…": "...", "×": "x", "→": "->", "–": "-", "’": "'", "─": "-"})


def plain(text: str) -> str:
    """Return `text` in ASCII, for a terminal that shows no more; what has no likeness is spelt out."""
    return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()


def paint(text: str, state: str, colour: bool, bold: bool = False) -> str:
    """Return `text` in the colour of `state`, unchanged without `colour`."""
    if not colour:
        return text
    return f"\x1b[{'1;' if bold else ''}38;5;{tone(state).ansi}m{text}\x1b[0m"


def strong(text: str, colour: bool) -> str:
    """Return `text` in bold, unchanged without `colour`."""
    return f"\x1b[1m{text}\x1b[0m" if colour else text


def glyph(state: str, unicode: bool = True) -> str:
    """Return the one-column sign of a state, a severity or a verdict."""
    return tone(state).glyph if unicode else tone(state).ascii


def wrap(text: str, width: int = WIDTH, first: str = "", rest: str | None = None) -> list[str]:
    """Wrap prose at spaces, and what is longer than a line after a dot, a slash and the like.

    Parameters
    ----------
    text
        The text; a line break in it starts a new line.
    width
        Columns of a line.
    first, rest
        What the first line and the others begin with; by default the others are indented as far as
        the first.
    """
    rest = " " * cells(first) if rest is None else rest
    lines = []
    start = first
    for paragraph in text.split("\n"):
        line, empty = start, True
        for word in (middle(word, LONGEST_NAME) for word in clean(paragraph).split()):
            if not empty and cells(line) + 1 + cells(word) <= width:
                line += " " + word
                continue
            if not empty:
                lines.append(line)
                line = rest
            *before, last = _pieces(word, width - cells(line), width - cells(rest))
            for piece in before:
                lines.append(line + piece)
                line = rest
            line, empty = line + last, False
        lines.append(line.rstrip())
        start = rest
    return lines


def wrap_name(name: str, width: int = WIDTH, first: str = "", rest: str | None = None) -> list[str]:
    """Wrap a dotted name: whole if it fits, else broken after dots, never inside ``{0...23}``."""
    rest = " " * (cells(first) + 2) if rest is None else rest
    name = middle(clean(name), LONGEST_NAME)
    pieces = _pieces(name, width - cells(first), width - cells(rest), breaks="./")
    return [(rest if at else first) + piece for at, piece in enumerate(pieces)]


def _pieces(word: str, first: int, rest: int, breaks: str = "./_-,:=|") -> list[str]:
    """Break a long word where a reader expects it, so that each piece fits its line."""
    pieces = []
    room = max(first, 8)
    while cells(word) > room:
        cut = _last_break(word, room, breaks)
        pieces.append(word[:cut])
        word, room = word[cut:], max(rest, 8)
    return [*pieces, word]


def _last_break(word: str, room: int, breaks: str) -> int:
    """Return how many characters to take: up to the last break that fits, else as many as fit."""
    fits = taken = depth = best = 0
    for at, char in enumerate(word):
        taken += cells(char)
        if taken > room:
            break
        fits = at + 1
        depth += (char == "{") - (char == "}")
        if depth <= 0 and char in breaks and at >= 3:
            best = at + 1
    return best or max(fits, 1)


def table(rows: Sequence[Sequence[str]], width: int = WIDTH, indent: str = "  ") -> list[str]:
    """Return rows as aligned columns; the first is shortened in its middle where it must be."""
    if not rows:
        return []
    cleaned = [[clean(cell) for cell in row] for row in rows]
    wide = [max(cells(cell) for cell in column) for column in zip(*cleaned, strict=True)]
    others = sum(wide[1:]) + 2 * (len(wide) - 1) + len(indent)
    wide[0] = max(min(wide[0], width - others), 12)
    lines = []
    for name, *others_of in cleaned:
        row = [middle(name, wide[0]), *others_of]
        padded = [cell + " " * (size - cells(cell)) for cell, size in zip(row, wide, strict=True)]
        lines.append((indent + "  ".join(padded)).rstrip())
    return lines


def verdict(
    ok: bool | None, line: str, width: int = WIDTH, colour: bool = False, unicode: bool = True
) -> list[str]:
    """Return the verdict: its glyph, then one sentence, wrapped under itself."""
    state = verdict_state(ok)
    lines = wrap(line, width, first=f"{glyph(state, unicode)} ")
    return [paint(text, state, colour, bold=True) for text in lines]


def heading(text: str, width: int = WIDTH, colour: bool = False, unicode: bool = True) -> str:
    """Return a section heading with a rule to the right edge."""
    *before, last = wrap(clean(text), width)
    rule = ("─" if unicode else "-") * (width - cells(last) - 1)
    ruled = (
        f"{strong(last, colour)} {paint(rule, 'quiet', colour)}" if rule else strong(last, colour)
    )
    return "\n".join([*(strong(line, colour) for line in before), ruled])


def group_line(
    state: str,
    name: str,
    facts: Iterable[str] = (),
    *,
    width: int = WIDTH,
    indent: str = "  ",
    colour: bool = False,
    unicode: bool = True,
) -> list[str]:
    """Return one group: glyph, ``layers.{0...23}.q_proj.weight``, its facts at the right."""
    sign = glyph(state, unicode)
    right = "  ".join(clean(fact) for fact in facts if fact)
    lines = wrap_name(name, width, first=f"{indent}{sign} ", rest=indent + "    ")
    gap = width - cells(lines[-1]) - cells(right)
    if right and gap >= 2:
        lines[-1] += " " * gap + right
    elif right:
        lines += wrap(right, width, first=indent + "    ")
    head = len(indent) + len(sign)
    lines[0] = indent + paint(sign, state, colour) + lines[0][head:]
    return lines


def finding(
    item: Finding, width: int = WIDTH, colour: bool = False, unicode: bool = True
) -> list[str]:
    """Return one finding: title, detail, evidence for (+) and against (-), and the next step."""
    sign = glyph(item.severity, unicode)
    lines = wrap(item.title, width, first=f"{sign} ")
    lines[0] = paint(sign, item.severity, colour) + " " + strong(lines[0][len(sign) + 1 :], colour)
    lines[1:] = [strong(line, colour) for line in lines[1:]]
    if item.detail:
        lines += wrap(item.detail, width, first="  ")
    for text in item.evidence_for:
        lines += wrap(text, width, first="  + ")
    for text in item.evidence_against:
        lines += wrap(text, width, first="  - ")
    if SURE[item.confidence]:
        lines += wrap(SURE[item.confidence], width, first="  confidence: ")
    if item.place:
        lines += wrap(item.place, width, first="  at ")
    if item.experiment:
        for name, said in plan(item.experiment):
            lines += wrap(said, width, first=f"  {'try' if name == 'change' else '  ' + name}: ")
    if item.next_step:
        lines += wrap(item.next_step, width, first="  next: ")
    return lines


def plan(item: Experiment) -> list[tuple[str, str]]:
    """Return what an experiment says, as name and text, without what it leaves empty."""
    rows = [("change", item.change), ("if right", item.if_right), ("if wrong", item.if_wrong)]
    return [
        (name, said) for name, said in [*rows, ("cost", item.cost), ("undo", item.undo)] if said
    ]


class Page:
    """The lines of a result's text as they are collected, and the terminal they are for.

    Parameters
    ----------
    width
        Columns to write for; by default those of the terminal.
    colour
        Whether to add colours; text that is stored has none.
    """

    def __init__(self, width: int | None = None, *, colour: bool = False) -> None:
        self.width, self.colour, self.unicode = columns(width), colour, unicode_wanted()
        self.out: list[str] = []

    def __str__(self) -> str:
        whole = "\n".join(self.out)
        return whole if self.unicode else plain(whole)

    def add(self, more: Iterable[str]) -> None:
        """Add finished lines."""
        self.out += more

    def prose(self, words: str, first: str = "  ") -> None:
        """Add wrapped text that begins with `first` and hangs under it."""
        self.out += wrap(words, self.width, first=first)

    def heading(self, words: str) -> None:
        """Begin a section."""
        lines = heading(words, self.width, self.colour, self.unicode)
        self.out += ["", *lines.split("\n")]

    def group(self, state: str, name: str, *facts: str) -> None:
        """Add one line of `group_line`."""
        self.out += group_line(
            state, name, facts, width=self.width, colour=self.colour, unicode=self.unicode
        )

    def verdict(self, ok: bool | None, line: str) -> None:
        """Add the verdict."""
        self.out += verdict(ok, line, self.width, self.colour, self.unicode)

    def finding(self, item: Finding) -> None:
        """Add one finding."""
        self.out += finding(item, self.width, self.colour, self.unicode)
