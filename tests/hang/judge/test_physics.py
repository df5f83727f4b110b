"""What cannot be gives "cannot tell", with the reason; both sides of each border."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.hang.cases.build import BARRIER, CAPTURE, IDLE_0, IDLE_N, START, R, scene, started
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.records import Clocks, Process, Sample, Scene


def hung() -> Scene:
    """Return a server of which one rank is not in the barrier."""
    return scene([R(BARRIER), R(BARRIER), R(CAPTURE)], log=started(3, "graph_decode"))


def changed(whole: Scene, number: int, **more: Any) -> Scene:
    """Return a scene with other facts of every rank in one of its snapshots."""

    def other(process: Process) -> Process:
        values = {k: v(process) if callable(v) else v for k, v in more.items()}
        return dataclasses.replace(process, **values)

    shots = list(whole.snapshots)
    shots[number] = dataclasses.replace(
        shots[number], processes=tuple(map(other, shots[number].processes))
    )
    return dataclasses.replace(whole, snapshots=tuple(shots))


def with_clocks(whole: Scene, *passed: float) -> Scene:
    """Return a scene with clocks, of which each passed so many seconds between the snapshots."""
    first, second = whole.snapshots
    begin = (START, 500.0, 400.0)
    end = [a + b for a, b in zip(begin, passed, strict=True)]
    shots = (
        dataclasses.replace(first, clocks=Clocks(*begin)),
        dataclasses.replace(second, clocks=Clocks(*end)),
    )
    return dataclasses.replace(whole, snapshots=shots)


def judged(whole: Scene) -> tuple[str, str]:
    found: HangDiagnosis = diagnose(whole)
    return found.state, found.verdict.sentence


def test_the_scene_itself_is_hung() -> None:
    assert judged(hung())[0] == "hung"


@pytest.mark.parametrize(
    ("passed", "reason"),
    [
        ((30, 30, 30), ""),
        ((30.9, 30, 30), ""),
        ((31.1, 30, 30), "the clock was set between the snapshots"),
        (
            (3630, 30, 30),
            "the clock was set between the snapshots: +3,630 s by the clock, 30 s since",
        ),
        ((30, 3630, 3630), "the clock was set between the snapshots"),
        ((30, 30, 28), "the machine slept for 2 s between the snapshots"),
        ((30, -200, -200), "the machine was started again"),
    ],
)
def test_clocks_that_disagree(passed: tuple[float, ...], reason: str) -> None:
    state, sentence = judged(with_clocks(hung(), *passed))
    assert state == ("cannot_tell" if reason else "hung")
    assert reason in sentence


@pytest.mark.parametrize("name", ["cpu_seconds", "main_cpu_seconds", "read_bytes", "written_bytes"])
@pytest.mark.parametrize(("by", "state"), [(-2, "cannot_tell"), (-0.01, "hung")])
def test_a_counter_that_falls(name: str, by: float, state: str) -> None:
    whole = changed(changed(hung(), 0, **{name: 10.0}), 1, **{name: 10.0 + by})
    found = judged(whole)
    assert found[0] == state
    assert ("a counter falls" in found[1]) == (state == "cannot_tell")


def test_a_thread_uses_no_more_time_than_passes() -> None:
    first = changed(hung(), 0, main_cpu_seconds=10.0)
    assert judged(changed(first, 1, main_cpu_seconds=40.9))[0] != "cannot_tell"
    state, sentence = judged(changed(first, 1, main_cpu_seconds=41.2))
    assert state == "cannot_tell"
    assert "used 31.2 s of CPU time in 30.0 s" in sentence


def test_a_process_with_the_pid_of_another_has_counters_of_its_own() -> None:
    whole = changed(hung(), 0, cpu_seconds=50.0, started_boot=100.0)
    whole = changed(whole, 1, cpu_seconds=1.0, started_boot=200.0)
    assert "a counter falls" not in judged(whole)[1]


@pytest.mark.parametrize(
    ("main", "state"),
    [(0.025, "idle"), (0.015, "cannot_tell"), (0.0, "cannot_tell")],
)
def test_idle_needs_main_threads_that_turn_whatever_their_helpers_use(
    main: float, state: str
) -> None:
    whole = scene([R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.8)], log=started(2, "ready"))
    whole = changed(whole, 0, main_cpu_seconds=5.0)
    whole = changed(whole, 1, main_cpu_seconds=5.0 + 30 * main)
    assert judged(whole)[0] == state


def test_samples_between_the_snapshots_are_shown() -> None:
    taken = tuple(Sample(float(n), "S", 5.0, "futex_do_wait", 202) for n in range(10))
    text = diagnose(changed(hung(), 1, samples=taken)).to_text(400)
    words = "10 short samples between the snapshots: TP0, TP1, TP2 ran in 0 of 10"
    assert f"{words} (mostly in futex_do_wait), with 0% of a core" in text
