"""Running py-spy: in parallel, for a bounded time, and never leaving a process paused."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from workbench.hang.collector import proc, refusals

TIMEOUT = 20.0
# A dump of a thousand deep threads has some 10 MB.
MOST_BYTES = 256 << 20
_TRIES = 4


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
        The program; by default it is looked for on the PATH and beside this Python.
    timeout
        Seconds after which a dump is given up and py-spy is killed.
    """

    def __init__(self, path: str | None = None, timeout: float = TIMEOUT) -> None:
        self.path = path or _find()
        self.timeout = timeout
        self.place = refusals.here()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def dump_all(self, pids: list[int], *, native: bool = False) -> dict[int, Taken]:
        """Dump several processes, as many at a time as there are processors.

        More at a time would end no sooner, and pause each process for longer. Interrupted
        (KeyboardInterrupt), it kills what runs and raises with what it has in `taken` of the error.
        """
        if self.path is None:
            refusal = ("py-spy is not installed here", "Install it: pip install py-spy.")
            return {pid: _nothing(pid, *refusal) for pid in pids}
        taken: dict[int, Taken] = {}
        workers = max(1, min(len(os.sched_getaffinity(0)), len(pids), 16))
        with ThreadPoolExecutor(workers, thread_name_prefix="py-spy") as pool:
            futures = [pool.submit(self.dump, pid, native=native) for pid in pids]
            try:
                for future in as_completed(futures):
                    one = future.result()
                    taken[one.pid] = one
            except KeyboardInterrupt:
                self.stop()
                for future in futures:
                    future.cancel()
                for future in futures:
                    if not future.cancelled():
                        taken[future.result().pid] = future.result()
                raise Interrupted(taken) from None
        return taken

    def dump(self, pid: int, *, native: bool = False) -> Taken:
        """Dump one process.

        A stopped process is read without pausing it (``--nonblocking``), since it could not be
        paused; so is one that somebody else traces, after a few tries.
        """
        nonblocking = False
        for number in range(_TRIES):
            state = _state(pid)
            if self._stopped:
                return _nothing(pid, "interrupted before it was dumped", "")
            if not state or state in "ZX":
                refusal, remedy = refusals.translate("", self.place, state=state)
                return _nothing(pid, refusal, remedy)
            nonblocking = nonblocking or state == "T"
            if native and nonblocking:
                return _nothing(pid, "a stopped process gives no native frames", "")
            data, record = self._run(pid, native=native, nonblocking=nonblocking)
            if data is not None or record["exit"] is None:
                return Taken(pid, data, record)
            text = record["stderr"]
            if "unexpected waitpid result" in text or "Failed to suspend process" in text:
                # Stopped meanwhile, or traced by somebody who may be done in a moment.
                nonblocking = _state(pid) == "T" or number == _TRIES - 2
            elif "in the .data section" not in text:  # seen once in twenty dumps of a busy process
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
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                # In a session of its own: Ctrl-C on this terminal must not end it halfway.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                record.update(stderr=str(error), refusal=f"py-spy could not be started: {error}")
                return None, record
            with self._lock:
                self._running.add(process)
            try:
                record["exit"] = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                _kill(process)
                record["refusal"] = f"py-spy did not end within {self.timeout:g} s and was killed"
            with self._lock:
                self._running.discard(process)
            record["seconds"] = round(time.monotonic() - began, 3)
            if record["exit"] is None or record["exit"] < 0:
                _resume(pid, was_stopped, record)
            err.seek(0)
            out.seek(0)
            record["stderr"] = err.read(2000).decode("utf-8", "replace")
            data = out.read(MOST_BYTES) if record["exit"] == 0 else None
        return data, record


class Interrupted(KeyboardInterrupt):
    """The user interrupted a pass; `taken` holds the dumps that were complete."""

    def __init__(self, taken: dict[int, Taken]) -> None:
        super().__init__()
        self.taken = taken


def _nothing(pid: int, refusal: str, remedy: str) -> Taken:
    record = {"exit": None, "stderr": "", "nonblocking": False}
    return Taken(pid, None, {**record, "refusal": refusal, "remedy": remedy})


def _find() -> str | None:
    beside = os.path.join(os.path.dirname(sys.executable or ""), "py-spy")
    return shutil.which("py-spy") or (beside if os.access(beside, os.X_OK) else None)


def _state(pid: int) -> str:
    facts = proc.stat(pid)
    return facts.state if facts else ""


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
