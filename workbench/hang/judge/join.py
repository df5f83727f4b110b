"""Join a scene by rank over its snapshots."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from workbench.facts import flags
from workbench.hang.judge import group_facts, phases, waits
from workbench.hang.judge.rank_group import Core, GroupRank, RankGroup
from workbench.hang.judge.tracked_rank import (
    APART,
    BUSY_CPU,
    TrackedRank,
    died,
    rank_of,
    rate,
    stack_of,
)
from workbench.hang.records import (
    Dump,
    Gpu,
    Process,
    Rank,
    Scene,
    Snapshot,
)
from workbench.hang.sizes import whole


def rank_groups(scene: Scene) -> list[RankGroup]:
    """Join a scene by rank, one `RankGroup` a group of ranks that wait for each other."""
    scene = group_facts.bounded(scene)
    version = scene.version if scene.engine == "sglang" else ""
    arguments = flags.normalise(scene.arguments, version)
    given = frozenset(flags.canonical(name, version) for name in scene.arguments)
    attention = (
        arguments.get("enable-dp-attention") == "true" or whole(arguments, "attn-dp-size") > 1
    )
    replicas = 1 if attention else whole(arguments, "dp-size")
    if not attention and "dp-size" not in given:
        replicas = max(replicas, _replicas(scene))
    size = whole(arguments, "tp-size") * whole(arguments, "pp-size")
    if replicas > 1 and not given & {"tp-size", "pp-size"}:
        size = max(size, _widest(scene))
    sure = bool(given & {"tp-size", "pp-size", "dp-size"}) or scene.expected_ranks is not None
    sure = sure and len({number for _, number in scene.sizes}) < 2
    expected = scene.expected_ranks or size * replicas
    seen = _ranks(scene, expected // replicas if replicas > 1 else 0, dict(scene.exits))
    # Where the size is given, the end of a rank beyond it is another launch's.
    exits = {n: code for n, code in scene.exits.items() if n < expected or not sure}
    known = [*seen, *(n for n in exits if n >= 0), *scene.not_collected]
    if max(known, default=-1) >= expected:
        expected, sure = max(known) + 1, False
    prefixed = any(line.rank for log in scene.logs for line in log.lines)
    story = phases.read_story(
        scene.logs,
        version,
        arguments,
        replicas=replicas > 1,
        ranks=expected if sure or known or prefixed else 1,
        engine=scene.engine,
    )
    if not sure:
        expected = max(expected, group_facts.widest_communicator(scene.records))
    if not sure and story.reached and max(story.reached) >= expected:
        expected = max(story.reached) + 1
    base = RankGroup(
        ranks=(),
        expected=expected,
        sure=sure,
        story=story,
        version=version,
        engine=scene.engine,
        release=scene.version,
        arguments=arguments,
        given=given,
        environment=_environment(scene),
        gpus=_last_gpus(scene),
        port_open=scene.port_open,
        exits=exits,
        loose=_loose(scene),
        helpers=group_facts.helpers(_snapshots(scene).values()),
        cores=_cores(scene),
        mute=whole(arguments, "nnodes") == 1 and group_facts.mute(scene),
        behind=group_facts.behind(scene.records, _by_pid(seen), expected),
        counts=group_facts.counts_text(scene.records, _by_pid(seen), expected),
        other_operations=group_facts.other_operations(scene.records),
        missing_by_ras=group_facts.missing_by_ras(scene.records),
        behind_by_flight=group_facts.behind_by_flight(scene.records),
        held_up=_held_up(scene),
    )
    per = max(expected // replicas, 1) if replicas > 1 else max(expected, 1)
    return [
        _group(scene, base, seen, range(i * per, (i + 1) * per)) for i in range(max(replicas, 1))
    ]


def _environment(scene: Scene) -> dict[str, str]:
    """Return the launch's variables: as recorded, else as the processes have them."""
    found: dict[str, str] = {}
    for snapshot in scene.snapshots:
        for process in snapshot.processes:
            if process.role in ("scheduler", "parent"):
                found |= process.environment
    return found | dict(scene.environment)


def _replicas(scene: Scene) -> int:
    """Return how many replicas the titles tell: the same world number under several DP numbers."""
    worlds: dict[int, set[int | None]] = defaultdict(set)
    for snapshot in scene.snapshots:
        for process in snapshot.processes:
            if process.rank is not None:
                worlds[process.rank.world].add(process.rank.dp)
    return max((len(dps) for dps in worlds.values()), default=1)


def _widest(scene: Scene) -> int:
    """Return how many ranks a replica has at least, by the titles."""
    worlds = (p.rank.world for s in scene.snapshots for p in s.processes if p.rank is not None)
    return max(worlds, default=0) + 1


