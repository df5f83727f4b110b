"""Jobs of several ranks over gloo that hang in known ways, with SGLang's titles and SGLang's frames.

This file is run as a program: it imports torch once and forks a job for every line of JSON on its
standard input, ``{"scenario", "world", "odd", "folder"}``, and answers with the pid of the job's
parent. A job's log is ``folder/server.log``. Everything ends with this program, and this program with
its parent.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOME = "/opt/sglang/srt"
# Frames as a real scheduler has them while it captures; `barrier` and `forward` are given.
RUNNER = """
class FullCudaGraphBackend:
    def capture_one(self, shape):
        self.barrier()
        self.forward()
class DecodeCudaGraphRunner:
    def __init__(self, backend): self.backend = backend
    def capture(self): self._capture_one_stream()
    def _capture_one_stream(self): self.capture_one_shape(1)
    def capture_one_shape(self, shape): self.backend.capture_one(shape)
"""
STATE = """
class GroupCoordinator:
    def __init__(self, wait): self.wait = wait
    def barrier(self): self.wait()
"""
SCHEDULER = """
class Scheduler:
    def __init__(self, body): self.init_model_worker(body)
    def init_model_worker(self, body): self.init_all_cuda_graphs(body)
    def init_all_cuda_graphs(self, body): body()
def run_scheduler_process(body): Scheduler(body)
def run_event_loop(pull, share, batch): Loop().event_loop_overlap(pull, share, batch)
def recv_pyobj(pull): pull()
def broadcast_pyobj(share): share()
class Loop:
    def event_loop_overlap(self, pull, share, batch):
        while True:
            self.recv_requests(pull, share)
            if batch is not None:
                self.run_batch(batch)
    def run_batch(self, batch): batch()
    def recv_requests(self, pull, share):
        self._pull_raw_reqs(pull)
        self._broadcast_reqs_across_ranks(share)
    def _pull_raw_reqs(self, pull): recv_pyobj(pull)
    def _broadcast_reqs_across_ranks(self, share): broadcast_pyobj(share)
"""
BATON = """
import time
class FileBaton:
    def wait(self):
        while True:
            time.sleep(0.1)
"""
START = "Init torch distributed begin."
CAPTURE = (
    "Init torch distributed ends. elapsed=0.10 s, mem usage=0.00 GB",
    "Load weight begin. avail mem=138.27 GB",
    "Load weight end. elapsed=0.12 s, type=LlamaForCausalLM, avail mem=138.27 GB, mem usage=0.01 GB.",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384, K size: 0.02 GB, V size: 0.02 GB",
    "Memory pool end. avail mem=138.21 GB",
    "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1], avail mem=138.12 GB",
)
LOOPS = ("idle", "serves")  # scenarios of a server that is ready
READY = ("max_total_num_tokens=16384, chunked_prefill_size=8192, context_len=512",)


def code(text: str, file: str) -> dict[str, Any]:
    """Run a text as if it stood in a file of SGLang's."""
    names: dict[str, Any] = {"__name__": file}
    exec(compile(text, f"{HOME}/{file}" if not file.startswith("/") else file, "exec"), names)
    return names


