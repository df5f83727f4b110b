"""Who ended with which code, as a log tells it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.facts.startup_markers import Event
from workbench.hang.records import LogLine

_NORMAL_END = re.compile(r"\b(?:SIGTERM|SIGINT) received|Gracefully exiting|KeyboardInterrupt")
_END_WORDS = ("received", "Gracefully", "KeyboardInterrupt")  # found faster than a pattern
_REPORTED = re.compile(
    r"^\s*(?:rank\s+: (?P<rank>\d{1,6}) \(local_rank: \d+\)|exitcode\s+: (?P<code>-?\d{1,4}) \(pid: \d+\))"
)
# SIGILL, SIGBUS, SIGKILL, SIGSEGV, as Python and as a shell write them.
_KILLED = frozenset({-4, -7, -9, -11, 132, 135, 137, 139})


def exits(lines: Sequence[LogLine], events: Sequence[Event | None]) -> dict[int, int]:
    """Return the exit codes that the log tells; an end that was asked for is no crash."""
    found: dict[int, int] = {}
    reported: int | None = None
    for line, event in zip(lines, events, strict=True):
        text = line.text
        if any(word in text for word in _END_WORDS) and _NORMAL_END.search(text):
            return found
        # torchrun's report: a rank, then its code
        if " : " in text and (row := _REPORTED.match(text)) is not None:
            if row["rank"] is None and reported is not None:
                found.setdefault(reported, int(row["code"]))
            reported = None if row["rank"] is None else int(row["rank"])
            continue
        if event is None:
            continue
        index, code = _who_ended(event), _code(event)
        if index is not None and code is not None:
            found.setdefault(index, code)
    return found


def _who_ended(event: Event) -> int | None:
    """Return the rank of which a line tells, or the negative of a pid."""
    name = re.fullmatch(r"scheduler_(\d{1,6})", event.facts.get("name", ""))
    if "rank" in event.facts or name:
        return int(event.facts["rank"] if name is None else name[1])
    return -int(event.facts["pid"]) if "pid" in event.facts else None


def _code(event: Event) -> int | None:
    """Return the exit code that a line tells."""
    if "exit_code" in event.facts:
        return int(event.facts["exit_code"])
    return -int(event.facts["signal"]) if "signal" in event.facts else None


def without_victims(codes: dict[int, int]) -> dict[int, int]:
    """Return the exit codes without those of ranks that ended because another was killed.

    A rank whose peer is gone ends with an exception, and so with 1; a signal such as SIGKILL comes from
    outside.
    """
    killed = {index for index, code in codes.items() if code in _KILLED}
    if not any(index >= 0 for index in killed):
        return codes
    return {index: code for index, code in codes.items() if index in killed or code not in (1, 255)}
