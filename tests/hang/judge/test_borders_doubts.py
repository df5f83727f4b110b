"""Both sides of each border, continued: what is doubted, what is not known, phases, and whose waits count."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.hang.cases import CASES
from tests.hang.cases.build import R, scene, started, thread, written
from tests.hang.cases.rule_scenes import (
    KERNEL,
    WAITS,
    log_only,
)
from workbench.hang.judge import phases, waits
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.records import Frame, Scene

from .test_borders import (
    EXCEPTION,
    FORWARD,
    IDLE,
    ONE_BEHIND,
    PARENT,
    QUEUED,
    capturing,
    idle_after,
    ready,
)


def test_what_weakens_a_verdict_is_in_its_finding() -> None:
    close = diagnose(capturing(ONE_BEHIND, apart=4.9)).findings[0].evidence_against
    far = diagnose(capturing(ONE_BEHIND, apart=5.0)).findings[0].evidence_against
    assert len(close) == 1
    assert far == ()
    guessed = diagnose(capturing(ONE_BEHIND, arguments={})).findings[0].evidence_against
    alone = diagnose(capturing([R(FORWARD)], arguments={})).findings[0].evidence_against
    assert len(guessed) == 1
    assert alone == ()
    pair = diagnose(capturing([R(WAITS), R(FORWARD)])).findings[0].evidence_against
    three = diagnose(capturing([R(WAITS), R(FORWARD), R(WAITS)])).findings[0].evidence_against
    stopped = diagnose(capturing([R(WAITS, state="T"), R(WAITS)])).findings[0].evidence_against
    assert len(pair) == 1
    assert three == stopped == ()
    spins = diagnose(capturing([R(WAITS, cpu=0.2), R(FORWARD), R(WAITS)])).findings[0]
    rests = diagnose(capturing([R(WAITS, cpu=0.1), R(FORWARD), R(WAITS)])).findings[0]
    assert len(spins.evidence_against) == 1
    assert rests.evidence_against == ()


def test_what_speaks_against_a_server_that_is_well() -> None:
    assert diagnose(ready(IDLE)).findings[0].evidence_against == ()
    closed = diagnose(ready(IDLE, port_open=False)).findings[0].evidence_against
    mute = diagnose(ready(IDLE, extra=(PARENT,))).findings[0].evidence_against
    raised = diagnose(idle_after(f"900 {EXCEPTION}")).findings[0].evidence_against
    later = diagnose(idle_after(f"1032 {EXCEPTION}"))
    assert len(closed) == len(mute) == len(raised) == 1
    # Of a server that hangs anyway it says nothing.
    assert "main process" in mute[0]
    hung = diagnose(capturing(ONE_BEHIND, extra=(PARENT,))).findings[0].evidence_against
    assert not any("main process" in text for text in hung)
    assert later.findings[0].evidence_against == ()
    assert any("exception" in note for note in later.notes)
    assert not any("exception" in note for note in diagnose(ready(IDLE)).notes)


def test_a_log_that_is_ready_beside_stacks_of_a_start_up_is_doubted() -> None:
    other = diagnose(scene(ONE_BEHIND, log=started(4, "ready"))).findings[0]
    same = diagnose(capturing(ONE_BEHIND)).findings[0]
    assert len(other.evidence_against) == 1
    assert same.evidence_against == ()
    assert not any("was ready" in text for text in other.evidence_for)
    assert any("was ready" in text for text in diagnose(ready(IDLE)).findings[0].evidence_for)


def test_who_waits_and_who_works() -> None:
    got = diagnose(capturing([R(WAITS), R(FORWARD, then=QUEUED), R(WAITS), R(KERNEL)]))
    assert (got.state, got.working_ranks, got.waiting_ranks) == ("slow", (1,), (0, 2, 3))
    got = diagnose(capturing(ONE_BEHIND))
    assert (got.working_ranks, got.waiting_ranks, got.wait_class) == ((), (0, 1, 3), "HOST_COLL")
    assert diagnose(ready(IDLE)).waiting_ranks == ()


def test_a_rank_behind_a_thread_is_judged_by_that_thread() -> None:
    worker = thread(
        "LlamaForCausalLM.forward TpModelWorkerClient.forward_thread_func_ "
        "run@/usr/lib/python3.12/threading.py",
        "forward_worker",
    )
    victim = R(QUEUED, other_threads=(worker,))
    alone = diagnose(capturing([R(WAITS), R(WAITS), victim, R(WAITS)]))
    assert alone.odd_ranks == (2,)
    two = R(QUEUED, other_threads=(worker, dataclasses.replace(worker, name="second")))
    assert diagnose(capturing([R(WAITS), R(WAITS), two, R(WAITS)])).odd_ranks == (2,)


# One rank of each computes at one line in both looks: only its CPU time says that it does not get on.
BY_CPU_TIME = (
    "incident-with-stacks", "incident-with-stacks-in-capture", "H4-overlap-thread", "holder-inside",
    "one-late", "stuck-loader", "forward", "R6-0.5.11", "prefill", "build", "allocator",
    "hook", "draft", "plain-job", "single", "storage-gives-nothing", "trap-own-test-switch",
)  # fmt: skip


@pytest.mark.parametrize("name", BY_CPU_TIME)
def test_without_cpu_time_a_computation_is_no_hang(name: str) -> None:
    (case,) = (case for case in CASES if case.name == name)
    seen = diagnose(case.scene)
    shots = tuple(
        dataclasses.replace(
            shot,
            processes=tuple(
                dataclasses.replace(one, cpu_seconds=None, read_bytes=None)
                for one in shot.processes
            ),
        )
        for shot in case.scene.snapshots
    )
    blind = diagnose(dataclasses.replace(case.scene, snapshots=shots))
    assert seen.state == "hung"
    assert (blind.state, blind.odd_ranks, blind.confidence) == ("cannot_tell", (), "unknown")


# -- what is left open, and what would overturn a verdict -----------------------------------------


def open_of(given: Scene) -> str:
    return " / ".join(diagnose(given).unknowns)


def test_what_was_not_seen_is_named() -> None:
    whole = open_of(capturing(ONE_BEHIND))
    assert "which rank is behind" not in whole
    assert "NCCL or the network" in whole
    assert "GPU readings" not in whole
    unseen = open_of(capturing([R(WAITS), R(refusal="ptrace"), R(WAITS)]))
    assert "which rank is behind" in unseen
    assert "rank 1: ptrace" in unseen
    assert "GPU readings: none" in open_of(capturing(ONE_BEHIND, gpu=None))
    assert "NCCL" not in open_of(ready(IDLE))
    away = capturing([R(WAITS), R(FORWARD)], arguments={"tp-size": "4", "nnodes": "2"})
    assert "were not collected" in open_of(away)
    assert diagnose(away).not_collected == (2, 3)
    assert diagnose(away).missing_ranks == ()


def test_a_log_alone_brackets_its_phase() -> None:
    alone = open_of(log_only("pool"))
    assert "the exact phase: it is between" in alone
    assert "no line of a capture" in alone
    assert "no line of a capture" not in open_of(log_only("captured"))
    off = dataclasses.replace(
        log_only("pool"), arguments={"tp-size": "2", "cuda-graph-backend-decode": "disabled"}
    )
    assert "no line of a capture" not in open_of(off)
    assert "the exact phase: it is between" not in open_of(capturing(ONE_BEHIND))
    assert "the exact phase: it is between" not in open_of(log_only("ready"))


def test_what_would_overturn_each_verdict() -> None:
    def overturns(given: Scene) -> tuple[str, ...]:
        return diagnose(given).overturns

    assert len(overturns(capturing(ONE_BEHIND))) == 2
    assert "TP2" in overturns(capturing(ONE_BEHIND))[1]
    assert len(overturns(capturing([R(WAITS)] * 3))) == 1
    assert "works" not in overturns(ready(IDLE))[0]
    assert len(overturns(ready(IDLE))) == 1
    slow = capturing([R(WAITS), R(FORWARD, then=QUEUED), R(WAITS)])
    assert "later snapshot" in overturns(slow)[0]
    assert len(overturns(capturing([R(WAITS), R(absent=True), R(WAITS)]))) == 1
    assert overturns(capturing([R(WAITS), R(state="Z"), R(WAITS)])) == ()
    assert overturns(log_only("decode")) == ()


def test_what_only_wraps_a_wait() -> None:
    native = "/usr/lib/libc.so.6"
    for function, file, module, wraps in (
        ("decorate_context", "/x/torch/utils/_contextlib.py", "", True),
        ("wrapper", "<string>", "", True),
        ("forward", "/x/model.py", "", False),
        ("poll", "/x/selectors.py", "", False),
        ("poll", "<string>", "", False),
        ("poll", "", native, True),
        ("poll", "socket.c", native, True),
        ("wrapper", "", native, False),
        ("decorate_context", "/x/a.py", native, True),
        ("poll", "/x/a.py", native, False),
    ):
        assert waits.is_wrapper(Frame(function, file, 1, module)) is wraps, (function, file, module)


def with_draft(upto: str, **more: Any) -> Scene:
    """Return a log in which each rank loads a second model's weights."""
    lines = started(2, upto)
    at = next((n for n, line in enumerate(lines) if "Load weight end" in line), len(lines))
    second = [f"22 TP{rank}| Load weight begin. avail mem=66 GB" for rank in (0, 1)]
    given = log_only(upto, 2)
    return dataclasses.replace(given, logs=(written([*lines[:at], *second, *lines[at:]]),), **more)


