"""One case a rule of the table that no reported case covers, and its neighbours."""

from __future__ import annotations

import dataclasses

from tests.hang.cases.build import (
    BARRIER,
    CAPTURE,
    GRAPHS,
    IDLE_N,
    INIT,
    LOAD,
    R,
    scene,
    started,
)
from tests.hang.cases.case import Case
from tests.hang.cases.rule_scenes import (
    ALLOCATES,
    BUILDS,
    DRAFT,
    ENDS,
    FORWARD,
    GATHERS,
    HOOK,
    JOINING,
    KERNEL,
    MEETS,
    MINE,
    OLD,
    PREFILL,
    REGISTERS,
    RESULT,
    WAITS,
    counted,
    log_only,
    one_behind,
    post_mortem,
)

BY_RULE = (
    Case(
        "zombie",
        lambda: scene([R(WAITS), R(state="Z"), R(WAITS), R(WAITS)], log=started(4, "decode")),
        "dead_rank",
        "graph_decode",
        "a zombie is dead",
        missing=(1,),
        rule="dead_rank",
        proposes="dmesg",
    ),
    Case(
        "exit-code",
        lambda: scene(
            [R(WAITS), R(WAITS), R(exit_code=-11, state="Z"), R(WAITS)], log=started(4, "decode")
        ),
        "dead_rank",
        "graph_decode",
        "segmentation fault",
        missing=(2,),
        rule="dead_rank",
    ),
    Case(
        "crashed",
        lambda: dataclasses.replace(
            log_only(
                "decode",
                2,
                "80 Rank 1 scheduler died during initialization (exit code: -9). If exit "
                "code is -9, it was killed",
            ),
            exits={1: -9},
        ),
        "crashed",
        "graph_decode",
        "the log reports a death, and all ranks have exited",
        missing=(1,),
        rule="server_died",
    ),
    Case(
        "one-unseen",
        lambda: scene(
            [R(WAITS), R(WAITS), R(refusal="no permission", cpu=0.5), R(WAITS)],
            log=started(4, "decode"),
        ),
        "cannot_tell",
        "graph_decode",
        "the rank that was not seen may be the one",
        rule="missing_stack",
        proposes="SYS_PTRACE",
    ),
    Case(
        "one-snapshot",
        lambda: scene(
            [R(WAITS), R(WAITS), R(FORWARD), R(WAITS)], looks=1, log=started(4, "decode")
        ),
        "cannot_tell",
        "graph_decode",
        "hung needs two snapshots",
        rule="one_snapshot",
        proposes="attach",
    ),
    Case(
        "lock-and-barrier",
        lambda: scene(
            [
                R(WAITS),
                R(f"BaseFileLock.acquire LlamaForCausalLM.forward {CAPTURE}"),
                R(WAITS),
                R(WAITS),
            ],
            log=started(4, "decode"),
        ),
        "hung",
        "graph_decode",
        "one rank waits for a lock, the others for it",
        odd=(1,),
        rule="lock_wait",
    ),
    Case(
        "holder-inside",
        lambda: scene(
            [
                R(MINE, locks=("/tmp/build.lock",)),
                *(R(f"BaseFileLock.acquire build@/home/me/job.py {MINE}") for _ in range(3)),
            ],
            gpu=None,
        ),
        "hung",
        "unknown",
        "the one that does not wait for the lock holds it",
        odd=(0,),
        rule="lock_wait",
    ),
    Case(
        "holder-waits",
        lambda: scene(
            [
                R(WAITS, locks=("/tmp/build.lock",)),
                R(f"BaseFileLock.acquire LlamaForCausalLM.forward {CAPTURE}"),
                R(WAITS),
            ],
            log=started(3, "decode"),
        ),
        "hung",
        "graph_decode",
        "the holder waits in the barrier: a deadlock of two, not of one alone",
        rule="lock_wait",
    ),
    Case(
        "one-late",
        lambda: scene(
            [R(JOINING), R(f"imports@/opt/x.py {INIT}"), R(JOINING), R(JOINING)],
            gpu=(500.0, 0.0, 70.0),
            log=[
                "3 TP0| Init torch distributed begin.",
                "3 TP2| Init torch distributed begin.",
                "3 TP3| Init torch distributed begin.",
            ],
        ),
        "hung",
        "dist_init",
        "one rank has not come to the handshake",
        odd=(1,),
        rule="late_joiner",
        proposes="NCCL_DEBUG",
    ),
    Case(
        "stuck-loader",
        lambda: scene(
            [
                R(f"get_tensor safetensors_weights_iterator {LOAD}", state="D", cpu=0.0),
                *(
                    R(f"monitored_barrier ModelRunner.load_model ModelRunner.initialize {INIT}")
                    for _ in range(3)
                ),
            ],
            log=started(4, "weights_begin"),
        ),
        "hung",
        "load_barrier",
        "reading, and no byte comes",
        odd=(0,),
        rule="load_barrier",
        proposes="--model-path",
    ),
    Case(
        "forward",
        lambda: scene(
            [R(WAITS) if i != 6 else R(FORWARD) for i in range(8)], log=started(8, "decode")
        ),
        "hung",
        "graph_decode",
        "n-1 at the barrier of a shape",
        odd=(6,),
        wait="HOST_COLL",
        rule="decode_capture",
        proposes="--cuda-graph-backend-decode=disabled",
    ),
    Case(
        "R6-0.5.11",
        lambda: scene(
            [
                R(f"{BARRIER} {OLD}") if i != 2 else R(f"LlamaForCausalLM.forward {OLD}")
                for i in range(4)
            ],
            version="0.5.11",
            log=started(4, "decode", "0.5.11"),
        ),
        "hung",
        "graph_decode",
        "the older spelling",
        odd=(2,),
        rule="decode_capture",
        proposes="--disable-cuda-graph",
    ),
    Case(
        "prefill",
        lambda: scene(
            [
                R(f"{BARRIER} {PREFILL}"),
                R(f"LlamaForCausalLM.forward {PREFILL}"),
                R(f"{BARRIER} {PREFILL}"),
            ],
            log=started(3, "pool"),
        ),
        "hung",
        "graph_prefill",
        "the same with prefill graphs",
        odd=(1,),
        rule="prefill_capture",
        proposes="--cuda-graph-backend-prefill=disabled",
    ),
    Case(
        "build",
        lambda: scene([R(WAITS), R(BUILDS), R(WAITS), R(WAITS)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "in a build, without a compiler and without CPU time",
        odd=(1,),
        rule="capture_build",
        proposes="compile_deep_gemm",
    ),
    Case(
        "allocator",
        lambda: scene(
            [
                R(ALLOCATES),
                *(
                    R(f"{BARRIER} BaseRunner._flashinfer_autotune BaseRunner._warmup {GRAPHS}")
                    for _ in range(3)
                ),
            ],
            log=started(4, "pool"),
        ),
        "hung",
        "warmup",
        "one rank allocates where the others tune",
        odd=(0,),
        rule="autotuner",
        proposes="without --enable-symm-mem",
    ),
    Case(
        "registration",
        lambda: scene([R(REGISTERS) for _ in range(4)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "all in the registration: an exception hides behind it",
        rule="buffer_registration",
        proposes="--disable-custom-all-reduce",
    ),
    Case(
        "all-on-device",
        lambda: scene(
            [R(KERNEL, cpu=1.0) for _ in range(4)],
            gpu=(76000.0, 100.0, 15.0),
            log=started(4, "decode"),
        ),
        "hung",
        "graph_decode",
        "a kernel spins on every GPU: the stacks show none of them behind",
        wait="CUDA_SYNC",
        rule="all_on_gpu",
        proposes="--disable-custom-all-reduce",
    ),
    Case(
        "ras",
        lambda: counted(
            [R(KERNEL, cpu=1.0), R(f"ncclAllReduce {CAPTURE}", cpu=1.0), R(KERNEL, cpu=1.0)],
            {0: 41, 1: 40, 2: 41},
        ),
        "hung",
        "graph_decode",
        "NCCL's counts tell who did not launch",
        odd=(1,),
        rule="all_on_gpu",
    ),
    Case(
        "ras-all-alike",
        lambda: counted([R(KERNEL, cpu=1.0) for _ in range(3)], {0: 41, 1: 40, 2: 41}),
        "hung",
        "graph_decode",
        "all in one frame: NCCL's counts decide who is behind",
        odd=(1,),
        rule="all_on_gpu",
    ),
    Case(
        "one-kernel",
        lambda: scene(
            [R(WAITS), R(WAITS), R(KERNEL, cpu=1.0, gpu=(76000.0, 100.0, 150.0)), R(WAITS)],
            log=started(4, "decode"),
        ),
        "hung",
        "graph_decode",
        "one GPU busy at 150 W, the others wait",
        odd=(2,),
        rule="endless_kernel",
        proposes="CUDA_VISIBLE_DEVICES=0,1,3,2",
    ),
    Case(
        "one-kernel-without-readings",
        lambda: scene(
            [R(WAITS), R(WAITS), R(KERNEL, cpu=1.0), R(WAITS)],
            gpu=None,
            log=started(4, "decode"),
        ),
        "cannot_tell",
        "graph_decode",
        "a long kernel looks the same: the GPU's power would decide",
        rule="unread_gpu",
        proposes="nvidia-smi",
    ),
    Case(
        "driver",
        lambda: scene([R(WAITS), R(ENDS), R(WAITS), R(WAITS)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "one rank in the driver",
        odd=(1,),
        rule="driver_lock",
        proposes="CUDA_MODULE_LOADING=EAGER",
    ),
    Case(
        "all-in-driver",
        lambda: scene([R(ENDS) for _ in range(4)], log=started(4, "decode")),
        "hung",
        "graph_decode",
        "all in the driver: none is named",
        rule="driver_lock",
        proposes="CUDA_MODULE_LOADING=EAGER",
    ),
    Case(
        "faulthandler",
        post_mortem,
        "crashed",
        "graph_decode",
        "stacks without ranks tell the phase, and no culprit",
        rule="heartbeat_abort",
        proposes="--soft-watchdog-timeout",
    ),
    Case(
        "hook",
        lambda: scene(
            [R(RESULT, cpu=1.0, gpu=(76000.0, 100.0, 200.0)), R(HOOK, gpu=(76000.0, 0.0, 110.0))],
            log=started(2, "ready"),
        ),
        "hung",
        "ready",
        "rank 1 sleeps in a forward hook; rank 0 has launched and waits",
        odd=(1,),
        rule="endless_batch",
        proposes="--disable-overlap-schedule",
    ),
    Case(
        "stuck-in-batch",
        lambda: scene(
            [R(HOOK, cpu=0.0), *(R(IDLE_N, cpu=0.0) for _ in range(3))], log=started(4, "ready")
        ),
        "hung",
        "ready",
        "three wait for the next requests, which rank 0 never sends",
        odd=(0,),
        rule="loop_held",
    ),
    Case(
        "draft",
        lambda: scene(
            [
                R(f"{BARRIER} {DRAFT}"),
                R(f"LlamaForCausalLM.forward {DRAFT}"),
                R(f"{BARRIER} {DRAFT}"),
            ],
            log=started(3, "captured"),
            arguments={"tp-size": "3", "speculative-algorithm": "EAGLE3"},
        ),
        "hung",
        "graph_draft",
        "the draft's capture",
        odd=(1,),
        rule="draft_capture",
        proposes="without --speculative-algorithm",
    ),
    Case(
        "log-only",
        lambda: log_only("decode"),
        "cannot_tell",
        "graph_decode",
        "a log that ends amid the capture",
        rule="log_alone",
        proposes="--soft-watchdog-timeout",
    ),
    Case(
        "one-behind",
        one_behind,
        "cannot_tell",
        "weights",
        "rank 2 never reported the end of loading: the phase is that of the last",
        rule="log_alone",
    ),
    Case(
        "plain-job",
        lambda: scene([R(MEETS), R(MEETS), R(MINE), R(MEETS)], gpu=None, log=()),
        "hung",
        "unknown",
        "a job that is not SGLang: one rank does not come to the barrier",
        odd=(2,),
        rule="foreign_collective",
        proposes="TORCH_DISTRIBUTED_DEBUG",
    ),
    Case(
        "skipped",
        lambda: scene([R(MEETS), R(MEETS), R(GATHERS), R(MEETS)], gpu=None),
        "hung",
        "unknown",
        "one rank is in another collective",
        odd=(2,),
        rule="foreign_collective",
    ),
    Case(
        "single",
        lambda: scene(
            [R(f"Scheduler.__init__ {'run_scheduler_process'}", cpu=0.0)],
            gpu=None,
            log=started(1, "pool"),
            arguments={"tp-size": "1"},
        ),
        "hung",
        "init_done",
        "one rank sleeps in its constructor, after the pools",
        rule="same_place",
    ),
)
