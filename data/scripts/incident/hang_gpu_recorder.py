"""Recording hurts of several servers on one host: `hang_gpu_more.py` says which."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import Deadline, Log, write_json
from hang_gpu_hurts import BODY, LONG, Request
from server import Launch, Server
from snapshots import family, find

ROOT = Path(__file__).resolve().parents[3]
LAST = 12
STARTS = {
    "oom": "capture-oom", "fail": "capture-fail", "hidden_oom": "capture-oom", "hidden": "capture-fail",
}  # fmt: skip


class Recorder:
    """Starts servers, does one thing at a time, and keeps each case as soon as it is there."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.log = Log(arguments.out / "log.txt")
        self.deadline = Deadline(arguments.deadline)
        self.truth: dict[str, Any] = {}
        self.turn: Path = arguments.turn or arguments.work / "turn"
        self.writing = threading.Lock()
        self.ports = iter(range(arguments.port, arguments.port + 4000, 100))

    def until(self) -> float:
        """Return when waiting must end, by the monotonic clock."""
        return time.monotonic() + self.deadline.left() - LAST

    def environment(self) -> dict[str, str]:
        """Return the variables with which the workbench runs here."""
        engine = self.arguments.engine
        site = [str(path) for path in (ROOT, self.arguments.site, engine) if path]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(site),
            "PATH": os.pathsep.join([str(engine / "bin"), os.environ["PATH"]]),
        }

    def workbench(self, *words: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """Run a verb."""
        return subprocess.run(
            [sys.executable, "-m", "workbench.cli", *words],
            env=self.environment(), capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def collect(self, server: Server, name: str, what: str, apart: float | None = None) -> None:
        """Record a case, and keep it."""
        case = self.arguments.work / f"{name}.zip"
        apart = self.arguments.apart if apart is None else apart
        done = self.workbench(
            "collect",
            str(server.process.pid),
            "-o",
            str(case),
            "--interval",
            str(apart),
            "--native",
        )
        self.log(name, done.returncode, done.stdout[-300:], done.stderr[-300:])
        self.keep(name, case, {"what": what, "collect": done.returncode})

    def attach(self, server: Server, name: str) -> None:
        """Ask the real `attach` as well, and keep its answer."""
        done = self.workbench("hang", str(server.process.pid), "--interval", "5.2", "--json")
        answer = self.arguments.work / f"{name}.attach.json"
        answer.write_text(done.stdout)
        self.keep(f"{name}.attach", answer, {"exit": done.returncode, "error": done.stderr[-300:]})

    def of_log(self, server: Server, name: str, what: str) -> None:
        """Keep what is left of a server that has died: its log and its launch."""
        case = self.arguments.work / f"{name}.zip"
        with zipfile.ZipFile(case, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(server.log_path, "server.log")
            archive.writestr("launch.json", json.dumps(server.record))
        self.keep(name, case, {"what": what, "collect": "log alone"})

    def keep(self, name: str, file: Path, facts: dict[str, Any]) -> None:
        """Add a file to what comes back, and write down what is true of it."""
        with self.writing:
            self.truth[name] = {**self.truth.get(name, {}), **facts}
            if file.is_file():
                with tarfile.open(self.arguments.out / "cases.tar", "a") as archive:
                    archive.add(file, file.name)
            write_json(self.arguments.out / "truth.json", self.truth)

    @property
    def hurt(self) -> int:
        """The rank that is hurt: the last one."""
        return int(self.arguments.ranks) - 1

    @property
    def title(self) -> str:
        """The title of that rank."""
        return f"sglang::scheduler_TP{self.hurt}" if self.hurt else "sglang::scheduler"

    @contextlib.contextmanager
    def server(
        self, name: str, graphs: bool, *, models: Path | None = None, **launch: Any
    ) -> Iterator[tuple[Server, Path]]:
        """Start one server whose hook does what a file says, and end it whatever happens."""
        file = self.arguments.work / f"{name}.do"
        hook = {
            "name": "mischief",
            "hook_factory": "mischief:factory",
            "config": {"file": str(file)},
        }
        hook["target_modules"] = ["model.layers.3.mlp", "model.layers.9.mlp"]
        extra = [*launch.pop("extra", []), "--forward-hooks", json.dumps([hook])]
        if launch.pop("starts_hurt", ""):
            file.write_text(f"{self.hurt} {STARTS[name]}")
        made = Launch(name, target="target", graphs=graphs, extra=extra, **launch)
        given = self.arguments
        server = Server(
            made,
            given.engine,
            models or given.models,
            given.work / name,
            next(self.ports),
            given.launcher,
        )
        end = threading.Timer(max(1.0, self.deadline.left() - 8), server.process.kill)
        end.start()
        try:
            yield server, file
        finally:
            end.cancel()
            server.stop(grace=0)

    def ready(self, server: Server) -> None:
        """Wait until it serves, and ask once."""
        if not server.wait_ready(self.until()):
            raise RuntimeError(f"the server did not come up: {server.log()[-1500:]}")
        self.log(server.launch.name, "ready after", server.record.get("ready_after"), "s")
        server.post(BODY)

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait for one's turn; what fails in it is written down, and the next one goes on."""
        with self.turn.open("w") as turn:
            if not self.arguments.at_once:
                fcntl.flock(turn, fcntl.LOCK_EX)
            if self.deadline.left() < LAST + 12:
                raise RuntimeError(f"no time left for {name}")
            try:
                yield
            except Exception as error:
                self.log(name, f"{type(error).__name__}: {error}")


def hurt(
    recorder: Recorder, server: Server, file: Path, name: str, order: str, *, asked: int = 1,
    attach: bool = False,
) -> None:  # fmt: skip
    """Let ranks do something under requests, record it, and let it end."""
    with recorder.alone(name):
        file.write_text(order)
        requests = [Request(server) for _ in range(asked)]
        try:
            time.sleep(recorder.arguments.settle)
            recorder.collect(server, name, f"requests came, and in a forward hook: {order}")
            if attach:
                recorder.attach(server, name)
            recorder.truth[name]["answered_before_the_end"] = [one.answered for one in requests]
        finally:
            file.unlink(missing_ok=True)
        for one in requests:
            one.join(20)
        recorder.truth[name]["answered_after_the_end"] = [one.answered for one in requests]


def halt(
    recorder: Recorder,
    server: Server,
    name: str,
    title: str,
    *,
    asked: int = 1,
    sign: int = signal.SIGSTOP,
) -> None:
    """Stop or kill a process under requests, record it, and let it run on; no title is the main process."""
    with recorder.alone(name):
        pid = find(server.process.pid, title) if title else server.process.pid
        if pid is None:
            raise RuntimeError(f"no process {title}")
        killed = sign == signal.SIGKILL
        requests = [
            Request(server, LONG if killed else BODY) for _ in range(asked if killed else 0)
        ]
        time.sleep(1 if killed else 0)
        os.kill(pid, sign)
        requests += [Request(server) for _ in range(0 if killed else asked)]
        try:
            time.sleep(0.2 if killed else recorder.arguments.settle)
            what = f"signal {sign} to {title or 'the main process'}"
            recorder.collect(server, name, what, 2 if killed else None)
            recorder.truth[name]["answered_before_the_end"] = [one.answered for one in requests]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for one in requests:
            one.join(0 if killed else 20)
        if killed:
            time.sleep(3)
            recorder.of_log(server, f"{name}-log", "the same, by its log")


def idle(recorder: Recorder, server: Server, name: str, *, attach: bool = False) -> None:
    """Record a server to which nothing is done."""
    with recorder.alone(name):
        time.sleep(1)
        recorder.collect(server, name, "nothing was done; nobody asked for anything")
        if attach:
            recorder.attach(server, name)


def loaded(recorder: Recorder, server: Server, name: str) -> None:
    """Record a server that answers one long request after the other."""
    with recorder.alone(name):
        asking = threading.Event()

        def ask() -> None:
            while not asking.is_set():
                server.post(
                    {**LONG, "sampling_params": {**LONG["sampling_params"], "max_new_tokens": 400}}
                )

        asked = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
        for one in asked:
            one.start()
        time.sleep(recorder.arguments.settle)
        recorder.collect(server, name, "two long requests at a time are under way")
        asking.set()
        for one in asked:
            one.join(30)
        recorder.truth[name]["answered"] = [not one.is_alive() for one in asked]


def keep_or_collect(recorder: Recorder, server: Server, name: str, what: str) -> None:
    """Record a server that lives, or keep the log of one that has died."""
    if server.process.poll() is None and len(family(server.process.pid)) > 2:
        recorder.collect(server, name, what)
        time.sleep(2)
        recorder.of_log(server, f"{name}-log", f"{what} (by its log)")
    else:
        recorder.of_log(server, name, what)


def watched(recorder: Recorder, server: Server, file: Path, name: str, order: str) -> None:
    """Let `workbench watch` see a server that is well, hurt it, and wait for the case."""
    with recorder.alone(name), watching(recorder, server, name) as (facts, cases):
        facts["what"] = f"the watch ran, requests came, and in a forward hook: {order}"
        time.sleep(6)
        for _ in range(2):
            server.post(BODY)
            time.sleep(2)
        facts["cases_before"] = len(cases())
        file.write_text(order)
        Request(server)
        facts["seconds_until_the_case"] = until_a_case(cases, time.monotonic() + 60)
        file.unlink(missing_ok=True)


def until_a_case(cases: Callable[[], list[Path]], until: float) -> float:
    """Wait for the first case, and return after how many seconds it was complete."""
    began = time.monotonic()
    while not cases() and time.monotonic() < until:
        time.sleep(0.3)
    seconds = round(time.monotonic() - began, 1)
    time.sleep(2)
    return seconds


@contextlib.contextmanager
def watching(
    recorder: Recorder, server: Server, name: str
) -> Iterator[tuple[dict[str, Any], Callable[[], list[Path]]]]:
    """Run `workbench watch` next to a server, and keep its first case and what it printed."""
    folder = recorder.arguments.work / f"{name}-watch"
    text = recorder.arguments.work / f"{name}.txt"
    facts: dict[str, Any] = {}
    command = [sys.executable, "-m", "workbench.cli", "watch", str(server.process.pid)]
    command += ["--out", str(folder), "--after", str(recorder.arguments.after), "--interval", "5.2"]
    with text.open("wb") as printed:
        watch = subprocess.Popen(
            command, env=recorder.environment(), stdout=printed, stderr=subprocess.STDOUT
        )
        try:
            yield facts, lambda: sorted(folder.glob("*.zip"))
        finally:
            watch.send_signal(signal.SIGTERM)
            facts["exit_of_the_watch"] = watch.wait(20)
    for case in sorted(folder.glob("*.zip"))[:1]:
        shutil.copy(case, recorder.arguments.work / f"{name}.zip")
    recorder.keep(name, recorder.arguments.work / f"{name}.zip", facts)
    recorder.keep(name, text, {})


def wait_for(recorder: Recorder, server: Server, words: tuple[str, ...]) -> bool:
    """Wait for a line of the log with all these words."""
    while time.monotonic() < recorder.until() and server.process.poll() is None:
        if any(all(word in line for word in words) for line in server.log().splitlines()):
            return True
        time.sleep(0.05)
    return False


def died(recorder: Recorder, server: Server, name: str, file: Path, order: str) -> None:
    """Do what may end the server; record it while it lives, and keep its log after that."""
    with recorder.alone(name):
        file.write_text(order)
        Request(server)
        until = time.monotonic() + recorder.arguments.settle + 3
        while server.process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        keep_or_collect(recorder, server, name, f"a request came, and in a forward hook: {order}")
        file.unlink(missing_ok=True)