@pytest.mark.parametrize(
    ("upto", "phase", "drafting"),
    [
        ("weights_begin", "weights", "weights"),
        ("weights", "load_barrier", "load_barrier"),
        ("pool", "warmup", "kv_pool"),
        ("decode", "graph_decode", "graph_decode"),
        ("captured", "init_done", "graph_draft"),
        ("ready", "ready", "ready"),
    ],
)
def test_the_phase_of_a_log_is_that_behind_its_last_line(
    upto: str, phase: str, drafting: str
) -> None:
    assert diagnose(log_only(upto)).phase == phase
    assert diagnose(with_draft(upto)).phase == drafting
    speculating = {"tp-size": "2", "speculative-algorithm": "EAGLE3"}
    assert diagnose(dataclasses.replace(log_only(upto), arguments=speculating)).phase == drafting


def test_the_rank_furthest_behind_is_the_phase() -> None:
    for upto, phase in (("weights_begin", "weights"), ("pool", "warmup")):
        lines = [
            line for line in started(2, "decode") if "TP0|" in line or line in started(2, upto)
        ]
        given = dataclasses.replace(log_only("decode"), logs=(written(lines),))
        assert diagnose(given).phase == phase


def test_lines_of_the_first_rank_alone_tell_a_phase_too() -> None:
    lines = [
        "0 server_args=ServerArgs(model_path='target')",
        "50 TP0| max_total_num_tokens=16384, x=1",
    ]
    given = dataclasses.replace(log_only("dist"), logs=(written(lines),))
    assert diagnose(given).phase == "init_done"


