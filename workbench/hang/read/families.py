"""Who descends from whom: a rank's forked children are its helpers, compilers below it its own."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from workbench.facts.startup import COMPILERS
from workbench.hang.records import Process, Snapshot

_DEEPEST = 64


def with_families(one: Snapshot) -> Snapshot:
    """Return a snapshot in which a rank's children are no ranks, and each rank knows its compilers.

    A child that was forked, or that is between fork and exec, shows the title, the command line and the
    variables of its parent: of the processes with one rank the one highest in the tree is the rank.
    """
    by_pid = {process.pid: process for process in one.processes}
    compilers: dict[int, set[str]] = defaultdict(set)
    found = []
    for process in one.processes:
        owner = _rank_above(process, by_pid)
        if owner is not None and process.rank is not None and _alike(process, owner):
            process = dataclasses.replace(process, role="other", rank=None)  # noqa: PLW2901
        elif owner is not None and process.role == "compiler" and process.state not in ("Z", "X"):
            compilers[owner.pid].add(_program(process))
        found.append(process)
    return dataclasses.replace(
        one,
        processes=tuple(
            dataclasses.replace(
                process, compilers=tuple(sorted({*process.compilers, *compilers[process.pid]}))
            )
            if process.pid in compilers
            else process
            for process in found
        ),
    )


def _rank_above(process: Process, by_pid: Mapping[int, Process]) -> Process | None:
    """Return the highest ancestor with the same rank, or else the nearest one that is a rank."""
    nearest = highest = None
    seen = {process.pid}
    parent = process.parent
    while parent is not None and parent in by_pid and parent not in seen and len(seen) < _DEEPEST:
        seen.add(parent)
        above = by_pid[parent]
        if above.rank is not None and above.host == process.host:
            nearest = nearest or above
            if process.rank is not None and _alike(process, above):
                highest = above
        parent = above.parent
    return highest or nearest


def _alike(one: Process, other: Process) -> bool:
    return one.rank is not None and one.rank == other.rank


def _program(process: Process) -> str:
    words = process.title.split(None, 1)
    name = words[0].rpartition("/")[2].strip("[]") if words else ""
    return name if name in COMPILERS else "a compiler"
