"""The start-up of a diagnosis as text: each stage as a bar on one axis of time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.display import text as lines
from workbench.errors import clean
from workbench.hang import words
from workbench.hang.shown import Span

if TYPE_CHECKING:
    from workbench.hang.diagnosis import HangDiagnosis

_BAR = 16
_LABEL = 20
_LATER = 5.0  # seconds without a new phase that are worth a word
_ROOMY = 79  # columns that a line with a bar needs


def start_up(page: lines.Page, diagnosis: HangDiagnosis) -> None:
    """Add the start-up: a line for each stage, and the quick ones together."""
    known = [span for span in diagnosis.timeline if span.begin is not None]
    if not known:
        return
    start = min(span.begin for span in known if span.begin is not None)
    end = words.end_of(diagnosis, known)
    page.heading(f"Start-up by the log, from {words.clock(start)}")
    rows = [_stage(label, told, start, end) for label, told in words.stages(known)]
    for (opened, cell), run in itertools.groupby(rows, lambda row: (row.opened, row.cell)):
        alike = list(run)
        if len(alike) > 2 and not opened and cell is not None:
            _passed(page, alike)
        else:
            for row in alike:
                _stage_line(page, row, end - start)
    if diagnosis.ok is not True and not any(row.opened for row in rows):
        after = end - start - max(row.end for row in rows)
        if after > _LATER:
            page.prose(f"no further phase in the log for {words.duration(after)}")
    if diagnosis.silent_for is not None and diagnosis.silent_for > 0:
        page.prose(f"then the log is silent for {words.duration(diagnosis.silent_for)}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Stage:
    """One stage of the start-up over all ranks, in seconds from its beginning.

    ``cell`` is the one character of the bar that it takes, None where it takes more.
    """

    name: str
    begin: float
    end: float
    opened: int
    ranks: int
    cell: int | None


def _stage(label: str, told: Sequence[Span], start: float, end: float) -> _Stage:
    begin = min(span.begin for span in told if span.begin is not None) - start
    ended = [span.end for span in told if span.end is not None]
    opened = len(told) - len(ended)
    last = (end if opened else max(ended, default=end)) - start
    left, right = _cells(begin, last, end - start)
    return _Stage(clean(label), begin, last, opened, len(told), left if right == left + 1 else None)


def _stage_line(page: lines.Page, stage: _Stage, whole: float) -> None:
    took = words.duration(stage.end - stage.begin)
    if stage.opened:
        took = f"never ended in {stage.opened} of {stage.ranks}"
    state = "unsure" if stage.opened else "ok"
    sign = lines.paint(lines.glyph(state, page.unicode), state, page.colour)
    since = f"+{words.duration(stage.begin)}"
    if page.width < _ROOMY:
        page.prose(f"{lines.middle(stage.name, _LABEL)} {since}: {took}", f"  {sign} ")
        return
    name = lines.middle(stage.name, _LABEL).ljust(_LABEL)
    bar = _bar(stage, whole, page.unicode)
    page.out.append(f"  {sign} {name} {since.rjust(9)}  {bar}  {took}")


def _passed(page: lines.Page, stages: Sequence[_Stage]) -> None:
    """Tell stages that passed too quickly for a bar in one sentence."""
    sign = lines.paint(lines.glyph("ok", page.unicode), "ok", page.colour)
    took = words.duration(max(stage.end for stage in stages) - stages[0].begin)
    names = ", ".join(stage.name for stage in stages)
    page.prose(f"{names}: together {took}", f"  {sign} ")


def _cells(begin: float, end: float, whole: float) -> tuple[int, int]:
    """Return the first and the last but one character of a bar on the axis of the whole start-up."""
    whole = max(whole, 1e-9)
    left = min(int(begin / whole * _BAR), _BAR - 1)
    return left, max(left + 1, round(end / whole * _BAR))


def _bar(stage: _Stage, whole: float, unicode: bool) -> str:
    left, right = _cells(stage.begin, stage.end, whole)
    full, faint, empty = ("█", "▒", "·") if unicode else ("#", "=", ".")
    return (
        empty * left + (faint if stage.opened else full) * (right - left) + empty * (_BAR - right)
    )
