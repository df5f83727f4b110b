"""Engines that are not SGLang: shared rules, their own words and flags, and no all-clear."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import workbench
from tests.hang.cases.build import R, frames, scene, thread
from workbench.hang.judge import waits
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.experiments import STEPS, plan
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.judge.rules import RULES
from workbench.hang.judge.steps import OTHERS
from workbench.hang.read.scene import read_scene
from workbench.hang.records import Dump, Process, Scene

V = "/opt/lib/python3.12/site-packages/vllm/"
EXECUTOR = f"{V}v1/executor/multiproc_executor.py"
QUEUE = f"{V}distributed/device_communicators/shm_broadcast.py"
RUNNER = f"{V}v1/worker/gpu_model_runner.py"
LOOP = f"worker_busy_loop@{EXECUTOR} worker_main@{EXECUTOR}"
READS = f"acquire_read@{QUEUE} dequeue@{QUEUE}"
RECEIVES = f"{READS} {LOOP}"
START_UP = f"compile_or_warm_up_model@{V}v1/worker/gpu_worker.py {LOOP}"
CAPTURE = f"_dummy_run@{RUNNER} capture_model@{RUNNER} {START_UP}"
WAITS = f"all_reduce {CAPTURE}"
LAYER = f"forward@{V}model_executor/models/llama.py {CAPTURE}"
BATCH = f"execute_model@{RUNNER} execute_model@{V}v1/worker/gpu_worker.py {LOOP}"
BUSY = f"run_busy_loop@{V}v1/engine/core.py run_engine_core@{V}v1/engine/core.py"
RESTS = f"Queue.get _process_input_queue@{V}v1/engine/core.py {BUSY}"
STEPS_ON = f"{READS} step@{V}v1/engine/core.py {BUSY}"


def vllm(ranks: list[R], core: str = "", **more: object) -> Scene:
    """A scene of vLLM's workers, and of their engine core where its stack is given."""
    made = scene(ranks, engine="vllm", version="0.11.0", **more)  # type: ignore[arg-type]
    if not core:
        return made
    snapshots = tuple(
        dataclasses.replace(
            one,
            processes=(
                *one.processes,
                Process(9, "node0", "controller", "VLLM::EngineCore", state="S"),
            ),
            dumps=(*one.dumps, Dump(9, "py-spy", (thread(core),), one.at)),
        )
        for one in made.snapshots
    )
    return dataclasses.replace(made, snapshots=snapshots)


def test_a_worker_that_is_behind_in_a_capture_is_named() -> None:
    got = diagnose(vllm([R(WAITS), R(LAYER), R(WAITS)]))
    assert (got.state, got.phase, got.odd_ranks) == ("hung", "graph_decode", (1,))
    assert got.summary.startswith("vLLM 0.11.0: hung while capturing CUDA graphs")
    assert "--enforce-eager" in got.experiment.change


def test_a_worker_that_did_not_come_back_for_work_is_behind() -> None:
    got = diagnose(vllm([R(RECEIVES), R(f"forward@x.py {BATCH}"), R(RECEIVES)], STEPS_ON))
    assert (got.state, got.odd_ranks) == ("hung", (1,))


def test_a_flag_that_the_launch_has_is_not_proposed_again() -> None:
    given = {"tp-size": "3", "enforce-eager": "True"}
    got = diagnose(vllm([R(WAITS), R(LAYER), R(WAITS)], arguments=given))
    assert "--enforce-eager" not in got.experiment.change
    assert "--disable-custom-all-reduce" in got.experiment.change


@pytest.mark.parametrize(
    ("core", "said"),
    [
        (RESTS, "the engine core waits for requests"),
        (STEPS_ON, "the engine core is in acquire_read"),
        ("", "the stack of the engine core is missing"),
    ],
)
@pytest.mark.parametrize("cpu", [0.01, 1.0])
def test_workers_without_work_are_no_all_clear(core: str, said: str, cpu: float) -> None:
    got = diagnose(vllm([R(RECEIVES, cpu=cpu)] * 2, core))
    assert (got.state, got.ok, got.odd_ranks) == ("cannot_tell", None, ())
    assert said in got.summary
    assert "vLLM 0.11.0" in got.summary


def test_workers_that_serve_are_not_called_serving() -> None:
    moving = R(f"forward@x.py:1 {BATCH}", then=f"sample@y.py:2 {BATCH}", cpu=1.0)
    got = diagnose(vllm([moving, moving], STEPS_ON))
    assert got.ok is not True
    assert got.state in ("cannot_tell", "slow")
    assert got.odd_ranks == ()


def test_the_start_up_inside_the_busy_loop_is_no_event_loop() -> None:
    assert waits.in_event_loop(frames(BATCH))
    assert waits.in_event_loop(frames(RECEIVES))
    assert not waits.in_event_loop(frames(CAPTURE))


FLAGS = {
    word.split("=")[0].split()[0]
    for step in STEPS.values()
    for word in (*step.spellings, step.without)
    if word
}


