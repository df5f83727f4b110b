"""Hurts of several servers of two releases of SGLang at once on two GPUs, recorded by `workbench collect`.

On a host with two GPUs::

    python3 data/scripts/incident/hang_gpu_more.py --engine ~/engine --models data/incident --out $OUT \
        --chapters tensor pipeline replicas oom fail disk --ranks 2
    python3 data/scripts/incident/hang_gpu_more.py --engine ~/old ... --chapters old old_capture --port 36000

With one GPU: `--ranks 1 --at-once`, the chapters `single`, `replicas` (whose controller has to be told to put
both on one GPU), `disk`, `old` and `old_capture`; nothing then waits for another's GPU. With an engine that
`one_card.py` changed, `pipeline`, too, and with `--ranks 2` `ranks`, `oom`, `fail`, `hidden` and `hidden_oom`
(one hurt at a time, as on two GPUs).

Each chapter is a server. They start at the same time, and one hurt at a time is done and recorded (with
--at-once: one of each server): servers that have nothing to do leave the GPUs alone. `cases.tar` grows with
every case; `truth.json` says what was done and how it went. What is expected of each is in
tests/hang/cases/gpu/more/expected.json and shared/expected.json, written before the first recording.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hang_gpu_hurts import BODY
from hang_gpu_recorder import (
    Recorder,
    died,
    halt,
    hurt,
    idle,
    keep_or_collect,
    loaded,
    until_a_case,
    wait_for,
    watched,
    watching,
)
from snapshots import family, find

SLOW_BYTES = 100_000


# -- chapters ----------------------------------------------------------------------------------------


def tensor(recorder: Recorder) -> None:
    """Two ranks of one server, with a draft."""
    draft = recorder.arguments.draft
    with recorder.server("tensor", False, draft=draft, tensor_parallel=2) as (server, file):
        recorder.ready(server)
        for name, order in (("fork-1", "1 fork"), ("select-1", "1 select"), ("both", "* sleep")):
            hurt(recorder, server, file, name, order)
        hurt(recorder, server, file, "gil-1", "1 gil")
        halt(recorder, server, "parent-stopped", "")
        died(recorder, server, "abort-1", file, "1 abort")


def pipeline(recorder: Recorder) -> None:
    """Two pipeline stages; the last but one hurt is recorded by the watch, by itself."""
    stages = "sglang::scheduler_PP"
    extra = ["--pp-size", "2"]
    with recorder.server("pipeline", False, draft="", extra=extra) as (server, file):
        recorder.ready(server)
        idle(recorder, server, "pp-idle")
        hurt(recorder, server, file, "pp-sleep-1", "1 sleep")
        halt(recorder, server, "pp-stopped-0", f"{stages}0")
        hurt(recorder, server, file, "pp-lock-1", "1 lock")
        hurt(recorder, server, file, "pp-sleep-0", "0 sleep")
        halt(recorder, server, "pp-stopped-1", f"{stages}1")
        loaded(recorder, server, "pp-load")
        hurt(recorder, server, file, "pp-spin-1", "1 spin")
        watched(recorder, server, file, "pp-watched-lock-0", "0 lock")
        halt(recorder, server, "pp-killed-1", f"{stages}1", sign=signal.SIGKILL)


def single(recorder: Recorder) -> None:
    """Start one rank with a draft; the last hurt is recorded by the watch, by itself."""
    with recorder.server("single", False, draft=recorder.arguments.draft) as (server, file):
        recorder.ready(server)
        hurt(recorder, server, file, "one-select", "0 select")
        halt(recorder, server, "one-parent-stopped", "")
        watched(recorder, server, file, "one-watched-lock", "0 lock")


def replicas(recorder: Recorder) -> None:
    """Two replicas of one rank each."""
    given: dict[str, Any] = {"draft": "", "extra": ["--dp-size", "2"], "nccl_port": False}
    with recorder.server("replicas", False, **given) as (server, file):
        recorder.ready(server)
        server.post(BODY)
        idle(recorder, server, "dp-idle", attach=True)
        for word in ("sleep", "fork", "gil", "spin"):
            hurt(recorder, server, file, f"dp-{word}-1", f"DP1 {word}", asked=4)
        halt(recorder, server, "dp-stopped-1", "sglang::scheduler_DP1", asked=4)
        halt(recorder, server, "dp-controller-stopped", "sglang::data_parallel_controller")


def in_capture(name: str, what: str, *, hides: bool = False) -> Callable[[Recorder], None]:
    """Return a chapter in which the last rank does something in the capture of CUDA graphs.

    The custom all-reduce registers its buffers with all ranks when a capture ends (in 0.5.14 the older one),
    also when it ends by an exception, which then hides behind that collective.
    """

    def chapter(recorder: Recorder) -> None:
        given: dict[str, Any] = {"draft": recorder.arguments.draft, "starts_hurt": name}
        given["tensor_parallel"] = recorder.arguments.ranks
        given["extra"] = [] if hides else ["--disable-custom-all-reduce"]
        given["extra"] += ["--cuda-graph-max-bs", "4"]
        with recorder.server(name, True, **given) as (server, file):
            began = Path(f"{file}.began")
            while server.process.poll() is None and not began.exists():
                if time.monotonic() > recorder.until():
                    raise RuntimeError(f"the hurt did not come: {server.log()[-1500:]}")
                time.sleep(0.1)
            recorder.log(name, "began")
            time.sleep(recorder.arguments.settle + 2)
            with recorder.alone(name):
                keep_or_collect(recorder, server, f"capture-{name}", what)

    return chapter


def ranks(recorder: Recorder) -> None:
    """Ranks of one server that are well: idle, and at work."""
    given: dict[str, Any] = {"draft": recorder.arguments.draft}
    given["tensor_parallel"] = recorder.arguments.ranks
    extra = ["--disable-custom-all-reduce"]
    with recorder.server("ranks", True, extra=extra, **given) as (server, _):
        recorder.ready(server)
        idle(recorder, server, "tp-idle")
        loaded(recorder, server, "tp-load")


def abort(recorder: Recorder) -> None:
    """Abort NCCL's communicator of the last rank."""
    ranks = recorder.arguments.ranks
    with recorder.server("abort", False, draft="", tensor_parallel=ranks) as (server, file):
        recorder.ready(server)
        died(recorder, server, f"abort-{recorder.hurt}", file, f"{recorder.hurt} abort")


