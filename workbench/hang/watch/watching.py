"""The watch: reads the signs of a server, and records a case when its progress stops."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

from workbench.core import progress as reporting
from workbench.errors import WorkbenchError, shown
from workbench.hang.attach import collect_case, collector_errors, log_named
from workbench.hang.collect.collector import proc, servers
from workbench.hang.collect.collector.servers import CollectError
from workbench.hang.collect.collector.stopping import stopping
from workbench.hang.open_evidence import open_evidence
from workbench.hang.records import WELL
from workbench.hang.watch import progress, screen
from workbench.hang.watch.answers import Asked
from workbench.hang.watch.records import Recorded, Sight, Watched
from workbench.hang.watch.rotation import Folder
from workbench.hang.watch.signs import Signs

_EVERY = 2.0  # seconds between two readings
_GRACE = 3.0  # seconds in which the others may end as well: a server that ends is no case
_SEARCH = 10.0  # seconds between two searches for a server
_MOST_CASES = 200  # that the answer lists

Show = Callable[[Sight, "tuple[Recorded, ...]"], None]


def watch(
    pid: int | None = None,
    *,
    out: str | os.PathLike[str],
    after: float = 60.0,
    keep: int = 5,
    interval: float = 10.0,
    log: str | os.PathLike[str] | None = None,
) -> Watched:
    """Watch a running SGLang server, and record a case when its progress stops.

    Progress is read from /proc, the log, NVML, and `/model_info` and `/metrics` if they answer; `/health` is
    never asked. Nothing is paused until a case is recorded. A case of a server that the diagnosis then calls
    healthy is not kept.

    Parameters
    ----------
    pid
        Any process of the server: the watch ends when that server ends. None: the one server of this host,
        and after its end the next one.
    out
        The folder for the cases; it gets mode 0700.
    after
        Seconds without progress, with requests pending or in a start-up, after which a case is recorded.
        At most half of the time that the launch gives to SGLang's own watchdog.
    keep
        How many cases stay in the folder.
    interval
        Seconds between the two snapshots of a case.
    log
        The server's log. By default it is found among the server's open files.

    Returns
    -------
    Watched
        The cases, and what the watch cost. Ctrl-C and SIGTERM end the watch and return it.

    Raises
    ------
    WorkbenchError
        There is no such server, or the folder cannot be used.

    Examples
    --------
    >>> workbench.watch(4711, out="cases")  # doctest: +SKIP
    """
    _check(pid, after, keep, interval)
    path = log_named(log)
    if pid is not None:
        with collector_errors():  # before a folder is made for nothing
            servers.choose(pid, proc.everyone())
    with screen.screen() as show:
        return _Watch(pid, Folder(out, keep), after, interval, path, show).run()


def _check(pid: object, after: object, keep: object, interval: object) -> None:
    if pid is not None and (not isinstance(pid, int) or isinstance(pid, bool) or pid < 1):
        raise WorkbenchError(f"{shown(pid)} is not a pid", next_step="Give the pid of a process.")
    for name, value, low in (("after", after, 1), ("interval", interval, 1), ("keep", keep, 1)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= 86400:  # type: ignore[operator]
            raise WorkbenchError(
                f"{name}={shown(value)} is not possible",
                next_step=f"Give a number from {low} to 86400.",
            )
    if not isinstance(keep, int):
        raise WorkbenchError(
            f"keep={shown(keep)} is not possible", next_step="Give a whole number of cases."
        )


class _Watch:
    def __init__(
        self,
        pid: int | None,
        folder: Folder,
        after: float,
        interval: float,
        log: str | None,
        show: Show,
    ) -> None:
        self.pid, self.folder, self.log, self._show = pid, folder, log, show
        self.after, self.interval = after, interval
        self.every = min(_EVERY, after / 8)
        self.found = Watched()
        self.recording = 0.0  # CPU seconds of recording
        self.over = False
        self.name = ""

    def run(self) -> Watched:
        """Watch until the server ends, or somebody ends the watch."""
        began, used = time.monotonic(), time.process_time()
        with contextlib.suppress(KeyboardInterrupt), stopping():
            while not self.over:
                server = self.search()
                if server is not None:
                    self.follow(server)
        cpu = time.process_time() - used - self.recording
        return dataclasses.replace(
            self.found, seconds=time.monotonic() - began, cpu_seconds=max(cpu, 0.0)
        )

    def search(self) -> servers.Server | None:
        """Return the server; None after a while without one."""
        try:
            return servers.choose(self.pid, proc.everyone())
        except CollectError as error:
            several = self.pid is None and len(servers.find_servers(proc.everyone())) > 1
            if self.pid is not None or several:
                with collector_errors():
                    raise
            self.show(Sight("waiting", error.what))
        self.pause(_SEARCH)
        return None

    def follow(self, server: servers.Server) -> None:
        """Watch one server until it ends."""
        self.name = servers.describe(server)
        signs = Signs(server, self.log)
        signs.list_processes()
        asked = Asked(server.root, signs.argv, signs.pids)
        limit = min(self.after, *_watchdogs(signs.argv))
        if limit < self.after:
            self.note(
                f"a case is recorded after {limit:g} s: SGLang's watchdog would end the server"
            )
        try:
            self.follow_signs(signs, asked, limit)
        finally:
            asked.stop()
            signs.close()

    def follow_signs(self, signs: Signs, asked: Asked, limit: float) -> None:
        """Read, judge, record; one case for each time that progress stops."""
        memory = progress.begin(signs.read(asked.answers, asked.gpus))
        recorded: set[object] = set()
        while True:
            self.pause(self.every)
            if signs.is_over:
                break
            reading = signs.read(asked.answers, asked.gpus)
            gap = max(5 * self.every, 2.0)
            memory, sight = progress.step(memory, reading, sleeps=signs.sleeps, gap=gap)
            if sight.stage in ("working", "idle"):
                recorded.discard("still")
                self.found = dataclasses.replace(self.found, progress=True)
            self.show(sight)
            due = self.due(signs, memory, sight, limit)
            if due and not due <= recorded:
                self.record(signs, sight)
                recorded |= due
                memory = dataclasses.replace(memory, last=signs.read(asked.answers, asked.gpus))
            if self.over:
                return
        self.show(Sight("ended", f"{self.name} has ended"))
        self.over = self.pid is not None

    def due(
        self, signs: Signs, memory: progress.Memory, sight: Sight, limit: float
    ) -> frozenset[object]:
        """Return for what a case is due now: which processes are dead, or that progress has stopped."""
        if sight.stage == "dead":
            self.pause(min(_GRACE, limit))
            return frozenset() if signs.is_over else frozenset(memory.dead)
        if sight.stage not in ("still", "starting") or sight.still_for < limit:
            return frozenset()
        signs.list_processes()  # a compiler may have begun since
        return frozenset() if signs.compilers else frozenset({"still"})

    def record(self, signs: Signs, sight: Sight) -> None:
        """Record a case, read it, keep it unless the server is well, and remove the oldest ones."""
        used = time.process_time()
        path = self.folder.next()

        def tell(now: reporting.Progress) -> None:
            if now.text:
                self.show(dataclasses.replace(sight, reason=f"recording: {now.text}"))

        try:
            with reporting.watched(tell, lambda: False):
                found = collect_case(
                    path, signs.server.root, snapshots=2, interval=self.interval, log=self.log
                )
            self.over |= found.interrupted
            self.keep(path, sight, interrupted=found.interrupted)
        except WorkbenchError as error:
            if not signs.is_over:
                self.note(f"a case could not be recorded: {error}")
        finally:
            self.recording += time.process_time() - used

    def keep(self, path: Path, sight: Sight, *, interrupted: bool) -> None:
        """Keep a case with what the diagnosis says of it; not one of a healthy server."""
        sentence, ok = "not diagnosed: the watch was ended meanwhile", None
        if not interrupted:
            diagnosis = open_evidence(path)
            if diagnosis.state in WELL:
                path.unlink()
                self.note(f"{sight.reason}; but: {diagnosis.verdict.sentence}")
                return
            sentence, ok = diagnosis.verdict.sentence, diagnosis.ok
        case = Recorded(path, sentence, sight.reason, ok)
        cases = (*self.found.cases, case)[-_MOST_CASES:]
        self.found = dataclasses.replace(self.found, cases=cases)
        self.folder.rotate()
        self.show(sight)

    def note(self, text: str) -> None:
        """Keep a remark for the reader, once."""
        if text not in self.found.notes:
            notes = (*self.found.notes, text)[-_MOST_CASES:]
            self.found = dataclasses.replace(self.found, notes=notes)

    def show(self, sight: Sight) -> None:
        """Show what is seen."""
        self._show(sight, self.found.cases)

    def pause(self, seconds: float) -> None:
        """Wait; a panel's stop button is asked as well."""
        time.sleep(seconds)
        reporting.step(0)


def _watchdogs(argv: list[str]) -> list[float]:
    """Return half of the times after which SGLang's watchdogs act, as the launch gives them."""
    given = (servers.option(argv, f"--{kind}watchdog-timeout") for kind in ("", "soft-"))
    times = []
    for text in filter(None, given):
        with contextlib.suppress(ValueError):
            times.append(float(text) / 2)
    return [one for one in times if one >= 1] or [float("inf")]
