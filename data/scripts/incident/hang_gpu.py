"""Real hangs of a real SGLang on two GPUs, each recorded by the workbench's own collector.

On a host with two GPUs::

    python3 data/scripts/incident/hang_gpu.py --engine ~/engine --models data/incident \
        --draft drafts/specforge --out $OUT --deadline 420

1. `compiling`: the first start on a fresh host, while a kernel is compiled (slow, not hung); then, the
   same server, `healthy-idle`; then `hook-sleep`: a request comes, and rank 1 sleeps in a forward hook.
2. `capture-stopped`: rank 1 is stopped (SIGSTOP) as the capture of the target's graphs begins.
3. `starting`: nobody does anything; one snapshot during the capture, one of the server that serves.
4. `all-stuck`: every rank sleeps at the end of its start (`SGLANG_TEST_STUCK_SCHEDULER_INIT`).

Each case is one zip of the collector, with two snapshots; `truth.json` says what was done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Deadline, Log, write_json
from hang import MARK, RANK, wait_for_line
from server import Launch, Server
from snapshots import family, find, read

ROOT = Path(__file__).resolve().parents[3]
LAST_SECONDS = 15
COMPILERS = ("ninja", "nvcc", "cicc", "ptxas", "cudafe++")


class Recorder:
    """Starts servers and records what is seen of them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.log = Log(arguments.out / "log")
        self.deadline = Deadline(arguments.deadline)
        self.truth: dict[str, Any] = {}

    def until(self) -> float:
        """Return when waiting must end, by the monotonic clock."""
        return time.monotonic() + self.deadline.left() - LAST_SECONDS

    def collect(self, server: Server, name: str, what: str, apart: float | None = None) -> None:
        """Run the collector on a server and write down what is true of it."""
        command = [
            sys.executable,
            "-m",
            "workbench.hang.collect.collector",
            str(server.process.pid),
        ]
        command += ["--out", str(self.arguments.out / f"{name}.zip"), "--native"]
        command += ["--interval", str(self.arguments.apart if apart is None else apart)]
        command += ["--py-spy", self.arguments.pyspy]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=150, check=False
        )
        self.log(name, done.returncode, done.stdout[-400:], done.stderr[-400:])
        self.truth[name] = {"what": what, "collector": done.returncode}

    @contextlib.contextmanager
    def server(self, name: str, *, graphs: bool, extra: list[str], **environment: str) -> Any:
        """Start one server, and end it whatever happens."""
        self.log(name)
        self.arguments.port += 20  # the last one's sockets may linger
        launch = Launch(
            name,
            target="target",
            draft=self.arguments.draft,
            tensor_parallel=2,
            graphs=graphs,
            extra=extra,
        )
        os.environ.update(environment)
        out = self.arguments.work / name
        server = Server(
            launch,
            self.arguments.engine,
            self.arguments.models,
            out,
            self.arguments.port,
            self.arguments.launcher,
        )
        for variable in environment:
            del os.environ[variable]
        # A server that nobody stops must not outlive the script's time.
        end = threading.Timer(max(1.0, self.deadline.left() - 8), server.process.kill)
        end.start()
        try:
            yield server
        except Exception as error:
            self.log(f"{type(error).__name__}: {error}", server.log()[-800:])
        finally:
            end.cancel()
            server.stop(grace=0)


def compiles(server: Server) -> bool:
    """Whether a compiler runs below the server."""
    return any(
        read(Path(f"/proc/{pid}/comm")).strip() in COMPILERS for pid in family(server.process.pid)
    )


def hook(rank: int, file: Path) -> list[str]:
    """Return the arguments that make a rank sleep in a layer of the target."""
    config = {"rank": rank, "file": str(file)}
    hooks = [{"name": "sleep", "target_modules": ["model.layers.3.mlp"], "config": config}]
    hooks[0]["hook_factory"] = "sleeper:factory"
    return ["--forward-hooks", json.dumps(hooks)]


