"""Many hurts of one real SGLang on two GPUs, each recorded by the workbench's own collector.

On a host with two GPUs::

    python3 data/scripts/incident/hang_gpu_hurts.py --engine ~/engine --models data/incident \
        --draft drafts/specforge --out $OUT --deadline 540

One server takes all hurts that end again (a rank that sleeps, spins, waits for a lock, a queue, a future, a
child, a pipe, its GPU; stopped processes; load), and last one that does not; further servers take the others.
Each hurt is one zip with two snapshots; `truth.json` says what was done, to which rank, and how the request
that was under way ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from common import write_json
from hang import RANK
from hang_gpu import LAST_SECONDS, Recorder
from server import Server
from snapshots import find

ENDING = (
    (1, "sleep"), (0, "sleep"), (1, "spin"), (1, "lock"), (0, "queue"), (1, "future"), (1, "child"),
    (1, "pipe"), (1, "kernel"), (1, "compute"),
)  # fmt: skip
BODY = {"input_ids": [1, 5, 7], "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
LONG = {
    "input_ids": [1, 5, 7],
    "sampling_params": {"temperature": 0, "max_new_tokens": 4000, "ignore_eos": True},
}


class Request(threading.Thread):
    """A request in a thread of its own."""

    def __init__(self, server: Server, body: dict[str, Any] = BODY) -> None:
        super().__init__(daemon=True)
        self.server, self.body, self.answered = server, body, False
        self.start()

    def run(self) -> None:
        """Ask, and note whether an answer came."""
        with contextlib.suppress(Exception):
            self.answered = bool(self.server.post(self.body))


def record(recorder: Recorder, server: Server, name: str, what: str, request: Request) -> None:
    """Record a hurt while its request is under way."""
    time.sleep(recorder.arguments.settle)
    recorder.collect(server, name, what)
    recorder.truth[name]["answered_before_the_end"] = request.answered


def hooked(recorder: Recorder, name: str) -> Any:
    """Start a server whose hook does what a file says; return it and the file."""
    file = recorder.arguments.work / f"{name}.do"
    hooks = [
        {
            "name": "mischief",
            "target_modules": ["model.layers.3.mlp"],
            "hook_factory": "mischief:factory",
            "config": {"file": str(file)},
        }
    ]
    extra = ["--forward-hooks", json.dumps(hooks)]
    return recorder.server(name, graphs=False, extra=extra), file


def ready(recorder: Recorder, server: Server) -> None:
    """Wait until it serves, and ask once."""
    if not server.wait_ready(recorder.until()):
        raise RuntimeError("the server did not come up")
    recorder.log(f"ready after {server.record.get('ready_after')} s")
    server.post(BODY)


def hurt(recorder: Recorder, server: Server, file: Path, rank: int, word: str) -> None:
    """Let a rank do something under a request, record it, and let it end."""
    file.write_text(f"{rank} {word}")
    request = Request(server)
    what = f"a request came, and rank {rank} does this in a forward hook: {word}"
    record(recorder, server, f"{word}-{rank}", what, request)
    file.unlink()
    request.join(25)
    recorder.truth[f"{word}-{rank}"]["answered_after_the_end"] = request.answered


def halted(recorder: Recorder, server: Server, title: str, name: str) -> None:
    """Stop a process under a request, record it, and let it run on."""
    pid = find(server.process.pid, title)
    if pid is None:
        raise RuntimeError(f"no process {title}")
    os.kill(pid, signal.SIGSTOP)
    request = Request(server)
    record(recorder, server, name, f"{title} was stopped (SIGSTOP), then a request came", request)
    os.kill(pid, signal.SIGCONT)
    request.join(25)


def ending(recorder: Recorder) -> None:
    """Record what ends again, and last a collective of one rank alone."""
    context, file = hooked(recorder, "ending")
    with context as server:
        ready(recorder, server)
        time.sleep(2)
        recorder.collect(server, "idle", "nothing was done; nobody asked for anything")
        requests = [Request(server, LONG) for _ in range(3)]
        time.sleep(2)
        recorder.collect(server, "load", "three long requests are under way")
        recorder.truth["load"]["answered_before_the_end"] = [one.answered for one in requests]
        for one in requests:
            one.join(40)
        halted(recorder, server, RANK, "stopped-1")
        halted(recorder, server, "sglang::detokenizer", "stopped-detokenizer")
        for rank, word in ENDING:
            if recorder.deadline.left() < 60:
                return
            hurt(recorder, server, file, rank, word)
        hurt(recorder, server, file, 1, "extra")


def alone(recorder: Recorder, word: str) -> None:
    """Record one hurt that does not end, on a server of its own."""
    context, file = hooked(recorder, word)
    with context as server:
        ready(recorder, server)
        if word == "killed":
            request = Request(server, LONG)
            time.sleep(1)
            pid = find(server.process.pid, RANK)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
            recorder.collect(server, "killed-1", "rank 1 was killed (SIGKILL) under a request", 2)
            recorder.truth["killed-1"]["answered_before_the_end"] = request.answered
        else:
            hurt(recorder, server, file, 1, word)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--draft", default="drafts/specforge")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/hang-gpu"))
    parser.add_argument("--deadline", type=float, default=540)
    parser.add_argument("--settle", type=float, default=3, help="seconds until the first snapshot")
    parser.add_argument("--apart", type=float, default=6, help="seconds between two snapshots")
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument("--pyspy", help="default: the engine's own")
    parser.add_argument("--launcher", default="python3 -m sglang.launch_server")
    arguments = parser.parse_args()
    arguments.launcher = arguments.launcher.split()
    arguments.engine, arguments.models = arguments.engine.resolve(), arguments.models.resolve()
    arguments.pyspy = arguments.pyspy or str(arguments.engine / "bin" / "py-spy")
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(arguments)
    ending(recorder)
    for word in ("gloo", "fail", "killed"):
        write_json(arguments.out / "truth.json", recorder.truth)
        if recorder.deadline.left() > 60 + LAST_SECONDS:
            alone(recorder, word)
    write_json(arguments.out / "truth.json", recorder.truth)
    recorder.log("done")


if __name__ == "__main__":
    main()
