"""What was written at another time, or is alike by chance: none of it may change what the looks tell."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import IDLE_0, IDLE_N, LOAD, LOOP, SRT, R, scene, started, written
from tests.hang.cases.case import Case
from tests.hang.cases.trap_scenes import FORWARD, WAITS, replicas
from workbench.hang.records import Halt, Process, Role, Scene

RESULT = f"Event.synchronize process_batch_result@{SRT}managers/scheduler.py {LOOP}"
BATCH = "TP0| Decode batch, #running-req: 3, #token: 91"
RAISED = (
    "900 TP1| Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/sglang/srt/models/llama.py", line 200, in forward',
    "AssertionError: head mismatch",
)


def alike(ranks: int, *batches: str, power: float = 600.0, cpu: float = 1.0) -> Scene:
    """All ranks wait for their GPU at one place in both looks, 1000 s and 1030 s after the log began."""
    return scene(
        [R(RESULT, cpu=cpu) for _ in range(ranks)],
        gpu=(76000.0, 97.0, power),
        log=[*started(ranks, "ready"), *batches],
    )


def traced(halt: Halt | None) -> Scene:
    """One of three ranks in state t in both looks."""
    ranks = [R(WAITS), R(FORWARD, state="t", halt=halt), R(WAITS)]
    return scene(ranks, log=started(3, "decode"))


def replicas_without_arguments() -> Scene:
    return dataclasses.replace(replicas(IDLE_0, IDLE_0, FORWARD, WAITS), arguments={})


def counted_by_stages() -> Scene:
    """NCCL's counts of two stages of a pipeline: each communicator numbers its own ranks."""
    stage = f"synchronize LlamaForCausalLM.forward Scheduler.run_batch {LOOP}"
    other = (
        f"synchronize LlamaDecoderLayer.forward LlamaForCausalLM.forward Scheduler.run_batch {LOOP}"
    )
    whole = scene(
        [R(stage), R(stage), R(stage), R(other)],
        arguments={"tp-size": "2", "pp-size": "2"},
        log=started(4, "ready"),
        gpu=(76000.0, 100.0, 130.0),
    )
    of_stages = [
        {
            "ranks": [
                {"rank": rank, "pid": 1000 + 2 * stage + rank, "collective_counts": counts}
                for rank, counts in enumerate(both)
            ]
        }
        for stage, both in enumerate(
            (
                ({"AllReduce": 50, "Send": 9}, {"AllReduce": 50, "Send": 0}),
                ({"AllReduce": 50, "Recv": 9}, {"AllReduce": 49, "Recv": 9}),
            )
        )
    ]
    return dataclasses.replace(whole, records={"ras": [{"communicators": of_stages}]})


def killed_afterwards(told: str, code: int) -> Scene:
    log = [*started(3, "decode"), f"1500 {told}"]
    return scene([R(WAITS), R(FORWARD), R(WAITS)], log=log, exits={1: code})


def beside(role: Role, state: str) -> Scene:
    """An idle server of which another process than its ranks does not run (``""``: it is gone)."""
    others: dict[Role, str] = {"parent": "S", "detokenizer": "S", role: state or "S"}
    extra = [
        Process(
            900 + at, "node0", name, f"sglang::{name}", started=400.0, state=one, cpu_seconds=1.0
        )
        for at, (name, one) in enumerate(others.items())
    ]
    whole = scene([R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.6)], log=started(2, "ready"), extra=extra)
    if state:
        return whole
    last = whole.snapshots[1]
    kept = tuple(p for p in last.processes if p.role != role)
    return dataclasses.replace(
        whole, snapshots=(whole.snapshots[0], dataclasses.replace(last, processes=kept))
    )