def _snapshots(scene: Scene) -> dict[str, list[Snapshot]]:
    """Return each host's snapshots in order; two that are closer than APART are one, the later."""
    hosts: dict[str, list[Snapshot]] = defaultdict(list)
    read = {_who(p) for s in scene.snapshots for p in s.processes if _looked_at(p)}
    for snapshot in sorted(scene.snapshots, key=lambda s: s.at):
        told = {_who(p) for p in snapshot.processes if p.rank is not None}
        if told and told <= read and not any(map(_looked_at, snapshot.processes)):
            continue  # dumps out of a log, of processes that were looked at themselves
        before = hosts[snapshot.host]
        if before and snapshot.at - before[-1].at < APART and snapshot.processes:
            before[-1] = _both(before[-1], snapshot)
        else:
            before.append(snapshot)
    return hosts


def _who(process: Process) -> object:
    return process.rank if process.rank is not None else (process.host, process.pid)


def _of_server(process: Process) -> bool:
    """Whether a process that was read in /proc is the server's own: where one is listed, all are."""
    own = ("scheduler", "parent", "controller", "detokenizer", "tokenizer")
    return process.state is not None and process.role in own


def _looked_at(process: Process) -> bool:
    """Whether a rank's process was read in /proc: one that a dump alone tells of has no state."""
    return process.rank is not None and process.state is not None


def _both(first: Snapshot, second: Snapshot) -> Snapshot:
    """Return two snapshots of one moment as one: what the later lacks, the earlier may have.

    A process that one of the two saw run is not halted: each collector may pause what the other reads.
    """
    pids = {process.pid for process in second.processes}
    dumped = {dump.pid for dump in second.dumps}
    ran = {(p.pid, p.started): p.state for p in first.processes if p.state not in (None, "T", "t")}

    def at_that_moment(process: Process) -> Process:
        state = ran.get((process.pid, process.started))
        traced = process.state == "t" and state is not None
        return dataclasses.replace(process, state=state, halt=None) if traced else process

    return dataclasses.replace(
        second,
        processes=(
            *map(at_that_moment, second.processes),
            *(p for p in first.processes if p.pid not in pids),
        ),
        dumps=(*second.dumps, *(d for d in first.dumps if d.pid not in dumped)),
        gpus=second.gpus or first.gpus,
    )


def _ranks(scene: Scene, size: int, exits: Mapping[int, int]) -> dict[int, TrackedRank]:
    found: dict[int, TrackedRank] = {}
    shared = Counter(
        (p.rank.world, p.rank.dp)
        for snapshot in scene.snapshots
        for p in snapshot.processes
        if p.rank is not None
    )
    clash = len({world for world, _ in shared}) < len(shared)
    for snapshots in _snapshots(scene).values():
        # A dump out of a log comes with no state of the process, and not with every process.
        read = [s.at for s in snapshots if any(map(_of_server, s.processes))]
        for snapshot in snapshots:
            for process in snapshot.processes:
                if process.role != "scheduler" or process.rank is None:
                    continue
                number = process.rank.world
                if clash and size:
                    number += size * (process.rank.dp or 0)
                seen = found.setdefault(
                    number, TrackedRank(process.rank, [], max(read, default=0.0))
                )
                seen.sightings.append((snapshot, process))
    return found


def _group(
    scene: Scene, base: RankGroup, seen: Mapping[int, TrackedRank], numbers: range
) -> RankGroup:
    counts = [len({s.at for s in many if s.processes}) for many in _snapshots(scene).values()]
    ranks = [rank_of(base, n, seen[n]) for n in numbers if n in seen]
    times = [sorted({s.at for s, _ in seen[n].sightings}) for n in numbers if n in seen]
    for number, code in base.exits.items():
        if number in numbers and number not in seen:
            gone = died(code)
            ranks.append(GroupRank(number, Rank(number), gone=gone))
    unseen = set(numbers) - {rank.number for rank in ranks}
    not_collected = unseen & set(scene.not_collected)
    elsewhere = _elsewhere(scene, base, unseen - not_collected)
    if not base.sure:
        # A node has neighbouring ranks: those below its first may be another node's, if there are several.
        mine = [n for n in numbers if n in seen]
        elsewhere |= {n for n in unseen - not_collected if mine and n < mine[0]}
    unnamed = _unnamed(scene)
    absent = unseen - not_collected - elsewhere
    if not any(_looked_at(p) for s in scene.snapshots for p in s.processes):
        # Only dumps: there is no list of the processes, and a missing dump says nothing.
        elsewhere |= absent if seen else set()
        absent = set()
    if not seen or len(absent) <= unnamed + _still_starting(scene):
        absent = set()  # there are no ranks, or a process without a title may be the one
    return dataclasses.replace(
        base,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.number)),
        expected=len(numbers),
        absent=tuple(sorted(absent)),
        not_collected=tuple(sorted(not_collected | elsewhere)),
        over=_over(scene, base, ranks),
        unnamed=unnamed,
        behind=tuple(n for n in base.behind if n in numbers),
        story=_own_batches(base, numbers),
        snapshots=max(counts, default=0),
        interval=min((_interval(seen[n]) for n in numbers if n in seen), default=0.0),
        since=min((t[-2] for t in times if len(t) > 1), default=None),
        until=max((t[-1] for t in times if t), default=None),
        lock_holders=_holders(ranks),
    )


