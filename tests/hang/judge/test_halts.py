"""A process that was read as halted is stopped only if a signal or a debugger stopped it, and for longer."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.hang.cases.build import IDLE_0, IDLE_N, R, scene, started
from tests.tracing import Tracer
from workbench.hang.collect.collector import halted, proc
from workbench.hang.judge import halts
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.read.processes import read_processes
from workbench.hang.records import Halt, Process, Scene

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="a tracer of another's process needs root"
)


def process(state: str, halt: Halt | None = None) -> Process:
    return Process(7, "node0", "scheduler", "sglang::scheduler", state=state, halt=halt)


RUNS, STOPPED, TRACED = process("S"), process("T"), process("t")
GDB, PYSPY = process("t", Halt(5.0, 812, "gdb")), process("t", Halt(5.0, 812, "py-spy"))


@pytest.mark.parametrize(
    ("sightings", "expected"),
    [
        ([RUNS], ""),
        ([STOPPED, RUNS], ""),
        ([STOPPED], "seen stopped"),
        ([RUNS, STOPPED], "seen stopped"),
        ([TRACED, STOPPED], "seen stopped"),
        ([STOPPED, STOPPED], "stopped"),
        ([process("T", Halt(0.5))], "stopped"),
        ([process("T", Halt(0.49))], "seen stopped"),
        ([process("T", Halt(5.0, 812, "py-spy"))], "paused"),
        ([TRACED], "paused"),
        ([TRACED, TRACED], "paused"),
        ([PYSPY, PYSPY], "paused"),
        ([GDB], "paused"),
        ([RUNS, GDB], "paused"),
        ([GDB, RUNS, GDB], "paused"),
        ([GDB, GDB], "held"),
        ([GDB, process("t", Halt(5.0, 813, "gdb"))], "paused"),  # another debugger
        ([GDB, process("t", Halt(0.49, 812, "gdb"))], "paused"),
        ([process("t", Halt(5.0, 812))] * 2, "held"),  # a program that is not known
        ([process("t", Halt(5.0, 0))] * 2, "paused"),  # a tracer outside this container
    ],
)  # fmt: skip
def test_what_a_halt_means(sightings: list[Process], expected: str) -> None:
    assert halts.halted(sightings, 5.0) == expected


def test_a_debuggers_hold_is_long() -> None:
    assert halts.halted([GDB, GDB], 4.9) == "paused"
    assert halts.halted([STOPPED, STOPPED], 1.0) == "stopped"


def test_a_halt_is_read_as_it_was_collected() -> None:
    entries = [
        {"pid": 1, "status": "t", "halt": {"seconds": 5.0, "tracer": 812, "program": "py-spy"}},
        {"pid": 2, "status": "T", "halt": {"seconds": 0.5, "tracer": 0, "program": ""}},
        {"pid": 3, "status": "t", "halt": {"seconds": 1, "tracer": -4, "program": "<b>x</b>"}},
        {"pid": 4, "status": "t", "halt": {"seconds": "1"}},
        {"pid": 5, "status": "t", "halt": [5.0]},
    ]
    listed = read_processes({"processes": entries}, "node0").processes
    assert [one.halt for one in listed] == [
        Halt(5.0, 812, "py-spy"), Halt(0.5), Halt(1.0), None, None
    ]  # fmt: skip


def at(given: Scene, seconds: float, state: str) -> Scene:
    """Return the snapshots of a scene as another collector took them, and all ranks in one state."""
    shots = [
        dataclasses.replace(
            shot,
            at=shot.at + seconds,
            processes=tuple(
                dataclasses.replace(one, state=state) if one.rank else one for one in shot.processes
            ),
        )
        for shot in given.snapshots
    ]
    return dataclasses.replace(given, snapshots=(*given.snapshots, *shots))


@pytest.mark.parametrize("first", ["S", "t"])
def test_of_two_collections_at_once_one_sees_what_the_other_pauses(first: str) -> None:
    idle = scene(
        [R(IDLE_0, cpu=0.5, state=first), R(IDLE_N, cpu=0.5, state=first)], log=started(2, "ready")
    )
    found = diagnose(at(idle, 0.2, "t" if first == "S" else "S"))
    assert (found.state, found.confidence) == ("idle", "certain")


def test_the_servers_other_processes_are_not_stopped_by_a_tracer() -> None:
    others = [
        Process(900, "node0", "parent", "sglang", state="S", started=400.0),
        Process(901, "node0", "detokenizer", "sglang::detokenizer", state="t", started=400.0),
    ]
    idle = [R(IDLE_0, cpu=0.5), R(IDLE_N, cpu=0.5)]
    found = diagnose(scene(idle, log=started(2, "ready"), extra=others))
    assert (found.state, found.ok) == ("idle", None)
    assert "detokenizer (held by a tracer that is not known (state t))" in found.verdict.sentence


@pytest.mark.parametrize(("was", "confidence"), [("T", "certain"), ("S", "likely")])
def test_a_stop_of_another_process_that_was_seen_once_is_likely(was: str, confidence: str) -> None:
    given = scene([R(IDLE_0, cpu=0.5), R(IDLE_N, cpu=0.5)], log=started(2, "ready"))
    shots = [
        dataclasses.replace(
            shot,
            processes=(
                *shot.processes,
                Process(900, "node0", "parent", "sglang", state="S", started=400.0),
                Process(901, "node0", "detokenizer", "sglang::detokenizer", state=state, started=400.0),
            ),
        )
        for shot, state in zip(given.snapshots, (was, "T"), strict=True)
    ]  # fmt: skip
    found = diagnose(dataclasses.replace(given, snapshots=tuple(shots)))
    assert (found.state, found.rule, found.confidence) == ("stopped", "stopped_helper", confidence)


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as one:
        yield one.pid
        one.kill()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def state(pid: int) -> str:
    found = proc.stat(pid)
    return found.state if found else ""


def test_a_stopped_process_is_watched_until_that_is_known(sleeper: int) -> None:
    os.kill(sleeper, signal.SIGSTOP)
    wait_for(lambda: state(sleeper) == "T")
    found = halted.watch(sleeper)
    assert found["status"] == "T"
    assert found["halt"]["seconds"] >= halted.STOPPED_FOR
    assert (found["halt"]["tracer"], found["halt"]["program"]) == (0, "")


def test_one_that_runs_on_or_ends_is_not_halted(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(sleeper, signal.SIGSTOP)
    wait_for(lambda: state(sleeper) == "T")
    # As a collector that lets a process run on which its killed py-spy left stopped.
    monkeypatch.setattr(halted.time, "sleep", lambda _: os.kill(sleeper, signal.SIGCONT))
    assert halted.watch(sleeper)["status"] in ("R", "S")
    monkeypatch.undo()
    assert halted.watch(2**22 - 3) == {}


@needs_root
def test_a_profilers_pause_ends_and_a_debugger_stays(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Tracer(sleeper, "py-spy") as tracer:
        monkeypatch.setattr(halted.time, "sleep", lambda _: tracer.let_go())
        assert halted.watch(sleeper)["status"] in ("R", "S")
    monkeypatch.undo()
    monkeypatch.setattr(halted, "PATIENCE", 0.2)
    with Tracer(sleeper, "gdb") as tracer:
        found = halted.watch(sleeper)
        assert found["status"] == "t"
        assert found["halt"]["seconds"] >= 0.2
        assert (found["halt"]["tracer"], found["halt"]["program"]) == (tracer.pid, "gdb")
    with Tracer(sleeper, "secret-tool") as tracer:
        found = halted.watch(sleeper, lambda: True)
        assert (found["halt"]["tracer"], found["halt"]["program"]) == (tracer.pid, "")
