"""What was seen of a hung (or healthy) server, and what is concluded: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

Role = Literal[
    "scheduler",
    "parent",
    "detokenizer",
    "controller",
    "tokenizer",
    "compiler",
    "bystander",
    "other",
]
State = Literal["hung", "slow", "idle", "serving", "stopped", "crashed", "dead_rank", "cannot_tell"]
# States in which the ranks are healthy, and states in which something is wrong for certain; the others
# (`slow`, `cannot_tell`) leave it open.
WELL: frozenset[State] = frozenset({"idle", "serving"})
FAULTS: frozenset[State] = frozenset({"hung", "stopped", "crashed", "dead_rank"})
Phase = Literal[
    "spawn", "dist_init", "weights", "load_barrier", "kv_pool", "draft_embed", "warmup",
    "graph_prefill", "graph_decode", "graph_draft", "init_done", "ready", "unknown",
]  # fmt: skip
WaitClass = Literal[
    "HOST_COLL", "STORE", "NCCL_INIT", "NCCL_LAUNCH", "CUDA_SYNC", "CAPTURE", "MODULE_LOAD", "JIT",
    "LOCK", "IO", "QUEUE", "IPC", "IDLE", "GIL", "RUNNING", "STOPPED", "UNKNOWN",
]  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Rank:
    """A scheduler's place; `world` numbers all ranks of one replica group, the rest as in its title."""

    world: int
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    cp: int | None = None
    moe_dp: int | None = None

    def __str__(self) -> str:
        parts = ((k, getattr(self, k)) for k in ("dp", "pp", "cp", "moe_dp", "tp", "ep"))
        named = " ".join(f"{k.upper()}{v}" for k, v in parts if v is not None)
        return named or f"rank {self.world}"


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `file` is the path as the dump gives it, `module` the library of a native frame."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a dump, its frames leaf first."""

    frames: tuple[Frame, ...]
    name: str = ""
    os_id: int | None = None
    active: bool | None = None
    owns_gil: bool = False
    main: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Dump:
    """The stacks of one process at one time, or why there are none.

    Attributes
    ----------
    source
        ``py-spy``, ``py-spy text``, ``watchdog`` (inside a log), ``faulthandler``, ``pystack``, ``gdb``.
    refusal
        "" or why there is no stack, translated; `remedy` is what to do about it.
    """

    pid: int
    source: str
    threads: tuple[Thread, ...] = ()
    at: float | None = None
    native: bool = False
    nonblocking: bool = False
    refusal: str = ""
    remedy: str = ""

    @property
    def main(self) -> Thread | None:
        """The main thread, where the dump has it."""
        return next((thread for thread in self.threads if thread.main), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Halt:
    """How long a process was seen halted without a break, and by which tracer (0: none that was seen).

    `program` is the tracer's, "" where it is not a known one.
    """

    seconds: float
    tracer: int = 0
    program: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A short sample of a process's main thread, between two snapshots; `cpu` is in seconds.

    `at` is of the monotonic clock; `call` the number of the system call that it is in, None in none.
    """

    at: float
    state: str
    cpu: float
    wait_channel: str = ""
    call: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Clocks:
    """Three clocks at one moment: the wall's, since boot, and since boot without sleep."""

    wall: float
    boot: float
    monotonic: float

    @property
    def all(self) -> tuple[float, float, float]:
        """All three."""
        return self.wall, self.boot, self.monotonic


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """One process of the server's tree at one time; what could not be read is None.

    `started` is by the wall clock, `started_boot` in seconds since boot. `samples` were taken between the
    snapshot before and this one.
    """

    pid: int
    host: str
    role: Role
    title: str
    rank: Rank | None = None
    parent: int | None = None
    started: float | None = None
    state: str | None = None
    halt: Halt | None = None
    wait_channel: str | None = None
    threads: int | None = None
    threads_by_state: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cpu_seconds: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    lock_files: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    namespace_pid: int | None = None
    exit_code: int | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    started_boot: float | None = None
    main_cpu_seconds: float | None = None
    samples: tuple[Sample, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """One reading of one GPU. `processes`: pid (of its own namespace) to MiB."""

    index: int
    host: str = ""
    uuid: str = ""
    name: str = ""
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    utilisation: float | None = None
    power_watts: float | None = None
    processes: Mapping[int, float] = dataclasses.field(default_factory=dict)
    power_limit_watts: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that was read at one time on one host."""

    at: float
    host: str
    processes: tuple[Process, ...] = ()
    dumps: tuple[Dump, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    clocks: Clocks | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log; `at` in seconds of the log's own clock, `rank` as its prefix writes it (TP0)."""

    number: int
    text: str
    at: float | None = None
    rank: str = ""
    level: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Log:
    """One log file. `lines` may be a selection: markers, errors, first and last lines.

    `ahead`: seconds that its clock is ahead of UTC, None where it is not recorded.
    """

    name: str
    lines: tuple[LogLine, ...]
    host: str = ""
    total_lines: int = 0
    last_at: float | None = None
    ahead: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """All that was seen, joined: what `open_evidence` and `attach` make and `diagnose` judges.

    Attributes
    ----------
    engine, version
        ``sglang``, ``vllm``, ``tensorrt_llm`` or ``torch``, and its version; "" where nothing says it.
    arguments
        The launch's arguments, by flag without dashes (``tp-size``), as they were resolved or given.
    expected_ranks
        How many scheduler ranks the launch asks for on all hosts, None where unknown.
    sizes
        The sources of the launch that give a size (``launch.json``), with the number of ranks by each.
    port_open
        Whether the HTTP port answered, None where it was not tried.
    exits
        World rank (or pid, negative, where the rank is unknown) to exit code, from /proc or the log.
    not_collected
        World ranks of hosts from which nothing was collected: never called missing.
    records
        Further evidence as plain data: ``flight`` (NCCL flight recorder), ``ras``.
    unseen
        Hosts that were asked for and not seen, each with the reason.
    unread
        Files that the system could not read, in words, with its error: a failing disk, no permission.
    """

    source: str
    snapshots: tuple[Snapshot, ...] = ()
    logs: tuple[Log, ...] = ()
    engine: str = ""
    version: str = ""
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    expected_ranks: int | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    port_open: bool | None = None
    exits: Mapping[int, int] = dataclasses.field(default_factory=dict)
    not_collected: tuple[int, ...] = ()
    clock_skew: Mapping[str, float] = dataclasses.field(default_factory=dict)
    records: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unseen: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()
