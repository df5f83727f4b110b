"""Verdicts that a notebook shows as text: printed, in a list, as Markdown; and errors.

A text that looks like an all-clear proves nothing, since any cell can print one: only a result that is shown
as such counts as ok. A printed fault or doubt does count: the page may not be better than what is on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import bs4

from workbench.core.palette import TONES, verdict_state
from workbench.display.html import escape
from workbench.export.clean import Shown

_STATES = {TONES[state].glyph: state for state in map(verdict_state, (False, None))}
# The verdict's sentence, wrapped under itself or bold; perhaps the next step; and the first line of what it
# rests on, which no finding has. (A row of a table begins with two blanks.)
_RESTS = r"(?:confidence|checked|not checked|overturned by): "
_VERDICT = re.compile(
    rf"(?<!\n  )(?P<sign>[{''.join(map(re.escape, _STATES))}]) "
    rf"(?P<line>\S[^\n]*(?:\n {{2,}}(?!{_RESTS}|next: |for: |against: )\S[^\n]*){{0,30}})"
    rf"\n+(?:(?:- | *)next: [^\n]*(?:\n {{2,}}(?!{_RESTS})\S[^\n]*){{0,30}}\n)?(?:- | *){_RESTS}"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# As much of one output as is searched.
_MOST = 1 << 20


def printed(text: str) -> Iterator[Shown]:
    """Yield the faults and doubts that a text states in the form of a result's text or Markdown."""
    for found in _VERDICT.finditer("\n" + _COLOURS.sub("", text[:_MOST])):
        line = " ".join(found["line"].replace("**", " ").split())
        yield Shown("", _STATES[found["sign"]], line)


def of_html(text: str) -> Iterator[Shown]:
    """Yield the same of HTML that is no result's."""
    if any(sign in text for sign in _STATES):
        yield from printed(bs4.BeautifulSoup(text[:_MOST], "html.parser").get_text())


def of_error(output: Any) -> Shown:
    """Return what an error among a cell's outputs means for the page: what it stopped is not known."""
    text = f"{output.get('ename') or 'An error'}: {output.get('evalue') or ''}".strip(": ")
    return Shown(
        "", verdict_state(None), f"A cell failed: {' '.join(_COLOURS.sub('', text).split())[:300]}"
    )


def mark(number: int, one: Shown) -> str:
    """Return the mark of a result that a page shows as text: its verdict, and where the page links to."""
    return (
        f'<span id="result-{number}" data-wb-verdict="{escape(f"{one.state}: {one.line}")}"></span>'
    )


def in_box(state: object) -> Iterator[Shown]:
    """Yield the fault or doubt of a result that is in a box of widgets, without its words."""
    line = {"wrong": "A result in a box of widgets is wrong.", "ok": ""}.get(
        str(state), "A result in a box of widgets cannot tell."
    )
    if line:
        yield Shown("", str(state) if state == "wrong" else verdict_state(None), line)