def ended(recorder: Recorder) -> None:
    """Kill the detokenizer under a request."""
    ranks = recorder.arguments.ranks
    with recorder.server("ended", False, draft="", tensor_parallel=ranks) as (server, _):
        recorder.ready(server)
        halt(recorder, server, "detokenizer-killed", "sglang::detokenizer", sign=signal.SIGKILL)


def watched_capture(recorder: Recorder) -> None:
    """Stop the last rank as its capture begins; the watch, which saw the start, records it by itself."""
    name, given = "watched-capture", recorder.arguments
    with (
        recorder.server(name, True, draft=given.draft, tensor_parallel=given.ranks) as (server, _),
        watching(recorder, server, name) as (facts, cases),
    ):
        if not wait_for(recorder, server, ("Capture", "begin")):
            raise RuntimeError("the capture did not begin")
        time.sleep(0.2)
        pid = find(server.process.pid, recorder.title)
        if pid is None:
            raise RuntimeError(f"no process {recorder.title}")
        facts["cases_before"] = len(cases())
        os.kill(pid, signal.SIGSTOP)
        facts["what"] = "SIGSTOP to the last rank as the capture began, next to the watch"
        facts["seconds_until_the_case"] = until_a_case(cases, recorder.until() - 15)


def disk(recorder: Recorder) -> None:
    """Let the disk give little while two ranks read their weights."""
    models = recorder.arguments.work / "slow-models"
    shutil.copytree(recorder.arguments.models / "target", models / "target", dirs_exist_ok=True)
    weights = models / "target" / "model.safetensors"
    ranks = recorder.arguments.ranks
    given: dict[str, Any] = {"draft": "", "tensor_parallel": ranks, "models": models}
    with recorder.server("disk", False, **given) as (server, _):
        if not wait_for(recorder, server, ("Init", "begin")):
            raise RuntimeError("the process groups did not begin")
        forget(weights)
        recorder.log("throttled:", throttled(family(server.process.pid)))
        if not wait_for(recorder, server, ("Load weight begin",)):
            raise RuntimeError("loading did not begin")
        time.sleep(4)
        with recorder.alone("disk"):
            recorder.collect(
                server, "slow-disk", "the disk gives 100 KB/s while weights are read", 8
            )
            recorder.truth["slow-disk"]["loaded"] = "Load weight end" in server.log()


