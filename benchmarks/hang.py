"""Judging large scenes: the merged tree of 512 ranks of 200 threads, and the whole diagnosis."""

from __future__ import annotations

import functools
import time

from workbench.hang.judge import tree
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.records import Dump, Frame, Process, Rank, Scene, Snapshot, Thread

RANKS, THREADS, DEPTH, NODE = 512, 200, 27, 8


@functools.cache
def frame(depth: int, kind: int) -> Frame:
    """Return a frame, the same object each time, as the reader of dumps makes them."""
    return Frame(f"Class{depth}.f{depth}_{kind}", f"/x/site-packages/m{depth}.py", depth)


def stack(rank: int, thread: int) -> tuple[Frame, ...]:
    """Return a stack whose path parts ranks here and there."""
    way = rank % 7 if thread % 5 == 0 else 0
    kinds = [thread % 40 + (100 * way if depth > 20 else 0) for depth in range(DEPTH)]
    return tuple(frame(depth, kinds[depth]) for depth in reversed(range(DEPTH)))


def snapshot(node: int, at: float) -> Snapshot:
    """Return one host's ranks with all their threads."""
    processes, dumps = [], []
    for rank in range(NODE * node, NODE * node + NODE):
        pid = 1000 + rank
        threads = [Thread(stack(rank, n), f"worker-{n}") for n in range(1, THREADS)]
        dumps.append(
            Dump(pid, "py-spy", (*threads, Thread(stack(rank, 0), "MainThread", main=True)))
        )
        title = f"sglang::scheduler_TP{rank}"
        who = Rank(rank, tp=rank)
        processes.append(
            Process(pid, f"node{node}", "scheduler", title, who, state="S", cpu_seconds=1.0)
        )
    return Snapshot(at, f"node{node}", tuple(processes), tuple(dumps))


def main() -> None:
    shots = [snapshot(n, 1e9 + 30.0 * look) for look in range(2) for n in range(RANKS // NODE)]
    arguments = {"tp-size": str(RANKS)}
    made = Scene("benchmark", tuple(shots), version="0.5.14", arguments=arguments)
    stacks: list[dict[int, tuple[Frame, ...]]] = [{}, {}]
    for number, shot in enumerate(shots):
        for dump in shot.dumps:
            for at, thread in enumerate(dump.threads):
                stacks[number >= len(shots) // 2][dump.pid * THREADS + at] = thread.frames
    for name, looks in (("once", stacks[:1]), ("twice", stacks)):
        begin, cpu = time.perf_counter(), time.process_time()
        tree.merge(looks)
        told = f"{time.perf_counter() - begin:.2f} s ({time.process_time() - cpu:.2f} s of CPU)"
        print(f"merged tree of {RANKS} ranks x {THREADS} threads, seen {name}: {told}")
    begin, cpu = time.perf_counter(), time.process_time()
    got = diagnose(made)
    told = f"{time.perf_counter() - begin:.2f} s ({time.process_time() - cpu:.2f} s of CPU)"
    print(
        f"whole diagnosis of them, in two snapshots: {told}; {got.state}, {len(got.threads)} threads"
    )
    begin = time.perf_counter()
    size = len(got.to_json())
    print(f"as JSON: {size / 1e6:.1f} MB in {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    main()