def _own_batches(base: RankGroup, numbers: range) -> phases.Story:
    """Return the story with the batches of these ranks: those of one replica say nothing of another."""
    if len(numbers) >= base.expected:
        return base.story
    mine = tuple(one for one in base.story.batches if one.rank in numbers)
    return dataclasses.replace(base.story, batches=mine)


def _held_up(scene: Scene) -> tuple[str, ...]:
    """Return the roles of processes next to the ranks that use CPU time at one place of their own work."""
    found = []
    for many in _snapshots(scene).values():
        for process in many[-1].processes if len(many) > 1 else ():
            before = next((p for p in many[-2].processes if p.pid == process.pid), None)
            if (
                process.role not in ("parent", "detokenizer", "tokenizer", "controller")
                or not before
            ):
                continue
            seconds = max(many[-1].at - many[-2].at, APART)
            busy = (rate(before.cpu_seconds, process.cpu_seconds, seconds) or 0.0) > 5 * BUSY_CPU
            (now, wait), (then, _) = (
                stack_of(many[-1], process.pid),
                stack_of(many[-2], process.pid),
            )
            same = bool(now) and waits.standing(now) == waits.standing(then)
            if same and busy and wait == "RUNNING":
                found.append(process.role)
    return tuple(sorted(set(found)))


def _over(scene: Scene, base: RankGroup, ranks: Sequence[GroupRank]) -> bool:
    """Whether the server is gone, and what is known of its ranks was written before its end."""
    if any(_looked_at(p) for s in scene.snapshots for p in s.processes):
        return all(rank.gone for rank in ranks)
    return not ranks or base.story.fatal


def _elsewhere(scene: Scene, base: RankGroup, unseen: Iterable[int]) -> set[int]:
    """Return the unseen ranks that may be on nodes from which nothing was collected."""
    nodes = whole(base.arguments, "nnodes")
    hosts = {s.host for s in scene.snapshots if any(p.rank is not None for p in s.processes)}
    if not hosts:
        return set()  # logs alone: nobody was looked at anywhere
    return set(unseen) if nodes > max(len(hosts), 1) else set()


def _unnamed(scene: Scene) -> int:
    last = [many[-1] for many in _snapshots(scene).values()]
    return sum(
        process.role == "scheduler" and process.rank is None
        for snapshot in last
        for process in snapshot.processes
    )


def _still_starting(scene: Scene) -> int:
    """Return how many children have not said yet who they will be: one may be a rank that imports."""
    last = [many[-1] for many in _snapshots(scene).values()]
    return sum(
        p.role == "other" and p.state not in ("Z", "X", None) and "spawn_main" in p.title
        for snapshot in last
        for p in snapshot.processes
    )


def _interval(seen: TrackedRank) -> float:
    times = sorted({snapshot.at for snapshot, _ in seen.sightings})
    return times[-1] - times[-2] if len(times) > 1 else 0.0


def _cores(scene: Scene) -> tuple[Core, ...]:
    """Return the engine cores of vLLM in the last snapshot of each host, with their stacks."""
    if scene.engine != "vllm":
        return ()
    return tuple(
        Core(process.pid, process.host, stack_of(many[-1], process.pid)[0])
        for many in _snapshots(scene).values()
        for process in many[-1].processes
        if process.role == "controller"
    )


def _last_gpus(scene: Scene) -> tuple[Gpu, ...]:
    found: list[Gpu] = []
    for many in _snapshots(scene).values():
        found += next((s.gpus for s in reversed(many) if s.gpus), ())
    return tuple(found)


def _loose(scene: Scene) -> tuple[Dump, ...]:
    """Return the dumps whose rank is not known: they give the phase, never a culprit."""
    found: list[Dump] = []
    for one in scene.snapshots:
        known = {p.pid for p in one.processes if p.role != "scheduler" or p.rank is not None}
        found += [dump for dump in one.dumps if dump.threads and dump.pid not in known]
    return tuple(found)


def _holders(ranks: Iterable[GroupRank]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for rank in ranks:
        for name in rank.process.lock_files if rank.process is not None else ():
            found[name] = (*found.get(name, ()), rank.number)
    return found


def _by_pid(seen: Mapping[int, TrackedRank]) -> dict[int, int]:
    """Return the number of each pid, of the host and inside its container, that only one rank has."""
    told: dict[int, set[int]] = defaultdict(set)
    for number, one in seen.items():
        process = one.sightings[-1][1]
        for pid in {process.pid, process.namespace_pid}:
            if pid is not None:
                told[pid].add(number)
    return {pid: numbers.pop() for pid, numbers in told.items() if len(numbers) == 1}
