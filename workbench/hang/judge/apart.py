"""Whom a rule may name: the ranks that are apart from the others.

The laws that may not be broken: the majority is the scene and not the culprit, an absent rank outranks an odd
one, no rank is accused where all are at one place, where the stack of a rank is missing, or where there is
only one snapshot.
"""

from __future__ import annotations

from collections import Counter

from workbench.hang.judge import votes, waits
from workbench.hang.judge.rank_group import GroupRank, RankGroup
from workbench.hang.records import Rank, WaitClass

_MAY_WORK: tuple[WaitClass, ...] = ("RUNNING", "JIT", "IO", "UNKNOWN")


def apart(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that the others wait for, or none where the rules forbid an accusation."""
    ranks = group.alive
    still = group.frozen or (bool(votes.given_up(group)) and not group.twice)
    if not (group.complete and still) or len(ranks) < 2:
        return ()
    stopped = tuple(rank for rank in ranks if rank.stopped)
    if stopped:
        return stopped if len(stopped) < len(ranks) else ()
    if len({(rank.wait, rank.place) for rank in ranks}) == 1:
        # Where all stacks are alike, NCCL's own counts decide.
        return tuple(r for r in ranks if r.number in group.behind) if _minority(group) else ()
    receiving = group.of("IDLE")
    if receiving and len(receiving) < len(ranks) and all(rank.in_loop for rank in ranks):
        return _behind_the_receive(ranks, receiving)
    waiting = group.of(*waits.FOR_OTHERS)
    device = group.of(*waits.ON_DEVICE)
    busy = tuple(rank for rank in ranks if rank not in waiting and rank not in device)
    if busy:
        return _behind_the_rest(group, busy, waiting + device)
    if waiting and device:
        fewer = len(device) < len(waiting) or len(ranks) == 2
        return device if fewer and len(device) == 1 else ()
    if device:
        return (
            tuple(rank for rank in ranks if rank.number in group.behind) if _minority(group) else ()
        )
    return _one_elsewhere(ranks)


def _behind_the_receive(
    ranks: tuple[GroupRank, ...], receiving: tuple[GroupRank, ...]
) -> tuple[GroupRank, ...]:
    """Return the ranks that have not come back to the receive of the event loop, where the others are.

    Most ranks in a collective of the loop's work and few in the receive: those few may have left it out.
    """
    rest = tuple(r for r in ranks if r not in receiving and not waits.in_pair(r.frames))
    if not rest:  # two ends of a pipeline's connection wait for each other
        return ()
    own_work = tuple(r for r in rest if r.wait not in waits.FOR_OTHERS | waits.ON_DEVICE)
    known = all(rank.wait != "UNKNOWN" for rank in rest)
    fewer = len(rest) < len(receiving) or len(ranks) == 2
    if not known:
        return ()
    # Of those that wait in their work, too, one in a lock or a queue of its own is the one they wait for.
    few_of_all = len(own_work) <= len(ranks) - len(own_work)
    if own_work and (len(own_work) == len(rest) or few_of_all):
        return own_work
    return rest if fewer else ()


def _behind_the_rest(
    group: RankGroup, busy: tuple[GroupRank, ...], waiting: tuple[GroupRank, ...]
) -> tuple[GroupRank, ...]:
    """Return the ranks that have not come to where the others wait."""
    locked = tuple(rank for rank in busy if rank.wait == "LOCK")
    free = tuple(rank for rank in busy if rank.wait != "LOCK")
    if len(locked) > 1 and len(free) == 1 and not waiting:
        return free if free[0].wait not in ("QUEUE", "IPC", "UNKNOWN") else ()  # who holds it
    if not waiting or len(busy) > len(waiting) or any(rank.wait == "UNKNOWN" for rank in busy):
        return ()
    holders = {n for numbers in group.lock_holders.values() for n in numbers}
    if locked and holders & {rank.number for rank in waiting}:
        return ()  # the holder of a lock waits in a collective: neither of them is alone at fault
    return busy


def _one_elsewhere(ranks: tuple[GroupRank, ...]) -> tuple[GroupRank, ...]:
    """Return the one rank of at least three that waits in another collective than all others."""
    places = Counter(rank.place for rank in ranks)
    common, count = places.most_common(1)[0]
    if len(ranks) < 3 or count != len(ranks) - 1:
        return ()
    return tuple(rank for rank in ranks if rank.place != common)


def _minority(group: RankGroup) -> bool:
    return 0 < len(group.behind) < max(len(group.alive) / 2, 1.5)


def apart_at_rest(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that are apart, or none if one of them may compile or compute.

    For a rule that holds of one snapshot: one stack does not show that a rank stays where it is.
    """
    found = apart(group)
    return () if any(rank.wait in _MAY_WORK for rank in found) else found


def stopped_alone(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the stopped and held ranks, or none if that is all ranks of several."""
    stopped = tuple(rank for rank in group.alive if rank.stopped)
    alone = group.expected == 1
    return stopped if len(stopped) < group.expected or alone else ()


def in_another_collective(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the one rank of at least three that by the flight recorder waits in another collective."""
    counts = Counter(group.other_operations.values())
    common, count = counts.most_common(1)[0]
    alone = [n for n, operation in group.other_operations.items() if operation != common]
    if len(alone) != 1 or count < 2:
        return ()
    return tuple(GroupRank(number, Rank(number)) for number in alone)


def silent_to_ras(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks from which NCCL's RAS has no answer."""
    return tuple(GroupRank(number, Rank(number)) for number in group.missing_by_ras)


def died_by_log(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks of which the log says that they died, without an exit code."""
    told = (one.event.facts for one in group.story.errors_of("rank_died"))
    numbers = {int(facts["rank"]) for facts in told if not {"exit_code", "signal"} & set(facts)}
    return tuple(GroupRank(number, Rank(number)) for number in sorted(numbers))


def behind_by_number(group: RankGroup) -> tuple[GroupRank, ...]:
    """Return the ranks that by NCCL's sequence numbers launched fewer collectives."""
    return tuple(GroupRank(number, Rank(number)) for number in votes.behind(group))
