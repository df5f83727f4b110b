"""What one rank did over the snapshots of its host: where it waits, whether it moves, whether it is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.hang.judge import halts, phases, waits
from workbench.hang.judge.rank_group import GroupRank, RankGroup
from workbench.hang.records import (
    Dump,
    Frame,
    Gpu,
    Phase,
    Process,
    Rank,
    Snapshot,
    WaitClass,
)

# Two snapshots that are closer than this are one.
APART = 1.0
# CPU seconds a second above which a process works or spins. (Measured: a rank in a gloo barrier 0.018,
# a healthy idle rank 0.5 to 0.9.)
BUSY_CPU = 0.1
# Bytes a second above which reading or writing counts as getting on.
BUSY_IO = 1e6
# CPU seconds a second of a child that works, and of a thread that receives a download rather than sleeps.
_CHILD_CPU = 0.5
_RECEIVES = 0.02
_DEEPEST = 64


@dataclasses.dataclass(slots=True)
class TrackedRank:
    """One rank's processes over the snapshots of its host, and when that host's /proc was last read."""

    rank: Rank
    sightings: list[tuple[Snapshot, Process]]
    until: float


def rank_of(base: RankGroup, number: int, seen: TrackedRank) -> GroupRank:
    """Return a rank as its last snapshot has it, and whether it moved since the one before."""
    snapshot, process = seen.sightings[-1]
    # A pid may have been given to another process meanwhile: only the same start time is the same.
    same = [
        (s, p)
        for s, p in seen.sightings
        if (p.pid, p.host, p.started) == (process.pid, process.host, process.started)
    ]
    dump = _dump(snapshot, process.pid)
    frames, wait = stack_of(snapshot, process.pid)
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


def _gone(base: RankGroup, number: int, process: Process, vanished: bool, alive: bool) -> str:
    """Return how a rank died. Of one that lived when looked at, a log tells a later end, or another's."""
    code = process.exit_code
    if code is None and not alive:
        code = base.exits.get(number, base.exits.get(-process.pid) if process.pid else None)
    if code is not None:
        return died(code)
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


def died(code: int) -> str:
    """Return how a process died, in words, by its exit code."""
    signed = 128 - code if code > 128 else code  # a shell writes 137 for -9
    return _CODES.get(signed, f"ended with exit code {code}")


def _dump(snapshot: Snapshot, pid: int) -> Dump | None:
    """Return a process's dump: one with stacks first, and of those one without native frames."""
    mine = [dump for dump in snapshot.dumps if dump.pid == pid]
    return min(mine, key=lambda dump: (not dump.threads, dump.native), default=None)


def stack_of(snapshot: Snapshot, pid: int) -> tuple[tuple[Frame, ...], WaitClass]:
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
    main = rate(before.main_cpu_seconds, after.main_cpu_seconds, seconds)
    cpu = rate(before.cpu_seconds, after.cpu_seconds, seconds)
    if main is not None and rank.in_loop and rank.wait == "IDLE":
        cpu = main
    read = rate(before.read_bytes, after.read_bytes, seconds)
    written = rate(before.written_bytes, after.written_bytes, seconds)
    io = None if read is None and written is None else max(read or 0.0, written or 0.0)
    stack, _ = stack_of(earlier, before.pid)
    same = waits.standing(stack) == waits.standing(rank.frames) if stack and rank.frames else None
    if same and rank.wait == "LOCK" and before.lock_files and after.lock_files:
        same = bool(set(before.lock_files) & set(after.lock_files))  # at another lock it got on
    sleeps = _sleeps(earlier, before.pid) and _sleeps(later, after.pid)
    rank = dataclasses.replace(
        rank,
        cpu=cpu,
        main_cpu=main,
        io=io,
        same_stack=same,
        sleeps=sleeps,
        before=stack,
        child_works=_child_works(earlier, later, before.pid),
    )
    moving = _moving(rank)
    # A tracer that pauses it may do so since the first snapshot: that it did not move shows nothing.
    return dataclasses.replace(rank, moving=None if rank.paused and not moving else moving)


def _child_works(earlier: Snapshot, later: Snapshot, pid: int) -> bool:
    """Whether a descendant that is no rank used CPU time between two snapshots."""
    seconds = max(later.at - earlier.at, APART)
    before = {(p.pid, p.started): p.cpu_seconds for p in earlier.processes}
    parents = {p.pid: p.parent for p in later.processes}

    def below(process: Process) -> bool:
        above = process.parent
        for _ in range(_DEEPEST):
            if above is None or above == pid:
                break
            above = parents.get(above)
        return above == pid

    return any(
        p.rank is None
        and (rate(before.get((p.pid, p.started)), p.cpu_seconds, seconds) or 0.0) > _CHILD_CPU
        and below(p)
        for p in later.processes
    )


def _sleeps(snapshot: Snapshot, pid: int) -> bool:
    """Whether a dump says that the thread of interest was off the CPU."""
    dump = _dump(snapshot, pid)
    thread = waits.thread_of_interest(dump) if dump is not None else None
    return thread is not None and thread.active is False


def rate(before: float | None, after: float | None, seconds: float) -> float | None:
    """Return by how much a counter grew a second; None where one of its readings is missing."""
    return None if before is None or after is None else max(after - before, 0.0) / seconds


def _moving(rank: GroupRank) -> bool | None:
    """Say whether a rank gets on. One that spins in a wait uses CPU time and does not."""
    if rank.stopped or rank.gone:
        return False
    if rank.compilers or (rank.io or 0.0) > BUSY_IO or rank.same_stack is False:
        return True
    if rank.child_works and rank.wait in ("QUEUE", "IPC", "JIT"):
        return True  # it waits for what its child works at
    used = rank.main_cpu if rank.main_cpu is not None else rank.cpu
    if waits.reads_network(rank.frames) and (used or 0.0) > _RECEIVES:
        return None  # a download comes in small pieces, at one place of the code
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
