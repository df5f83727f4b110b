"""A document as Markdown: what one pastes into an issue."""

from __future__ import annotations

import functools
import re

from workbench.core.finding import SURE, Finding
from workbench.core.palette import tone, verdict_state
from workbench.core.wording import middle, plural
from workbench.display.terminal import bar, branches
from workbench.display.text import plan
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

_LONGEST = 96  # characters of a cell
_SPECIAL = re.compile(r"([\\*_\[\]<>#|~])")
# What GitHub would turn into a link to somebody or something else: @name, #12, GH-12.
_MENTION = re.compile(r"(?<![\w/])(@|#|GH-)(?=\w)")


def lower(document: Document) -> str:
    """Return a document as Markdown."""
    parts = (lower_part(part).rstrip() for part in document.parts)
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Return text as Markdown shows it unchanged; what is between backticks stays code."""
    pieces = re.split(r"(`[^`\n]+`)", clean(text.replace("\n", " ")))
    return "".join(
        piece if at % 2 else _MENTION.sub("\\1\u2060", _SPECIAL.sub(r"\\\1", piece))
        for at, piece in enumerate(pieces)
    )


def code(text: str) -> str:
    """Return text as inline code, whatever backticks are in it."""
    text = clean(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


@functools.singledispatch
def lower_part(part: Part) -> str:
    """Return one part as Markdown."""
    raise TypeError(f"{type(part).__name__} cannot be Markdown")


@lower_part.register
def _answer(part: Answer) -> str:
    lines = [f"**{tone(verdict_state(part.ok)).glyph} {escape(part.sentence)}**", ""]
    if part.sure:
        lines.append(f"- confidence: {escape(part.sure)}")
    if part.next_step:
        lines.append(f"- next: {escape(part.next_step)}")
    if part.checked:
        lines.append(f"- checked: {escape(', '.join(part.checked))}")
    lines += [f"- not checked: {escape(text)}" for text in part.unchecked]
    lines += [f"- overturned by: {escape(text)}" for text in part.overturned_by]
    return "\n".join(lines)


@lower_part.register
def _facts(part: Facts) -> str:
    return "\n".join(f"- {escape(name.lower())}: {escape(value)}" for name, value in part.rows)


@lower_part.register
def _findings(part: Findings) -> str:
    if not part.findings:
        return ""
    return "\n".join([f"### {escape(part.title)}", "", *map(_finding, part.findings)])


def _finding(item: Finding) -> str:
    sure = f" ({SURE[item.confidence]})" if SURE[item.confidence] else ""
    lines = [f"- {tone(item.severity).glyph} **{escape(item.title)}**{sure}"]
    if item.detail:
        lines.append(f"  - {escape(item.detail)}")
    lines += [f"  - for: {escape(text)}" for text in item.evidence_for]
    lines += [f"  - against: {escape(text)}" for text in item.evidence_against]
    if item.experiment:
        lines += [f"  - {name}: {escape(said)}" for name, said in plan(item.experiment)]
    if item.next_step:
        lines.append(f"  - next: {escape(item.next_step)}")
    if item.place:
        lines.append(f"  - at {code(item.place)}")
    return "\n".join(lines)


@lower_part.register
def _heading(part: Heading) -> str:
    return f"### {escape(part.text)}"


@lower_part.register
def _prose(part: Prose) -> str:
    return escape(f"{part.lead}{part.text}".strip())


@lower_part.register
def _code(part: Code) -> str:
    lines = [clean(line) for line in part.text.split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", part.text)), default=0))
    return "\n".join([fence, *lines, fence])


@lower_part.register
def _table(part: Table) -> str:
    if not part.rows:
        return ""
    columns = max(len(part.head), *map(len, part.rows))
    head = [escape(name) for name in part.head] + [""] * (columns - len(part.head))
    rows = [[_cell(cell) for cell in row] for row in part.rows[: part.shown]]
    lines = [_row(head), _row(["---"] * columns), *map(_row, rows)]
    return "\n".join(lines) + _more(len(part.rows) - part.shown, part.noun)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Sign):
        return f"{tone(cell.state).glyph} {escape(cell.text)}"
    return bar(cell) if isinstance(cell, Bar) else escape(middle(clean(cell), _LONGEST))


@lower_part.register
def _groups(part: Groups) -> str:
    lines = []
    for row in part.rows[: part.shown]:
        facts = ", ".join(escape(fact) for fact in row.facts if fact)
        state = escape(row.state.replace("_", " "))
        lines.append(
            f"- {tone(row.state).glyph} {state}: {code(row.name)}{f' — {facts}' if facts else ''}"
        )
        lines += [f"  - {escape(f'{lead}{text}'.strip())}" for lead, text in row.lines]
    left = max(len(part.rows) - part.shown, 0) + part.left_out
    return "\n".join(lines) + _more(left, part.noun)


@lower_part.register
def _outline(part: Outline) -> str:
    drawing = "\n".join(lead + said for lead, said in branches(part))
    return lower_part(Code(drawing)) + _more(len(part.rows) - part.shown, "branch")


@lower_part.register
def _plan(part: Plan) -> str:
    rows = [f"- {name}: {escape(said)}" for name, said in plan(part.experiment)]
    return "\n".join([f"### {escape(part.title)}", "", *rows])


@lower_part.register
def _picture(part: Picture) -> str:
    return lower_part(Code(part.text))


def _more(count: int, noun: str) -> str:
    if count <= 0:
        return ""
    said = plural(count, f"more {noun}", f"more {plural_of(noun)}")
    return f"\n\n… and {said}"
