"""Which engine a scene is of, by all that the evidence names; and what follows for its processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from workbench.facts import engines
from workbench.hang.read.host import Host, Moment
from workbench.hang.read.processes import as_process
from workbench.hang.records import Dump, Process, Rank, Snapshot

_MOST_FRAMES = 200_000
# Launchers that number plain Python processes by variables.
_NUMBERED = frozenset({"torch", "tensorrt_llm"})


def engine_of(hosts: Iterable[Host]) -> str:
    """Return the engine that titles, launches, logs or frames name, "" where nothing does.

    The strongest witness first: what a process calls itself, what was launched, what its log says, and last
    the files of its frames, which may be of an engine that another one calls.
    """
    hosts = list(hosts)
    titles = [engines.engine_of_title(title) for host in hosts for title in _titles(host)]
    for name in ("sglang", "vllm", "tensorrt_llm"):
        if name in titles:
            return name
    commands = [host.command_engine for host in hosts]
    logs = [log.engine for host in hosts for log in host.logs]
    named = [host.manifest.engine if host.manifest else "" for host in hosts]
    found = engines.chosen([*commands, *logs, *named])
    return found or engines.engine_of_files(_files(hosts)) or engines.chosen(titles)


def version_of(hosts: Iterable[Host], engine: str) -> str:
    """Return the engine's version: as collected, or first as the log of vLLM names it."""
    hosts = list(hosts)
    own = next((host.version for host in hosts if host.version), "")
    logs = (log.version for host in hosts for log in host.logs if log.version)
    return next(logs, own) if engine == "vllm" else own


def _titles(host: Host) -> Iterator[str]:
    for moment in host.moments:
        yield from (process.title for process in (moment.listed.processes if moment.listed else ()))
        yield from moment.titles.values()
    for log in host.logs:
        yield from (one.title for one in log.dumps if one.dump.source != "faulthandler")


def _files(hosts: Iterable[Host]) -> Iterator[str]:
    left = _MOST_FRAMES
    for host in hosts:
        dumps = [dump for moment in host.moments for dump in moment.dumps]
        dumps += [one.dump for log in host.logs for one in log.dumps]
        for dump in dumps:
            for thread in dump.threads:
                left -= len(thread.frames)
                if left < 0:
                    return
                yield from {frame.file for frame in thread.frames}


def with_engine_roles(one: Snapshot, engine: str) -> Snapshot:
    """Return a snapshot in which the ranks of engines without titles, or without workers, are known.

    A core of vLLM's that has no workers of its own is the rank itself. What torchrun or mpirun started is
    numbered by its variables.
    """
    processes = one.processes
    if engine == "vllm":
        listed = any(process.state is not None for process in processes)
        workers = any(process.role == "scheduler" for process in processes)
        if listed and not workers:
            processes = tuple(map(_core_as_rank, processes))
    elif engine in _NUMBERED:
        processes = tuple(map(_by_variables, processes))
    return dataclasses.replace(one, processes=processes)


def _core_as_rank(process: Process) -> Process:
    if process.role != "controller":
        return process
    parts = engines.read_title(process.title).parts
    return dataclasses.replace(process, role="scheduler", rank=Rank(0, dp=parts.get("dp")))


def _by_variables(process: Process) -> Process:
    if process.rank is not None or process.role not in ("other", "scheduler"):
        return process
    for name, size in engines.RANK_VARIABLES:
        number, of = process.environment.get(name, ""), process.environment.get(size, "")
        if number.isdecimal() and of.isdecimal() and int(number) < int(of) < 1 << 20:
            return dataclasses.replace(process, role="scheduler", rank=Rank(int(number)))
    return process


def launched_ranks(snapshots: Iterable[Snapshot], engine: str) -> int | None:
    """Return how many ranks a launcher's variables ask for, None where they do not say."""
    if engine not in _NUMBERED:
        return None
    sizes = {
        int(value)
        for one in snapshots
        for process in one.processes
        for _, size in engines.RANK_VARIABLES
        if (value := process.environment.get(size, "")).isdecimal() and 0 < int(value) < 1 << 16
    }
    return sizes.pop() if len(sizes) == 1 else None


def process_of_dump(dump: Dump, host: str, moment: Moment) -> Process | None:
    """Return the process of a dump that no list of processes names; None where nothing tells who it is."""
    title = moment.titles.get(dump.pid, "")
    process = as_process(dump.pid, host, title)
    if process.role != "other":
        return process
    number = moment.ranks.get(dump.pid)
    if number is not None:  # whoever named the file knew the rank
        return dataclasses.replace(process, role="scheduler", rank=Rank(number, tp=number))
    main = dump.main
    functions = {f.function.rpartition(".")[2] for f in main.frames} if main else set()
    if "run_scheduler_process" in functions:
        return dataclasses.replace(process, role="scheduler")
    if "run_detokenizer_process" in functions:
        return dataclasses.replace(process, role="detokenizer")
    if "launch_server" in functions or "_wait_for_scheduler_ready" in functions:
        return dataclasses.replace(process, role="parent")
    return process if title else None
