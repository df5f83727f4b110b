"""Join a scene by rank over its snapshots."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from workbench.facts import flags
from workbench.hang.judge import group_facts, halts, phases, waits
from workbench.hang.judge.rank_group import Core, GroupRank, RankGroup
from workbench.hang.records import (
    Dump,
    Frame,
    Gpu,
    Phase,
    Process,
    Rank,
    Scene,
    Snapshot,
    WaitClass,
)
from workbench.hang.sizes import whole

# Two snapshots that are closer than this are one.
APART = 1.0
# CPU seconds a second above which a process works or spins. (Measured: a rank in a gloo barrier 0.018,
# a healthy idle rank 0.5 to 0.9.)
BUSY_CPU = 0.1
# Bytes a second above which reading or writing counts as getting on.
BUSY_IO = 1e6


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


@dataclasses.dataclass(slots=True)
class _Tracked:
    """One rank's processes over the snapshots of its host, and when that host's /proc was last read."""

    rank: Rank
    sightings: list[tuple[Snapshot, Process]]
    until: float


def _ranks(scene: Scene, size: int, exits: Mapping[int, int]) -> dict[int, _Tracked]:
    found: dict[int, _Tracked] = {}
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
                seen = found.setdefault(number, _Tracked(process.rank, [], max(read, default=0.0)))
                seen.sightings.append((snapshot, process))
    return found


def _group(
    scene: Scene, base: RankGroup, seen: Mapping[int, _Tracked], numbers: range
) -> RankGroup:
    counts = [len({s.at for s in many if s.processes}) for many in _snapshots(scene).values()]
    ranks = [_rank(base, n, seen[n]) for n in numbers if n in seen]
    times = [sorted({s.at for s, _ in seen[n].sightings}) for n in numbers if n in seen]
    for number, code in base.exits.items():
        if number in numbers and number not in seen:
            gone = _died(code)
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
            busy = (_rate(before.cpu_seconds, process.cpu_seconds, seconds) or 0.0) > 5 * BUSY_CPU
            (now, wait), (then, _) = _stack(many[-1], process.pid), _stack(many[-2], process.pid)
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


def _interval(seen: _Tracked) -> float:
    times = sorted({snapshot.at for snapshot, _ in seen.sightings})
    return times[-1] - times[-2] if len(times) > 1 else 0.0


def _rank(base: RankGroup, number: int, seen: _Tracked) -> GroupRank:
    snapshot, process = seen.sightings[-1]
    # A pid may have been given to another process meanwhile: only the same start time is the same.
    same = [
        (s, p)
        for s, p in seen.sightings
        if (p.pid, p.host, p.started) == (process.pid, process.host, process.started)
    ]
    dump = _dump(snapshot, process.pid)
    frames, wait = _stack(snapshot, process.pid)
    vanished = snapshot.at < seen.until
    rank = GroupRank(
        number=number,
        rank=process.rank or Rank(number),
        host=process.host,
        pid=process.pid,
        process=process,
        dump=dump,
        frames=frames,
        wait=wait,
        phase=_phase_of(frames, dump, base),
        snapshots=len(same),
        gpu=_gpu(snapshot, process),
        halted=halts.halted(
            [p for _, p in same], snapshot.at - same[-2][0].at if len(same) > 1 else 0.0
        ),
        gone=_gone(base, number, process, vanished, not vanished and _lived(process, dump)),
    )
    if rank.stopped:
        rank = dataclasses.replace(rank, wait="STOPPED")
    return _with_motion(rank, same)


def _phase_of(frames: Sequence[Frame], dump: Dump | None, base: RankGroup) -> Phase:
    """Return the phase that the thread of interest tells, or else the main thread."""
    told = phases.phase_of(frames, base.version, base.engine)
    main = dump.main if dump is not None else None
    if told != "unknown" or main is None:
        return told
    return phases.phase_of(main.frames, base.version, base.engine)


def _cores(scene: Scene) -> tuple[Core, ...]:
    """Return the engine cores of vLLM in the last snapshot of each host, with their stacks."""
    if scene.engine != "vllm":
        return ()
    return tuple(
        Core(process.pid, process.host, _stack(many[-1], process.pid)[0])
        for many in _snapshots(scene).values()
        for process in many[-1].processes
        if process.role == "controller"
    )


def _gone(base: RankGroup, number: int, process: Process, vanished: bool, alive: bool) -> str:
    """Return how a rank died. Of one that lived when looked at, a log tells a later end, or another's."""
    code = process.exit_code
    if code is None and not alive:
        code = base.exits.get(number, base.exits.get(-process.pid) if process.pid else None)
    if code is not None:
        return _died(code)
    if process.state in ("Z", "X"):
        return "a zombie: it has ended, and its parent has not looked yet"
    return "it was there, and is gone" if vanished else ""


def _lived(process: Process, dump: Dump | None) -> bool:
    """Whether a process was alive when it was looked at: by /proc, or because py-spy read it."""
    if process.state is not None:
        return process.state not in ("Z", "X")
    return dump is not None and dump.source.startswith("py-spy") and bool(dump.threads)


_CODES = {
    -9: "killed (SIGKILL; out of memory?)", -6: "aborted (SIGABRT)", -11: "crashed (SIGSEGV)",
    -7: "crashed (SIGBUS)", -15: "ended by SIGTERM", -3: "ended by SIGQUIT",
    0: "ended by itself (exit code 0)",
}  # fmt: skip


