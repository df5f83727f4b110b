"""What it means that a process was read as halted: stopped, held by a debugger, or only paused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from workbench.hang.collect.collector.halted import SAMPLERS, STOPPED_FOR
from workbench.hang.records import Process

# A tracer that is there in two snapshots this many seconds apart holds the process; a shorter hold may be a
# backtrace.
_LONG = 5.0
# ``stopped``: in state T without a tracer, at more than one moment; ``seen stopped``: at one moment.
# ``held``: by one and the same debugger in two snapshots. ``paused``: by a tracer, for how long is not known.
Halted = Literal["", "stopped", "seen stopped", "held", "paused"]


def halted(sightings: Sequence[Process], apart: float) -> Halted:
    """Say how a process is halted in the last of its sightings, one a snapshot.

    `apart`: seconds between the last two.

    Every collector pauses what it reads, and two may read one server at once: being traced at the moment of
    a snapshot shows nothing about the process itself.
    """
    last = sightings[-1]
    if last.state == "T" and not (last.halt is not None and last.halt.tracer):
        again = len(sightings) > 1 and sightings[-2].state == "T"
        lasted = last.halt is not None and last.halt.seconds >= STOPPED_FOR
        return "stopped" if again or lasted else "seen stopped"
    if last.state in ("T", "t"):
        return "held" if apart >= _LONG and _held(sightings) else "paused"
    return ""


def _held(sightings: Sequence[Process]) -> bool:
    """Whether one tracer that is no profiler held a process throughout the last two snapshots."""
    halts = [process.halt for process in sightings[-2:] if process.state in ("T", "t")]
    known = [halt for halt in halts if halt is not None and halt.seconds >= STOPPED_FOR]
    return (
        len(known) == 2
        and known[0].tracer == known[1].tracer > 0
        and not {halt.program for halt in known} & SAMPLERS
    )


def words(process: Process | None) -> str:
    """Return what halts a process, in words: ``stopped (state T)``, ``held by gdb (pid 812)``."""
    halt = process.halt if process is not None else None
    if process is not None and process.state == "T" and not (halt is not None and halt.tracer):
        return "stopped (state T)"
    if halt is None or not halt.tracer:
        return "held by a tracer that is not known (state t)"
    return f"held by {halt.program or 'a tracer'} (pid {halt.tracer})"
