"""What the watch shows: a live screen on a terminal, an output in a notebook, else a line a change."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from workbench.core import progress
from workbench.core.bars import by_hand
from workbench.errors import clean
from workbench.hang.watch.records import Member, Recorded, Sight, Stage

Show = Callable[[Sight, tuple[Recorded, ...]], None]

WORDS: dict[Stage, str] = {
    "waiting": "waiting for a server",
    "starting": "starting",
    "working": "working",
    "idle": "idle",
    "quiet": "quiet",
    "still": "no progress",
    "dead": "a process has ended",
    "ended": "the server has ended",
}
_COLOURS: dict[Stage, str] = {
    "working": "green", "idle": "green", "starting": "yellow", "still": "red", "dead": "red",
}  # fmt: skip
_MOST_CASES = 5
_MOST_MEMBERS = 24


@contextmanager
def screen() -> Iterator[Show]:
    """Return what shows a sight, wherever somebody looks."""
    if progress.is_watched():
        yield _to_watcher
    elif by_hand():
        yield _Notebook().show
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        # Drawn when something was read, not by a clock of its own: that would cost more than the watch.
        with Live(console=Console(stderr=True), auto_refresh=False) as live:
            yield lambda sight, cases: live.update(_table(sight, cases), refresh=True)
    else:
        yield _Lines().show


def heading(sight: Sight) -> str:
    """Return a sight in one line."""
    still = f" for {sight.still_for:,.0f} s" if sight.stage in ("still", "starting") else ""
    return clean(f"{WORDS[sight.stage]}{still}: {sight.reason}")


def rows(sight: Sight) -> list[tuple[str, str]]:
    """Return what was read, as names and values."""
    reading = sight.reading
    if reading is None:
        return []
    log = reading.log
    found = [("log", f"{log.batches:,} batches" if reading.ready else log.last or "no step yet")]
    if reading.answers.pending is not None:
        found.append(("requests", f"{reading.answers.pending:,.0f} pending by /metrics"))
    if reading.load is not None:
        found.append(("GPUs", f"{reading.load:.0f} %, {reading.watts or 0:,.0f} W"))
    found += [(m.name, _member(m)) for m in reading.members[:_MOST_MEMBERS]]
    more = len(reading.members) - _MOST_MEMBERS
    return found + ([("", f"and {more} more processes")] if more > 0 else [])


def _member(member: Member) -> str:
    return f"state {member.state}, {member.cpu:,.1f} s CPU of its main thread"


def _case(case: Recorded) -> str:
    return clean(f"{case.path.name}: {case.sentence}")


def _table(sight: Sight, cases: tuple[Recorded, ...]) -> Any:
    from rich.table import Table
    from rich.text import Text

    title = Text(heading(sight), style=f"bold {_COLOURS.get(sight.stage, 'default')}")
    table = Table(title=title, title_justify="left", show_header=False, box=None)
    for name, value in rows(sight):
        table.add_row(Text(clean(name)), Text(clean(value)))
    for case in cases[-_MOST_CASES:]:
        table.add_row(Text("case"), Text(_case(case)))
    return table


class _Lines:
    """One line where the stage changes: for a journal or a container's log."""

    def __init__(self) -> None:
        self._stage: tuple[str, str] | None = None
        self._cases = 0

    def show(self, sight: Sight, cases: tuple[Recorded, ...]) -> None:
        """Write what is new."""
        recording = sight.reason if sight.reason.startswith("recording") else ""
        stage = (sight.stage, recording)
        if stage != self._stage:
            self._write(heading(sight))
        if len(cases) > self._cases:
            self._write(f"recorded {_case(cases[-1])}")
        self._stage, self._cases = stage, len(cases)

    def _write(self, text: str) -> None:
        if sys.stderr is not None:
            print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


class _Notebook:
    """One output that is updated; what stays in a saved notebook is text, not a dead widget."""

    def __init__(self) -> None:
        from IPython.display import display

        show: Any = display
        self._place = show({"text/plain": "watching"}, raw=True, display_id=True)

    def show(self, sight: Sight, cases: tuple[Recorded, ...]) -> None:
        """Replace the output."""
        found = [*rows(sight), *(("case", _case(case)) for case in cases[-_MOST_CASES:])]
        plain = "\n".join([heading(sight), *(f"  {name}: {clean(value)}" for name, value in found)])
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(clean(value))}</td></tr>"
            for name, value in found
        )
        page = f"<p><b>{html.escape(heading(sight))}</b></p><table>{cells}</table>"
        self._place.update({"text/plain": plain, "text/html": page}, raw=True)


def _to_watcher(sight: Sight, cases: tuple[Recorded, ...]) -> None:
    progress.say(heading(sight), f"{len(cases)} cases" if cases else "")
