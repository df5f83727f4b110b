"""A forward hook that does what a file says, in one rank: for SGLang's ``--forward-hooks``.

The file holds a rank and a word, as ``1 sleep``; ``*`` is every rank, and ``DP1`` the second replica (of
which each has a rank 0). What can end ends when the file is gone. A word that begins with ``capture-``
is done only while a CUDA graph is captured.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import multiprocessing
import os
import queue
import re
import select
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


def forked(file: str) -> None:
    """Fork a child, which has the rank's title, and wait for it."""
    helper = multiprocessing.get_context("fork").Process(target=sleep, args=(file,))
    helper.start()
    helper.join()


def gil(file: str) -> None:
    """Sleep in native code that keeps the lock of the interpreter."""
    ctypes.PyDLL(None).sleep(20)


def selects(file: str) -> None:
    """Wait in select for a pipe that another thread writes at the end."""
    reader, writer = os.pipe()
    when_gone(file, lambda: os.write(writer, b"x"))
    select.select([reader], [], [])


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


def abort(file: str) -> None:
    """Abort NCCL's communicator of the group, and go on to the next collective."""
    import torch
    from sglang.srt.distributed.parallel_state import get_tp_group

    group = get_tp_group().device_group
    torch.distributed.all_reduce(torch.ones(8, device="cuda"), group=group)
    group._get_backend(torch.device("cuda")).abort()
    torch.distributed.all_reduce(torch.ones(8, device="cuda"), group=group)
    torch.cuda.synchronize()


def exhaust(file: str) -> None:
    """Ask for more memory than a GPU has."""
    import torch

    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")


def fail(file: str) -> None:
    raise RuntimeError("a hook of the test raised this")


ACTS = {
    "sleep": sleep, "spin": spin, "lock": lock, "queue": queued, "future": future, "child": child,
    "pipe": pipe, "kernel": kernel, "compute": compute, "extra": extra, "gloo": gloo, "fail": fail,
    "fork": forked, "gil": gil, "select": selects, "abort": abort, "oom": exhaust,
}  # fmt: skip


def act(file: str, capturing: bool = False) -> None:
    """Do what the file says, if this rank is meant."""
    import torch

    if not os.path.exists(file):
        return
    rank, _, word = Path(file).read_text().partition(" ")
    replica = re.search(r"_DP\d+", Path("/proc/self/cmdline").read_text())
    here = {"*", str(torch.distributed.get_rank()), replica[0][1:] if replica else ""}
    if capturing:
        word = word.removeprefix("capture-")
    if word in ACTS and rank in here:
        Path(f"{file}.began").touch()
        ACTS[word](file)


def factory(config: dict[str, Any]) -> Callable[..., None]:
    """Return the hook; `config["file"]` is the file that it looks for."""

    def hook(module: Any, inputs: Any, output: Any) -> None:
        act(config["file"])

    return hook


def in_captures(module: Any) -> None:
    """Let a module act in the captures of CUDA graphs: SGLang registers its hooks only after them."""
    import torch
    from sglang.srt.server_args import get_global_server_args

    forward = module.forward

    def acting(self: Any, *given: Any, **named: Any) -> Any:
        hooks = get_global_server_args().forward_hooks
        if hooks and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            act(hooks[0]["config"]["file"], capturing=True)
        return forward(self, *given, **named)

    module.forward = acting
