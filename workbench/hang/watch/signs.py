"""Reading a server's signs from /proc and its log: what costs next to nothing, and pauses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time

from workbench.facts import startup_markers
from workbench.hang.collect.collector import logs, ports, proc, servers
from workbench.hang.watch.records import Answers, LogSign, Member, Reading

_MOST = 4 << 20  # bytes of the log that are read at once
_BATCH = re.compile(rb"(?:Prefill|Decode) batch\b[^\n]*")
_COUNTS = re.compile(rb"#(?:running-req|queue-req|new-seq): (\d+)")
_READY = b"The server is fired up and ready to roll!"
# What is written while nothing gets on: warnings, errors, questions about the server's health.
_NO_STEP = re.compile(rb"WARN|ERROR|\[[WE]\d|still waiting|timed? ?out|\bHTTP/1|health", re.I)
_PREFIX = re.compile(rb"^\[[^\]\n]{0,60}\]\s*")


class Log:
    """The server's log, read as it grows. Held open: what is rotated away is read to its end."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self._file).st_size
        self._at = max(size - _MOST, 0)
        self._whole = self._at == 0
        self._rest = b""
        self.sign = LogSign(ready=False if self._whole else None)
        self.read()

    def read(self) -> LogSign:
        """Read what was added; of more than 4 MiB the last part."""
        size = os.fstat(self._file).st_size
        if size < self._at:  # it was cut short, to begin anew
            self._at, self._rest = 0, b""
        if size - self._at > _MOST:
            self._at, self._rest = size - _MOST, b""
        data = os.pread(self._file, size - self._at, self._at) if size > self._at else b""
        self._at += len(data)
        whole, cut, self._rest = (self._rest + data).rpartition(b"\n")
        self._rest = self._rest[-_MOST:]
        if cut:
            self._take(whole)
        return self.sign

    def _take(self, text: bytes) -> None:
        sign = self.sign
        batches = _BATCH.findall(text)
        if batches:
            running = sum(int(number) for number in _COUNTS.findall(batches[-1]))
            sign = dataclasses.replace(
                sign, batches=sign.batches + len(batches), running=running, ready=True
            )
        elif _READY in text:
            sign = dataclasses.replace(sign, ready=True)
        if not sign.ready:
            lines = re.split(rb"[\r\n]+", text)
            steps = [line for line in lines if line.strip() and not _NO_STEP.search(line)]
            sign = dataclasses.replace(
                sign, steps=sign.steps + len(steps), last=_phase(lines) or sign.last
            )
        self.sign = sign

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)


def _phase(lines: list[bytes]) -> str:
    """Return the name of the last step of the start-up among these lines."""
    for line in reversed(lines[-400:]):
        event = startup_markers.read_marker(_PREFIX.sub(b"", line).decode("utf-8", "replace"))
        if event is not None and event.marker.phase and not event.marker.error:
            return f"{event.marker.phase} ({event.marker.edge})"
    return ""


class Signs:
    """The signs of one server.

    Parameters
    ----------
    server
        Whom to watch.
    log
        Its log; by default the first that it writes to.
    """

    def __init__(self, server: servers.Server, log: str | None = None) -> None:
        self.server = server
        self.argv = proc.arguments(server.root)
        self._given = log
        self._log: Log | None = None
        self._names: dict[tuple[int, int], tuple[str, str]] = {}  # pid and start: role and name
        self.compilers = False
        self._open: bool | None = None
        self._next_list = 0.0
        found = proc.stat(server.root)
        self.started = found.started if found else 0

    @property
    def is_over(self) -> bool:
        """Whether the process that was launched has ended."""
        found = proc.stat(self.server.root)
        return found is None or found.state in ("Z", "X") or found.started != self.started

    @property
    def sleeps(self) -> bool:
        """Whether its loops sleep while there are no requests."""
        return "--sleep-on-idle" in self.argv

    def pids(self) -> set[int]:
        """Return the pids of the server's processes, as they were last listed."""
        return {pid for pid, _ in self._names}

    def read(self, answers: Answers, gpus: tuple[float, float] | None) -> Reading:
        """Read everything now; the slow answers of others are given."""
        now = time.monotonic()
        if now >= self._next_list:
            self.list_processes()
        sign = self._log.read() if self._log is not None else LogSign()
        ready = sign.ready if sign.ready is not None else bool(self._open)
        members = tuple(filter(None, (self._member(*key, io=not ready) for key in self._names)))
        load, watts = gpus or (None, None)
        return Reading(now, members, sign, answers, ready, load, watts, self.compilers)

    def list_processes(self) -> None:
        """Find the server's processes, compilers and log; how often depends on what it costs here."""
        began = time.thread_time()
        processes = proc.everyone()
        pids = [p for p in proc.family(set(self.server.roots), processes) if p != os.getpid()]
        self.compilers = False
        here = {(pid, processes[pid].started) for pid in pids}
        self._names = {key: name for key, name in self._names.items() if key in here}
        for pid in pids:
            key = (pid, processes[pid].started)
            argv = proc.arguments(pid)
            role = servers.role(pid, argv, self.server.roots)
            self.compilers |= role == "compiler"
            # A process that has its title only later is then known by it.
            if role in servers.DUMPED:
                title = argv[0].partition("::")[2] if proc.is_title(argv) else role
                self._names[key] = (role, f"{title.removeprefix('scheduler_')} (pid {pid})")
        self._open = ports.is_open(self.server.root, self.argv)
        self._find_log(pids, processes)
        # A thousandth of one core: a host with many processes is listed less often.
        self._next_list = time.monotonic() + max(10.0, 1000 * (time.thread_time() - began))

    def _find_log(self, pids: list[int], processes: dict[int, proc.Stat]) -> None:
        if self._log is not None:
            return
        path = self._given
        if path is None:
            found, _ = logs.find(pids, self.server.roots, processes)
            path = found[0].path if found else None
        if path is not None:
            with contextlib.suppress(OSError):
                self._log = Log(path)

    def _member(self, pid: int, started: int, *, io: bool) -> Member | None:
        role, name = self._names[pid, started]
        # Of the main thread alone: of a process, the kernel would add up hundreds of threads.
        found = proc.main_thread(pid)
        if found is None or found.started != started:
            return None
        cpu = (found.user + found.system) / proc.TICKS
        moved = proc.io(pid) if io and role == "scheduler" else {}
        return Member(pid, role, name, started, found.state, cpu, sum(moved.values()))

    def close(self) -> None:
        """Let the log go."""
        if self._log is not None:
            self._log.close()
