"""The stacks and scenes that the traps share."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import (
    BARRIER,
    CAPTURE,
    INIT,
    LOAD,
    START,
    R,
    scene,
    started,
    thread,
    written,
)
from tests.hang.cases.reported import AFTER_LOAD
from workbench.hang.records import Dump, Process, Rank, Scene, Snapshot

WAITS = f"{BARRIER} {CAPTURE}"
FORWARD = f"LlamaForCausalLM.forward {CAPTURE}"
WATCHDOG = thread(
    "WatchdogRaw._watchdog_once@/x/sglang/srt/utils/watchdog.py",
    "Thread-1 (_watchdog_thread)",
    active=True,
)


def replicas(*stacks: str, cpu: float = 0.01) -> Scene:
    """Two data-parallel replicas of two ranks each, under one controller: each numbers its own ranks."""
    whole = scene(
        [R(stack, cpu=cpu) for stack in stacks], arguments={"tp-size": "2", "dp-size": "2"}, log=()
    )
    shots = []
    for shot in whole.snapshots:
        found = tuple(
            dataclasses.replace(
                p,
                rank=Rank(i % 2, dp=i // 2, tp=i % 2),
                title=f"sglang::scheduler_DP{i // 2}_TP{i % 2}",
                parent=950,
            )
            for i, p in enumerate(shot.processes)
        )
        controller = Process(
            950, "node0", "controller", "sglang::data_parallel_controller", state="S"
        )
        shots.append(dataclasses.replace(shot, processes=(*found, controller)))
    return dataclasses.replace(whole, snapshots=tuple(shots))


def attention() -> Scene:
    """Data-parallel attention: all ranks are of one group, and their titles say DP0_TP0, DP1_TP1."""
    whole = scene(
        [R(WAITS), R(WAITS), R(FORWARD), R(WAITS)],
        arguments={"tp-size": "4", "dp-size": "4", "enable-dp-attention": "True"},
    )
    shots = [
        dataclasses.replace(
            shot,
            processes=tuple(
                dataclasses.replace(p, rank=Rank(i, dp=i, tp=i))
                for i, p in enumerate(shot.processes)
            ),
        )
        for shot in whole.snapshots
    ]
    return dataclasses.replace(whole, snapshots=tuple(shots))


def two_nodes(second: bool) -> Scene:
    one = scene(
        [R(WAITS) for _ in range(4)], arguments={"tp-size": "8", "nnodes": "2"}, host="node0"
    )
    if not second:
        return one
    ranks = [R(WAITS), R(WAITS), R(FORWARD), R(WAITS)]
    two = scene(ranks, numbers=range(4, 8), host="node1", arguments={})
    # Each node numbers its processes for itself, and its clock is a little off.
    shots = [
        dataclasses.replace(
            shot,
            at=shot.at + 7.0,
            processes=tuple(dataclasses.replace(p, pid=p.pid - 4) for p in shot.processes),
            dumps=tuple(dataclasses.replace(d, pid=d.pid - 4) for d in shot.dumps),
        )
        for shot in two.snapshots
    ]
    return dataclasses.replace(one, snapshots=(*one.snapshots, *shots), clock_skew={"node1": 7.0})


def dumps_only(seen: int, size: int) -> Scene:
    """A folder of dumps that somebody took by hand: no list of processes, no CPU times."""
    whole = scene([R(WAITS) for _ in range(seen)], arguments={"tp-size": str(size)}, gpu=None)
    return without_proc(whole, active=None)


def without_proc(whole: Scene, active: bool | None) -> Scene:
    return dataclasses.replace(
        whole,
        snapshots=tuple(
            dataclasses.replace(
                shot,
                processes=tuple(
                    Process(p.pid, p.host, p.role, p.title, p.rank) for p in shot.processes
                ),
                dumps=tuple(
                    dataclasses.replace(
                        d, threads=tuple(dataclasses.replace(t, active=active) for t in d.threads)
                    )
                    for d in shot.dumps
                ),
            )
            for shot in whole.snapshots
        ),
    )


def without_cpu(active: bool) -> Scene:
    ranks = [R(f"process_weights_after_loading {LOAD}"), *(R(AFTER_LOAD) for _ in range(3))]
    return without_proc(scene(ranks, log=started(4, "weights_begin"), gpu=None), active)


def log_dumps(ranks: int) -> tuple[Snapshot, ...]:
    """One dump of each rank, as the watchdog writes them: rank after rank, seconds apart."""
    found = []
    for rank in range(ranks):
        process = Process(1000 + rank, "", "scheduler", "", Rank(rank, tp=rank))
        stack = FORWARD if rank == 1 else WAITS
        dump = Dump(process.pid, "watchdog", (thread(stack),), START - 500.0 + 3 * rank)
        found.append(Snapshot(START - 500.0 + 3 * rank, "", (process,), (dump,)))
    return tuple(found)


def killed_by_watchdog() -> Scene:
    log = [
        *started(4, "decode"),
        "500 TP0| Watchdog timeout (self.watchdog_timeout=300)",
        "510 SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    ]
    return Scene(
        "made by hand",
        log_dumps(4),
        (written(log),),
        engine="sglang",
        version="0.5.14",
        arguments={"tp-size": "4"},
    )


def log_dumps_beside_looks() -> Scene:
    whole = scene([R(WAITS), R(WAITS), R(FORWARD), R(WAITS)], log=started(4, "decode"))
    return dataclasses.replace(whole, snapshots=(*log_dumps(4), *whole.snapshots))


def parent_only() -> Scene:
    parent = Process(
        900, "node0", "parent", "python -m sglang.launch_server", state="S", cpu_seconds=1.0
    )
    children = tuple(
        Process(
            1000 + i,
            "node0",
            "scheduler",
            "python -c from multiprocessing.spawn import spawn_main",
            state="R",
        )
        for i in range(2)
    )
    shots = tuple(Snapshot(1.8e9 + 30 * i, "node0", (parent, *children)) for i in range(2))
    return Scene(
        "made by hand", shots, engine="sglang", version="0.5.14", arguments={"tp-size": "2"}
    )


def untitled_sibling(arguments: dict[str, str]) -> Scene:
    """One rank has its title, the other is still called spawn_main: nobody is missing."""
    child = Process(
        1001,
        "node0",
        "scheduler",
        "python -c from multiprocessing.spawn import spawn_main",
        state="R",
    )
    stack = (
        "_new_process_group_helper GroupCoordinator.__init__ initialize_model_parallel "
        f"ModelRunner.init_torch_distributed ModelRunner.initialize {INIT}"
    )
    return scene([R(stack)], arguments=arguments, extra=(child,), gpu=None)
