"""A document as text for a terminal: at most as wide as asked for, in colour only where asked for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator

from workbench.core.commands import broken
from workbench.core.wording import cells, middle, plural
from workbench.display import text as lines
from workbench.display.text import Page, plan
from workbench.errors import clean
from workbench.views.parts import (
    Answer,
    Bar,
    Cell,
    Code,
    Document,
    Facts,
    Findings,
    Groups,
    Heading,
    Outline,
    Part,
    Picture,
    Plan,
    Prose,
    Sign,
    Table,
    plural_of,
)

_BAR = 16  # columns of a bar
_DOUBTS = 12  # open items that are listed one by one


def lower(document: Document, width: int | None = None, *, colour: bool = False) -> str:
    """Return a document as text.

    Parameters
    ----------
    width
        Columns to write for; by default the terminal's, else 80.
    colour
        Whether to add colours; they carry no meaning of their own. Stored text has none.
    """
    return lower_parts(document.parts, width, colour=colour)


def lower_parts(parts: Iterable[Part], width: int | None = None, *, colour: bool = False) -> str:
    """Return some parts as text; the parameters are those of `lower`."""
    page = Page(width, colour=colour)
    for part in parts:
        add(part, page)
    return str(page)


def show(document: Document) -> str:
    """Return a document for standard output: coloured where that is a terminal that wants it."""
    return lower(document, colour=lines.colour_wanted(sys.stdout))


@functools.singledispatch
def add(part: Part, page: Page) -> None:
    """Add one part to a page."""
    raise TypeError(f"{type(part).__name__} cannot be text")


@add.register
def _answer(part: Answer, page: Page) -> None:
    page.verdict(part.ok, part.sentence)
    if part.sure:
        page.prose(part.sure, "  confidence: ")
    if part.next_step:
        page.prose(part.next_step, "  next: ")
    if part.checked:
        page.prose(", ".join(part.checked), "  checked: ")
    for open_item in part.unchecked[:_DOUBTS]:
        page.prose(open_item, "  not checked: ")
    if len(part.unchecked) > _DOUBTS:
        page.prose(f"… and {len(part.unchecked) - _DOUBTS:,} more not checked", "  ")
    for said in part.overturned_by:
        page.prose(said, "  overturned by: ")


@add.register
def _facts(part: Facts, page: Page) -> None:
    for name, value in part.rows:
        page.prose(value, f"  {clean(name.lower())}: ")


@add.register
def _findings(part: Findings, page: Page) -> None:
    if not part.findings:
        return
    page.heading(part.title)
    for item in part.findings:
        page.finding(item)


@add.register
def _heading(part: Heading, page: Page) -> None:
    page.heading(part.text)


@add.register
def _prose(part: Prose, page: Page) -> None:
    page.prose(part.text, f"  {clean(part.lead)}")


@add.register
def _code(part: Code, page: Page) -> None:
    lines = (
        broken(part.text, page.width, "  ") if part.command else kept_lines(part.text, page.width)
    )
    page.add(lines)


def kept_lines(text: str, width: int) -> Iterator[str]:
    """Yield lines that keep their places; what is longer than the page goes on in the next line."""
    room = width - 2
    for line in (clean(line).rstrip() for line in text.split("\n")):
        left = line
        while cells(left) > room:
            fits = room
            while cells(left[:fits]) > room:
                fits -= 1
            yield "  " + left[:fits].rstrip()
            left = left[fits:]
        yield f"  {left}".rstrip()


@add.register
def _table(part: Table, page: Page) -> None:
    rows = [[_cell(cell, page) for cell in row] for row in part.rows[: part.shown]]
    if any(part.head):
        rows.insert(0, list(part.head))
    columns = max(map(len, rows), default=0)
    rows = [row + [""] * (columns - len(row)) for row in rows]
    wide = sum(max(map(cells, column)) + 2 for column in zip(*rows, strict=True))
    if wide > page.width:  # a bar says nothing that its row does not say in numbers
        bars = {at for row in part.rows for at, cell in enumerate(row) if isinstance(cell, Bar)}
        rows = [[cell for at, cell in enumerate(row) if at not in bars] for row in rows]
    page.add(lines.table(rows, page.width))
    _more(page, len(part.rows) - part.shown, part.noun)


def _cell(cell: Cell, page: Page) -> str:
    if isinstance(cell, Sign):
        return f"{lines.glyph(cell.state, page.unicode)} {cell.text}".rstrip()
    return bar(cell, page.unicode) if isinstance(cell, Bar) else cell


def bar(item: Bar, unicode: bool = True, columns: int = _BAR) -> str:
    """Return a bar as characters."""
    full, faint, empty = ("█", "▒", "·") if unicode else ("#", "=", ".")
    left = min(int(item.start * columns), columns - 1)
    right = min(max(round(item.end * columns), left + (item.end > item.start)), columns)
    filled = (faint if item.open else full) * (right - left)
    return empty * left + filled + empty * (columns - left - len(filled))


@add.register
def _groups(part: Groups, page: Page) -> None:
    for row in part.rows[: part.shown]:
        page.group(row.state, row.name, *row.facts)
        for lead, said in row.lines:
            page.prose(said, f"      {clean(lead)}")
    _more(page, max(len(part.rows) - part.shown, 0) + part.left_out, part.noun)


@add.register
def _outline(part: Outline, page: Page) -> None:
    for lead, said in branches(part, page.width // 4, page.width // 10, page.unicode):
        page.prose(said, f"  {lead}")
    _more(page, len(part.rows) - part.shown, "branch")


def branches(
    part: Outline, widest: int = 40, deepest: int = 24, unicode: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the lines of an outline: what each begins with, labels aligned, and its text."""
    shown = part.rows[: part.shown]
    labels = [middle(clean(row.label), widest) for row in shown]
    wide = max(map(cells, labels), default=0)
    for row, label in zip(shown, labels, strict=True):
        corner = ("└ " if unicode else "` ") if row.depth else ""
        indent = "  " * min(row.depth, deepest)
        mark = "~" if row.moving else " "
        yield f"{label}{' ' * (wide - cells(label))} {mark}{indent}{corner}", clean(row.text)


@add.register
def _plan(part: Plan, page: Page) -> None:
    page.heading(part.title)
    for name, said in plan(part.experiment):
        page.prose(said, f"  {name + ':':<10}")


@add.register
def _picture(part: Picture, page: Page) -> None:
    page.add(kept_lines(part.text, page.width))


def _more(page: Page, count: int, noun: str) -> None:
    if count > 0:
        page.prose(f"… and {plural(count, f'more {noun}', f'more {plural_of(noun)}')}", "    ")
