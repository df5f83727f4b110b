"""The first chapter of the shipped case: a start-up that hangs on two GPUs, and the relaunch that serves.

On a host with two GPUs::

    python3 data/scripts/incident/hang.py --engine ~/engine --models ~/models \
        --prompts .carry/corpus/prompts.jsonl --out $OUT --deadline 300

1. `first-start`: graphs on, nobody does anything. It serves; on a fresh host its kernels are compiled during
   the capture (a rank stopped then would leave the other in a compiler, not in the wait to be shown).
2. `capture-hang`: the same launch; rank 1 is stopped (SIGSTOP) a moment after the log line with which the
   capture of the target's verification graphs begins. Two snapshots, then the server is killed.
3. `relaunch-graphs-off`: without CUDA graphs. It serves a few prompts; two snapshots of it, idle.
4. `relaunch-graphs-on`, if the time allows: the first launch again. It serves, too.

The files of each launch: `server.log`, `snapshot-N/` with `processes.json`,
`pyspy-PID.json`, `pyspy-native-PID.json` and `nvidia-smi.csv`; beside them `launch.json` and `truth.json`
(what was done, and when).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Deadline, Log, read_lines, write_json
from serve_and_record import LAST_SECONDS, pack, record_prompts
from server import Launch, Server, now
from snapshots import find, take

MARK = "Capture target verify CUDA graph begin"
RANK = "sglang::scheduler_TP1"


def wait_for_line(server: Server, mark: str, until: float) -> bool:
    """Wait until a line is in the log, looking often; False when the server ended or the time is over."""
    while time.monotonic() < until:
        if mark in server.log():
            return True
        if server.process.poll() is not None:
            return False
        time.sleep(0.02)
    return False


def snapshots(server: Server, apart: float, pyspy: str, log: Log) -> list[str]:
    """Take two snapshots and return their times."""
    times = []
    for number in (1, 2):
        if number == 2:
            time.sleep(apart)
        times.append(now())
        processes = take(server.process.pid, server.out / f"snapshot-{number}", pyspy)
        log(
            f"snapshot {number}:",
            [(p["cmd"][:24], p["status"], p["py"]["exit"]) for p in processes],
        )
    return times


def hang(
    server: Server, arguments: argparse.Namespace, deadline: Deadline, log: Log
) -> dict[str, Any]:
    """Stop rank 1 at the beginning of the capture and take two snapshots."""
    if not wait_for_line(server, arguments.mark, time.monotonic() + deadline.left() - LAST_SECONDS):
        raise RuntimeError(
            f"the line '{arguments.mark}' did not come; the log ends: {server.log()[-800:]}"
        )
    seen = now()
    time.sleep(0.2)
    pid = find(server.process.pid, RANK)
    if pid is None:
        raise RuntimeError(f"no process {RANK}")
    os.kill(pid, signal.SIGSTOP)
    stopped = now()
    log(f"rank 1 (pid {pid}) stopped")
    time.sleep(arguments.settle)
    times = snapshots(server, arguments.apart, arguments.pyspy, log)
    return {
        "what": f"rank 1 was stopped (SIGSTOP) 0.2 s after the log line '{arguments.mark}'",
        "line_seen": seen,
        "stopped": stopped,
        "stopped_pid": pid,
        "snapshots": times,
        "served": False,
    }


def first(
    server: Server, arguments: argparse.Namespace, deadline: Deadline, log: Log
) -> dict[str, Any]:
    """Wait until the server serves and send a few prompts."""
    if not server.wait_ready(time.monotonic() + deadline.left() - LAST_SECONDS):
        raise RuntimeError(f"the server did not come up; the log ends: {server.log()[-800:]}")
    log(f"ready after {server.record['ready_after']} s")
    run = {"prompts": arguments.count, "new_tokens": 48, "seconds": 30}
    answers = record_prompts(server, read_lines(arguments.prompts), run, server.out, deadline)
    write_json(server.out / "server_info.json", server.get("/server_info"))
    return {
        "what": "nothing was done to it",
        "served": answers["prompts"] > 0,
        "answers": answers,
    }


def healthy(
    server: Server, arguments: argparse.Namespace, deadline: Deadline, log: Log
) -> dict[str, Any]:
    """Let the server serve a few prompts, and take two snapshots while it has nothing to do."""
    truth = first(server, arguments, deadline, log)
    time.sleep(2)
    truth["snapshots"] = snapshots(server, min(arguments.apart, 10), arguments.pyspy, log)
    return truth


def chapter(
    launch: Launch,
    watch: Callable[[Server, argparse.Namespace, Deadline, Log], dict[str, Any]],
    arguments: argparse.Namespace,
    deadline: Deadline,
    log: Log,
) -> None:
    """Start one server and watch it; whatever happens is written down."""
    out = arguments.work / launch.name
    log(launch.name)
    arguments.port += 20  # the last one's sockets may linger
    server = Server(
        launch, arguments.engine, arguments.models, out, arguments.port, arguments.launcher
    )
    # A server that nobody stops must not outlive the script's time.
    end = threading.Timer(max(1.0, deadline.left() - 8), server.process.kill)
    end.start()
    truth: dict[str, Any] = {}
    try:
        truth = watch(server, arguments, deadline, log)
    except Exception as error:
        truth = {"error": f"{type(error).__name__}: {error}"}
        log(truth["error"][-600:])
    finally:
        end.cancel()
        server.stop(grace={hang: 0, first: 3}.get(watch, 15))
        write_json(out / "truth.json", {"tensor_parallel": launch.tensor_parallel, **truth})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--draft", default="drafts/speculators-flattened")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/incident-hang"))
    parser.add_argument("--deadline", type=float, default=300)
    parser.add_argument(
        "--settle", type=float, default=10, help="seconds from the stop to the first snapshot"
    )
    parser.add_argument("--apart", type=float, default=20, help="seconds between two snapshots")
    parser.add_argument("--least", type=float, default=75, help="seconds that a relaunch needs")
    parser.add_argument("--count", type=int, default=5, help="prompts for the healthy server")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--mark", default=MARK)
    parser.add_argument("--tensor-parallel", type=int, default=2)
    parser.add_argument("--pyspy", help="default: the engine's own")
    parser.add_argument(
        "--launcher", default="python3 -m sglang.launch_server", help="a test's stand-in"
    )
    arguments = parser.parse_args()
    arguments.launcher = arguments.launcher.split()
    arguments.engine, arguments.models = arguments.engine.resolve(), arguments.models.resolve()
    arguments.pyspy = arguments.pyspy or str(arguments.engine / "bin" / "py-spy")
    arguments.out.mkdir(parents=True, exist_ok=True)
    log, deadline = Log(arguments.out / "log"), Deadline(arguments.deadline)
    arguments.work = arguments.work / "hang"
    shutil.rmtree(arguments.work, ignore_errors=True)

    common = {
        "target": "target",
        "draft": arguments.draft,
        "tensor_parallel": arguments.tensor_parallel,
    }
    # What follows is the story; what is left out when the time is short is its end.
    chapter(Launch("first-start", **common), first, arguments, deadline, log)
    chapter(Launch("capture-hang", **common), hang, arguments, deadline, log)
    off = Launch("relaunch-graphs-off", graphs=False, **common)
    if deadline.left() > arguments.least:
        chapter(off, healthy, arguments, deadline, log)
    if deadline.left() > arguments.least:
        chapter(Launch("relaunch-graphs-on", **common), healthy, arguments, deadline, log)
    pack(arguments.work, arguments.out, "hang", 15_000_000)
    log("packed")


if __name__ == "__main__":
    main()
