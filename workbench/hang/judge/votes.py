"""What the log's witnesses say of who is behind: NCCL's sequence numbers, and the engine's own watchdog."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from workbench.hang.judge.phases import MarkedLine, Story
from workbench.hang.judge.rank_group import RankGroup

_RANK = re.compile(r"\bRank (\d{1,5})\]")


def behind_by_sequence(story: Story) -> tuple[int, ...]:
    """Return the ranks whose collectives of one group and operation are behind those of the others.

    torch numbers the collectives of a process group on each rank: of ranks whose watchdogs gave up at the
    same time, one at a lower number has launched fewer. Equal numbers say nothing: the rank that all wait for
    may have launched none and be silent.
    """
    behind: set[int] = set()
    for reached in _reached(story.errors).values():
        most = max(reached.values())
        behind |= {rank for rank, number in reached.items() if number < most}
    return tuple(sorted(behind))


def behind(group: RankGroup) -> tuple[int, ...]:
    """Return the ranks that by the log or by the flight recorder launched fewer collectives."""
    return behind_by_sequence(group.story) or group.behind_by_flight


def _reached(errors: Iterable[MarkedLine]) -> dict[tuple[str, str], dict[int, int]]:
    """Return by group and operation the number of the collective that each rank waited in."""
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for one in errors:
        if one.event.code != "collective_timeout":
            continue
        named = _RANK.search(one.line.text)
        rank = int(named[1]) if named else one.rank
        if rank is not None:
            key = (one.event.facts.get("group", ""), one.event.facts.get("operation", ""))
            found[key][rank] = int(one.event.facts["sequence"])
    return {key: ranks for key, ranks in found.items() if len(ranks) > 1}


def given_up(group: RankGroup) -> tuple[MarkedLine, ...]:
    """Return the lines of the engine's watchdogs that no batch follows: they are evidence of time.

    A watchdog fires when no batch ended for its whole time (300 s by default); a soft one kills nothing.
    """
    lines = group.story.errors_of("watchdog")
    last = max((one.line.number for one in lines), default=0)
    if any(one.line.number > last for one in group.story.batches):
        return ()
    return lines