def first(recorder: Recorder) -> None:
    """Record the compiling start, the idle server, and the rank that sleeps under a request."""
    trigger = recorder.arguments.work / "sleep-now"
    with recorder.server("hook-sleep", graphs=False, extra=hook(1, trigger)) as server:
        compiled = False
        while not server.wait_ready(min(recorder.until(), time.monotonic() + 1)):
            if server.process.poll() is not None or time.monotonic() > recorder.until():
                raise RuntimeError("the server did not come up")
            if not compiled and compiles(server):
                compiled = True
                recorder.collect(server, "compiling", "nothing was done: a kernel is compiled", 5)
        recorder.log(f"ready after {server.record.get('ready_after')} s")
        time.sleep(3)
        recorder.collect(server, "healthy-idle", "nothing was done; nobody asked for anything", 5)
        trigger.touch()
        body = {"input_ids": [1, 5, 7], "sampling_params": {"temperature": 0, "max_new_tokens": 8}}

        def ask() -> None:
            with contextlib.suppress(Exception):  # it never answers
                server.post(body)

        threading.Thread(target=ask, daemon=True).start()
        time.sleep(recorder.arguments.settle)
        recorder.collect(server, "hook-sleep", "a request came, and rank 1 sleeps in a hook")


def stopped(recorder: Recorder) -> None:
    """Record a rank that is stopped while graphs are captured."""
    with recorder.server("capture-stopped", graphs=True, extra=[]) as server:
        if not wait_for_line(server, recorder.arguments.mark, recorder.until()):
            raise RuntimeError("the capture did not begin")
        time.sleep(0.2)
        pid = find(server.process.pid, RANK)
        if pid is None:
            raise RuntimeError(f"no process {RANK}")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(recorder.arguments.settle)
        recorder.collect(
            server, "capture-stopped", "rank 1 was stopped (SIGSTOP) as the capture began"
        )


def starting(recorder: Recorder) -> None:
    """Record a start that is well: one snapshot in the capture, one afterwards."""
    with recorder.server("starting", graphs=True, extra=[]) as server:
        if not wait_for_line(server, recorder.arguments.mark, recorder.until()):
            raise RuntimeError("the capture did not begin")
        recorder.collect(server, "starting", "nothing was done: the start goes on", 15)


def stuck(recorder: Recorder) -> None:
    """Record a server of which every rank sleeps at the end of its start."""
    environment = {"SGLANG_TEST_STUCK_SCHEDULER_INIT": "300"}
    with recorder.server("all-stuck", graphs=True, extra=[], **environment) as server:
        if not wait_for_line(server, recorder.arguments.stuck_mark, recorder.until()):
            raise RuntimeError("the start did not come to its end")
        time.sleep(recorder.arguments.settle)
        recorder.collect(
            server, "all-stuck", "both ranks sleep in Scheduler.__init__ (a hook for tests)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--draft", default="drafts/specforge")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/hang-gpu"))
    parser.add_argument("--deadline", type=float, default=420)
    parser.add_argument("--settle", type=float, default=8, help="seconds until the first snapshot")
    parser.add_argument("--apart", type=float, default=10, help="seconds between two snapshots")
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument("--mark", default=MARK)
    parser.add_argument("--stuck-mark", default="Capture draft extend CUDA graph end")
    parser.add_argument("--least", type=float, default=75, help="seconds that one case needs")
    parser.add_argument("--only", nargs="*", help="chapters: first stopped starting stuck")
    parser.add_argument("--pyspy", help="default: the engine's own")
    parser.add_argument("--launcher", default="python3 -m sglang.launch_server")
    arguments = parser.parse_args()
    arguments.launcher = arguments.launcher.split()
    arguments.engine, arguments.models = arguments.engine.resolve(), arguments.models.resolve()
    arguments.pyspy = arguments.pyspy or str(arguments.engine / "bin" / "py-spy")
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(arguments)
    chapters: list[Callable[[Recorder], None]] = [first, stopped, starting, stuck]
    for chapter in chapters:
        wanted = not arguments.only or chapter.__name__ in arguments.only
        if wanted and recorder.deadline.left() > arguments.least:
            chapter(recorder)
        write_json(arguments.out / "truth.json", recorder.truth)
    recorder.log("done")


if __name__ == "__main__":
    main()