def _died(code: int) -> str:
    signed = 128 - code if code > 128 else code  # a shell writes 137 for -9
    return _CODES.get(signed, f"ended with exit code {code}")


def _dump(snapshot: Snapshot, pid: int) -> Dump | None:
    """Return a process's dump: one with stacks first, and of those one without native frames."""
    mine = [dump for dump in snapshot.dumps if dump.pid == pid]
    return min(mine, key=lambda dump: (not dump.threads, dump.native), default=None)


def _stack(snapshot: Snapshot, pid: int) -> tuple[tuple[Frame, ...], WaitClass]:
    """Return the frames of interest and the class of wait; native frames may tell what Python's do not."""
    frames: tuple[Frame, ...] = ()
    wait: WaitClass = "UNKNOWN"
    mine = [dump for dump in snapshot.dumps if dump.pid == pid and dump.threads]
    for dump in sorted(mine, key=lambda dump: dump.native):
        thread = waits.thread_of_interest(dump)
        if thread is None:
            continue
        found = waits.wait_class(thread.frames)
        frames = frames or thread.frames
        if wait in ("UNKNOWN", "RUNNING"):
            wait = found
    return frames, wait


def _with_motion(rank: GroupRank, sightings: Sequence[tuple[Snapshot, Process]]) -> GroupRank:
    if len(sightings) < 2:
        return dataclasses.replace(rank, moving=True if rank.compilers else None)
    (earlier, before), (later, after) = sightings[-2:]
    seconds = max(later.at - earlier.at, APART)
    cpu = _rate(before.cpu_seconds, after.cpu_seconds, seconds)
    read = _rate(before.read_bytes, after.read_bytes, seconds)
    written = _rate(before.written_bytes, after.written_bytes, seconds)
    io = None if read is None and written is None else max(read or 0.0, written or 0.0)
    stack, _ = _stack(earlier, before.pid)
    same = waits.standing(stack) == waits.standing(rank.frames) if stack and rank.frames else None
    if same and rank.wait == "LOCK" and before.lock_files and after.lock_files:
        same = bool(set(before.lock_files) & set(after.lock_files))  # at another lock it got on
    sleeps = _sleeps(earlier, before.pid) and _sleeps(later, after.pid)
    rank = dataclasses.replace(rank, cpu=cpu, io=io, same_stack=same, sleeps=sleeps, before=stack)
    moving = _moving(rank)
    # A tracer that pauses it may do so since the first snapshot: that it did not move shows nothing.
    return dataclasses.replace(rank, moving=None if rank.paused and not moving else moving)


def _sleeps(snapshot: Snapshot, pid: int) -> bool:
    """Whether a dump says that the thread of interest was off the CPU."""
    dump = _dump(snapshot, pid)
    thread = waits.thread_of_interest(dump) if dump is not None else None
    return thread is not None and thread.active is False


def _rate(before: float | None, after: float | None, seconds: float) -> float | None:
    return None if before is None or after is None else max(after - before, 0.0) / seconds


def _moving(rank: GroupRank) -> bool | None:
    """Say whether a rank gets on. One that spins in a wait uses CPU time and does not."""
    if rank.stopped or rank.gone:
        return False
    if rank.compilers or (rank.io or 0.0) > BUSY_IO or rank.same_stack is False:
        return True
    busy = (rank.cpu or 0.0) > BUSY_CPU
    if busy and rank.same_stack and rank.in_loop and rank.wait == "RUNNING":
        # In the event loop CPU time at one place is no work: a device is polled there without a frame of it.
        return None
    if rank.same_stack and rank.wait in waits.SPINNING:
        return False
    if busy:
        spins = rank.same_stack is None and rank.wait in waits.SPINNING
        return True if rank.frames and not spins else None
    if rank.cpu is None:
        # Without CPU time a computation on one line looks like a wait, unless it is known to sleep.
        computes = rank.wait not in waits.SPINNING | {"LOCK", "QUEUE", "IPC"}
        return None if rank.same_stack is None or (computes and not rank.sleeps) else False
    return False


def _gpu(snapshot: Snapshot, process: Process) -> Gpu | None:
    pids = {process.pid, process.namespace_pid} - {None}
    mine = [gpu for gpu in snapshot.gpus if pids & set(gpu.processes)]
    if len(mine) == 1:
        return mine[0]
    ranks = [p for p in snapshot.processes if p.rank is not None and p.host == process.host]
    if not mine and len(ranks) == len(snapshot.gpus) and process.rank is not None:
        # Replicas number their ranks alike: then they follow each other.
        alike = len({p.rank.world for p in ranks if p.rank}) < len(ranks)
        ordered = sorted(
            ranks,
            key=lambda p: (p.rank.dp or 0 if alike else 0, p.rank.world) if p.rank else (0, 0),
        )
        return snapshot.gpus[ordered.index(process)]
    return None


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


def _by_pid(seen: Mapping[int, _Tracked]) -> dict[int, int]:
    """Return the number of each pid, of the host and inside its container, that only one rank has."""
    told: dict[int, set[int]] = defaultdict(set)
    for number, one in seen.items():
        process = one.sightings[-1][1]
        for pid in {process.pid, process.namespace_pid}:
            if pid is not None:
                told[pid].add(number)
    return {pid: numbers.pop() for pid, numbers in told.items() if len(numbers) == 1}
