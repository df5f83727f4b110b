"""One snapshot against py-spy alone: its time, and how long it pauses what it looks at.

``python -m benchmarks.hang_attach`` starts eight processes of 200 threads, each about 27 frames deep, with
titles as SGLang's, and takes turns:

* ``py-spy dump --json`` of each and of their parent, one by one;
* the same nine at once, as a shell would start them (a single parallel pass);
* one snapshot of the collector: /proc, the same nine dumps, the GPUs, all written into a case.

In each process one thread looks at the clock every millisecond: its longest gap is the pause. The pause of
a snapshot is held against that of dumps taken one by one, and of the parallel pass.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench.hang.collect.collector import collect, proc
from workbench.hang.collect.collector.pyspy import PySpy
from workbench.hang.collect.gpu import read_gpus

PROCESSES, THREADS, DEPTH, ROUNDS = 8, 200, 27, 7
TARGET = """
import ctypes, mmap, os, struct, sys, threading, time
folder, processes, threads, depth = sys.argv[1], *map(int, sys.argv[2:5])
def set_title(text):
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()
    start, room = int(fields[45]), int(fields[46]) - int(fields[45]) - 1
    ctypes.memmove(start, text.encode().ljust(room) + b"\\0", room + 1)
def deep(left):
    if left: deep(left - 1)
    else: time.sleep(3600)
def tick(rank):
    file = open(f"{folder}/{rank}", "r+b")
    shared = mmap.mmap(file.fileno(), 8)
    last = time.monotonic()
    while True:
        time.sleep(0.001)
        now = time.monotonic()
        if now - last > struct.unpack("d", shared[:8])[0]:
            shared[:8] = struct.pack("d", now - last)
        last = now
for rank in range(processes):
    open(f"{folder}/{rank}", "wb").write(bytes(8))
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)
        set_title(f"sglang::scheduler_TP{rank}")
        threading.stack_size(1 << 18)
        for _ in range(threads):
            threading.Thread(target=deep, args=(depth,), daemon=True).start()
        open(f"{folder}/up-{rank}", "w").close()
        tick(rank)
time.sleep(3600)
"""


class Targets:
    """The processes that are looked at, and the gaps that they saw."""

    def __init__(self, folder: Path, root: int) -> None:
        self.root = root
        everyone = proc.everyone()
        self.pids = [p for p in proc.family({root}, everyone) if proc.is_title(proc.arguments(p))]
        self.shared = []
        for rank in range(PROCESSES):
            with (folder / str(rank)).open("r+b") as file:
                self.shared.append(mmap.mmap(file.fileno(), 8))

    def measure(self, action: Callable[[], object]) -> tuple[float, float]:
        """Return how long an action took, and the longest pause it gave any of the processes."""
        time.sleep(0.3)
        for shared in self.shared:
            shared[:8] = bytes(8)
        began = time.monotonic()
        action()
        took = time.monotonic() - began
        time.sleep(0.05)
        return took, max(struct.unpack("d", shared[:8])[0] for shared in self.shared)


@contextlib.contextmanager
def targets() -> Iterator[Targets]:
    """Start the processes and wait until all their threads stand."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TARGET, folder, str(PROCESSES), str(THREADS), str(DEPTH)]
        process = subprocess.Popen([*command, "x" * 40], start_new_session=True)
        try:
            while len(list(Path(folder).glob("up-*"))) < PROCESSES:
                time.sleep(0.1)
            time.sleep(1)
            yield Targets(Path(folder), process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def at_once(pids: list[int]) -> None:
    """Dump processes as a shell would: all at once."""
    program = str(PySpy().path)
    running = [
        subprocess.Popen([program, "dump", "--json", "--pid", str(pid)], stdout=subprocess.DEVNULL)
        for pid in pids
    ]
    for process in running:
        assert process.wait() == 0


def snapshot(root: int) -> None:
    """Take one snapshot of a server, with all that belongs to it."""
    plan = collect.Plan(pid=root, snapshots=1, read_gpus=read_gpus)
    found = collect.collect(io.BytesIO(), plan)
    assert found.stacks == PROCESSES + 1  # the ranks and their parent


def main() -> None:
    """Measure in turns and print medians."""
    with targets() as found:
        actions: dict[str, Callable[[], object]] = {
            "py-spy, one by one": lambda: [at_once([pid]) for pid in (*found.pids, found.root)],
            "py-spy, all at once": lambda: at_once([*found.pids, found.root]),
            "snapshot": lambda: snapshot(found.root),
        }
        rounds = {
            name: [found.measure(action) for _ in range(1)] for name, action in actions.items()
        }
        for _ in range(ROUNDS):
            for name, action in actions.items():
                rounds[name].append(found.measure(action))
    print(f"{PROCESSES} processes of {THREADS} threads, {DEPTH} frames deep; medians of {ROUNDS}")
    middle = {}
    for name, pairs in rounds.items():
        middle[name] = [statistics.median(column) for column in zip(*pairs[1:], strict=True)]
        print(f"  {name:22} {middle[name][0]:6.2f} s   longest pause {middle[name][1]:6.2f} s")
    plain, mine, alone = (
        middle[n] for n in ("py-spy, all at once", "snapshot", "py-spy, one by one")
    )
    print(f"snapshot / parallel pass: {mine[0] / plain[0]:.2f} (goal: at most 1.2)")
    print(f"pause / parallel pass's:  {mine[1] / plain[1]:.2f}")
    print(f"pause / one by one's:     {mine[1] / alone[1]:.2f}")


if __name__ == "__main__":
    main()
