"""Both sides of each border of the rules of hangs: scenes that differ in one thing, and what that changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.hang.cases.build import CAPTURE, IDLE_0, IDLE_N, SRT, R, scene, started, written
from tests.hang.cases.design import MEASURING, POOL
from tests.hang.cases.healthy import BATCHING, GATED, SAMPLING
from tests.hang.cases.rule_scenes import (
    BUILDS,
    GATHERS,
    JOINING,
    KERNEL,
    MEETS,
    MINE,
    WAITS,
    counted,
    log_only,
)
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.records import Halt, Process, Scene

FORWARD = f"LlamaForCausalLM.forward {CAPTURE}"
LOCKED = f"BaseFileLock.acquire {FORWARD}"
REDUCES = f"all_reduce GroupCoordinator.all_reduce {CAPTURE}"
QUEUED = f"Queue.get {CAPTURE}"
JOINING_BARRIER = (
    "barrier _exception_logger.<locals>.wrapper GroupCoordinator.__init__ initialize_model_parallel "
    + JOINING.split("initialize_model_parallel ")[1]
)
GDB = Halt(5.0, 812, "gdb")
PYSPY = Halt(5.0, 812, "py-spy")
ONE_BEHIND = [R(WAITS), R(WAITS), R(FORWARD), R(WAITS)]
IDLE = [R(IDLE_0, cpu=0.8), *[R(IDLE_N, cpu=0.6)] * 3]
BATCH = (
    "TP0| Decode batch. #running-req: 1, #token: 100, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 100.0, #queue-req: 0"
)
EXCEPTION = "TP1| Scheduler hit an exception: Traceback (most recent call last):"
BUILDS_EARLY = f"_compile_one@{SRT}layers/deep_gemm_wrapper/compile_utils.py {POOL}"
JOINS = f"ncclCommInitRank {MINE}"
GATE = [
    "0 server_args=ServerArgs(model_path='target')",
    "5 TP0| Gated launch waiting for activation. rank=0",
    "5 TP1| Gated launch waiting for activation. rank=1",
]
OPENED = [f"9 TP{rank}| Gated launch activated. elapsed=4.00 s" for rank in (0, 1)]
PARENT = Process(900, "node0", "parent", "sglang", state="S", started=400.0)


def capturing(ranks: Sequence[R], **more: Any) -> Scene:
    return scene(ranks, **{"log": started(len(ranks), "decode"), **more})


def ready(ranks: Sequence[R], **more: Any) -> Scene:
    return scene(ranks, **{"log": started(len(ranks), "ready"), **more})


def logged(given: Scene, lines: Sequence[str], ahead: float | None) -> Scene:
    """Give a scene its log, and the log's zone where that is known."""
    return dataclasses.replace(given, logs=(dataclasses.replace(written(lines), ahead=ahead),))


def idle_after(line: str, ahead: float | None = 0.0) -> Scene:
    return logged(scene(IDLE), [*started(4, "ready"), line], ahead)


def loaded(
    cpu: float = 0.9,
    gpu: tuple[float, float, float] | None = (76000.0, 95.0, 300.0),
    size: float = 143771.0,
    lines: Sequence[str] = (),
    ahead: float | None = 0.0,
    stack: str = BATCHING,
) -> Scene:
    """Return a server under load: all ranks wait for their GPUs in both looks."""
    given = logged(scene([R(stack, cpu=cpu)] * 4, gpu=gpu), [*started(4, "ready"), *lines], ahead)
    shots = [
        dataclasses.replace(
            shot, gpus=tuple(dataclasses.replace(one, memory_total_mib=size) for one in shot.gpus)
        )
        for shot in given.snapshots
    ]
    return dataclasses.replace(given, snapshots=tuple(shots))


def helper(state: str, role: str = "detokenizer") -> tuple[Process, ...]:
    one = Process(901, "node0", role, f"sglang::{role}", state=state, parent=900, started=500.0)  # type: ignore[arg-type]
    return (PARENT, one)


def check(build: Callable[[], Scene], wanted: Mapping[str, Any]) -> None:
    got = diagnose(build())
    found = {name: getattr(got, name) for name in wanted if name != "finding"}
    assert found == {name: value for name, value in wanted.items() if name != "finding"}
    first = got.findings[0]
    # The doubts of the verdict and of its finding are the same.
    assert first.confidence == got.confidence


