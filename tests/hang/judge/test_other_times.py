"""A log beside the looks may be of a later hour, or of another launch: it may not change what was seen."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.hang.cases.build import IDLE_0, IDLE_N, R, scene, started
from tests.hang.cases.misleading import alike
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.open_evidence import open_evidence
from workbench.hang.read.scene import read_scene

HANG = Path(__file__).parents[3] / "data" / "incident" / "hang"
IDLE = [R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.6)]
RAISED = "TP1| Scheduler hit an exception: Traceback (most recent call last):"


def test_what_came_after_the_looks_is_no_evidence_of_being_well() -> None:
    got = open_evidence(HANG / "relaunch-graphs-off")
    assert got.state == "idle"
    assert not any("crashed" in text for text in got.findings[0].evidence_for)
    (told,) = (note for note in got.notes if "crashed with exit code" in note)
    assert told.startswith("after the last snapshot")


@pytest.mark.parametrize(("at", "confidence"), [(1500, "certain"), (500, "likely")])
def test_an_exception_before_the_looks_does_not_go_with_a_server_that_is_well(
    at: int, confidence: str
) -> None:
    whole = scene(IDLE, log=[*started(2, "ready"), f"{at} {RAISED}"])
    zoned = tuple(dataclasses.replace(log, ahead=0.0) for log in whole.logs)
    got = diagnose(dataclasses.replace(whole, logs=zoned))
    assert (got.state, got.confidence) == ("idle", confidence)
    against = " ".join(got.findings[0].evidence_against)
    assert ("exception" in against) == (at < 1000)
    assert any("exception" in note for note in got.notes) == (at > 1000)


def test_a_server_whose_port_is_closed_is_not_certainly_well() -> None:
    got = diagnose(scene(IDLE, log=started(2, "ready"), port_open=False))
    assert (got.state, got.confidence) == ("idle", "likely")
    assert not any("port" in text for text in got.findings[0].evidence_for)
    assert any("port is closed" in text for text in got.findings[0].evidence_against)


@pytest.mark.parametrize(("ahead", "state"), [(0.0, "serving"), (3600.0, "slow")])
def test_a_batch_counts_by_the_clock_of_its_log(ahead: float, state: str) -> None:
    whole = alike(2, "1015 TP0| Decode batch, #running-req: 3, #token: 91")
    zoned = tuple(dataclasses.replace(log, ahead=ahead) for log in whole.logs)
    assert diagnose(dataclasses.replace(whole, logs=zoned)).state in (state, "hung")


def test_a_log_that_fell_silent_tells_a_hang_from_load() -> None:
    whole = alike(2, "600 TP0| Decode batch, #running-req: 3, #token: 91")
    silent = tuple(dataclasses.replace(log, ahead=0.0) for log in whole.logs)
    assert diagnose(whole).state == "cannot_tell"
    # Its GPUs compute (600 W): that is no collective that spins.
    assert diagnose(dataclasses.replace(whole, logs=silent)).state == "slow"
    without = tuple(
        dataclasses.replace(s, gpus=tuple(dataclasses.replace(g, power_watts=None) for g in s.gpus))
        for s in whole.snapshots
    )
    resting = dataclasses.replace(whole, logs=silent, snapshots=without)
    assert diagnose(resting).state == "hung"


def test_one_look_at_a_rank_that_spins_is_no_progress() -> None:
    whole = alike(4)
    first = dataclasses.replace(whole.snapshots[0], dumps=whole.snapshots[0].dumps[:3])
    got = diagnose(dataclasses.replace(whole, snapshots=(first, whole.snapshots[1])))
    assert (got.state, got.working_ranks) == ("cannot_tell", ())


def capture(folder: Path) -> Path:
    shutil.copytree(HANG / "capture-hang", folder / "case")
    return folder / "case"


def processes(case: Path, **changes: Any) -> None:
    for path in case.glob("snapshot-*/processes.json"):
        listed = json.loads(path.read_text())
        for entry in listed["processes"]:
            entry.update(changes)
            if "launch_server" in entry["cmd"]:
                entry["argv"] = [*entry["cmd"].split()[:5], "--tp", "2"]
        path.write_text(json.dumps(listed))


def test_a_log_of_a_launch_of_another_size_is_left_out(tmp_path: Path) -> None:
    case = capture(tmp_path)
    processes(case)
    (case / "launch.json").unlink()
    log = case / "server.log"
    log.write_text(log.read_text().replace("tp_size=2", "tp_size=8"))
    found = read_scene(case)
    assert not found.logs
    assert any("server.log is of another launch" in note for note in found.notes)
    got = open_evidence(case)
    assert got.missing_ranks == ()
    assert (got.state, got.odd_ranks) == ("hung", (1,))


def test_a_log_that_ended_before_the_processes_began_is_left_out(tmp_path: Path) -> None:
    case = capture(tmp_path)
    processes(case, started=1795977090.0 - 60)
    manifest = {"format": "workbench.case/1", "host": "node-1", "utc_offset": 7200.0}
    (case / "manifest.json").write_text(json.dumps(manifest))
    found = read_scene(case)
    assert not found.logs
    assert any("older than the processes" in note for note in found.notes)


def test_a_log_that_the_server_holds_open_is_its_own_whatever_clock_it_has(tmp_path: Path) -> None:
    case = capture(tmp_path)
    processes(case, started=1795977090.0 - 60)
    manifest = {
        "format": "workbench.case/1",
        "host": "node-1",
        "utc_offset": 7200.0,
        "logs": [{"file": "server.log", "pids": [2062]}],
    }
    (case / "manifest.json").write_text(json.dumps(manifest))
    assert len(read_scene(case).logs) == 1
