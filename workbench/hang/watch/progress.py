"""Whether a server makes progress, from one reading to the next. Pure.

CPU time alone is no progress: a rank that waits for its GPU may use a whole core. A batch that ends, a
token, a loop that turns while the GPUs rest are. Times are of the monotonic clock, so that a step of the
wall clock changes nothing.
"""

from __future__ import annotations

import dataclasses

from workbench.hang.watch.records import Member, Reading, Sight

# CPU seconds a second of a main thread from which on its loop turns. (Measured on two processors at load
# 13, four ranks: idle 0.030 to 0.035, in a barrier that does not end 0.000.)
TURNS = 0.02
BUSY_IO = 1e6  # bytes a second
BUSY_GPU = 50.0  # percent
RANKS = "scheduler"
VITAL = ("scheduler", "parent", "detokenizer", "controller", "tokenizer")
_HALTED = ("T", "t")


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """What is kept between readings.

    Attributes
    ----------
    last
        The reading before.
    since
        When progress was last seen, or when watching began.
    turned
        Whether the loops of all ranks were seen to turn since the server is ready.
    vital
        The processes without which the server is not whole: pid to name.
    dead
        Those of them that have ended.
    """

    last: Reading
    since: float
    turned: bool = False
    vital: tuple[tuple[int, str], ...] = ()
    dead: tuple[int, ...] = ()


def begin(reading: Reading) -> Memory:
    """Return the memory after the first reading."""
    return _with_vital(Memory(reading, reading.at), reading)


def step(memory: Memory, reading: Reading, *, sleeps: bool, gap: float) -> tuple[Memory, Sight]:
    """Return the memory after another reading, and what it means.

    Parameters
    ----------
    memory
        What was kept.
    reading
        The next reading.
    sleeps
        Whether the launch asks for loops that sleep while there are no requests.
    gap
        Seconds between two readings from which on what happened between them is not known.
    """
    memory = _with_vital(memory, reading)
    if reading.at - memory.last.at > gap:
        memory = dataclasses.replace(memory, since=reading.at)
    turning = _turning(memory.last, reading)
    if not reading.ready:
        sight = _starting(memory.last, reading)
    else:
        sight = _serving(memory, reading, turning=turning, sleeps=sleeps)
        memory = dataclasses.replace(memory, turned=memory.turned or turning)
    if sight.stage in ("working", "idle", "quiet"):
        memory = dataclasses.replace(memory, since=reading.at)
    gone = _gone(memory, reading)
    if gone:
        names = dict(memory.vital)
        words = ", ".join(names[pid] for pid in gone)
        sight = Sight("dead", f"{words} {'has' if len(gone) == 1 else 'have'} ended")
    sight = dataclasses.replace(sight, still_for=reading.at - memory.since, reading=reading)
    return dataclasses.replace(memory, last=reading, dead=gone), sight


def _with_vital(memory: Memory, reading: Reading) -> Memory:
    """Return the memory with processes that have come; another process with a known pid replaces it."""
    known = dict(memory.vital)
    known |= {m.pid: m.name for m in reading.members if m.role in VITAL and not m.ended}
    return dataclasses.replace(memory, vital=tuple(sorted(known.items())))


def _gone(memory: Memory, reading: Reading) -> tuple[int, ...]:
    alive = {m.pid for m in reading.members if not m.ended}
    return tuple(pid for pid, _ in memory.vital if pid not in alive)


def _starting(last: Reading, now: Reading) -> Sight:
    """Judge a start-up: lines of the log, I/O, compilers and new processes are progress."""
    dt = max(now.at - last.at, 1e-3)
    if now.log.steps > last.log.steps:
        return Sight("working", f"start-up: {now.log.last}")
    before = {m.pid: m.io for m in last.members}
    moved = sum(max(m.io - before.get(m.pid, m.io), 0) for m in now.members)
    if moved / dt >= BUSY_IO:
        return Sight("working", f"start-up: {moved / dt / 1e6:,.0f} MB/s are read or written")
    if now.compilers:
        return Sight("working", "start-up: a compiler runs")
    if {m.pid for m in now.members} - set(before):
        return Sight("working", "start-up: a process has started")
    after = f", after: {now.log.last}" if now.log.last else ""
    return Sight("starting", f"start-up: no new step{after}")


def _serving(memory: Memory, now: Reading, *, turning: bool, sleeps: bool) -> Sight:
    """Judge a server that is ready."""
    last = memory.last
    if now.log.batches > last.log.batches:
        return Sight("working", f"batches end ({now.log.running or 0} requests by the log)")
    if _more(now.answers.tokens, last.answers.tokens):
        return Sight("working", "tokens are counted")
    halted = [m.name for m in now.members if m.role in VITAL and m.state in _HALTED]
    if halted:
        return Sight("still", f"{', '.join(halted)} is stopped (state T)")
    if now.answers.pending:
        return Sight("still", f"{now.answers.pending:,.0f} requests are pending, and no batch ends")
    if now.answers.alive is False:
        return Sight("still", "the HTTP server does not answer")
    counted = now.log.batches > 0 or now.answers.tokens is not None
    busy = now.load is not None and now.load >= BUSY_GPU
    if turning:
        if busy and counted:
            return Sight("still", f"a GPU is at {now.load:.0f} %, and no batch ends")
        if busy:
            return Sight("working", "the GPUs are busy; batches are not in the log")
        return Sight("idle", "the loops of all ranks turn, and the GPUs rest")
    if now.compilers:
        return Sight("working", "a compiler runs")
    if now.log.running:
        return Sight("still", f"{now.log.running} requests by the log, and no batch ends")
    if memory.turned and not sleeps:
        return Sight("still", f"the loop of {_asleep(last, now)} does not turn any more")
    return Sight("quiet", "the loops sleep, and requests are not known")


def _more(now: float | None, before: float | None) -> bool:
    return now is not None and before is not None and now > before


def _turning(last: Reading, now: Reading) -> bool:
    ranks = [m for m in now.members if m.role == RANKS]
    return bool(ranks) and not any(_is_asleep(m, last, now) for m in ranks)


def _asleep(last: Reading, now: Reading) -> str:
    names = [m.name for m in now.members if m.role == RANKS and _is_asleep(m, last, now)]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _is_asleep(member: Member, last: Reading, now: Reading) -> bool:
    before = next(
        (m for m in last.members if (m.pid, m.started) == (member.pid, member.started)), None
    )
    if before is None or member.cpu < before.cpu:
        return False  # not known: it has just come, or its counter is not what it was
    return (member.cpu - before.cpu) / max(now.at - last.at, 1e-3) < TURNS
