"""The list of processes of a snapshot (`processes.json`), and what py-spy said of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from workbench.errors import clean
from workbench.facts.engines import is_mpi_worker, read_title
from workbench.facts.startup import world_rank
from workbench.hang.collect.collector.halted import DEBUGGERS, SAMPLERS
from workbench.hang.collect.collector.refusals import Place, translate
from workbench.hang.records import Dump, Halt, Process, Rank, Role

MOST_PROCESSES = 65536
_ROLES = frozenset(get_args(Role))
# psutil's words; /proc has the letters.
_STATES = {
    "running": "R", "sleeping": "S", "disk-sleep": "D", "stopped": "T", "tracing-stop": "t", "zombie": "Z",
    "dead": "X", "wake-kill": "K", "waking": "W", "idle": "I", "locked": "S", "waiting": "S", "parked": "P",
}  # fmt: skip
# Where the dumps were taken is not known here, so that only the reason of a refusal is told.
_ELSEWHERE = Place(root=True, sys_ptrace=True, container="", ptrace_scope=None)
_REMEDY = "Run py-spy as root on the host, or give the container the capability SYS_PTRACE."


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """The processes of one snapshot, the stacks that were refused, and how each dump was taken."""

    processes: tuple[Process, ...]
    refused: tuple[Dump, ...] = ()
    nonblocking: frozenset[int] = frozenset()
    at: float | None = None


def is_process_list(value: Any) -> bool:
    """Tell the decoded JSON of a list of processes."""
    return isinstance(value, dict) and isinstance(value.get("processes"), list)


def read_processes(value: dict[str, Any], host: str) -> Listed:
    """Read a decoded `processes.json`; what has no pid is left out."""
    processes: dict[int, Process] = {}
    refused: list[Dump] = []
    nonblocking: set[int] = set()
    at = _number(value.get("taken_at"))
    for entry in value["processes"][:MOST_PROCESSES]:
        pid = _whole(entry.get("pid")) if isinstance(entry, dict) else None
        if pid is None or pid in processes:
            continue
        processes[pid] = _process(entry, pid, host)
        for field, native in (("py", False), ("native", True)):
            said = entry.get(field)
            if not isinstance(said, dict):
                continue
            if said.get("nonblocking") is True:
                nonblocking.add(pid)
            if said.get("exit") not in (0, None) or isinstance(said.get("refusal"), str):
                refused.append(_refusal(said, pid, processes[pid].state or "", native, at))
    return Listed(tuple(processes.values()), tuple(refused), frozenset(nonblocking), at)


def as_process(pid: int, host: str, title: str, *, started: float | None = None) -> Process:
    """Return a process of which only the title is known."""
    known = read_title(title)
    if known.role == "scheduler_unnamed" or is_mpi_worker(
        title
    ):  # a rank whose title has no number
        return Process(pid, host, "scheduler", clean(title.strip()[:2000]), started=started)
    rank = rank_of_parts(known.parts) if known.role == "scheduler" else None
    return Process(pid, host, _role(known.role), clean(title.strip()[:2000]), rank, started=started)


def with_world(process: Process, tp_size: int, pp_size: int) -> Process:
    """Return a process with its rank numbered, now that the sizes of the launch are known."""
    if process.rank is None:
        return process
    names = ("dp", "pp", "cp", "moe_dp", "tp", "ep")
    parts = {n: v for n in names if (v := getattr(process.rank, n)) is not None}
    if not parts:
        return process
    world = world_rank(parts, tp_size=tp_size, pp_size=pp_size)
    return dataclasses.replace(process, rank=dataclasses.replace(process.rank, world=world))


def rank_of_parts(parts: Mapping[str, int]) -> Rank:
    """Return a rank with its parts; it is numbered later, by `with_world`."""
    return Rank(world_rank(parts), **parts)


def _process(entry: dict[str, Any], pid: int, host: str) -> Process:
    argv = tuple(
        clean(word[:2000]) for word in _list(entry.get("argv"))[:400] if isinstance(word, str)
    )
    title = entry.get("cmd") if isinstance(entry.get("cmd"), str) else " ".join(argv)
    found = as_process(pid, host, title or "")
    role: Role = found.role
    said = entry.get("role")
    if role == "other" and isinstance(said, str) and said in _ROLES and said != "scheduler":
        role = _role(said)
    cpu, environment = entry.get("cpu"), entry.get("environment")
    times = [_number(cpu.get(name)) for name in ("user", "system")] if isinstance(cpu, dict) else []
    variables = {
        name: text
        for name, text in (
            list(environment.items())[:2000] if isinstance(environment, dict) else ()
        )
        if isinstance(text, str)
    }
    return dataclasses.replace(
        found,
        role=role,
        parent=_whole(entry.get("ppid")),
        started=_number(entry.get("started")),
        state=_state(entry.get("status")),
        halt=_halt(entry.get("halt")),
        wait_channel=_channel(entry),
        threads=_whole(entry.get("threads")),
        threads_by_state=_counts(entry.get("thread_states")),
        cpu_seconds=sum(t for t in times if t is not None)
        if any(t is not None for t in times)
        else None,
        read_bytes=_whole(entry.get("read_bytes")),
        written_bytes=_whole(entry.get("written_bytes")),
        lock_files=_texts(entry.get("lock_files")),
        compilers=_texts(entry.get("compilers")),
        namespace_pid=_whole(entry.get("namespace_pid")),
        exit_code=_code(entry.get("exit_code")),
        environment=variables,
        arguments=argv,
    )


def _refusal(said: dict[str, Any], pid: int, state: str, native: bool, at: float | None) -> Dump:
    text = said.get("stderr")
    refusal, remedy = said.get("refusal"), said.get("remedy")
    if not isinstance(refusal, str):
        refusal, _ = translate(
            text if isinstance(text, str) else "", _ELSEWHERE, state=state or "S"
        )
        remedy = _REMEDY if "permission" in refusal or "may not be traced" in refusal else ""
    return Dump(
        pid,
        "py-spy",
        at=at,
        native=native,
        nonblocking=said.get("nonblocking") is True,
        refusal=clean(refusal[:400]),
        remedy=clean(remedy[:400]) if isinstance(remedy, str) else "",
    )


def _role(role: str) -> Role:
    return role if role in _ROLES else "other"  # type: ignore[return-value]


def _state(value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    return _STATES.get(value, value[:1] if len(value) == 1 else None)


def _halt(value: Any) -> Halt | None:
    seconds = _number(value.get("seconds")) if isinstance(value, dict) else None
    if seconds is None:
        return None
    program = value.get("program")
    known = isinstance(program, str) and program in SAMPLERS | DEBUGGERS
    return Halt(seconds, _whole(value.get("tracer")) or 0, program if known else "")


def _channel(entry: dict[str, Any]) -> str | None:
    """Return where the main thread sleeps: as told, or where all threads do."""
    told = entry.get("wait_channel")
    if isinstance(told, str) and told:
        return clean(told[:200])
    waits = _counts(entry.get("thread_waits"))
    return next(iter(waits)) if len(waits) == 1 else None


def _counts(value: Any) -> dict[str, int]:
    pairs = list(value.items())[:256] if isinstance(value, dict) else []
    return {clean(str(name)[:200]): count for name, count in pairs if _whole(count) is not None}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(clean(text[:1000]) for text in _list(value)[:256] if isinstance(text, str))


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _code(value: Any) -> int | None:
    return value if type(value) is int and -1000 < value < 1000 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 else None