def forget(file: Path) -> None:
    """Drop a file from the page cache."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def throttled(pids: list[int]) -> str:
    """Limit what processes read of each disk; return how that went."""
    group = Path("/sys/fs/cgroup/slow-disk")
    try:
        (group.parent / "cgroup.subtree_control").write_text("+io")
        group.mkdir(exist_ok=True)
        for device in Path("/sys/block").glob("*/dev"):
            with contextlib.suppress(OSError):
                (group / "io.max").write_text(f"{device.read_text().strip()} rbps={SLOW_BYTES}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))
        return (group / "io.max").read_text()
    except OSError as error:
        return f"not possible: {error}"


def old(recorder: Recorder) -> None:
    """Two ranks of the older release."""
    draft = recorder.arguments.draft
    last, ranks = recorder.hurt, recorder.arguments.ranks
    with recorder.server("old", False, draft=draft, tensor_parallel=ranks) as (server, file):
        recorder.ready(server)
        idle(recorder, server, "old-idle")
        hurt(recorder, server, file, f"old-sleep-{last}", f"{last} sleep")
        hurt(recorder, server, file, "old-queue-0", "0 queue")
        halt(recorder, server, f"old-stopped-{last}", recorder.title)
        halt(recorder, server, "old-detokenizer", "sglang::detokenizer")
        halt(recorder, server, f"old-killed-{last}", recorder.title, sign=signal.SIGKILL)


def old_capture(recorder: Recorder) -> None:
    """Stop a rank of the older release as the capture begins."""
    draft = recorder.arguments.draft
    ranks = recorder.arguments.ranks
    with recorder.server("old-capture", True, draft=draft, tensor_parallel=ranks) as (server, _):
        if not wait_for(recorder, server, ("Capture", "begin")):
            raise RuntimeError("the capture did not begin")
        time.sleep(0.2)
        pid = find(server.process.pid, recorder.title)
        if pid is None:
            raise RuntimeError(f"no process {recorder.title}")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(recorder.arguments.settle)
        with recorder.alone("old-capture"):
            recorder.collect(
                server, "old-capture-stopped", "SIGSTOP to the last rank as the capture began"
            )


CHAPTERS: dict[str, Callable[[Recorder], None]] = {
    "tensor": tensor, "single": single, "pipeline": pipeline, "replicas": replicas, "disk": disk, "old": old,
    "old_capture": old_capture, "abort": abort, "ended": ended, "watched_capture": watched_capture,
    "ranks": ranks,
    "oom": in_capture("oom", "the last rank runs out of GPU memory in a capture"),
    "fail": in_capture("fail", "the last rank raises an exception in a capture"),
    "hidden": in_capture("hidden", "the last rank raises an exception in a capture, which hides", hides=True),
    "hidden_oom": in_capture("hidden_oom", "the same with a memory error", hides=True),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2, help="of the tensor-parallel servers")
    parser.add_argument("--at-once", action="store_true", help="record different servers at once")
    parser.add_argument("--site", type=Path, help="packages that the workbench needs here")
    parser.add_argument("--draft", default="drafts/specforge")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/hang-gpu-more"))
    parser.add_argument("--turn", type=Path, help="a file: recordings of two releases take turns")
    parser.add_argument("--deadline", type=float, default=420)
    parser.add_argument(
        "--settle", type=float, default=2.5, help="seconds until the first snapshot"
    )
    parser.add_argument("--apart", type=float, default=5.2, help="seconds between two snapshots")
    parser.add_argument("--after", type=float, default=12, help="--after of the watch")
    parser.add_argument("--stagger", type=float, default=1.5, help="seconds between two starts")
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument("--launcher", default="python3 -m sglang.launch_server")
    parser.add_argument("--chapters", nargs="+", choices=CHAPTERS, default=list(CHAPTERS))
    arguments = parser.parse_args()
    arguments.launcher = arguments.launcher.split()
    arguments.engine, arguments.models = arguments.engine.resolve(), arguments.models.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(arguments)

    def run(name: str) -> None:
        try:
            CHAPTERS[name](recorder)
        except Exception as error:
            recorder.log(name, f"{type(error).__name__}: {error}")
        recorder.log(name, "has ended")

    threads = []
    for name in arguments.chapters:
        threads.append(threading.Thread(target=run, args=(name,), daemon=True))
        threads[-1].start()
        time.sleep(arguments.stagger)
    for thread in threads:
        thread.join(max(0.0, recorder.deadline.left()))
    recorder.log("done")


if __name__ == "__main__":
    main()
