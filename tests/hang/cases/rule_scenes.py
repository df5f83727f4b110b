"""The stacks and scenes that the cases of the rules share."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import (
    BARRIER,
    CAPTURE,
    GRAPHS,
    INIT,
    LOOP,
    SRT,
    START,
    R,
    scene,
    started,
    thread,
    written,
)
from workbench.hang.records import Dump, Scene, Snapshot

WAITS = f"{BARRIER} {CAPTURE}"
FORWARD = f"LlamaDecoderLayer.forward LlamaForCausalLM.forward {CAPTURE}"
KERNEL = f"synchronize {CAPTURE}"
BUILDS = f"_compile_one@{SRT}layers/deep_gemm_wrapper/compile_utils.py LlamaForCausalLM.forward {CAPTURE}"
REGISTERS = (
    "broadcast_object_list _exception_logger.<locals>.wrapper "
    f"CustomAllreduce.register_graph_buffers {CAPTURE}"
)
ENDS = f"CUDAGraph.capture_end {CAPTURE}"
LOADS_MODULE = f"cuModuleLoadDataEx::call LlamaForCausalLM.forward {CAPTURE}"
DRAFT = f"EAGLEDraftCudaGraphRunner.capture_one_shape EAGLEDraftCudaGraphRunner.capture {GRAPHS}"
PREFILL = f"PrefillCudaGraphRunner.capture_one_shape PrefillCudaGraphRunner.capture {GRAPHS}"
OLD = (
    "CudaGraphRunner.capture_one_batch_size CudaGraphRunner.capture CudaGraphRunner.__init__"
    f" ModelRunner.init_device_graphs ModelRunner.initialize {INIT}"
)
ALLOCATES = (
    f"use_symmetric_memory@{SRT}distributed/device_communicators/pynccl_allocator.py "
    f"choose_tactic@{SRT}layers/moe/x.py BaseRunner._flashinfer_autotune BaseRunner._warmup "
    f"{GRAPHS}"
)
HOOK = f"sleeps@/home/me/hooks.py LlamaForCausalLM.forward Scheduler.run_batch {LOOP}"
RESULT = f"Event.synchronize process_batch_result@{SRT}managers/scheduler.py {LOOP}"
JOINING = (
    "_new_process_group_helper GroupCoordinator.__init__ initialize_model_parallel "
    f"ModelRunner.init_torch_distributed ModelRunner.initialize {INIT}"
)
MINE = "work@/home/me/job.py <module>@/home/me/job.py"
MEETS = "barrier _exception_logger.<locals>.wrapper meet@/home/me/job.py <module>@/home/me/job.py"
GATHERS = (
    "all_reduce _exception_logger.<locals>.wrapper other@/home/me/job.py <module>@/home/me/job.py"
)


def counted(ranks: list[R], counts: dict[int, int]) -> Scene:
    report = {
        "communicators": [
            {
                "ranks": [
                    {"rank": r, "collective_counts": {"AllReduce": n}} for r, n in counts.items()
                ]
            }
        ]
    }
    return dataclasses.replace(
        scene(ranks, gpu=(76000.0, 100.0, 15.0), log=started(len(ranks), "decode")),
        records={"ras": [report]},
    )


def post_mortem() -> Scene:
    """After the abort: stacks that the interpreter printed, without ranks; the log of each rank."""
    log = [
        *started(4, "decode"),
        "700 TP2| Heartbeat monitor timed out! Process will be terminated",
        "1180 Fatal Python error: Aborted",
    ]
    dumps = tuple(
        Dump(0, "faulthandler", (thread(stack),), START) for stack in (WAITS, WAITS, FORWARD, WAITS)
    )
    return Scene(
        "made by hand",
        (Snapshot(START, "node0", dumps=dumps),),
        (written(log),),
        engine="sglang",
        version="0.5.14",
        arguments={"tp-size": "4"},
    )


def log_only(upto: str, ranks: int = 2, *more: str) -> Scene:
    return Scene(
        "made by hand",
        (),
        (written([*started(ranks, upto), *more]),),
        engine="sglang",
        version="0.5.14",
        arguments={"tp-size": str(ranks)},
    )


def one_behind() -> Scene:
    log = started(4, "weights_begin") + [
        f"400 TP{rank}| Load weight end. elapsed=300.1 s, type=X, avail mem=66.2 GB"
        for rank in (0, 1, 3)
    ]
    return Scene(
        "made by hand",
        (),
        (written(log),),
        engine="sglang",
        version="0.5.14",
        arguments={"tp-size": "4"},
    )
