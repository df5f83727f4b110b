"""What cannot be: a counter that falls, clocks that disagree. Then the evidence does not say what moved."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from workbench.hang.judge.rules import Rule
from workbench.hang.records import Clocks, Dump, Process, Scene, Snapshot, State

# Seconds that two clocks may differ over one interval.
_AGREE = 1.0
# What rounding may take off a counter.
_ROUNDED = 0.05
# CPU seconds a second below which a process that runs in both snapshots contradicts the clock: it does not
# wait, so it should have used nearly all of the time.
_RUNS = 0.1
# States that say what moved, or how long; the others rest on a signal or an exit code.
_TIMED: frozenset[State] = frozenset({"hung", "slow", "idle", "serving", "dead_rank"})


def checked(rule: Rule, scene: Scene) -> Rule:
    """Return the rule, or "cannot tell" where it rests on times that cannot be."""
    if rule.state not in _TIMED:
        return rule
    why = next(impossible(scene, hung=rule.state == "hung"), "")
    return _cannot_tell(why) if why else rule


def _cannot_tell(why: str) -> Rule:
    return Rule(
        "clocks",
        "cannot_tell",
        lambda group, phase: True,
        why,
        "what moved between the snapshots, and how fast, is not known",
        ("second_snapshot",),
        unknown="what moved between the snapshots: their times or counters contradict each other",
    )


def impossible(scene: Scene, *, hung: bool) -> Iterator[str]:
    """Yield what cannot be of the snapshots of each host.

    Parameters
    ----------
    scene
        What was seen.
    hung
        Whether also to look for ranks that ran in both snapshots and used hardly any CPU time, which
        contradicts "hung" and nothing else.
    """
    hosts: dict[str, list[Snapshot]] = defaultdict(list)
    for snapshot in sorted(scene.snapshots, key=lambda one: one.at):
        if any(process.state is not None for process in snapshot.processes):
            hosts[snapshot.host].append(snapshot)
    for snapshots in hosts.values():
        for first, second in itertools.pairwise(snapshots):
            yield from _clocks(first, second)
            for before, after in _pairs(first, second):
                yield from _counters(before, after)
                yield from _cpu(first, second, before, after, hung=hung)


def _clocks(first: Snapshot, second: Snapshot) -> Iterator[str]:
    if first.clocks is None or second.clocks is None:
        return
    passed = Clocks(*(b - a for a, b in zip(first.clocks.all, second.clocks.all, strict=True)))
    if passed.boot < 0 or passed.monotonic < 0:
        yield "the machine was started again between the snapshots, or they are in the wrong order"
    elif abs(passed.wall - passed.boot) > _AGREE:
        yield (
            f"the clock was set between the snapshots: {passed.wall:+,.0f} s by the clock, "
            f"{passed.boot:,.0f} s since boot"
        )
    elif passed.boot - passed.monotonic > _AGREE:
        yield (
            f"the machine slept for {passed.boot - passed.monotonic:,.0f} s between the snapshots"
        )


def _pairs(first: Snapshot, second: Snapshot) -> Iterator[tuple[Process, Process]]:
    """Yield each process that both snapshots have."""
    known = {process.pid: process for process in first.processes}
    for after in second.processes:
        before = known.get(after.pid)
        if before is not None and _same(before, after):
            yield before, after


def _same(before: Process, after: Process) -> bool:
    """Whether it is one process: by its start since boot, which no step of the clock changes."""
    if before.started_boot is not None and after.started_boot is not None:
        return abs(before.started_boot - after.started_boot) < _AGREE
    return before.started == after.started


_COUNTERS = (
    ("cpu_seconds", "its CPU time"),
    ("main_cpu_seconds", "the CPU time of its main thread"),
    ("read_bytes", "its bytes read"),
    ("written_bytes", "its bytes written"),
)


def _counters(before: Process, after: Process) -> Iterator[str]:
    for name, words in _COUNTERS:
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and other is not None and other < one - _ROUNDED:
            yield f"a counter falls: of pid {after.pid} {words} goes from {one:,.1f} to {other:,.1f}"


def _cpu(
    first: Snapshot, second: Snapshot, before: Process, after: Process, *, hung: bool
) -> Iterator[str]:
    seconds = second.at - first.at
    main = _passed(before.main_cpu_seconds, after.main_cpu_seconds)
    if main is not None and main > seconds + _AGREE:
        yield f"one thread of pid {after.pid} used {main:,.1f} s of CPU time in {seconds:,.1f} s"
    used = main if main is not None else _passed(before.cpu_seconds, after.cpu_seconds)
    runs = before.state == after.state == "R"
    runs = runs and _active(first, before.pid) and _active(second, after.pid)
    if hung and runs and used is not None and seconds > 1 and used / seconds < _RUNS:
        yield (
            f"pid {after.pid} runs in both snapshots, and used {used:,.1f} s of CPU time in "
            f"{seconds:,.0f} s by the clock"
        )


def _passed(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _active(snapshot: Snapshot, pid: int) -> bool:
    """Whether a dump says that the main thread was on the CPU."""
    dumps: list[Dump] = [one for one in snapshot.dumps if one.pid == pid and one.main is not None]
    return any(one.main is not None and one.main.active is True for one in dumps)
