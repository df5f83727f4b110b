"""A tree of real processes with vLLM's titles and frame names: one worker is stuck, the others wait for it.

Run as a program: ``python -m tests.hang.live.vllm_job FOLDER WORLD ODD XXXX…`` (the last argument makes room
for the titles). The workers wait in a collective of gloo, the engine core in a read of its queue, as 0.11
does while it captures graphs. Everything ends with the program.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.hang.live.ranks import fork, set_title

PACKAGE = "/opt/lib/python3.11/site-packages/vllm"
WORKER = """
def worker_busy_loop(work): compile_or_warm_up_model(work)
def compile_or_warm_up_model(work): work()
"""
RUNNER = """
def capture_model(work): _capture_cudagraphs(work)
def _capture_cudagraphs(work): _dummy_run(work)
def _dummy_run(work): work()
"""
CORE = """
import time
def run_engine_core(): collective_rpc()
def collective_rpc(): get_response()
def get_response(): dequeue()
def dequeue():
    while True: time.sleep(0.1)
"""


def code(text: str, file: str) -> dict[str, Any]:
    """Run a text as if it stood in a file of vLLM's."""
    names: dict[str, Any] = {"__name__": file}
    exec(compile(text, f"{PACKAGE}/{file}", "exec"), names)
    return names


def say(name: str, text: str) -> None:
    """Write a line as vLLM's process of that name writes it."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    os.write(1, f"({name} pid={os.getpid()}) INFO {stamp} [x.py:1] {text}\n".encode())


def worker(folder: Path, rank: int, world: int, odd: int) -> None:
    """Join the others, and capture; the odd one sleeps in a layer."""
    import torch.distributed as dist

    name = f"Worker_TP{rank}"
    set_title(f"VLLM::{name}")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    dist.barrier()
    say(name, "Starting to load model m...")
    say(name, "Model loading took 9.0 GiB and 20.1 seconds")
    work = (lambda: time.sleep(600)) if rank == odd else dist.barrier
    runner = code(RUNNER, "v1/worker/gpu_model_runner.py")
    loop = code(WORKER, "v1/worker/gpu_worker.py")
    (folder / f"at-{rank}").touch()
    loop["worker_busy_loop"](lambda: runner["capture_model"](work))


def core(folder: Path, world: int, odd: int) -> None:
    """Be the engine core: start the workers, and wait for their answer."""
    set_title("VLLM::EngineCore_DP0")
    say(
        "EngineCore_DP0",
        f"Initializing a V1 LLM engine (v0.11.0) with config: tensor_parallel_size={world}",
    )
    for rank in range(world):
        fork(lambda rank=rank: worker(folder, rank, world, odd))
    code(CORE, "v1/engine/core.py")["run_engine_core"]()


def main() -> None:
    """Be the API server."""
    folder, world, odd = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    log = os.open(folder / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import torch.distributed

    torch.set_num_threads(1)
    say("APIServer", "vLLM API server version 0.11.0")
    words = ["python3", "/usr/bin/vllm", "serve", "m", "--tensor-parallel-size", str(world)]
    set_title("\0".join([*words, "--port", "1"]), b"\0")
    fork(lambda: core(folder, world, odd))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
