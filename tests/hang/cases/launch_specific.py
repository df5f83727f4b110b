"""Rules that only some launches meet: DP attention, DeepEP, a trainer, a process next to the ranks.

Functions, files and lines of stacks are those of SGLang 0.5.14; lines of logs are of the reports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.hang.cases.build import (
    IDLE_0,
    IDLE_N,
    SITE,
    SRT,
    START,
    R,
    scene,
    started,
    thread,
    written,
)
from tests.hang.cases.case import Case
from tests.hang.cases.rule_scenes import FORWARD, KERNEL, WAITS
from workbench.hang.records import Dump, Halt, Process, Scene

C10D = f"{SITE}torch/distributed/distributed_c10d.py"
RENDEZVOUS = f"{SITE}torch/distributed/rendezvous.py"
WRAPPER = f"_exception_logger.<locals>.wrapper@{SITE}torch/distributed/c10d_logger.py"
DP_ATTENTION = f"{SRT}managers/scheduler_components/dp_attn.py"
SCHEDULER = f"{SRT}managers/scheduler.py"
WEIGHT_UPDATER = f"{SRT}managers/scheduler_components/weight_updater.py"
DETOKENIZER = f"{SRT}managers/detokenizer_manager.py"
TOKENIZERS = f"{SITE}transformers/tokenization_utils_tokenizers.py"
TOKENIZERS_BASE = f"{SITE}transformers/tokenization_utils_base.py"
LOOP = " ".join(
    (
        f"Scheduler.event_loop_overlap@{SCHEDULER}:1559",
        f"context_decorator.<locals>.decorate_context@{SITE}torch/utils/_contextlib.py",
        f"dispatch_event_loop@{SCHEDULER}:4092",
        f"Scheduler.run_event_loop@{SCHEDULER}:1486",
        f"run_scheduler_process@{SCHEDULER}:4227",
        "BaseProcess.run",
        "spawn_main",
    )
)
# What every rank does in each turn of its loop under --enable-dp-attention, with requests and without.
MLP_SYNC = " ".join(
    (
        f"all_gather_into_tensor@{C10D}",
        WRAPPER,
        f"MLPSyncBatchInfo.all_gather@{DP_ATTENTION}:91",
        f"prepare_mlp_sync_batch_raw@{DP_ATTENTION}:224",
        f"SchedulerDPAttnAdapter.prepare_mlp_sync_batch@{DP_ATTENTION}:273",
        f"SchedulerDPAttnAdapter.maybe_prepare_mlp_sync_batch@{DP_ATTENTION}:300",
        f"Scheduler.get_next_batch_to_run@{SCHEDULER}:2670",
        LOOP,
    )
)
# POST /init_weights_update_group: the ranks join a group of which a trainer is rank 0.
JOINS_TRAINER = " ".join(
    (
        f"_create_c10d_store@{RENDEZVOUS}",
        f"_tcp_rendezvous_handler@{RENDEZVOUS}",
        f"init_custom_process_group@{SRT}utils/common.py:1985",
        f"ModelRunner.init_weights_update_group@{SRT}model_executor/model_runner.py:1950",
        f"BaseTpWorker.init_weights_update_group@{SRT}managers/tp_worker.py:112",
        f"SchedulerWeightUpdaterManager.init_weights_update_group@{WEIGHT_UPDATER}:123",
        f"TypeBasedDispatcher.__call__@{SITE}sglang/utils.py:651",
        f"Scheduler.process_input_requests@{SCHEDULER}:1641",
        LOOP.replace(":1559", ":1552"),
    )
)
DECODES = " ".join(
    (
        f"TokenizersBackend._decode@{TOKENIZERS}",
        f"PreTrainedTokenizerBase.decode@{TOKENIZERS_BASE}",
        f"PreTrainedTokenizerBase.batch_decode@{TOKENIZERS_BASE}",
        f"DetokenizerManager._grouped_batch_decode@{DETOKENIZER}:241",
        f"DetokenizerManager._decode_batch_token_id_output@{DETOKENIZER}:299",
        f"DetokenizerManager.handle_batch_token_id_out@{DETOKENIZER}:407",
        f"DetokenizerManager.event_loop@{DETOKENIZER}:164",
        f"run_detokenizer_process@{DETOKENIZER}",
    )
)
DP_ARGUMENTS = {"tp-size": "4", "dp-size": "2", "enable-dp-attention": "True"}
UNHEALTHY = (
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 05:49:14. last_heartbeat time: 05:42:53"
)


def idle(*more: str, **other: object) -> Scene:
    ranks = [R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.6)]
    return scene(ranks, log=[*started(2, "ready"), *more], **other)  # type: ignore[arg-type]


def timed_out(sequences: Sequence[int]) -> Scene:
    """Only the log is left: each rank's watchdog gave up a collective at a number."""
    lines = [
        f"800 [rank{rank}]:[E1016 03:31:38.928019586 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={number}, OpType=_ALLGATHER_BASE, NumelIn=19008, "
        "NumelOut=152064, Timeout(ms)=600000) ran for 600071 milliseconds before timing out."
        for rank, number in enumerate(sequences)
    ]
    return Scene(
        "made by hand",
        (),
        (written([*started(len(sequences), "ready"), *lines]),),
        engine="sglang",
        version="0.5.14",
        arguments={"tp-size": str(len(sequences))},
    )


