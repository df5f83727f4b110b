"""What misleads: each of these has made somebody accuse the wrong rank."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import (
    BARRIER,
    CAPTURE,
    IDLE_0,
    IDLE_N,
    INIT,
    LOAD,
    LOOP,
    START,
    R,
    scene,
    started,
    thread,
    written,
)
from tests.hang.cases.case import Case
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
        "made by hand", log_dumps(4), (written(log),), version="0.5.14", arguments={"tp-size": "4"}
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
    return Scene("made by hand", shots, version="0.5.14", arguments={"tp-size": "2"})


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


TRAPS = (
    Case(
        "trap-all-equal",
        lambda: scene([R(WAITS) for _ in range(8)], log=started(8, "decode")),
        "hung",
        "graph_decode",
        "all at the same barrier: none is behind",
        wait="HOST_COLL",
        rule="decode_capture",
    ),
    Case(
        "trap-one-one-split",
        lambda: scene([R(FORWARD), R(WAITS)], log=started(2, "decode")),
        "hung",
        "graph_decode",
        "two ranks: the one behind in program order",
        odd=(0,),
        rule="decode_capture",
    ),
    Case(
        "trap-one-one-collectives",
        lambda: scene(
            [
                R(WAITS),
                R(f"all_reduce GroupCoordinator.all_reduce LlamaForCausalLM.forward {CAPTURE}"),
            ],
            log=started(2, "decode"),
        ),
        "hung",
        "graph_decode",
        "two ranks in two collectives: which one skipped one is not known",
        rule="decode_capture",
    ),
    Case(
        "trap-even-split",
        lambda: scene([R(WAITS), R(FORWARD), R(FORWARD), R(FORWARD)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "three in the forward, one ahead: the majority is not accused",
        rule="decode_capture",
    ),
    Case(
        "trap-rank0-lines",
        lambda: scene(
            [R(WAITS), R(WAITS), R(FORWARD)],
            log=[
                *started(3, "decode"),
                "70 TP0| Capturing batches (bs=4 avail_mem=8.1 GB):  33%|███ | 1/3 [00:11<00:44, 5.5s/it]",
                "71 TP0| Registering 12 cuda graph addresses",
            ],
        ),
        "hung",
        "graph_decode",
        "what only rank 0 writes does not put it ahead",
        odd=(2,),
        rule="decode_capture",
    ),
    Case(
        "trap-tied-timestamps",
        lambda: scene([R(WAITS), R(FORWARD), R(WAITS)], apart=0.0, log=started(3, "decode")),
        "cannot_tell",
        "graph_decode",
        "two snapshots at one time are one",
        rule="one_snapshot",
    ),
    Case(
        "trap-recycled-pid",
        lambda: scene([R(WAITS), R(FORWARD, restarted=True), R(WAITS)], log=started(3, "decode")),
        "cannot_tell",
        "graph_decode",
        "the same pid is another process: one snapshot of it",
        rule="one_snapshot",
    ),
    Case(
        "trap-eacces",
        lambda: scene(
            [R(WAITS, cpu=0.0), R(refusal="permission denied", state="S", cpu=0.9), R(WAITS)],
            log=started(3, "decode"),
        ),
        "cannot_tell",
        "graph_decode",
        "a refused stack is not an absent rank",
        rule="missing_stack",
    ),
    Case(
        "trap-active-watchdog",
        lambda: scene(
            [R(WAITS, other_threads=(WATCHDOG,)), R(WAITS, other_threads=(WATCHDOG,)), R(FORWARD)],
            log=started(3, "decode"),
        ),
        "hung",
        "graph_decode",
        "the watchdog's own thread is a bystander",
        odd=(2,),
        rule="decode_capture",
    ),
    Case(
        "trap-hex-frames",
        lambda: scene(
            [
                R(
                    f"0x7f7cce098e51 c10d::Work::wait {WAITS}",
                    then=f"0x7fffce0ffe51 c10d::Work::wait {WAITS}",
                ),
                R(FORWARD),
                R(WAITS),
            ],
            log=started(3, "decode"),
        ),
        "hung",
        "graph_decode",
        "addresses differ from snapshot to snapshot, and mean nothing",
        odd=(1,),
        rule="decode_capture",
    ),
    Case(
        "trap-dp-controller",
        lambda: replicas(IDLE_0, IDLE_0, WAITS, WAITS),
        "hung",
        "graph_decode",
        "replica 1 is hung, replica 0 is another group; all alike in it",
    ),
    Case(
        "trap-dp-one-behind",
        lambda: replicas(WAITS, FORWARD, WAITS, WAITS),
        "hung",
        "graph_decode",
        "rank 1 of replica 0 is behind; replica 1 has no odd rank, and its ranks are 2 and 3",
        odd=(1,),
        rule="decode_capture",
    ),
    Case(
        "trap-dp-second-replica",
        lambda: replicas(IDLE_0, IDLE_0, FORWARD, WAITS),
        "hung",
        "graph_decode",
        "rank 0 of replica 1 is number 2 of the launch",
        odd=(2,),
        rule="decode_capture",
    ),
    Case(
        "trap-dp-healthy",
        lambda: replicas(IDLE_0, IDLE_N, IDLE_0, IDLE_N, cpu=0.7),
        "idle",
        "ready",
        "two replicas, both well",
        rule="idle",
    ),
    Case(
        "trap-dp-attention",
        attention,
        "hung",
        "graph_decode",
        "one group, whatever the DP numbers",
        odd=(2,),
        rule="decode_capture",
    ),
    Case(
        "trap-one-node-of-two",
        lambda: two_nodes(False),
        "cannot_tell",
        "graph_decode",
        "the other node was not collected",
        rule="ranks_not_collected",
        not_collected=(4, 5, 6, 7),
        proposes="workbench collect",
    ),
    Case(
        "trap-two-nodes",
        lambda: two_nodes(True),
        "hung",
        "graph_decode",
        "the same pids on two hosts, clocks 7 s apart",
        odd=(6,),
        rule="decode_capture",
    ),
    Case(
        "trap-untitled-of-unknown-size",
        lambda: untitled_sibling({}),
        "cannot_tell",
        "dist_init",
        "how many ranks there are is not known, but there is one more than was seen",
        rule="missing_stack",
    ),
    Case(
        "trap-untitled",
        lambda: untitled_sibling({"tp-size": "2"}),
        "cannot_tell",
        "dist_init",
        "a rank without a title yet is not missing",
    ),
    Case(
        "trap-parent-polls",
        parent_only,
        "cannot_tell",
        "spawn",
        "the parent's poll is never the culprit",
    ),
    Case(
        "trap-spinning",
        lambda: scene(
            [R(f"synchronize {CAPTURE}", cpu=1.0), R(WAITS), R(WAITS)], log=started(3, "decode")
        ),
        "hung",
        "graph_decode",
        "CPU time in a synchronisation is no progress",
        odd=(0,),
    ),
    Case(
        "trap-stopped-idle",
        lambda: scene([R(IDLE_0, state="T", cpu=0.0), R(IDLE_N, cpu=0.0)], log=started(2, "ready")),
        "stopped",
        "ready",
        "a stopped rank of an idle server",
        odd=(0,),
        rule="stopped_rank",
    ),
    Case(
        "trap-all-stopped",
        lambda: scene([R(WAITS, state="T"), R(FORWARD, state="T")], log=started(2, "decode")),
        "stopped",
        "graph_decode",
        "all stopped: there is no odd rank",
        rule="stopped_rank",
    ),
    Case(
        "trap-stopped-one-snapshot",
        lambda: scene([R(WAITS), R(FORWARD, state="T")], looks=1, log=started(2, "decode")),
        "stopped",
        "graph_decode",
        "one snapshot is enough for state T, not for hung",
        odd=(1,),
        rule="stopped_rank",
    ),
    Case(
        "trap-idle-frozen",
        lambda: scene([R(IDLE_N, cpu=0.0) for _ in range(4)], log=started(4, "ready")),
        "cannot_tell",
        "ready",
        "all in the broadcast, no CPU time, no sleeper: not well by that alone",
    ),
    Case(
        "trap-order-0.5.8",
        lambda: Scene(
            "made by hand",
            (),
            (written(started(2, "captured", "0.5.8")),),
            version="0.5.8",
            arguments={"tp-size": "2", "speculative-algorithm": "EAGLE3"},
        ),
        "cannot_tell",
        "weights",
        "in 0.5.8 the draft's weights come after the target's capture",
    ),
    Case(
        "trap-queue-partner",
        lambda: scene(
            [
                R(f"Queue.get process_batch_result@/x/sglang/srt/managers/scheduler.py {LOOP}"),
                *(R(WAITS) for _ in range(2)),
            ],
            log=started(3, "captured"),
        ),
        "hung",
        "graph_decode",
        "who waits for another thread of its own is behind the others, not at fault by itself",
        odd=(0,),
    ),
    Case(
        "trap-three-dumps-of-eight",
        lambda: dumps_only(3, 8),
        "cannot_tell",
        "graph_decode",
        "somebody dumped three processes of eight: the other five are not dead",
        rule="ranks_not_collected",
        not_collected=(3, 4, 5, 6, 7),
    ),
    Case(
        "trap-computes-on-one-line",
        lambda: without_cpu(active=True),
        "cannot_tell",
        "load_barrier",
        "the same line twice, and the CPU time is not known: it may compute",
    ),
    Case(
        "dumps-of-sleepers",
        lambda: without_cpu(active=False),
        "hung",
        "load_barrier",
        "no /proc, but the dumps say that every thread slept, twice",
        odd=(0,),
        rule="load_barrier",
    ),
    Case(
        "trap-own-test-switch",
        lambda: scene(
            [R("Scheduler.__init__ run_scheduler_process", cpu=0.0)],
            gpu=None,
            arguments={"tp-size": "1"},
            log=started(1, "pool"),
            environment={"SGLANG_TEST_STUCK_SCHEDULER_INIT": "300"},
        ),
        "hung",
        "init_done",
        "it sleeps because a test switch says so",
        rule="test_switch",
        proposes="unset SGLANG_TEST_STUCK_SCHEDULER_INIT",
    ),
    Case(
        "trap-watchdog-dumps-then-killed",
        killed_by_watchdog,
        "hung",
        "graph_decode",
        "the watchdog's time says that it hung; one dump of each rank does not show who was behind",
        rule="watchdog",
    ),
    Case(
        "trap-log-dumps-next-to-snapshots",
        log_dumps_beside_looks,
        "hung",
        "graph_decode",
        "older dumps out of the log do not count as snapshots of their own",
        odd=(2,),
        rule="decode_capture",
    ),
    Case(
        "trap-exit-of-a-pid",
        lambda: Scene(
            "made by hand", version="0.5.14", arguments={"tp-size": "2"}, exits={-1001: -9}
        ),
        "crashed",
        "unknown",
        "an exit code of a process whose rank is not known",
        rule="server_died",
    ),
)
