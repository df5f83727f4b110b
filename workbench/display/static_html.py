"""A document as static HTML: what is left where no script runs, and where no style sheet is kept.

JupyterLab's sanitizer keeps plain elements and style attributes in a notebook that is not trusted, GitHub's
keeps elements alone, and mail and print keep what they like. So everything here is said by elements and
words; style attributes only make it look better.
"""

from __future__ import annotations

import functools

from workbench.core.finding import SURE, Experiment, Finding
from workbench.core.palette import verdict_state
from workbench.core.result import Result
from workbench.core.wording import middle, plural
from workbench.display.html import base64_png, code_lines, escape, prose, sign
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
    Group,
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
_MONO = "font-family:monospace;font-size:13px"
_CELL = "padding:3px 14px 3px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere"
_QUIET = "opacity:0.75"


def static(result: Result) -> str:
    """Return a result as static HTML, with all of its doubts."""
    return lower(result.document())


def lower(document: Document) -> str:
    """Return a document as static HTML."""
    body = "".join(map(lower_part, document.parts))
    return f'<div style="line-height:1.5;max-width:1240px">{body}</div>'


@functools.singledispatch
def lower_part(part: Part) -> str:
    """Return one part as HTML."""
    raise TypeError(f"{type(part).__name__} cannot be HTML")


@lower_part.register
def _answer(part: Answer) -> str:
    line = f"{sign(verdict_state(part.ok))} {prose(part.sentence)}"
    said = [("Confidence", part.sure)] if part.sure else []
    if part.next_step:
        said.append(("Next", part.next_step))
    if part.checked:
        said.append(("Checked", ", ".join(part.checked)))
    said += [("Not checked", text) for text in part.unchecked]
    said += [("Overturned by", text) for text in part.overturned_by]
    rows = "".join(f"<li><b>{name}:</b> {prose(text)}</li>" for name, text in said)
    doubts = f'<ul style="margin:0 0 12px;padding-left:20px">{rows}</ul>' if rows else ""
    return f'<p style="font-size:20px;margin:0 0 6px"><b>{line}</b></p>{doubts}'


@lower_part.register
def _facts(part: Facts) -> str:
    if not part.rows:
        return ""
    said = [
        f'<span style="{_QUIET}">{escape(name)}:</span> {prose(value)}' for name, value in part.rows
    ]
    return f'<p style="margin:0 0 16px">{" &nbsp;·&nbsp; ".join(said)}</p>'


@lower_part.register
def _findings(part: Findings) -> str:
    if not part.findings:
        return ""
    return _title(part.title) + "".join(map(_finding, part.findings))


def _finding(item: Finding) -> str:
    inside = [f"<div>{prose(item.detail)}</div>"] if item.detail else []
    if SURE[item.confidence]:
        inside.append(f"<div><b>Confidence:</b> {SURE[item.confidence]}</div>")
    inside += [f"<div>+ {prose(text)}</div>" for text in item.evidence_for]
    inside += [f"<div>− {prose(text)}</div>" for text in item.evidence_against]
    if item.experiment:
        inside.append(_plan_list(item.experiment))
    if item.next_step:
        inside.append(f"<div><b>Next:</b> {prose(item.next_step)}</div>")
    if item.place:
        inside.append(f'<div style="{_QUIET}">at {escape(item.place)}</div>')
    sure = f" <i>({SURE[item.confidence]})</i>" if SURE[item.confidence] else ""
    opened = "" if item.severity == "note" else " open"
    return (
        f'<details style="margin:0 0 10px"{opened}><summary>{sign(item.severity)} '
        f"<b>{prose(item.title)}</b>{sure}</summary>"
        f'<div style="margin:2px 0 0 20px">{"".join(inside)}</div></details>'
    )


def _title(text: str) -> str:
    return f'<p style="margin:14px 0 4px"><b>{prose(text)}</b></p>'


@lower_part.register
def _heading(part: Heading) -> str:
    return _title(part.text)


@lower_part.register
def _prose(part: Prose) -> str:
    lead = f"<b>{escape(part.lead.strip().capitalize())}</b> " if part.lead.strip() else ""
    return f'<p style="margin:0 0 8px">{lead}{prose(part.text)}</p>'


@lower_part.register
def _code(part: Code) -> str:
    return f'<pre style="{_MONO};margin:0 0 8px;overflow-x:auto">{code_lines(part.text)}</pre>'


@lower_part.register
def _table(part: Table) -> str:
    cells = "".join(f'<td style="{_CELL};{_QUIET}">{escape(name)}</td>' for name in part.head)
    head = f"<tr>{cells}</tr>" if any(part.head) else ""
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in part.rows[: part.shown])
    return _grid(head + rows) + _more(len(part.rows) - part.shown, part.noun)


def _cell(cell: Cell) -> str:
    if isinstance(cell, Sign):
        return f'<td style="{_CELL}">{sign(cell.state)} {escape(cell.text)}</td>'
    if isinstance(cell, Bar):
        return f'<td style="{_CELL};{_MONO};white-space:pre">{bar(cell)}</td>'
    return f'<td style="{_CELL};{_MONO}">{escape(middle(clean(cell), _LONGEST))}</td>'


@lower_part.register
def _groups(part: Groups) -> str:
    rows = "".join(map(_group, part.rows[: part.shown]))
    left = max(len(part.rows) - part.shown, 0) + part.left_out
    return _grid(rows) + _more(left, part.noun)


def _group(row: Group) -> str:
    state = "" if row.state in row.facts else f" {escape(row.state.replace('_', ' '))}"
    lines = "".join(f"<br>{escape(lead)}{prose(text)}" for lead, text in row.lines)
    facts = " &nbsp; ".join(escape(fact) for fact in row.facts if fact)
    return (
        f'<tr><td style="{_CELL};white-space:nowrap">{sign(row.state)}{state}</td>'
        f'<td style="{_CELL}"><code>{escape(middle(clean(row.name), _LONGEST))}</code>{lines}</td>'
        f'<td style="{_CELL}">{facts}</td></tr>'
    )


@lower_part.register
def _outline(part: Outline) -> str:
    drawing = "\n".join(lead + said for lead, said in branches(part))
    return lower_part(Code(drawing)) + _more(len(part.rows) - part.shown, "branch")


@lower_part.register
def _plan(part: Plan) -> str:
    return _title(part.title) + _plan_list(part.experiment)


def _plan_list(item: Experiment) -> str:
    rows = "".join(f"<li><b>{name}:</b> {prose(said)}</li>" for name, said in plan(item))
    return f'<ul style="margin:0 0 8px;padding-left:20px">{rows}</ul>'


@lower_part.register
def _picture(part: Picture) -> str:
    source = f"data:image/png;base64,{base64_png(part.png)}"
    return f'<img style="max-width:100%" alt="{escape(part.alt)}" src="{source}">'


def _grid(rows: str) -> str:
    return (
        f'<table style="border-collapse:collapse;margin:6px 0 10px">{rows}</table>' if rows else ""
    )


def _more(count: int, noun: str) -> str:
    if count <= 0:
        return ""
    said = plural(count, f"more {noun}", f"more {plural_of(noun)}")
    return f'<p style="{_QUIET};margin:0 0 8px">… and {said}.</p>'