def deepep_gave_up() -> Scene:
    log = [
        *started(2, "ready"),
        "700 TP1| Scheduler hit an exception: Traceback (most recent call last):",
        "700 RuntimeError: DeepEP error: CPU recv timeout",
        "701 SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    ]
    return Scene(
        "made by hand",
        (),
        (written(log),),
        engine="sglang",
        version="0.5.14",
        arguments={"tp-size": "2", "ep-size": "2", "moe-a2a-backend": "deepep"},
    )


def busy_detokenizer(stack: str, then: str, cpu: float) -> Scene:
    """A server that idles, and a detokenizer with its stack in both snapshots."""
    whole = idle()
    shots = []
    for at, shot in enumerate(whole.snapshots):
        process = Process(
            850, "node0", "detokenizer", "sglang::detokenizer", state="R", started=500.0,
            cpu_seconds=9.0 + 30 * cpu * at,
        )  # fmt: skip
        dump = Dump(850, "py-spy", (thread(stack if at else then),), at=START + 30.0 * at)
        shots.append(
            dataclasses.replace(
                shot, processes=(*shot.processes, process), dumps=(*shot.dumps, dump)
            )
        )
    return dataclasses.replace(whole, snapshots=tuple(shots))


LAUNCH_SPECIFIC = (
    Case(
        "collectives-at-one-number",
        lambda: timed_out((9141, 9141, 9141, 9141)),
        "hung",
        "ready",
        "all ranks gave up the same collective: the log names no rank",
        rule="collective_timeout",
        source="sglang #1693",
    ),
    Case(
        "one-rank-launched-fewer",
        lambda: timed_out((96120, 96120, 96120, 64088)),
        "hung",
        "ready",
        "rank 3 waits in an earlier collective than the others: it launched fewer",
        odd=(3,),
        rule="sequence_numbers",
        source="pytorch #118369",
    ),
    Case(
        "deepep-gave-up",
        deepep_gave_up,
        "crashed",
        "ready",
        "the rank that reports DeepEP's timeout waited for another: it names none",
        rule="deepep_timeout",
        source="sglang #15598",
    ),
    Case(
        "held-by-a-debugger",
        lambda: scene(
            [R(FORWARD, state="t", halt=Halt(5.0, 812, "gdb")), R(FORWARD), R(WAITS)],
            log=started(3, "decode"),
        ),
        "stopped",
        "graph_decode",
        "gdb holds rank 0; rank 1 is at work of its own, so not all others wait for rank 0",
        odd=(0,),
        rule="held_rank",
    ),
    Case(
        "health-check-failed",
        lambda: idle(f"900 {UNHEALTHY}"),
        "cannot_tell",
        "ready",
        "the loops turn, and the server's own health check got no answer",
        rule="health_check",
        source="sglang #10856",
    ),
    Case(
        "health-check-failed-before-a-batch",
        lambda: idle(f"900 {UNHEALTHY}", "950 TP0| Decode batch, #running-req: 3, #token: 91"),
        "idle",
        "ready",
        "a batch ended after the health check failed: requests get through again",
        rule="idle",
        source="sglang #10856",
    ),
    Case(
        "detokenizer-at-one-place",
        lambda: busy_detokenizer(DECODES, DECODES, cpu=0.9),
        "cannot_tell",
        "ready",
        "the detokenizer computes at one place of its work in both snapshots: a long text, or a loop",
        rule="stuck_helper",
    ),
    Case(
        "detokenizer-at-work",
        lambda: busy_detokenizer(DECODES, DECODES.split(" ", 3)[3], cpu=0.9),
        "idle",
        "ready",
        "the detokenizer is elsewhere in the other snapshot: it gets on",
        rule="idle",
    ),
    Case(
        "gpu-computes",
        lambda: scene(
            [R(KERNEL, gpu=(76000.0, 100.0, 610.0)), R(WAITS, gpu=(76000.0, 0.0, 118.0))],
            log=started(2, "decode"),
        ),
        "slow",
        "graph_decode",
        "rank 0 waits for its GPU, which computes (610 W): a long kernel, and rank 1 waits for it",
        rule="gpu_computes",
    ),
    Case(
        "trainer-does-not-come",
        lambda: scene(
            [R(JOINS_TRAINER) for _ in range(4)],
            log=[
                *started(4, "ready"),
                *(
                    f"200 TP{rank}| init custom process group: master_address=10.0.0.1, master_port=65500, "
                    f"rank_offset=1, rank={rank + 1}, world_size=5, group_name=weight_sync, backend=nccl"
                    for rank in range(4)
                ),
            ],
        ),
        "hung",
        "ready",
        "all ranks join a group of which a process outside is rank 0",
        rule="outside_group",
        proposes="trainer",
        source="sglang #4096",
    ),
    Case(
        "trainer-and-one-rank",
        lambda: scene(
            [R(JOINS_TRAINER), R(JOINS_TRAINER), R(IDLE_N), R(JOINS_TRAINER)],
            log=started(4, "ready"),
        ),
        "hung",
        "ready",
        "rank 2 did not get the request that the others work at",
        rule="loop_held",
    ),
    Case(
        "mlp-sync-without-cpu",
        lambda: scene(
            [R(MLP_SYNC) for _ in range(4)], log=started(4, "ready"), arguments=DP_ARGUMENTS
        ),
        "hung",
        "ready",
        "all ranks wait in the all-gather of DP attention, and no loop uses CPU time",
        rule="loop_collective",
        source="sglang #34582",
    ),
    Case(
        "mlp-sync-with-cpu",
        lambda: scene(
            [R(MLP_SYNC, cpu=0.6) for _ in range(4)],
            log=started(4, "ready"),
            arguments=DP_ARGUMENTS,
        ),
        "cannot_tell",
        "ready",
        "the same stacks with CPU time: a server without requests is there in most of its turns",
        rule="loop_sync",
    ),
)