def child_crashed(at: int, *after: str, ahead: float | None = 0.0) -> Scene:
    """An idle server whose log says that its detokenizer crashed; the snapshots are at 1000 and 1030 s."""
    line = (
        f"{at} Subprocess detokenizer (pid=901) crashed with exit code -9. Triggering SIGQUIT for "
        "cleanup..."
    )
    ranks = [R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.6)]
    made = scene(ranks, log=[*started(2, "ready"), line, *after])
    return dataclasses.replace(
        made, logs=tuple(dataclasses.replace(log, ahead=ahead) for log in made.logs)
    )


def in_the_kernel(apart: float) -> Scene:
    """The one rank loads weights, py-spy could not pause it, and one of its threads is in state D."""
    made = scene(
        [R(refusal="py-spy did not end within 20 s and was killed", cpu=0.0)],
        apart=apart,
        log=started(1, "weights_begin"),
    )
    return dataclasses.replace(
        made,
        snapshots=tuple(
            dataclasses.replace(
                shot,
                processes=tuple(
                    dataclasses.replace(one, threads_by_state={"S": 70, "D": 1})
                    for one in shot.processes
                ),
            )
            for shot in made.snapshots
        ),
    )


MISLEADING = (
    Case(
        "server-ends-by-its-log",
        lambda: child_crashed(999),
        "crashed",
        "ready",
        "SGLang takes some seconds to end after a process of it has crashed: the ranks still look idle",
        rule="server_ends",
        proposes="dmesg",
        source="recorded on an H200: detokenizer-killed",
    ),
    Case(
        "batch-after-a-crash-line",
        lambda: child_crashed(990, f"999 {BATCH}"),
        "idle",
        "ready",
        "a batch ended after that line: it is of a server that was started again",
        rule="idle",
    ),
    Case(
        "disk-gives-little",
        lambda: in_the_kernel(28.0),
        "cannot_tell",
        "weights",
        "a thread in state D: a slow disk, or one that does not answer",
        rule="kernel_wait",
        proposes="diskstats",
        source="recorded on an H200: slow-disk",
    ),
    Case(
        "detokenizer-dead",
        lambda: beside("detokenizer", "Z"),
        "crashed",
        "ready",
        "the ranks are healthy, and nothing sends their answers",
        rule="ended_helper",
    ),
    Case(
        "detokenizer-gone",
        lambda: beside("detokenizer", ""),
        "crashed",
        "ready",
        "in the first snapshot only",
        rule="ended_helper",
    ),
    Case(
        "detokenizer-stopped",
        lambda: beside("detokenizer", "T"),
        "stopped",
        "ready",
        "the ranks are not stopped, and there is no answer",
        rule="stopped_helper",
        proposes="kill -CONT 901",
    ),
    Case(
        "parent-stopped",
        lambda: beside("parent", "T"),
        "stopped",
        "ready",
        "the ranks wait for requests that the main process does not take",
        rule="stopped_helper",
        proposes="kill -CONT 900",
    ),
    Case(
        "storage-gives-nothing",
        lambda: scene(
            [
                R(f"get_tensor safetensors_weights_iterator {LOAD}", state="D", cpu=0.0)
                for _ in range(4)
            ],
            log=started(4, "weights_begin"),
        ),
        "hung",
        "weights",
        "all read, and none gets a byte",
        rule="silent_storage",
        proposes="--model-path",
    ),
    Case(
        "second-node-without-arguments",
        lambda: scene([R(WAITS) for _ in range(4)], numbers=range(4, 8), arguments={}),
        "cannot_tell",
        "graph_decode",
        "ranks 4 to 7, and nothing tells how many nodes there are: the others are no dead ranks",
        not_collected=(0, 1, 2, 3),
        rule="ranks_not_collected",
    ),
    Case(
        "traced",
        lambda: traced(Halt(5.0, 812, "gdb")),
        "hung",
        "graph_decode",
        "a debugger holds it in both snapshots: a signal to go on would not help",
        odd=(1,),
        rule="awaited_held_rank",
        proposes="/proc/1001/status",
    ),
    Case(
        "traced-by-a-profiler",
        lambda: traced(Halt(5.0, 812, "py-spy")),
        "cannot_tell",
        "graph_decode",
        "another collection pauses what it reads: that shows nothing about the rank",
        rule="traced_rank",
        proposes="/proc/1001/status",
    ),
    Case(
        "traced-by-an-unknown-program",
        lambda: traced(None),
        "cannot_tell",
        "graph_decode",
        "state t twice, and not who traces it or for how long",
        rule="traced_rank",
    ),
    Case(
        "traced-by-a-profiler-while-idle",
        lambda: scene(
            [R(IDLE_0, state="t", halt=Halt(5.0, 812, "py-spy")), R(IDLE_N, cpu=0.6)],
            log=started(2, "ready"),
        ),
        "cannot_tell",
        "ready",
        "a rank that a profiler holds is not seen to be idle",
        rule="traced_rank",
    ),
    Case(
        "serving-alike-by-chance",
        lambda: alike(4, f"1015 {BATCH}"),
        "serving",
        "ready",
        "the same stacks twice, but a batch ended in between",
        rule="serving",
    ),
    Case(
        "load-or-hang",
        lambda: alike(4),
        "cannot_tell",
        "ready",
        "under load every snapshot is like this; nothing shows that batches do not end",
        rule="load_or_hang",
        proposes="snapshots=5",
    ),
    Case(
        "device-hang-without-power",
        lambda: alike(4, power=122.0),
        "hung",
        "ready",
        "at 97 % and 122 W nothing is computed",
        rule="all_on_gpu",
    ),
    Case(
        "stuck-in-a-batch-of-its-own",
        lambda: scene(
            [
                R(IDLE_0, cpu=0.7),
                R(f"hook@/home/me/hooks.py Scheduler.run_batch {LOOP}", cpu=0.3),
                *(R(IDLE_N, cpu=0.7) for _ in range(2)),
            ],
            log=started(4, "ready"),
        ),
        "cannot_tell",
        "ready",
        "one rank at one place in a batch, the others in none: that does not serve",
        rule="loop_polls",
    ),
    Case(
        "killed-after-the-snapshots",
        lambda: killed_afterwards(
            "Rank 1 scheduler died during initialization (exit code: -9).", -9
        ),
        "hung",
        "graph_decode",
        "it was killed later: in both snapshots it is alive",
        odd=(1,),
        rule="decode_capture",
    ),
    Case(
        "exception-and-alive",
        lambda: scene([R(WAITS), R(FORWARD), R(WAITS)], log=[*started(3, "decode"), *RAISED]),
        "hung",
        "graph_decode",
        "what a rank raised is read before a flag is changed",
        odd=(1,),
        proposes="read the exception in the log, line 23",
    ),
    Case(
        "exception-and-gone",
        lambda: scene([R(WAITS), R(absent=True), R(WAITS)], log=[*started(3, "decode"), *RAISED]),
        "dead_rank",
        "graph_decode",
        "the log has the exception that ended it: the kernel has nothing to tell",
        missing=(1,),
        proposes="read the exception in the log, line 23",
    ),
    Case(
        "exception-of-a-draft",
        lambda: Scene(
            "made by hand",
            (),
            (
                written(
                    [
                        *started(2, "weights"),
                        "800 TP1| Load weight begin. avail mem=60.1 GB",
                        *RAISED,
                    ]
                ),
            ),
            engine="sglang",
            version="0.5.14",
            arguments={"tp-size": "2", "speculative-algorithm": "EAGLE3"},
        ),
        "crashed",
        "weights",
        "the log alone, and the phase of the rank furthest behind",
        proposes="read the exception",
    ),
    Case(
        "ras-of-stages",
        counted_by_stages,
        "hung",
        "ready",
        "rank 1 of the second stage is rank 3; sends differ by design",
        odd=(3,),
        rule="all_on_gpu",
    ),
    Case(
        "dp-without-arguments",
        replicas_without_arguments,
        "hung",
        "graph_decode",
        "two replicas of two, by their titles: four ranks, not two",
        odd=(2,),
    ),
)
