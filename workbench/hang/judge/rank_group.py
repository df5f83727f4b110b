"""All that the evidence has of each rank, joined over the snapshots: what the rules judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from workbench.hang.judge import halts, phases, waits
from workbench.hang.records import Dump, Frame, Gpu, Phase, Process, Rank, Role, WaitClass

BUSY_GPU = 90.0
# CPU seconds a second of a main thread that turns in the receive of its event loop. (Measured on two
# processors at load 13, four ranks: idle 0.030 to 0.035, in a barrier that does not end 0.000.)
TURNS = 0.02
# Below this a GPU holds no weights of a model that needs several of them.
EMPTY_GPU_MIB = 4096.0
# What a log's clock, cut to seconds, may be off from a snapshot's; and after how many seconds without a line
# of a batch a server under load makes no progress.
_CLOCKS = 1.5
_SILENCE = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRank:
    """One rank: who it is, where it is, whether it moves.

    Attributes
    ----------
    number
        World number over all replicas.
    frames
        The thread of interest in the last snapshot, leaf first; () where no stack was seen.
    before
        The same in the last snapshot but one.
    sleeps
        Whether its thread was off the CPU in both, by the dumps.
    same_stack
        Whether the last two snapshots show the same stack; None with fewer than two stacks.
    cpu, io
        CPU seconds and bytes a second between the last two snapshots, None where not known. In the receive
        of an event loop the CPU time is the main thread's alone: helper threads say nothing of the loop.
    main_cpu
        The same of the main thread, wherever it is.
    moving
        Whether it gets on; None where that is not known.
    halted
        How it was halted in the last snapshot, by a signal or a tracer.
    gone
        How it died ("" for a rank that lives).
    child_works
        Whether a process below it that is no rank, such as a compile worker of torch, uses CPU time.
    """

    number: int
    rank: Rank
    host: str = ""
    pid: int | None = None
    process: Process | None = None
    dump: Dump | None = None
    frames: tuple[Frame, ...] = ()
    before: tuple[Frame, ...] = ()
    wait: WaitClass = "UNKNOWN"
    phase: Phase = "unknown"
    same_stack: bool | None = None
    snapshots: int = 0
    sleeps: bool = False
    cpu: float | None = None
    main_cpu: float | None = None
    io: float | None = None
    moving: bool | None = None
    gpu: Gpu | None = None
    halted: halts.Halted = ""
    gone: str = ""
    child_works: bool = False

    @property
    def stopped(self) -> bool:
        """Whether it is stopped by a signal (state T) or held by a debugger."""
        return self.by_signal or self.held

    @property
    def by_signal(self) -> bool:
        """Whether it is stopped by a signal (state T)."""
        return self.halted in ("stopped", "seen stopped")

    @property
    def held(self) -> bool:
        """Whether a debugger holds it, in both snapshots."""
        return self.halted == "held"

    @property
    def paused(self) -> bool:
        """Whether a tracer had paused it in the last snapshot: that shows nothing about the rank."""
        return self.halted == "paused"

    @property
    def has_stack(self) -> bool:
        """Whether there is a stack of it."""
        return bool(self.frames)

    @property
    def compilers(self) -> tuple[str, ...]:
        """Its live compiler children."""
        return self.process.compilers if self.process is not None else ()

    @property
    def place(self) -> tuple[str, ...]:
        """Its path without lines, root first: ranks of one place do the same."""
        return waits.path(self.frames)

    @property
    def in_loop(self) -> bool:
        """Whether it runs below a scheduler's event loop."""
        return waits.in_event_loop(self.frames)

    @property
    def turns(self) -> bool:
        """Whether its event loop got on: in two snapshots it is at different places below the loop.

        Another line of the same functions is no proof: a spin runs over several lines. In the receive, CPU
        time of the main thread is proof as well: a rank that waits there for one that never comes uses none.
        """
        if self.in_loop and self.wait == "IDLE" and (self.main_cpu or 0.0) >= TURNS:
            return True
        both = self.in_loop and waits.in_event_loop(self.before)
        return both and waits.path(self.before) != self.place


@dataclasses.dataclass(frozen=True, slots=True)
class Helper:
    """A process of the server that is no rank and is stopped, a zombie or gone.

    `once`: it was seen stopped at one moment only.
    """

    role: Role
    pid: int
    host: str
    state: str
    once: bool = False

    @property
    def stopped(self) -> bool:
        """Whether it is stopped by a signal; otherwise it has ended."""
        return self.state == "T"

    def __str__(self) -> str:
        role = "main process" if self.role == "parent" else self.role
        states = {"T": "is stopped (state T)", "": "is gone since an earlier snapshot"}
        return f"the server's {role} (pid {self.pid}) {states.get(self.state, 'is a zombie')}"