def set_title(text: str, fill: bytes = b" ") -> None:
    """Write over the command line, as setproctitle does: padded with blanks."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    room = end - start - 1
    assert len(text) <= room, "give this program a longer command line"
    ctypes.memmove(start, text.encode().ljust(room, fill) + b"\0", room + 1)


def say(rank: int, *lines: str) -> None:
    """Write lines as a rank writes them into the log."""
    for line in lines:
        os.write(1, f"[{time.strftime('%Y-%m-%d %H:%M:%S')} TP{rank}] {line}\n".encode())


class Rank:
    """One rank: what it does until it hangs."""

    def __init__(self, rank: int, job: dict[str, Any]) -> None:
        self.rank, self.job, self.folder = rank, job, Path(job["folder"])
        self.odd = rank == job["odd"]

    def run(self) -> None:
        """Join the others, then do as the scenario says."""
        import torch.distributed as dist

        set_title(f"sglang::scheduler_TP{self.rank}")
        say(self.rank, START)
        if self.job["scenario"] == "dies" and self.odd:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        store = f"file://{self.folder}/store"
        dist.init_process_group(
            "gloo", init_method=store, rank=self.rank, world_size=self.job["world"]
        )
        self.other = dist.new_group(backend="gloo")
        dist.barrier()
        say(self.rank, *CAPTURE)
        scheduler = code(SCHEDULER, "managers/scheduler.py")
        if self.job["scenario"] in LOOPS:
            say(self.rank, *READY)
            self.loop(scheduler)
        scheduler["run_scheduler_process"](self.capture)

    def capture(self) -> None:
        """Go into the capture."""
        import torch.distributed as dist

        group = code(STATE, "distributed/parallel_state.py")["GroupCoordinator"](dist.barrier)
        runner = code(RUNNER, "model_executor/runner/decode_cuda_graph_runner.py")
        backend = runner["FullCudaGraphBackend"]()
        scenario = getattr(self, self.job["scenario"])
        backend.barrier = (
            scenario if self.odd or self.job["scenario"] in ("baton", "lock") else group.barrier
        )
        backend.forward = lambda: None
        if self.job["scenario"] == "sleep" and self.odd:
            backend.barrier, backend.forward = lambda: None, self.forward
        while True:
            runner["DecodeCudaGraphRunner"](backend).capture()

    def forward(self) -> None:
        """Sleep in a layer, before anything is launched."""
        time.sleep(600)

    sleep = forward

    def skip(self) -> None:
        """Skip the barrier, and wait in the collective that comes after it."""
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.zeros(1), group=self.other)

    def compiles(self) -> None:
        """Wait for a compiler."""
        program = self.folder / "ninja"
        program.symlink_to("/bin/sleep")
        subprocess.run([str(program), "600"], check=False)

    def lock(self) -> None:
        """Take a lock; the odd rank holds it and sleeps."""
        import filelock

        held = self.folder / "held"
        while not self.odd and not held.exists():
            time.sleep(0.05)
        with filelock.FileLock(self.folder / "kernels.lock"):
            held.touch()
            time.sleep(600)

    def baton(self) -> None:
        """Wait for a lock file that a killed build left behind."""
        code(BATON, "/usr/lib/python3/site-packages/torch/utils/file_baton.py")[
            "FileBaton"
        ]().wait()

    def loop(self, scheduler: dict[str, Any]) -> None:
        """Wait for requests: rank 0 has none to send."""
        import torch
        import torch.distributed as dist

        pull = functools.partial(time.sleep, 0)  # as SGLang: it looks again at once
        share = functools.partial(dist.broadcast, torch.zeros(1), src=0)
        batch = self.batch if self.job["scenario"] == "serves" else None
        scheduler["run_event_loop"](pull, share, batch)

    def batch(self) -> None:
        """Work at a batch; where the file "hang" is, the odd rank does not come back from it."""
        if self.odd and (self.folder / "hang").exists():
            self.forward()
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        if self.rank == 0:
            say(0, "Decode batch, #running-req: 1, #token: 96, cuda graph: True, #queue-req: 0")


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def fork(body: Any) -> int:
    """Run a function in a child, and return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            body()
        finally:
            os._exit(1)
    return pid


def serve(job: dict[str, Any]) -> None:
    """Be the parent of one job: start its ranks, and wait as SGLang's parent does."""
    os.setsid()
    server = socket.create_server(("127.0.0.1", 0))
    words = ["python3", "-m", "sglang.launch_server", "--model-path", "target", "--tp-size"]
    words += [str(job["world"]), "--port", str(server.getsockname()[1])]
    set_title("\0".join(words), b"\0")
    if job["scenario"] not in LOOPS:
        server.close()  # the port opens when a server is ready, not before
    log = os.open(Path(job["folder"]) / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"[{stamp}] server_args=ServerArgs(model_path='target', tp_size={job['world']}, pp_size=1)\n"
    os.write(1, line.encode())
    for rank in range(job["world"]):
        fork(Rank(rank, job).run)
    if job["scenario"] in LOOPS:
        time.sleep(1)
        os.write(1, f"[{stamp}] The server is fired up and ready to roll!\n".encode())

    def _wait_for_scheduler_ready() -> None:
        while True:
            time.sleep(5)

    _wait_for_scheduler_ready()


def main() -> None:
    die_with_parent()
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        print(fork(lambda job=job: serve(job)), flush=True)


if __name__ == "__main__":
    main()
