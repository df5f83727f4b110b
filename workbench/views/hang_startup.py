"""The start-up of a diagnosis: a row for each stage on one axis of time, and the quick ones together."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from workbench.hang.diagnosis_records import Span
from workbench.hang.judge import wording
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.views.parts import Bar, Cell, Heading, Part, Prose, Sign, Table

_COLUMNS = 16  # of a bar; what takes less than one of them is quick
_LATER = 5.0  # seconds without a new phase that are worth a line


@dataclasses.dataclass(frozen=True, slots=True)
class _Stage:
    """One stage of the start-up over all ranks, in seconds from its beginning."""

    name: str
    begin: float
    end: float
    opened: int
    ranks: int

    def column(self, whole: float) -> int | None:
        """Return the one column of the bar that it takes, None where it takes more."""
        left, right = (round(at / whole * _COLUMNS) for at in (self.begin, self.end))
        return left if right - left <= 1 else None


def start_up(diagnosis: HangDiagnosis) -> Iterator[Part]:
    """Yield the start-up by the log, where its lines have times."""
    known = [span for span in diagnosis.timeline if span.begin is not None]
    if not known:
        return
    start = min(span.begin for span in known if span.begin is not None)
    whole = max(wording.end_of(diagnosis, known) - start, 1e-9)
    stages = [_stage(label, spans, start, whole) for label, spans in wording.stages(known)]
    yield Heading(f"Start-up by the log, from {wording.clock(start)}")
    yield Table(("", "", "", ""), tuple(_rows(stages, whole)), noun="stage")
    if diagnosis.ok is not True and not any(stage.opened for stage in stages):
        after = whole - max(stage.end for stage in stages)
        if after > _LATER:
            yield Prose(f"the log has no further phase for {wording.duration(after)}")
    if diagnosis.silent_for is not None and diagnosis.silent_for > 0:
        yield Prose(f"then the log is silent for {wording.duration(diagnosis.silent_for)}")


def _stage(label: str, spans: Sequence[Span], start: float, whole: float) -> _Stage:
    begin = min(span.begin for span in spans if span.begin is not None) - start
    ended = [span.end - start for span in spans if span.end is not None]
    opened = len(spans) - len(ended)
    last = whole if opened else max(ended, default=whole)
    return _Stage(label, begin, last, opened, len(spans))


def _rows(stages: Sequence[_Stage], whole: float) -> Iterator[tuple[Cell, ...]]:
    """Yield a row a stage; of three or more that pass within one column, one row together."""

    def quick(stage: _Stage) -> int | None:
        return None if stage.opened else stage.column(whole)

    for column, run in itertools.groupby(stages, quick):
        alike = list(run)
        if column is None or len(alike) < 3:
            yield from (_row(stage, whole) for stage in alike)
            continue
        end = max(stage.end for stage in alike)
        took = f"together {wording.duration(end - alike[0].begin)}"
        names = f"{alike[0].name} to {alike[-1].name}"
        yield _cells("ok", names, alike[0].begin, end, whole, took)


def _row(stage: _Stage, whole: float) -> tuple[Cell, ...]:
    state = "unsure" if stage.opened else "ok"
    took = wording.duration(stage.end - stage.begin)
    if stage.opened:
        all_open = stage.opened == stage.ranks
        took = "never ended" if all_open else f"{stage.opened}/{stage.ranks} not ended"
    return _cells(state, stage.name, stage.begin, stage.end, whole, took, bool(stage.opened))


def _cells(
    state: str, name: str, begin: float, end: float, whole: float, took: str, opened: bool = False
) -> tuple[Cell, ...]:
    last = max(end, begin + whole / 100)  # a moment shows, too
    bar = Bar(min(begin / whole, 1.0), min(last / whole, 1.0), opened)
    return Sign(state, name), _since(begin), bar, took


def _since(seconds: float) -> str:
    """Return a time after the beginning in few characters: ``+9.4 s``, ``+53 s``, ``+1:51``."""
    if seconds < 59.5:
        return f"+{wording.duration(seconds)}"
    minutes, left = divmod(round(seconds), 60)
    return f"+{minutes}:{left:02}"