@pytest.mark.parametrize("engine", ["", "vllm", "tensorrt_llm", "torch"])
def test_no_flag_of_sglang_is_proposed_for_another_engine(engine: str) -> None:
    own = {
        word.split()[0]
        for step in OTHERS.get(engine, {}).values()
        for word in (*step.spellings, step.without)
        if word
    }
    every = {name: "true" for step in STEPS.values() if (name := step.sets[0])}
    for given in ({}, {"speculative-algorithm": "EAGLE3", "enable-symm-mem": "true"}, every):
        group = RankGroup((), 2, True, engine=engine, arguments=given)
        words = {"half": "1", "odd": "TP1", "pids": "1", "host": "h", "main_pid": "", "cache": "X"}
        for rule in RULES:
            got = plan(rule.ladder, group, words)
            text = f"{got.change} {got.if_right} {got.if_wrong}"
            assert not (set(text.replace("(", " ").split()) & (FLAGS - own)), rule.code
            assert "sglang" not in text.lower(), rule.code


def test_rules_do_not_speak_of_sglang_where_it_is_another_engine() -> None:
    stack = f"barrier f@{V}x.py"
    got = diagnose(vllm([R(stack), R(f"broadcast g@{V}y.py")]))
    assert got.state == "hung"
    assert "SGLang" not in got.to_text(100)


SHM_LINE = (
    "({0}) INFO 10-22 09:{1}:49 [shm_broadcast.py:466] No available shared memory broadcast block found in "
    "60 seconds. This typically happens when some processes are hanging or doing some time-consuming work."
)
BANNER = """\
(APIServer pid=1) INFO 10-22 09:00:01 [api_server.py:1839] vLLM API server version 0.11.0
(EngineCore_DP0 pid=2) INFO 10-22 09:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
tensor_parallel_size=2
(Worker_TP0 pid=3) INFO 10-22 09:01:30 [a.py:1] Model loading took 9.0 GiB and 20.1 seconds
"""
BATCH_LINE = (
    "(APIServer pid=1) INFO 10-22 09:{}:00 [loggers.py:127] Engine 000: Avg prompt throughput: 9.0 tokens/s, "
    "Avg generation throughput: 31.5 tokens/s, Running: 1 reqs"
)


def by_log(folder: Path, *lines: str) -> str:
    (folder / "server.log").write_text(BANNER + "\n".join(lines) + "\n")
    got = workbench.open_evidence(folder)
    assert (got.state, got.odd_ranks, got.ok) == ("cannot_tell", (), None)
    return got.summary


def test_the_waits_of_an_engine_core_are_counted(tmp_path: Path) -> None:
    said = by_log(tmp_path, *(SHM_LINE.format("EngineCore_DP0 pid=2", m) for m in (43, 44, 45)))
    assert "has waited 3 min for its workers" in said
    assert "its last step is 'Model loading took" in said


def test_waits_that_a_batch_followed_are_over(tmp_path: Path) -> None:
    waits_for = SHM_LINE.format("EngineCore_DP0 pid=2", 43)
    assert "has waited" not in by_log(tmp_path, waits_for, BATCH_LINE.format(44))
    # And only what came after the batch counts.
    said = by_log(
        tmp_path, waits_for, BATCH_LINE.format(44), SHM_LINE.format("EngineCore_DP0 pid=2", 46)
    )
    assert "has waited 60 s" in said


def test_the_waits_of_idle_workers_say_nothing(tmp_path: Path) -> None:
    assert "has waited" not in by_log(tmp_path, SHM_LINE.format("Worker_TP0 pid=3", 43))


def listed(folder: Path, *entries: dict[str, object]) -> Scene:
    (folder / "processes.json").write_text(
        json.dumps({"taken_at": 1.0, "processes": list(entries)})
    )
    return read_scene(folder)


def test_a_core_without_workers_is_the_rank(tmp_path: Path) -> None:
    core = {"pid": 2, "ppid": 1, "cmd": "VLLM::EngineCore", "status": "S"}
    (one,) = listed(tmp_path, core).snapshots[0].processes
    assert (one.role, one.rank is not None and one.rank.world) == ("scheduler", 0)
    worker = {"pid": 3, "ppid": 2, "cmd": "VLLM::Worker_TP0", "status": "S"}
    roles = [p.role for p in listed(tmp_path, core, worker).snapshots[0].processes]
    assert roles == ["controller", "scheduler"]


def test_ranks_of_torchrun_are_numbered_by_their_variables(tmp_path: Path) -> None:
    launcher = {"pid": 1, "ppid": 0, "cmd": "python /bin/torchrun train.py", "status": "S"}
    ranks = [
        {"pid": 10 + n, "ppid": 1, "cmd": "python train.py", "status": "S",
         "environment": {"RANK": str(n), "WORLD_SIZE": "2"}}
        for n in range(2)
    ]  # fmt: skip
    loader = {**ranks[0], "pid": 30, "ppid": 10}  # a child that inherited the variables
    made = listed(tmp_path, launcher, *ranks, loader)
    assert (made.engine, made.expected_ranks) == ("torch", 2)
    assert [(p.pid, p.rank.world) for p in made.snapshots[0].processes if p.rank] == [
        (10, 0),
        (11, 1),
    ]


def test_a_trainer_next_to_sglang_is_no_rank_of_it(tmp_path: Path) -> None:
    made = listed(
        tmp_path,
        {"pid": 1, "ppid": 0, "cmd": "torchrun train.py", "status": "S"},
        {"pid": 2, "ppid": 1, "cmd": "python train.py", "status": "S",
         "environment": {"RANK": "0", "WORLD_SIZE": "1"}},
        {"pid": 3, "ppid": 2, "cmd": "sglang::scheduler_TP0", "status": "S"},
    )  # fmt: skip
    assert made.engine == "sglang"
    assert [p.pid for p in made.snapshots[0].processes if p.rank] == [3]
