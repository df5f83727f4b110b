"""Running py-spy: in parallel, for a bounded time, and never leaving a process paused."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from workbench.hang.collect.collector import find_pyspy, proc, refusals

TIMEOUT = 20.0
# A dump of a thousand deep threads has some 10 MB.
MOST_BYTES = 256 << 20
ABSENT = ("py-spy is not installed here", "Install it: pip install py-spy.")
_TRIES = 4
_STAYS = 0.2
# What py-spy says of a busy process now and then, and not when it is asked again.
_PASSING = ("in the .data section", "Failed to get stack traces")


class Taken(NamedTuple):
    """One dump: py-spy's JSON (None where there is none), and how the call ended."""

    pid: int
    data: bytes | None
    record: dict[str, Any]


class PySpy:
    """py-spy on this machine.

    Parameters
    ----------
    path
        The program; by default the one next to this Python, else the one on the PATH.
    timeout
        Seconds after which a dump is given up and py-spy is killed.
    """

    def __init__(self, path: str | None = None, timeout: float = TIMEOUT) -> None:
        # A program that was named is taken as it is: it may be a wrapper that knows no --version.
        self.found = find_pyspy.Found(path) if path else find_pyspy.find()
        self.path = self.found.path
        self.timeout = timeout
        self.place = refusals.here()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        # More at a time would end no sooner, and pause each process for longer.
        self._most = min(len(os.sched_getaffinity(0)), 16)
        self._slots = threading.Semaphore(self._most)

    @property
    def interrupted(self) -> bool:
        """Whether no other dump is to begin."""
        return self._stopped

    def each(self, look: Callable[[int], None], pids: list[int]) -> None:
        """Call `look`, which dumps it and does what else is to be done, with each process.

        As many are dumped at a time as there are processors; as many workers again do the rest meanwhile.
        Interrupted (KeyboardInterrupt), it kills what runs; `look` is still called with the others, whose
        dumps say that they were not begun.
        """
        with ThreadPoolExecutor(2 * self._most, thread_name_prefix="py-spy") as pool:
            futures = [pool.submit(look, pid) for pid in pids]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self.stop()
                raise

    def dump(self, pid: int, *, native: bool = False) -> Taken:
        """Dump one process.

        A stopped process is read without pausing it (``--nonblocking``), since it could not be
        paused; so is one of which a thread cannot be interrupted (state D), and one that somebody else
        traces, after a few tries.
        """
        if self.path is None:
            return _nothing(pid, *ABSENT)
        with self._slots:
            return self._dump(pid, native)

    def _dump(self, pid: int, native: bool) -> Taken:
        nonblocking = False
        for number in range(_TRIES):
            state = _state(pid)
            if self._stopped:
                return _nothing(pid, "interrupted before it was dumped", "")
            if not state or state in "ZX":
                refusal, remedy = refusals.translate("", self.place, state=state)
                return _nothing(pid, refusal, remedy)
            nonblocking = nonblocking or state == "T" or _cannot_pause(pid)
            if native and nonblocking:
                return _nothing(pid, "a process that cannot be paused gives no native frames", "")
            data, record = self._run(pid, native=native, nonblocking=nonblocking)
            if data is not None or record["exit"] is None:
                return Taken(pid, data, record)
            text = record["stderr"]
            if "unexpected waitpid result" in text or "Failed to suspend process" in text:
                # Stopped meanwhile, or traced by somebody who may be done in a moment.
                nonblocking = _state(pid) == "T" or number == _TRIES - 2
            elif not any(words in text for words in _PASSING):
                break
            time.sleep(0.05 + random.random() * 0.2)
        refusal, remedy = refusals.translate(
            record["stderr"], self.place, state=_state(pid), tracer=proc.tracer(pid)
        )
        return Taken(pid, None, {**record, "refusal": refusal, "remedy": remedy})

    def stop(self) -> None:
        """End the dumps that run, and begin no other."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _kill(process)

    def _run(
        self, pid: int, *, native: bool, nonblocking: bool
    ) -> tuple[bytes | None, dict[str, Any]]:
        command = [str(self.path), "dump", "--json", "--pid", str(pid)]
        command += ["--native"] * native + ["--nonblocking"] * nonblocking
        record: dict[str, Any] = {"exit": None, "nonblocking": nonblocking}
        was_stopped = _state(pid) == "T"
        began = time.monotonic()
        with tempfile.TemporaryFile() as out:
            try:
                # In a session of its own: Ctrl-C on this terminal must not end it halfway.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                record.update(stderr=str(error), refusal=f"py-spy could not be started: {error}")
                return None, record
            with self._lock:
                self._running.add(process)
            try:
                # Its standard error ends with it: to wait for that is to know at once. `wait` with a
                # time limit looks every 50 ms.
                _, said = process.communicate(timeout=self.timeout)
                record["exit"] = process.returncode
            except subprocess.TimeoutExpired:
                _kill(process)
                _, said = process.communicate()
                record["refusal"] = f"py-spy did not end within {self.timeout:g} s and was killed"
            with self._lock:
                self._running.discard(process)
            record["seconds"] = round(time.monotonic() - began, 3)
            if record["exit"] is None or record["exit"] < 0:
                _resume(pid, was_stopped, record)
            out.seek(0)
            record["stderr"] = said[:2000].decode("utf-8", "replace")
            data = out.read(MOST_BYTES) if record["exit"] == 0 else None
        return data, record


def _nothing(pid: int, refusal: str, remedy: str) -> Taken:
    record = {"exit": None, "stderr": "", "nonblocking": False}
    return Taken(pid, None, {**record, "refusal": refusal, "remedy": remedy})


def _state(pid: int) -> str:
    facts = proc.stat(pid)
    return facts.state if facts else ""


def _cannot_pause(pid: int) -> bool:
    """Whether one thread stays in state D: who tries to pause it waits for what it waits for, too."""
    found = proc.uninterruptible(pid)
    if found:
        time.sleep(_STAYS)
        found &= proc.uninterruptible(pid)
    return bool(found)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def _resume(pid: int, was_stopped: bool, record: dict[str, Any]) -> None:
    """Let a process run on that a killed py-spy left stopped.

    The kernel lets go of what a dead tracer held, but a thread that was just being paused may keep
    the stop.
    """
    for _ in range(10):
        time.sleep(0.02)
        state = _state(pid)
        if state == "T" and not was_stopped and not proc.tracer(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
            record["resumed"] = True
            return
        if state not in ("T", "t"):
            return
