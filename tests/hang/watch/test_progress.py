"""What is progress and what is not, from readings; both sides of each border."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.hang.watch.answers import read_metrics
from workbench.hang.watch.progress import BUSY_IO, TURNS, begin, step
from workbench.hang.watch.records import Answers, LogSign, Member, Reading, Sight

PARENT = Member(1, "parent", "parent", 10, "S", 1.0)


def rank(number: int, cpu: float = 5.0, *, state: str = "S", io: int = 0) -> Member:
    return Member(100 + number, "scheduler", f"TP{number}", 10, state, cpu, io)


def reading(at: float, *ranks: Member, ready: bool = True, **more: object) -> Reading:
    base = Reading(at, (PARENT, *ranks), LogSign(batches=7), ready=ready)
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def sight(*readings: Reading, sleeps: bool = False) -> Sight:
    memory, found = begin(readings[0]), Sight("quiet")
    for one in readings[1:]:
        memory, found = step(memory, one, sleeps=sleeps, gap=10)
    return found


def turned(at: float, share: float = 0.5, **more: object) -> Reading:
    return reading(at, rank(0, 5 + share * at), rank(1, 5 + share * at), **more)


@pytest.mark.parametrize(("share", "stage"), [(TURNS + 0.01, "idle"), (TURNS - 0.01, "quiet")])
def test_a_loop_that_turns_while_the_gpus_rest_is_idle(share: float, stage: str) -> None:
    assert sight(turned(0), turned(2, share)).stage == stage


def test_a_loop_that_turned_and_turns_no_more_is_still_unless_it_may_sleep() -> None:
    stopped = reading(4, rank(0, 6), rank(1, 6))
    found = sight(turned(0), turned(2), stopped)
    assert (found.stage, found.still_for) == ("still", 2)
    assert "the loop of TP0, TP1 does not turn any more" in found.reason
    assert sight(turned(0), turned(2), stopped, sleeps=True).stage == "quiet"


@pytest.mark.parametrize(("load", "stage"), [(100.0, "still"), (49.0, "idle"), (None, "idle")])
def test_cpu_time_is_no_progress_while_a_gpu_is_busy(load: float | None, stage: str) -> None:
    assert sight(turned(0), turned(2, load=load)).stage == stage


def test_a_busy_gpu_is_no_stop_where_batches_are_not_in_the_log() -> None:
    quiet = LogSign()
    assert sight(turned(0, log=quiet), turned(2, log=quiet, load=100.0)).stage == "working"


def test_batches_and_tokens_are_progress() -> None:
    still = [rank(0), rank(1)]
    more = LogSign(batches=8, running=3)
    assert sight(reading(0, *still), reading(2, *still, log=more)).stage == "working"
    first, second = (Answers(pending=3, tokens=n) for n in (10.0, 11.0))
    found = sight(reading(0, *still, answers=first), reading(2, *still, answers=second))
    assert found.stage == "working"


def test_pending_requests_without_a_batch_are_a_stop_also_where_loops_turn() -> None:
    answers = Answers(pending=2, tokens=10.0)
    found = sight(turned(0, answers=answers), turned(2, answers=answers))
    assert (found.stage, found.reason) == (
        "still",
        "2 requests are pending, and no batch ends",
    )


def test_a_gap_between_readings_is_no_time_without_progress() -> None:
    still = reading(2, rank(0), rank(1), log=LogSign(batches=7, running=1))
    later = dataclasses.replace(still, at=300.0)
    assert sight(still, dataclasses.replace(still, at=4.0)).still_for == 2
    assert sight(still, later).still_for == 0


def test_a_counter_that_falls_is_not_known_and_no_stop() -> None:
    assert sight(turned(0), reading(2, rank(0, 1.0), rank(1, 1.0))).stage == "idle"


@pytest.mark.parametrize(
    ("moved", "stage"), [(2 * BUSY_IO, "working"), (1.9 * BUSY_IO, "starting")]
)
def test_reading_weights_is_progress_of_a_start_up(moved: float, stage: str) -> None:
    first = reading(0, rank(0), ready=False)
    assert sight(first, reading(2, rank(0, io=int(moved)), ready=False)).stage == stage


def test_cpu_time_alone_is_no_progress_of_a_start_up() -> None:
    assert sight(turned(0, ready=False), turned(2, 1.0, ready=False)).stage == "starting"
    compiling = turned(2, ready=False, compilers=True)
    assert sight(turned(0, ready=False), compiling).stage == "working"


@pytest.mark.parametrize("state", ["Z", ""])
def test_a_rank_that_ends_is_dead_whatever_the_others_do(state: str) -> None:
    last = (rank(1, state="Z"),) if state else ()
    found = sight(turned(0), reading(2, rank(0, 6), *last, log=LogSign(batches=9)))
    assert (found.stage, found.reason) == ("dead", "TP1 has ended")


def test_a_stopped_rank_is_no_idle_server() -> None:
    found = sight(turned(0), reading(2, rank(0, 6), rank(1, state="T")))
    assert (found.stage, found.reason) == ("still", "TP1 is stopped (state T)")


def test_metrics_are_summed_over_ranks_and_other_names_are_passed_over() -> None:
    body = b"""# HELP sglang:num_running_reqs running
sglang:num_running_reqs{model_name="a",tp_rank="0"} 2.0
sglang:num_running_reqs{model_name="a",tp_rank="1"} 1.0
sglang:num_queue_reqs{model_name="a"} 4.0
sglang:num_queue_reqs_total 900
sglang:generation_tokens_total{model_name="a"} 1e3
other:num_running_reqs 77
"""
    assert read_metrics(body, True) == Answers(7.0, 1000.0, True)
    assert read_metrics(b"", None) == Answers()
