"""The reported cases of facts/hang.md, rebuilt from their frames."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import (
    BARRIER,
    CAPTURE,
    GRAPHS,
    INIT,
    LOAD,
    LOOP,
    SRT,
    R,
    scene,
    started,
    thread,
)
from tests.hang.cases.case import Case
from workbench.hang.records import Scene

TUNING = (
    "all_reduce _exception_logger.<locals>.wrapper AutoTuner._profile_single_kernel AutoTuner.choose_one"
    " LlamaForCausalLM.forward BaseRunner._dummy_run BaseRunner._flashinfer_autotune "
    f"BaseRunner._warmup {GRAPHS}"
)
TUNED = (
    f"{BARRIER} BaseRunner._dummy_run BaseRunner._flashinfer_autotune BaseRunner._warmup {GRAPHS}"
)
BATON = f"wait@/opt/venv/lib/python3.12/site-packages/torch/utils/file_baton.py _jit_compile load {CAPTURE}"
FILELOCK = (
    "BaseFileLock.acquire load_cuda_ops get_cascade_module merge_state "
    f"LlamaForCausalLM.forward {CAPTURE}"
)
JOINING = (
    "ncclCommInitRank PyNcclCommunicator.__init__ GroupCoordinator.__init__ initialize_model_parallel"
    f" ModelRunner.init_torch_distributed ModelRunner.initialize {INIT}"
)
JOINED = (
    "synchronize PyNcclCommunicator.__init__ GroupCoordinator.__init__ initialize_model_parallel"
    f" ModelRunner.init_torch_distributed ModelRunner.initialize {INIT}"
)
AFTER_LOAD = (
    "monitored_barrier _exception_logger.<locals>.wrapper ModelRunner.load_model "
    f"ModelRunner.initialize {INIT}"
)
LOADING = f"get_tensor safetensors_weights_iterator {LOAD}"
PROCESSING = f"process_weights_after_loading {LOAD}"
VICTIM = (
    "Queue.get TpModelWorkerClient.resolve_batch_result "
    f"process_batch_result@{SRT}managers/scheduler.py {LOOP}"
)
RAGGED = (
    f"ragged_run@{SRT}layers/attention/flashinfer_backend.py LlamaForCausalLM.forward "
    "TpModelWorkerClient.forward_thread_func_"
)


def overlap() -> Scene:
    worker = thread(RAGGED, "Thread-3 (forward_thread_func)", active=True)
    ranks = [R(VICTIM, other_threads=(worker,), cpu=0.02) for _ in range(2)]
    return scene(ranks, version="0.4.6", log=started(2, "captured"))


def head_waits(code: int) -> Scene:
    """The worker of the second node was killed; its host was collected, and it is not there."""
    ranks = [R(f"synchronize {CAPTURE}", cpu=1.0), R(absent=True)]
    log = [
        *started(2, "decode"),
        "90 Capturing batches (bs=2 avail_mem=8.1 GB):  20%|██ | 2/10 [00:11<00:44, 5.5s/it]",
    ]
    return scene(ranks, log=log, gpu=(76000.0, 96.0, 90.0), exits={1: code} if code else {})


def gdb_only() -> Scene:
    """Two processes of which only native threads are known: no Python stack at all."""
    ranks = [
        R(refusal="only a gdb thread list was given"),
        R(refusal="only a gdb thread list was given"),
    ]
    return dataclasses.replace(scene(ranks, looks=1, gpu=None), arguments={"tp-size": "2"})


REPORTED = (
    Case(
        "H1-autotune",
        lambda: scene([R(TUNING), *(R(TUNED) for _ in range(3))], log=started(4, "pool")),
        "hung",
        "warmup",
        "rank 0 times a tactic that the others do not tune",
        odd=(0,),
        wait="HOST_COLL",
        rule="autotuner",
        proposes="--disable-flashinfer-autotune",
        source="vllm#52291, #54618, #57423",
    ),
    Case(
        "H1-autotune-tried",
        lambda: scene(
            [R(TUNING), *(R(TUNED) for _ in range(3))],
            log=started(4, "pool"),
            arguments={"tp-size": "4", "disable-flashinfer-autotune": "True"},
        ),
        "hung",
        "warmup",
        "the launch has the flag already: the next rung",
        odd=(0,),
        rule="autotuner",
        proposes="--soft-watchdog-timeout",
        source="vllm#52291",
    ),
    Case(
        "H2-stale-baton",
        lambda: scene([R(BATON) for _ in range(4)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "all wait for a lock file that a killed build left",
        wait="LOCK",
        rule="stale_lock",
        proposes="TORCH_EXTENSIONS_DIR=",
        source="sglang#38408, #35989, #16242",
    ),
    Case(
        "H3-one-compiles",
        lambda: scene(
            [
                R(FILELOCK),
                R(
                    "Popen.communicate load_cuda_ops get_cascade_module merge_state "
                    f"LlamaForCausalLM.forward {CAPTURE}",
                    compilers=("ninja", "cicc"),
                ),
                R(FILELOCK),
                R(FILELOCK),
            ],
            log=started(4, "decode"),
        ),
        "slow",
        "graph_decode",
        "the rank with the lock compiles",
        rule="working_rank",
        source="sglang#5034, #4389",
    ),
    Case(
        "H3-nfs",
        lambda: scene([R(FILELOCK) for _ in range(4)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "all wait for a lock on NFS, and there is no compiler",
        wait="LOCK",
        rule="stale_lock",
        proposes="FLASHINFER_WORKSPACE_BASE=",
        source="flashinfer#972, #993",
    ),
    Case(
        "H4-overlap-thread",
        overlap,
        "hung",
        "init_done",
        "the main threads are victims; both forward threads are alike",
        rule="endless_batch",
        proposes="--disable-overlap-schedule",
        source="sglang#4257",
    ),
    Case(
        "H5-bootstrap",
        lambda: scene(
            [R(JOINING), R(JOINED)],
            gpu=(900.0, 0.0, 110.0),
            log=[
                "0 server_args=ServerArgs()",
                "5 TP0| Init torch distributed begin.",
                "5 TP1| Init torch distributed begin.",
                "9 TP0| sglang is using nccl==2.28.9",
            ],
        ),
        "hung",
        "dist_init",
        "both are in one handshake, in different steps",
        rule="bootstrap",
        proposes="NCCL_DEBUG=INFO",
        source="sglang#3666, #4054, #3516",
    ),
    Case(
        "H6-loads",
        lambda: scene(
            [R(LOADING, cpu=0.4, io=2e8), *(R(AFTER_LOAD) for _ in range(3))],
            log=started(4, "weights_begin"),
        ),
        "slow",
        "load_barrier",
        "rank 0 reads; the others wait for it",
        rule="working_rank",
        source="sglang#39629, #39128, #5457",
    ),
    Case(
        "H6-processes",
        lambda: scene(
            [R(PROCESSING, then=LOADING, cpu=0.9), *(R(AFTER_LOAD) for _ in range(3))],
            log=started(4, "weights_begin"),
        ),
        "slow",
        "load_barrier",
        "rank 0 got on from reading to processing",
        rule="working_rank",
        source="sglang#9917",
    ),
    Case(
        "H7-killed",
        lambda: head_waits(-9),
        "dead_rank",
        "graph_decode",
        "the absent rank outranks the place of the head",
        missing=(1,),
        rule="dead_rank",
        source="spark-vllm-docker#352, sglang#18421",
    ),
    Case(
        "H7-aborted",
        lambda: head_waits(-6),
        "dead_rank",
        "graph_decode",
        "exit code -6",
        missing=(1,),
        rule="dead_rank",
        source="sglang#18421",
    ),
    Case(
        "H7-vanished",
        lambda: head_waits(0),
        "dead_rank",
        "graph_decode",
        "not there, and no exit code",
        missing=(1,),
        rule="dead_rank",
        source="sglang#18421",
    ),
    Case(
        "H8-gdb-only",
        gdb_only,
        "cannot_tell",
        "unknown",
        "no Python stack: nothing to compare",
        rule="missing_stack",
        source="sglang#6496",
    ),
)
