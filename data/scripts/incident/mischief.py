"""A forward hook that does what a file says, in one rank: for SGLang's ``--forward-hooks``.

The file holds a rank and a word, as ``1 sleep``. What can end ends when the file is gone.
"""

from __future__ import annotations

import concurrent.futures
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def when_gone(file: str, act: Callable[[], Any]) -> None:
    """Do something in a thread of its own once a file is gone."""

    def wait() -> None:
        while os.path.exists(file):
            time.sleep(0.1)
        act()

    threading.Thread(target=wait, name="end-of-mischief", daemon=True).start()


def sleep(file: str) -> None:
    while os.path.exists(file):
        time.sleep(0.1)


def spin(file: str) -> None:
    while os.path.exists(file):
        sum(range(1000))


def lock(file: str) -> None:
    held = threading.Lock()
    held.acquire()
    when_gone(file, held.release)
    held.acquire()


def queued(file: str) -> None:
    answers: queue.Queue[int] = queue.Queue()
    when_gone(file, lambda: answers.put(1))
    answers.get()


def future(file: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(sleep, file).result()


def child(file: str) -> None:
    subprocess.run(["sh", "-c", f"while [ -e '{file}' ]; do sleep 0.1; done"], check=True)


def pipe(file: str) -> None:
    name = file + ".pipe"
    os.mkfifo(name)
    when_gone(file, lambda: Path(name).write_text("x"))
    Path(name).read_text()
    os.unlink(name)


def kernel(file: str) -> None:
    """Wait for a kernel that does nothing for half a minute."""
    import torch

    torch.cuda._sleep(60_000_000_000)
    torch.cuda.synchronize()


def compute(file: str) -> None:
    """Queue real work on the GPU all at once, and wait for it."""
    import torch

    matrix = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
    for _ in range(2200):  # about 11 ms each
        matrix @ matrix
    torch.cuda.synchronize()


def extra(file: str) -> None:
    """Enter a collective on the GPUs that no other rank enters."""
    import torch

    torch.distributed.all_reduce(torch.ones(8, device="cuda"))
    torch.cuda.synchronize()


def gloo(file: str) -> None:
    """Enter a barrier of the host that no other rank enters."""
    from sglang.srt.distributed.parallel_state import get_tp_group

    get_tp_group().barrier()


def fail(file: str) -> None:
    raise RuntimeError("a hook of the test raised this")


ACTS = {
    "sleep": sleep, "spin": spin, "lock": lock, "queue": queued, "future": future, "child": child,
    "pipe": pipe, "kernel": kernel, "compute": compute, "extra": extra, "gloo": gloo, "fail": fail,
}  # fmt: skip


def factory(config: dict[str, Any]) -> Callable[..., None]:
    """Return the hook; `config["file"]` is the file that it looks for."""
    file = config["file"]

    def hook(module: Any, inputs: Any, output: Any) -> None:
        import torch

        if not os.path.exists(file):
            return
        rank, _, word = Path(file).read_text().partition(" ")
        if word in ACTS and torch.distributed.get_rank() == int(rank):
            ACTS[word](file)

    return hook
