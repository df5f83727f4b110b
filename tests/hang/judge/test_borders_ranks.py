"""Both sides of who waits, which thread is judged, and when a size or a gate is known."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from tests.hang.cases.build import (
    IDLE_0,
    IDLE_N,
    LOOP,
    SRT,
    START,
    R,
    frames,
    scene,
    started,
    thread,
)
from tests.hang.cases.healthy import BATCHING
from tests.hang.cases.rule_scenes import WAITS
from workbench.hang.judge import waits
from workbench.hang.judge.coverage import covered
from workbench.hang.judge.diagnose import diagnose, question
from workbench.hang.judge.rules import rule_for
from workbench.hang.records import Dump, Phase, Thread

from .test_borders import FORWARD, GATE, QUEUED, REDUCES, capturing


def test_whoever_is_named_does_not_wait_for_itself() -> None:
    got = diagnose(capturing([R(REDUCES), R(WAITS), R(WAITS)]))
    assert (got.odd_ranks, got.waiting_ranks) == ((0,), (1, 2))


def test_who_gets_on_works_and_whose_loop_turns_waits() -> None:
    passing = diagnose(capturing([R(WAITS), R(WAITS, then=QUEUED), R(WAITS)]))
    assert (passing.state, passing.working_ranks, passing.waiting_ranks) == ("slow", (1,), (0, 2))
    turning = diagnose(capturing([R(FORWARD, then=QUEUED), R(IDLE_N, then=IDLE_0), R(IDLE_N)]))
    assert (turning.state, turning.working_ranks, turning.waiting_ranks) == ("slow", (0,), (1, 2))


@pytest.mark.parametrize("phase", get_args(Phase))
def test_a_gate_in_the_log_alone_is_believed_before_the_groups_are_up(phase: Phase) -> None:
    gated = question(scene([R(refusal="ptrace")] * 2, log=GATE)).worst.group
    early = phase in ("dist_init", "unknown")
    assert (rule_for(gated, phase).code == "gated_launch") is early


def threads(*names: str, main: bool = False) -> tuple[Thread, ...]:
    made = [dataclasses.replace(thread(WAITS, name), main=False) for name in names]
    if main:
        made[-1] = dataclasses.replace(made[-1], main=True)
    return tuple(made)


def test_the_main_thread_is_judged_or_the_only_one() -> None:
    def judged(*given: Thread) -> str | None:
        found = waits.thread_of_interest(Dump(0, "py-spy", given, START))
        return None if found is None else found.name

    assert judged(*threads("a", "MainThread")) == "MainThread"
    assert judged(*threads("a", "b", main=True)) == "b"
    assert judged(*threads("a")) == "a"
    assert judged(*threads("a", "b")) is None
    assert judged() is None


@pytest.mark.parametrize(
    ("stack", "found"),
    [
        (IDLE_0, "IDLE"),
        (IDLE_N, "IDLE"),
        # Below the loop and not in its receive it works, or waits for what it waits for.
        (
            "turn@/x/sglang/srt/managers/scheduler.py " + IDLE_0.split("recv_requests ")[1],
            "RUNNING",
        ),
        ("BaseFileLock.acquire " + IDLE_0.split("recv_requests ")[1], "LOCK"),
        (BATCHING, "CUDA_SYNC"),
        ("", "UNKNOWN"),
    ],
)
def test_what_an_event_loop_waits_for(stack: str, found: str) -> None:
    assert waits.wait_class(frames(stack)) == found


def size(ranks: list[R], **more: object) -> str:
    asked = question(scene(ranks, log=started(len(ranks), "ready"), **more))  # type: ignore[arg-type]
    (item,) = (one for one in covered(asked).items if one.kind == "launch size")
    return item.state


def test_one_rank_alone_needs_no_launch_to_count_it() -> None:
    one = [R(IDLE_0, cpu=0.5)]
    two = [R(IDLE_0, cpu=0.5), R(IDLE_N, cpu=0.5)]
    assert size(one, arguments={}) == "ok"
    assert size(two, arguments={}) == "open"
    assert size(two, arguments={"tp-size": "2"}) == "ok"


MLP_SYNC = (
    f"all_reduce prepare_mlp_sync_batch@{SRT}managers/scheduler.py "
    f"Scheduler.get_next_batch_to_run {LOOP}"
)


@pytest.mark.parametrize(
    ("cpu", "state", "rule"),
    [((0.3, 0.0), "cannot_tell", "loop_sync"), ((0.29, 0.29), "hung", "loop_collective")],
    ids=str,
)
def test_a_loop_that_may_turn_is_not_called_hung(
    cpu: tuple[float, float], state: str, rule: str
) -> None:
    got = question(scene([R(MLP_SYNC, cpu=one) for one in cpu])).worst.rule
    assert (got.state, got.code) == (state, rule)


def test_only_the_synchronisation_of_every_turn_may_turn() -> None:
    other = MLP_SYNC.replace("prepare_mlp_sync_batch", "prepare_other")
    got = question(scene([R(other, cpu=0.5)] * 2)).worst.rule
    assert (got.state, got.code) == ("hung", "loop_collective")
