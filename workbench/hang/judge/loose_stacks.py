"""Stacks that say nothing of their ranks: where they are, and what is missing to judge them."""

from __future__ import annotations

from workbench.hang.judge import waits, wording
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.judge.rules import Rule

_MOST = 3


def without_ranks(group: RankGroup, rule: Rule) -> Rule:
    """Return the rule for stacks without ranks, where no other applies: it says where they are."""
    if rule.code not in ("R16", "R1") or group.alive or not group.loose:
        return rule
    return Rule(
        "loose_stacks",
        "cannot_tell",
        lambda group, phase: True,
        f"of {_count(group)} it is not known of which rank it is, and a second snapshot is missing"
        f"{_places(group)}",
        "a stack without its rank shows the phase; who is behind needs the stacks of all ranks by name",
        ("second_snapshot",),
        unknown="the rank of each stack, and whether it moves: take two snapshots of all ranks",
    )


def _count(group: RankGroup) -> str:
    number = len(group.loose)
    return "the one stack" if number == 1 else f"each of {number} stacks"


def _places(group: RankGroup) -> str:
    """Return where the stacks are, each place once."""
    told: dict[str, None] = {}
    for dump in group.loose:
        thread = waits.thread_of_interest(dump)
        frame = waits.telling_frame(thread.frames) if thread is not None else None
        if frame is not None:
            told[wording.frame_text(frame)] = None
    shown = ", ".join(list(told)[:_MOST])
    return f"; {'they are' if len(group.loose) > 1 else 'it is'} in {shown}" if told else ""