@dataclasses.dataclass(frozen=True, slots=True)
class Core:
    """An engine core that has workers: where it is in the last snapshot, leaf first."""

    pid: int
    host: str
    frames: tuple[Frame, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class RankGroup:
    """One group of ranks that wait for each other, and all that bears on it.

    Attributes
    ----------
    ranks
        Those that were seen or are known to have died, by number.
    expected
        How many there should be; ``sure`` is False where that is only guessed from the titles.
    absent
        Numbers that should have been seen and were not.
    over
        Whether the server is gone, and what is known of its ranks was written before.
    helpers
        Processes of the server that are no ranks and do not run: without them no request gets through.
    version, engine, release
        The release of SGLang, "" where it is another engine or not known; the engine, and its release.
    cores
        vLLM's engine cores that have workers: they give the workers their work.
    behind, behind_by_flight
        Numbers of ranks that launched fewer collectives, by NCCL's counts and by torch's flight recorder.
    counts
        In words, how many collectives which ranks launched by NCCL's counts, where they differ.
    other_operations
        By rank, the collective it waits in by torch's flight recorder, where ranks wait in different ones.
    missing_by_ras
        Numbers of ranks from which NCCL's RAS has no answer.
    held_up
        Roles of processes next to the ranks that are at one place of their own work in both snapshots.
    mute
        Whether one of main process and detokenizer was seen, and not the other.
    snapshots
        How many snapshots at least one APART were taken of the group's processes; `interval` lies between the
        last two, which were taken `since` and `until`.
    """

    ranks: tuple[GroupRank, ...]
    expected: int
    sure: bool
    absent: tuple[int, ...] = ()
    not_collected: tuple[int, ...] = ()
    unnamed: int = 0
    snapshots: int = 0
    interval: float = 0.0
    story: phases.Story = dataclasses.field(default_factory=phases.Story)
    version: str = ""
    engine: str = ""
    release: str = ""
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    given: frozenset[str] = frozenset()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    port_open: bool | None = None
    exits: Mapping[int, int] = dataclasses.field(default_factory=dict)
    lock_holders: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    behind: tuple[int, ...] = ()
    behind_by_flight: tuple[int, ...] = ()
    counts: str = ""
    other_operations: Mapping[int, str] = dataclasses.field(default_factory=dict)
    missing_by_ras: tuple[int, ...] = ()
    held_up: tuple[str, ...] = ()
    helpers: tuple[Helper, ...] = ()
    cores: tuple[Core, ...] = ()
    mute: bool = False
    since: float | None = None
    until: float | None = None
    loose: tuple[Dump, ...] = ()
    over: bool = False
    notes: tuple[str, ...] = ()

    @property
    def alive(self) -> tuple[GroupRank, ...]:
        """The ranks that live."""
        return tuple(rank for rank in self.ranks if not rank.gone)

    @property
    def dead(self) -> tuple[GroupRank, ...]:
        """The ranks that are known to have died."""
        return tuple(rank for rank in self.ranks if rank.gone)

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of the ranks that are dead or absent."""
        return tuple(sorted({rank.number for rank in self.dead} | set(self.absent)))

    @property
    def complete(self) -> bool:
        """Whether a stack of every rank of the group was seen."""
        return (
            not self.unnamed
            and len(self.alive) == self.expected
            and all(rank.has_stack or rank.stopped for rank in self.alive)
        )

    @property
    def twice(self) -> bool:
        """Whether every living rank was looked at twice; one with a stack, at its stack."""
        return self.snapshots > 1 and all(
            rank.snapshots > 1
            and (rank.same_stack is not None or not rank.has_stack or rank.stopped)
            for rank in self.alive
        )

    @property
    def frozen(self) -> bool:
        """Whether every living rank is at the same place in two snapshots."""
        return bool(self.alive) and self.twice and all(rank.moving is False for rank in self.alive)

    def later(self, one: phases.MarkedLine) -> bool:
        """Whether a line of the log was written after the last snapshot."""
        return self.until is not None and one.utc is not None and one.utc > self.until + _CLOCKS

    @property
    def progressed(self) -> bool:
        """Whether the log has a batch from after the last snapshot but one: nothing hung then.

        Of a log whose zone is not known only a batch between the two snapshots counts.
        """
        if self.since is None or self.until is None:
            return False
        return any(
            one.utc is not None
            and one.utc > self.since + _CLOCKS
            and (one.zoned or one.utc < self.until + _CLOCKS)
            for one in self.story.batches
        )

    @property
    def silent(self) -> bool:
        """Whether the log, whose zone is known, has been silent for long at the last snapshot."""
        zoned = any(one.zoned for one in self.story.batches)
        last = self.story.last_utc
        return (
            zoned and self.until is not None and last is not None and self.until - last > _SILENCE
        )

    def of(self, *classes: WaitClass) -> tuple[GroupRank, ...]:
        """Return the living ranks that are in one of the wait classes."""
        return tuple(rank for rank in self.alive if rank.wait in classes)