# How sure a verdict is: each weakness takes one step, and what is no weakness takes none.
SURE: dict[str, tuple[Callable[[], Scene], str, str]] = {
    "looks 5 s apart": (lambda: capturing(ONE_BEHIND, apart=5.0), "hung", "likely"),
    "looks 4.9 s apart": (lambda: capturing(ONE_BEHIND, apart=4.9), "hung", "possible"),
    "looks 0.9 s apart are one": (
        lambda: capturing(ONE_BEHIND, apart=0.9), "cannot_tell", "unknown"),
    "looks 1 s apart are two": (lambda: capturing(ONE_BEHIND, apart=1.0), "hung", "possible"),
    "the size is guessed": (lambda: capturing(ONE_BEHIND, arguments={}), "hung", "possible"),
    "the size of one is guessed": (lambda: capturing([R(FORWARD)], arguments={}), "hung", "likely"),
    "the phase is known by stacks alone": (lambda: scene(ONE_BEHIND), "hung", "likely"),
    "the phase is not known": (lambda: scene([R(MEETS), R(MINE), R(MEETS)]), "hung", "possible"),
    "stacks are missing": (
        lambda: scene([R(refusal="ptrace")] * 4, log=started(4, "weights")), "hung", "possible"),
    "one of two is on its GPU": (
        lambda: capturing([R(WAITS), R(KERNEL)], gpu=(76000, 100, 150)), "hung", "possible"),
    "one of two computes": (lambda: capturing([R(WAITS), R(FORWARD)]), "hung", "likely"),
    "one of three is on its GPU": (
        lambda: capturing([R(WAITS), R(KERNEL), R(WAITS)], gpu=(76000, 100, 150)), "hung", "likely"),
    "both are on their GPUs": (lambda: capturing([R(KERNEL)] * 2), "hung", "likely"),
    "stopped by a signal": (
        lambda: capturing([R(WAITS, state="T"), R(WAITS), R(WAITS)]), "hung", "certain"),
    "stopped by a signal in the last look": (
        lambda: capturing([R(WAITS, state="T", was="S"), R(WAITS), R(WAITS)]), "hung", "likely"),
    "stopped by a signal, watched in the last look": (
        lambda: capturing([R(WAITS, state="T", was="S", halt=Halt(0.5)), R(WAITS), R(WAITS)]),
        "hung", "certain"),
    "stopped by a signal, watched too shortly": (
        lambda: capturing([R(WAITS, state="T", was="S", halt=Halt(0.49)), R(WAITS), R(WAITS)]),
        "hung", "likely"),
    "held by a debugger": (
        lambda: capturing([R(WAITS, state="t", halt=GDB), R(WAITS), R(WAITS)]), "hung", "likely"),
    "held by a profiler": (
        lambda: capturing([R(WAITS, state="t", halt=PYSPY), R(WAITS), R(WAITS)]),
        "cannot_tell", "unknown"),
    "held by a debugger in the last look alone": (
        lambda: capturing([R(WAITS, state="t", was="S", halt=GDB), R(WAITS), R(WAITS)]),
        "cannot_tell", "unknown"),
    "paused by a profiler in the first look alone": (
        lambda: capturing([R(WAITS, was="t"), R(WAITS), R(FORWARD)]), "hung", "likely"),
    "stopped, and nobody waits": (
        lambda: capturing([R(FORWARD, state="T"), R(FORWARD), R(WAITS)]), "stopped", "certain"),
    "stopped, and nobody waits, seen once": (
        lambda: capturing([R(FORWARD, state="T", was="S"), R(FORWARD), R(WAITS)]),
        "stopped", "likely"),
    "held by a debugger, and nobody waits": (
        lambda: capturing([R(FORWARD, state="t", halt=GDB), R(FORWARD), R(WAITS)]),
        "stopped", "likely"),
    "idle, and the log says ready": (lambda: ready(IDLE), "idle", "certain"),
    "idle, and the port answers": (lambda: scene(IDLE, port_open=True), "idle", "certain"),
    "idle, and nothing says ready": (lambda: scene(IDLE), "idle", "likely"),
    "idle behind a closed port": (lambda: ready(IDLE, port_open=False), "idle", "likely"),
    "idle behind a closed port, and nothing says ready": (
        lambda: scene(IDLE, port_open=False), "idle", "possible"),
    "idle with looks 4.9 s apart": (lambda: ready(IDLE, apart=4.9), "idle", "likely"),
    "idle with looks 5 s apart": (lambda: ready(IDLE, apart=5.0), "idle", "certain"),
    "idle, and the size is guessed": (lambda: ready(IDLE, arguments={}), "idle", "likely"),
    "idle alone, and the size is guessed": (
        lambda: ready([R(IDLE_0, cpu=0.5)], arguments={}), "idle", "certain"),
    "idle beside a detokenizer": (lambda: ready(IDLE, extra=helper("S")), "idle", "certain"),
    "idle without a detokenizer": (lambda: ready(IDLE, extra=(PARENT,)), "idle", "likely"),
    # The looks end at 1030 s of the log's clock, which is cut to seconds.
    "idle after an exception": (lambda: idle_after(f"900 {EXCEPTION}"), "idle", "likely"),
    "idle, and an exception with the last look": (
        lambda: idle_after(f"1031 {EXCEPTION}"), "idle", "likely"),
    "idle, and an exception after the last look": (
        lambda: idle_after(f"1032 {EXCEPTION}"), "idle", "certain"),
    "idle, and an exception of a clock that is not known": (
        lambda: idle_after(f"900 {EXCEPTION}", None), "idle", "certain"),
    "serving, and the stacks move": (
        lambda: ready([R(BATCHING, then=SAMPLING, cpu=0.9)] * 4), "serving", "certain"),
    "serving, and one stack moves": (
        lambda: ready([R(BATCHING, then=SAMPLING, cpu=0.9), *[R(SAMPLING, cpu=0.9)] * 3]),
        "slow", "likely"),
    "serving, and CPU time alone moves": (
        lambda: ready([R(SAMPLING, cpu=0.9)] * 4), "cannot_tell", "unknown"),
    "serving, and the log has batches": (
        lambda: loaded(lines=[f"1010 {BATCH}"]), "serving", "certain"),
    "serving, and nothing says ready": (
        lambda: scene([R(BATCHING, then=SAMPLING, cpu=0.9)] * 4), "serving", "likely"),
    "slow, and a compiler runs": (
        lambda: capturing([R(WAITS), R(FORWARD, compilers=("nvcc",)), R(WAITS)]), "slow", "likely"),
    "slow, all seen and no compiler": (
        lambda: capturing([R(WAITS), R(FORWARD, then=QUEUED), R(WAITS)]), "slow", "likely"),
    "slow, one unseen, and a compiler runs": (
        lambda: capturing([R(WAITS), R(refusal="ptrace", compilers=("nvcc",)), R(WAITS)]),
        "slow", "likely"),
    "slow, one unseen, and no compiler": (
        lambda: capturing([R(refusal="ptrace"), R(FORWARD, then=QUEUED), R(WAITS)]),
        "slow", "possible"),
    "a rank is a zombie": (
        lambda: capturing([R(WAITS), R(FORWARD, state="Z"), R(WAITS)]), "dead_rank", "certain"),
    "a rank is absent": (
        lambda: capturing([R(WAITS), R(absent=True), R(WAITS)]), "dead_rank", "likely"),
    "a rank is a zombie, and the size is guessed": (
        lambda: capturing([R(WAITS), R(FORWARD, state="Z"), R(WAITS)], arguments={}),
        "dead_rank", "likely"),
    "the log tells an abort and no exit code": (
        lambda: log_only("decode", 2, "700 TP1| Heartbeat monitor timed out! Process will be terminated"),
        "crashed", "likely"),
    "a process of the server has ended": (lambda: ready(IDLE, extra=helper("Z")), "crashed", "certain"),
    "all that is known is the log": (lambda: log_only("decode"), "cannot_tell", "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", SURE)
def test_how_sure_a_verdict_is(name: str) -> None:
    build, state, confidence = SURE[name]
    check(build, {"state": state, "confidence": confidence})


# State, rule and whom they name.
JUDGED: dict[str, tuple[Callable[[], Scene], str, str, tuple[int, ...]]] = {
    # Under load two looks alike are no hang, but where something rests.
    "load, and all is busy": (loaded, "cannot_tell", "load_or_hang", ()),
    "load, and the CPU rests": (lambda: loaded(cpu=0.1), "cannot_tell", "unread_gpu", ()),
    "load, and the CPU hardly rests": (lambda: loaded(cpu=0.11), "cannot_tell", "load_or_hang", ()),
    "load, and the GPUs are unused": (
        lambda: loaded(gpu=(76000, 19.9, 300)), "hung", "all_on_gpu", ()),
    "load, and the GPUs are used a little": (
        lambda: loaded(gpu=(76000, 20, 300)), "cannot_tell", "load_or_hang", ()),
    "load, and big GPUs spin": (lambda: loaded(gpu=(76000, 95, 199.9)), "hung", "all_on_gpu", ()),
    "load, and big GPUs draw power": (
        lambda: loaded(gpu=(76000, 95, 200)), "cannot_tell", "load_or_hang", ()),
    "load, and small GPUs draw little": (
        lambda: loaded(gpu=(50000, 95, 150), size=60000.0), "cannot_tell", "load_or_hang", ()),
    "load, and the GPUs are just big": (
        lambda: loaded(gpu=(50000, 95, 150), size=60001.0), "hung", "all_on_gpu", ()),
    "load without readings": (lambda: loaded(gpu=None), "cannot_tell", "load_or_hang", ()),
    "load, and the log is silent for 61 s": (
        lambda: loaded(lines=[f"969 {BATCH}"]), "hung", "all_on_gpu", ()),
    "load, and the log is silent for 60 s": (
        lambda: loaded(lines=[f"970 {BATCH}"]), "cannot_tell", "load_or_hang", ()),
    "load, and a log of another zone is silent": (
        lambda: loaded(lines=[f"900 {BATCH}"], ahead=None), "cannot_tell", "load_or_hang", ()),
    "load, and a batch with the first look": (
        lambda: loaded(lines=[f"1001 {BATCH}"]), "cannot_tell", "load_or_hang", ()),
    "load, and a batch after the first look": (
        lambda: loaded(lines=[f"1002 {BATCH}"]), "serving", "serving", ()),
    "load, and a batch after the last look": (
        lambda: loaded(lines=[f"1032 {BATCH}"]), "serving", "serving", ()),
    "load, and a batch of a clock that is not known, between the looks": (
        lambda: loaded(lines=[f"1031 {BATCH}"], ahead=None), "serving", "serving", ()),
    "load, and a batch of a clock that is not known, after the looks": (
        lambda: loaded(lines=[f"1032 {BATCH}"], ahead=None), "cannot_tell", "load_or_hang", ()),
    "the same outside of a batch": (
        lambda: capturing([R(KERNEL, cpu=0.9)] * 4, gpu=(76000, 95, 150)), "hung", "all_on_gpu", ()),
    "some stay in a batch": (
        lambda: ready([R(BATCHING, cpu=0.9)] * 2 + [R(IDLE_N, cpu=0.9)] * 2), "hung", "loop_held", ()),
    "one of three stays in a batch": (
        lambda: ready([R(BATCHING, cpu=0.9)] + [R(IDLE_N, cpu=0.9)] * 2), "hung", "loop_held", (0,)),
    "all compute at one place and use no CPU": (
        lambda: ready([R(SAMPLING, cpu=0.05)] * 4), "hung", "endless_batch", ()),
    # Idle is what turns.
    "idle, and all turn": (lambda: ready([R(IDLE_N, cpu=0.3)] * 4), "idle", "idle", ()),
    "idle, and nobody turns": (lambda: ready([R(IDLE_N, cpu=0.29)] * 4), "cannot_tell", "no_rule", ()),
    "idle, and one does not turn": (
        lambda: ready([*[R(IDLE_N, cpu=0.3)] * 3, R(IDLE_N, cpu=0.0)]), "cannot_tell", "no_rule", ()),
    "idle, by the stacks": (
        lambda: ready([R(IDLE_0, then=IDLE_N, cpu=0.0)] * 2), "idle", "idle", ()),
    "idle, and one was seen once": (
        lambda: ready([R(IDLE_N, cpu=0.6), R(IDLE_N, cpu=0.6)], looks=1),
        "cannot_tell", "one_snapshot", ()),
    # Who is behind.
    "two of five compute": (
        lambda: capturing([R(FORWARD)] * 2 + [R(WAITS)] * 3), "hung", "decode_capture", (0, 1)),
    "two of four compute": (
        lambda: capturing([R(FORWARD)] * 2 + [R(WAITS)] * 2), "hung", "decode_capture", (0, 1)),
    "three of five compute": (
        lambda: capturing([R(FORWARD)] * 3 + [R(WAITS)] * 2), "hung", "decode_capture", ()),
    "one of them waits for another thread": (
        lambda: capturing([R(FORWARD), R(QUEUED), R(WAITS), R(WAITS)]), "hung", "decode_capture", (0, 1)),
    "one holds what three want": (
        lambda: capturing([R(LOCKED)] * 3 + [R(FORWARD)]), "hung", "lock_wait", (3,)),
    "one holds what one wants": (lambda: capturing([R(LOCKED), R(FORWARD)]), "hung", "lock_wait", ()),
    "two could hold what two want": (
        lambda: capturing([R(LOCKED)] * 2 + [R(FORWARD)] * 2), "hung", "lock_wait", ()),
    "the one that could hold it waits for another thread": (
        lambda: capturing([R(LOCKED)] * 3 + [R(QUEUED)]), "hung", "lock_wait", ()),
    "three want, one is free, and one waits for them": (
        lambda: capturing([R(LOCKED)] * 2 + [R(FORWARD), R(WAITS), R(WAITS), R(WAITS)]),
        "hung", "lock_wait", (0, 1, 2)),
    "one wants a lock, the others wait": (
        lambda: capturing([R(LOCKED), R(WAITS), R(WAITS)]), "hung", "lock_wait", (0,)),
    "one wants a lock that a waiting rank holds": (
        lambda: capturing([R(LOCKED), R(WAITS, locks=("/c/a.lock",)), R(WAITS)]), "hung", "lock_wait", ()),
    "one wants a lock that it holds itself": (
        lambda: capturing([R(LOCKED, locks=("/c/a.lock",)), R(WAITS), R(WAITS)]),
        "hung", "lock_wait", (0,)),
    "one computes while a waiting rank holds a lock": (
        lambda: capturing([R(FORWARD), R(WAITS, locks=("/c/a.lock",)), R(WAITS)]),
        "hung", "decode_capture", (0,)),
    "a lock whose caller is not seen": (
        lambda: capturing([R("BaseFileLock.acquire"), R(WAITS), R(WAITS)]), "hung", "lock_wait", (0,)),
    "all want the lock": (lambda: capturing([R(LOCKED)] * 3), "hung", "stale_lock", ()),
    "one of three is in another collective": (
        lambda: capturing([R(REDUCES), R(WAITS), R(WAITS)]), "hung", "decode_capture", (0,)),
    "one of two is in another collective": (
        lambda: capturing([R(REDUCES), R(WAITS)]), "hung", "decode_capture", ()),
    "two of four are in another collective": (
        lambda: capturing([R(REDUCES)] * 2 + [R(WAITS)] * 2), "hung", "decode_capture", ()),
    "one of three is on its GPU": (
        lambda: capturing([R(KERNEL), R(WAITS), R(WAITS)]), "hung", "decode_capture", (0,)),
    "one of two is on its GPU": (lambda: capturing([R(KERNEL), R(WAITS)]), "hung", "decode_capture", (0,)),
    "two of four are on their GPUs": (
        lambda: capturing([R(KERNEL)] * 2 + [R(WAITS)] * 2), "hung", "decode_capture", ()),
    "two of five are on their GPUs": (
        lambda: capturing([R(KERNEL)] * 2 + [R(WAITS)] * 3), "hung", "decode_capture", ()),
    "three of four are on their GPUs": (
        lambda: capturing([R(KERNEL)] * 3 + [R(WAITS)]), "hung", "decode_capture", ()),
    "all on their GPUs, one launched less": (
        lambda: counted([R(KERNEL), R(f"synchronize {FORWARD}"), R(KERNEL)], {0: 5, 1: 4, 2: 5}),
        "hung", "all_on_gpu", (1,)),
    "all on their GPUs, two of four launched less": (
        lambda: counted(
            [R(KERNEL), R(f"synchronize {FORWARD}")] * 2, {0: 4, 1: 5, 2: 4, 3: 5}),
        "hung", "all_on_gpu", ()),
    "all on their GPUs, one of two launched less": (
        lambda: counted([R(KERNEL), R(f"synchronize {FORWARD}")], {0: 5, 1: 4}),
        "hung", "all_on_gpu", (1,)),
    "all on their GPUs, two of five launched less": (
        lambda: counted(
            [R(KERNEL), R(f"synchronize {FORWARD}"), R(KERNEL), R(KERNEL), R(KERNEL)],
            {0: 4, 1: 4, 2: 5, 3: 5, 4: 5}),
        "hung", "all_on_gpu", (0, 1)),
    "one was not seen": (
        lambda: capturing([R(WAITS), R(WAITS), R(FORWARD), R(refusal="ptrace")]),
        "hung", "asleep_at_start", ()),
    "one look": (lambda: capturing(ONE_BEHIND, looks=1), "cannot_tell", "one_snapshot", ()),
    "one builds a kernel in a capture": (
        lambda: capturing([R(BUILDS), R(WAITS), R(WAITS)]), "hung", "capture_build", (0,)),
    "one builds a kernel before any capture": (
        lambda: scene([R(BUILDS_EARLY), R(MEASURING), R(MEASURING)], version="0.5.9"),
        "hung", "late_rank", (0,)),
    # A GPU that is busy.
    "the one on its GPU is busy": (
        lambda: capturing([R(WAITS), R(KERNEL, gpu=(76000, 90, 150)), R(WAITS)]),
        "hung", "endless_kernel", (1,)),
    "the one on its GPU is not quite busy": (
        lambda: capturing([R(WAITS), R(KERNEL, gpu=(76000, 89.9, 150)), R(WAITS)]),
        "cannot_tell", "unread_gpu", ()),
    "a busy GPU of one that computes": (
        lambda: capturing([R(WAITS), R(FORWARD, gpu=(76000, 99, 300)), R(WAITS)]),
        "hung", "decode_capture", (1,)),
    "two on busy GPUs": (
        lambda: capturing([R(WAITS)] * 3 + [R(KERNEL)] * 2, gpu=(76000, 99, 150)),
        "hung", "decode_capture", ()),
    # Process groups come up before weights are there.
    "joining with empty GPUs, one at a barrier": (
        lambda: scene([R(JOINING), R(JOINING), R(JOINING_BARRIER)], gpu=(4095.0, 0, 100)),
        "hung", "bootstrap", ()),
    "joining with weights, one at a barrier": (
        lambda: scene([R(JOINING), R(JOINING), R(JOINING_BARRIER)], gpu=(4096.0, 0, 100)),
        "hung", "late_joiner", (2,)),
    "joining, and one computes": (
        lambda: scene([R(JOINING), R(JOINING), R(FORWARD)], gpu=(100.0, 0, 100)),
        "hung", "late_joiner", (2,)),
    "joining outside of any phase that is known": (
        lambda: scene([R(JOINS), R(JOINS), R(MEETS)], gpu=(100.0, 0, 100)), "hung", "bootstrap", ()),
    "the same with weights": (
        lambda: scene([R(JOINS), R(JOINS), R(MEETS)], gpu=(4096.0, 0, 100)),
        "hung", "foreign_collective", (2,)),
    # Stopped.
    "one is stopped, all wait for it": (
        lambda: capturing([R(FORWARD, state="T"), R(WAITS), R(WAITS)]),
        "hung", "awaited_stopped_rank", (0,)),
    "one is stopped, and one computes": (
        lambda: capturing([R(FORWARD, state="T"), R(FORWARD), R(WAITS)]), "stopped", "stopped_rank", (0,)),
    "one is stopped, and the others are idle": (
        lambda: ready([R(IDLE_0, state="T"), R(IDLE_N), R(IDLE_N)]),
        "hung", "awaited_stopped_rank", (0,)),
    "one is stopped, and the loops of the others turn": (
        lambda: ready([R(IDLE_0, state="T"), R(IDLE_N, cpu=0.11), R(IDLE_N, cpu=0.11)]),
        "stopped", "stopped_rank", (0,)),
    "one is stopped, seen once": (
        lambda: capturing([R(FORWARD, state="T"), R(WAITS), R(WAITS)], looks=1),
        "stopped", "stopped_rank", (0,)),
    "one is stopped, and one is not seen": (
        lambda: capturing([R(FORWARD, state="T"), R(WAITS), R(refusal="ptrace")]),
        "stopped", "stopped_rank", (0,)),
    "all are stopped": (lambda: capturing([R(WAITS, state="T")] * 3), "stopped", "stopped_rank", ()),
    "the only one is stopped": (
        lambda: capturing([R(FORWARD, state="T")]), "stopped", "stopped_rank", (0,)),
    "a detokenizer is stopped": (lambda: ready(IDLE, extra=helper("T")), "stopped", "stopped_helper", ()),
    "a detokenizer is stopped amid the start-up": (
        lambda: capturing(ONE_BEHIND, extra=helper("T")), "hung", "decode_capture", (2,)),
    "a detokenizer has ended": (lambda: ready(IDLE, extra=helper("Z")), "crashed", "ended_helper", ()),
    "a detokenizer sleeps": (lambda: ready(IDLE, extra=helper("S")), "idle", "idle", ()),
    "a gated launch waits": (lambda: scene([R(GATED)] * 2), "slow", "gated_launch", ()),
    "a gated launch waits, by its log alone": (
        lambda: scene([R(refusal="ptrace")] * 2, log=GATE), "slow", "gated_launch", ()),
    "a gated launch was activated": (
        lambda: scene([R(refusal="ptrace")] * 2, log=[*GATE, *OPENED]), "hung", "asleep_at_start", ()),
    "a gated launch has come to its capture": (
        lambda: capturing([R(WAITS), R(FORWARD), R(WAITS)], log=[*started(3, "decode"), *GATE]),
        "hung", "decode_capture", (1,)),
    "a gated launch has lost a rank": (
        lambda: scene([R(refusal="ptrace"), R(state="Z")], log=GATE), "dead_rank", "dead_rank", ()),
    # Without stacks only a start-up in which all sleep is a hang.
    "all sleep amid the start-up, unseen": (
        lambda: scene([R(refusal="ptrace")] * 4, log=started(4, "weights")), "hung", "asleep_at_start", ()),
    "all sleep when ready, unseen": (
        lambda: ready([R(refusal="ptrace")] * 4), "cannot_tell", "missing_stack", ()),
    "all sleep, unseen, in no phase that is known": (
        lambda: scene([R(refusal="ptrace")] * 4), "cannot_tell", "missing_stack", ()),
    "one works amid the start-up, unseen": (
        lambda: scene(
            [*[R(refusal="ptrace")] * 3, R(refusal="ptrace", cpu=0.9)], log=started(4, "weights")),
        "cannot_tell", "missing_stack", ()),
    # No phase of SGLang's.
    "one in no collective of a job": (
        lambda: scene([R(MEETS), R(MINE), R(MEETS)]), "hung", "foreign_collective", (1,)),
    "one in another collective of a job": (
        lambda: scene([R(MEETS), R(GATHERS), R(MEETS)]), "hung", "foreign_collective", (1,)),
    "a single process of a job in a collective": (lambda: scene([R(MEETS)]), "hung", "same_place", ()),
    "no collective in a job": (lambda: scene([R(MINE)] * 2), "hung", "same_place", ()),
    # A log alone.
    "a log that ends in a capture": (lambda: log_only("decode"), "cannot_tell", "log_alone", ()),
    "a log that ends with SIGTERM": (
        lambda: log_only("decode", 2, "700 SIGTERM received. Shutting down"),
        "cannot_tell", "requested_shutdown", ()),
    "a log that ends with an abort": (
        lambda: log_only("decode", 2, "700 TP1| Heartbeat monitor timed out! Process will be terminated"),
        "crashed", "heartbeat_abort", ()),
    "a log that ends with SIGTERM after an abort": (
        lambda: log_only(
            "decode", 2, "700 TP1| Heartbeat monitor timed out! Process will be terminated",
            "701 SIGTERM received. Shutting down"),
        "crashed", "heartbeat_abort", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_what_a_border_separates(name: str) -> None:
    build, state, rule, odd = JUDGED[name]
    check(build, {"state": state, "rule": rule, "odd_ranks": odd})
