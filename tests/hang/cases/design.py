"""The incident itself, rebuilt: eight ranks of a 1T target, all asleep, the log silent since the weights."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import INIT, SRT, R, scene, started, written
from tests.hang.cases.case import Case
from workbench.hang.records import Scene, Snapshot

VERSION = "0.5.9"
ARGUMENTS = {
    "model-path": "/models/Kimi-K2.5",
    "tp-size": "8",
    "trust-remote-code": "true",
    "speculative-algorithm": "EAGLE",
    "speculative-draft-model-path": "/models/draft",
}
FULL = (76 * 1024.0, 0.0, 118.0)
HEARTBEAT = [
    "800 [PG ID 0 PG GUID 0 Rank 3] First PG on this rank that detected no heartbeat of its watchdog.",
    "801 [PG ID 0 PG GUID 0 Rank 3] Heartbeat monitor timed out! Process will be terminated after dumping"
    " debug info. workMetaList_.size()=0",
    "1281 ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress",
    "1282 Fatal Python error: Aborted",
]
POOL = f"ModelRunner.init_memory_pool ModelRunner.initialize {INIT}"
MEASURING = (
    f"all_reduce _exception_logger.<locals>.wrapper get_available_gpu_memory@{SRT}utils/common.py"
    f" profile_max_num_token@{SRT}model_executor/model_runner_kv_cache_mixin.py {POOL}"
)
# The odd rank frees its cache before it joins the others' minimum of free memory.
FREEING = (
    "empty_cache@/opt/venv/lib/python3.12/site-packages/torch/cuda/memory.py"
    f" get_available_gpu_memory@{SRT}utils/common.py"
    f" profile_max_num_token@{SRT}model_executor/model_runner_kv_cache_mixin.py {POOL}"
)
CAPTURING = (
    "barrier _exception_logger.<locals>.wrapper GroupCoordinator.barrier"
    " CudaGraphRunner.capture_one_batch_size CudaGraphRunner.capture CudaGraphRunner.__init__"
    f" ModelRunner.init_device_graphs ModelRunner.initialize {INIT}"
)
BUILDING = (
    f"_compile_deep_gemm_one_type_all@{SRT}layers/deep_gemm_wrapper/compile_utils.py"
    f" LlamaForCausalLM.forward CudaGraphRunner.capture_one_batch_size CudaGraphRunner.capture"
    f" CudaGraphRunner.__init__ ModelRunner.init_device_graphs ModelRunner.initialize {INIT}"
)


def with_stacks() -> Scene:
    ranks = [R(MEASURING) for _ in range(8)]
    ranks[5] = R(FREEING)
    log = started(8, "weights", VERSION) + HEARTBEAT
    return scene(ranks, version=VERSION, log=log, gpu=FULL, arguments=ARGUMENTS, port_open=False)


def with_stacks_in_capture() -> Scene:
    ranks = [R(CAPTURING) for _ in range(8)]
    ranks[5] = R(BUILDING)
    log = started(8, "decode", VERSION) + HEARTBEAT
    return scene(ranks, version=VERSION, log=log, gpu=FULL, arguments=ARGUMENTS, port_open=False)


def from_log_and_gpus() -> Scene:
    """Two readings of the GPUs, and the log to its end; nobody looked at a process."""
    whole = scene([R() for _ in range(8)], version=VERSION, gpu=FULL, arguments=ARGUMENTS)
    shots = tuple(Snapshot(shot.at, shot.host, gpus=shot.gpus) for shot in whole.snapshots)
    log = written(started(8, "weights", VERSION) + HEARTBEAT)
    return dataclasses.replace(whole, snapshots=shots, logs=(log,), port_open=False)


def without_ptrace() -> Scene:
    """All but the stacks: 205 threads a process asleep, before the abort."""
    ranks = [R(refusal="no permission to read its memory (ptrace)") for _ in range(8)]
    log = started(8, "weights", VERSION)
    return scene(ranks, version=VERSION, log=log, gpu=FULL, arguments=ARGUMENTS, port_open=False)


DESIGN = (
    Case(
        "incident-with-stacks",
        with_stacks,
        "hung",
        "kv_pool",
        "seven ranks wait for the minimum of free memory; rank 5 has not come there; nothing of a capture",
        odd=(5,),
        wait="HOST_COLL",
        rule="late_rank",
        proposes="CUDA_VISIBLE_DEVICES=0,1,2,3,4,6,5,7",
        source="the design",
    ),
    Case(
        "incident-with-stacks-in-capture",
        with_stacks_in_capture,
        "hung",
        "graph_decode",
        "seven ranks at the barrier of a shape; rank 5 in a build without a compiler",
        odd=(5,),
        wait="HOST_COLL",
        rule="capture_build",
        proposes="compile_deep_gemm",
        source="the design",
    ),
    Case(
        "incident-from-log-and-gpus",
        from_log_and_gpus,
        "crashed",
        "load_barrier",
        "hung after the weights, then aborted by the heartbeat monitor; who was behind is not known",
        rule="heartbeat_abort",
        proposes="--soft-watchdog-timeout 120",
        source="the design",
    ),
    Case(
        "incident-without-ptrace",
        without_ptrace,
        "hung",
        "load_barrier",
        "/proc, log and GPUs alone: all ranks sleep, and none may be named",
        rule="asleep_at_start",
        proposes="--soft-watchdog-timeout 120",
        source="the design",
    ),
)