def test_numbers_of_ranks_are_credible() -> None:
    def number(
        prefix: str, replicas: bool = False, ranks: int | None = None, **sizes: str
    ) -> int | None:
        given = {name.replace("_", "-"): value for name, value in sizes.items()}
        return phases.numbered(prefix, given, replicas=replicas, ranks=ranks)

    assert [number(f"TP{n}", tp_size="70000") for n in (3, 65535, 65536)] == [3, 65535, None]
    assert [number("PP1 TP0", tp_size=n) for n in ("8", "0", "x", "1000000")] == [8, 1, 1, 1]
    assert [number("PP1 TP0", tp_size=n) for n in ("60000", "999999")] == [60000, None]
    assert number("DP1 TP0", replicas=True, tp_size="4") == 4
    assert [number("", ranks=n) for n in (1, 2, None)] == [0, None, None]


def test_what_only_cpu_time_says_is_doubted() -> None:
    def against(*ranks: R) -> tuple[str, ...]:
        got = diagnose(capturing([R(WAITS), *ranks, R(WAITS)]))
        assert got.state == "slow"
        return got.findings[0].evidence_against

    assert len(against(R(FORWARD, cpu=1.0))) == 1
    assert len(against(R(FORWARD, cpu=1.0, io=9e5))) == 1
    assert against(R(FORWARD, cpu=1.0, io=1.1e6)) == ()
    assert against(R(FORWARD, cpu=1.0, compilers=("nvcc",))) == ()
    assert against(R(FORWARD, then=QUEUED, cpu=1.0)) == ()
    assert against(R(FORWARD, cpu=1.0), R(FORWARD, then=QUEUED)) == ()


def test_nobody_is_not_frozen() -> None:
    assert not RankGroup((), 0, True, snapshots=2).frozen
    assert RankGroup((), 0, True, snapshots=2).complete
    assert not RankGroup((), 1, True, snapshots=2).complete
    assert not RankGroup((), 0, True, unnamed=1).complete


@pytest.mark.parametrize(
    ("stack", "name", "aside"),
    [
        ("Queue.get _worker@/usr/lib/python3.12/concurrent/futures/thread.py", "Thread-3", True),
        ("Queue.get _worker@/home/me/pool.py", "Thread-3", False),
        ("Queue.get job@/usr/lib/python3.12/concurrent/futures/thread.py", "Thread-3", False),
        ("barrier _worker@/usr/lib/python3.12/concurrent/futures/thread.py", "Thread-3", False),
        ("Queue.get job@/home/me/pool.py", "QueueFeederThread", True),
        ("Queue.get job@/home/me/pool.py", "watchdog", True),
        ("Queue.get job@/home/me/pool.py", "MainThread", False),
    ],
)
def test_which_threads_are_bystanders(stack: str, name: str, aside: bool) -> None:
    assert bool(waits.folded(thread(stack, name))) is aside
