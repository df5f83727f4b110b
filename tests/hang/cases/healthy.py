"""Servers that are well, or get on: none of them may be called hung."""

from __future__ import annotations

from tests.hang.cases.build import CAPTURE, IDLE_0, IDLE_N, INIT, LOAD, LOOP, SRT, R, scene, started
from tests.hang.cases.case import Case

TURNING = f"Scheduler.on_idle {LOOP}"
SLEEPING = f"IdleSleeper.maybe_sleep {LOOP}"
BATCHING = f"synchronize LlamaForCausalLM.forward Scheduler.run_batch {LOOP}"
SAMPLING = f"sample@{SRT}layers/sampler.py Scheduler.run_batch {LOOP}"
GATED = f"_wait_until_activated init_parallel_runtime ModelRunner.initialize {INIT}"

HEALTHY = (
    Case(
        "H9-idle",
        lambda: scene(
            [R(IDLE_0, cpu=0.8), *(R(IDLE_N, cpu=0.6) for _ in range(7))], log=started(8, "ready")
        ),
        "idle",
        "ready",
        "two equal snapshots, but the loops use CPU time",
        wait="IDLE",
        rule="idle",
        source="measured",
    ),
    Case(
        "one-snapshot-of-an-idle-server",
        lambda: scene(
            [R(IDLE_0), *(R(IDLE_N) for _ in range(3))], looks=1, log=started(4, "ready")
        ),
        "cannot_tell",
        "ready",
        "in the broadcast; one snapshot does not show whether it turns",
        rule="one_snapshot",
    ),
    Case(
        "idle-sleeps",
        lambda: scene(
            [R(SLEEPING, cpu=0.0), R(IDLE_N, cpu=0.0)],
            log=started(2, "ready"),
            arguments={"tp-size": "2", "sleep-on-idle": "True"},
        ),
        "idle",
        "ready",
        "--sleep-on-idle: no CPU time, and well",
        rule="idle",
    ),
    Case(
        "idle-single-rank",
        lambda: scene([R(IDLE_0, cpu=0.5)], log=started(1, "ready")),
        "idle",
        "ready",
        "one rank, no prefix in the log",
        rule="idle",
    ),
    Case(
        "serving",
        lambda: scene(
            [R(BATCHING, then=SAMPLING, cpu=0.9) for _ in range(4)],
            gpu=(76000.0, 97.0, 600.0),
            log=[*started(4, "ready"), "99 TP0| Decode batch, #running-req: 3, #token: 91"],
        ),
        "serving",
        "ready",
        "batches, and the stacks move",
        rule="serving",
    ),
    Case(
        "slow-compiler",
        lambda: scene(
            [
                R(CAPTURE, compilers=("nvcc",)),
                *(R("barrier GroupCoordinator.barrier " + CAPTURE) for _ in range(3)),
            ],
            log=started(4, "decode"),
        ),
        "slow",
        "graph_decode",
        "a compiler child lives",
        rule="working_rank",
    ),
    Case(
        "slow-reading",
        lambda: scene(
            [
                R(f"get_tensor safetensors_weights_iterator {LOAD}", state="D", cpu=0.02, io=5e7)
                for _ in range(8)
            ],
            log=started(8, "weights_begin"),
        ),
        "slow",
        "weights",
        "all ranks read",
        rule="working_rank",
    ),
    Case(
        "slow-imports",
        lambda: scene(
            [
                R(
                    f"load_plugins@{SRT}plugins/__init__.py run_scheduler_process",
                    then="run_scheduler_process",
                    cpu=0.9,
                )
                for _ in range(2)
            ],
            gpu=(0.0, 0.0, 70.0),
            log=["0 server_args=ServerArgs()"],
        ),
        "slow",
        "spawn",
        "importing takes its time",
        rule="working_rank",
    ),
    Case(
        "slow-by-its-stack",
        lambda: scene(
            [
                R(f"synchronize LlamaForCausalLM.forward {CAPTURE}", then=CAPTURE, cpu=0.02),
                *(R(f"barrier GroupCoordinator.barrier {CAPTURE}") for _ in range(3)),
            ],
            log=started(4, "decode"),
        ),
        "slow",
        "graph_decode",
        "hardly any CPU time, but the stack is another one",
        rule="working_rank",
    ),
    Case(
        "gated-launch",
        lambda: scene(
            [R(GATED) for _ in range(2)],
            version="0.5.23",
            log=[
                "0 server_args=ServerArgs()",
                "3 TP0| Init parallel begin.",
                "3 TP1| Init parallel begin.",
                "4 TP0| Gated launch waiting for activation. rank=0",
                "4 TP1| Gated launch waiting for activation. rank=1",
            ],
        ),
        "slow",
        "dist_init",
        "it waits on purpose",
        rule="gated_launch",
        proposes="activate",
    ),
)
