"""What an answer about a server covers: without any one of its checks there is no all-clear."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.hang.cases import CASES
from tests.hang.cases.build import BARRIER, CAPTURE, IDLE_0, IDLE_N, R, scene, started
from tests.hang.cases.healthy import BATCHING, SAMPLING
from workbench.core.verdict import Item
from workbench.hang.judge.coverage import CHECKS, Question, covered, items
from workbench.hang.judge.diagnose import diagnose, question
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.records import Log, Process, Role, Scene

IDLE = (R(IDLE_0, cpu=0.8), R(IDLE_N, cpu=0.6))


def process(role: Role, pid: int, state: str = "S") -> Process:
    return Process(pid, "node0", role, f"sglang::{role}", state=state)


def healthy(**changes: Any) -> Scene:
    """An idle server of two ranks with its main process, its detokenizer, a log and an open port."""
    known: dict[str, Any] = {
        "log": started(2, "ready"),
        "extra": (process("parent", 900), process("detokenizer", 901)),
        "port_open": True,
    }
    return scene(IDLE, **known | changes)


def asked(given: Scene) -> Question:
    return question(given)


def lacking(got: HangDiagnosis) -> dict[str, str]:
    """What an answer depends on and is open, by name."""
    return {i.name: i.how for i in got.verdict.coverage.having("open", essential=True)}


def test_a_server_that_is_wholly_in_the_evidence_is_cleared() -> None:
    got = diagnose(healthy())
    assert got.ok is True
    assert lacking(got) == {}
    assert got.summary.startswith("healthy and idle: ")
    assert got.summary.endswith("(2 of 2 ranks)")


def test_without_readings_of_the_gpus_it_is_cleared_and_says_so() -> None:
    got = diagnose(healthy(gpu=None))
    assert got.ok is True
    assert got.verdict.missing == ("GPU readings: none in the evidence",)


def test_there_is_no_all_clear_without_a_host_that_was_asked_for() -> None:
    got = diagnose(dataclasses.replace(healthy(), unseen=(("node1", "connection refused"),)))
    assert got.ok is None
    assert lacking(got) == {"host node1": "not seen: connection refused"}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_there_is_no_all_clear(check: Any) -> None:
    rest = [other for other in CHECKS if other is not check]
    assert covered(asked(healthy())).ok is True
    left = covered(asked(healthy()), rest)
    assert left.ok is None
    assert list(left.having("open", essential=True))


def test_without_any_check_everything_is_open() -> None:
    left = covered(asked(healthy()), [])
    assert {item.state for item in left.items} == {"open"}


def test_every_rank_of_every_replica_is_listed_by_the_launch_not_by_what_was_found() -> None:
    arguments = {"tp-size": "2", "pp-size": "2", "dp-size": "2"}
    whole = asked(healthy(arguments=arguments))
    named = [item.name for item in items(whole) if item.kind == "rank"]
    assert named == [f"rank {number}" for number in range(8)]
    got = diagnose(healthy(arguments=arguments))
    assert got.ok is not True
    assert any("2-3" in name or "4-7" in name for name in lacking(got))


def test_two_ranks_of_a_launch_of_unknown_size_are_not_two_of_two() -> None:
    got = diagnose(healthy(arguments={}))
    assert (got.state, got.ok) == ("idle", None)
    assert lacking(got) == {"number of ranks": "the launch is not known; the titles have 2"}
    assert got.summary.startswith("cannot tell: ")
    assert "2 of 2" not in got.summary
    assert "not checked: number of ranks" in got.summary


def test_one_rank_without_arguments_is_all_there_is() -> None:
    alone = scene([R(IDLE_0, cpu=0.5)], arguments={}, log=started(1, "ready"))
    assert diagnose(alone).ok is True


def log_of(given: Scene, ahead: float | None, *more: str) -> Scene:
    logs = scene(IDLE, log=[*started(2, "ready"), *more]).logs if more else given.logs
    return dataclasses.replace(
        given, logs=tuple(dataclasses.replace(log, ahead=ahead) for log in logs)
    )


FATAL = "TP1| Scheduler hit an exception: Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("given", "ok", "open_item"),
    [
        (healthy(log=(), port_open=None), None, "server log"),
        (healthy(log=()), True, ""),  # the port answers
        (healthy(port_open=None), True, ""),
        (healthy(port_open=False), None, "HTTP port"),
        (log_of(healthy(), 0.0, f"1500 {FATAL}"), None, "server log"),
        (log_of(healthy(), 0.0, f"500 {FATAL}"), True, ""),
        (log_of(healthy(), None, f"500 {FATAL}"), None, "clock of the log"),
        (log_of(healthy(), None, "500 TP0| a line"), True, ""),
        (healthy(clock_skew={"node0": 7.0}), None, "clock of the log"),
        (healthy(clock_skew={"node0": 0.5}), True, ""),
    ],
)  # fmt: skip
def test_the_logs_end_the_clock_and_the_port(given: Scene, ok: bool | None, open_item: str) -> None:
    got = diagnose(given)
    assert (got.state, got.ok) == ("idle", ok)
    assert list(lacking(got)) == ([open_item] if open_item else [])


@pytest.mark.parametrize(
    ("extra", "ok", "open_items"),
    [
        ((process("parent", 900),), None, ["detokenizer"]),
        ((process("detokenizer", 901),), None, ["main process"]),
        ((process("tokenizer", 901),), None, ["main process", "detokenizer"]),
        ((process("bystander", 901),), None, ["main process", "detokenizer"]),
        ((process("other", 900), process("detokenizer", 901)), True, []),  # a script with the engine
        ((process("other", 899), process("detokenizer", 901)), None, ["main process"]),
        ((process("parent", 900), process("detokenizer", 901)), True, []),
        ((process("parent", 900), process("detokenizer", 901), process("tokenizer", 902)), True, []),
        (
            (process("parent", 900), process("detokenizer", 901), process("tokenizer", 902, "T")),
            None,
            ["tokenizer"],
        ),
        ((), True, []),  # nothing in the evidence says that they were looked for
    ],
)  # fmt: skip
def test_the_servers_other_processes(
    extra: tuple[Process, ...], ok: bool | None, open_items: list[str]
) -> None:
    got = diagnose(healthy(extra=extra))
    assert got.ok is ok
    assert list(lacking(got)) == open_items


INCIDENT = Path(__file__).parents[3] / "data" / "incident" / "hang" / "relaunch-graphs-off"


def incident(folder: Path) -> Path:
    return Path(shutil.copytree(INCIDENT, folder / "case"))


def without(case: Path, *pids: int) -> Path:
    """Take processes and their stacks out of both snapshots of a case."""
    for file in case.glob("snapshot-*/processes.json"):
        data = json.loads(file.read_text())
        rest = [one for one in data["processes"] if one["pid"] not in pids]
        assert len(data["processes"]) - len(rest) == len(pids)
        file.write_text(json.dumps(data | {"processes": rest}))
        for pid in pids:
            (file.parent / f"pyspy-{pid}.json").unlink()
    return case


@pytest.mark.parametrize(
    ("pids", "missing"),
    [
        ((), []),
        ((2632,), ["main process"]),
        ((2752,), ["detokenizer"]),
        ((2632, 2752), ["main process", "detokenizer"]),
    ],
    ids=str,
)
def test_a_real_server_needs_its_main_process_and_its_detokenizer(
    pids: tuple[int, ...], missing: list[str], tmp_path: Path
) -> None:
    got = workbench.open_evidence(without(incident(tmp_path), *pids))
    assert got.state == "idle"
    assert got.ok is (None if missing else True)
    assert list(lacking(got)) == missing


def resized(case: Path, written: str, logged: str) -> Path:
    """Change the number of ranks that the launcher wrote down, and that the log has."""
    file = case / "launch.json"
    text = file.read_text()
    assert text.count('"2"') == 1
    file.write_text(text.replace('"2"', f'"{written}"'))
    log = case / "server.log"
    text = log.read_text()
    assert text.count(" tp_size=2,") == 1
    log.write_text(text.replace(" tp_size=2,", f" tp_size={logged},"))
    return case


@pytest.mark.parametrize(("written", "logged"), [("4", "2"), ("2", "4"), ("1", "2"), ("2", "1")])
def test_sources_that_disagree_about_the_size_keep_it_open(
    written: str, logged: str, tmp_path: Path
) -> None:
    got = workbench.open_evidence(resized(incident(tmp_path), written, logged))
    says = f"launch.json says {written}, the server's log says {logged}"
    assert (got.state, got.ok) == ("idle", None)
    assert lacking(got) == {"number of ranks": says}
    assert got.missing_ranks == ()
    assert says in got.summary


def test_the_command_line_of_the_main_process_is_a_source_of_the_size(tmp_path: Path) -> None:
    case = resized(incident(tmp_path), "4", "2")
    words = json.loads((INCIDENT / "launch.json").read_text())["command"]
    for file in case.glob("snapshot-*/processes.json"):
        data = json.loads(file.read_text())
        (main,) = [one for one in data["processes"] if one["pid"] == 2632]
        main["argv"] = words
        file.write_text(json.dumps(data))
    says = "launch.json says 4, the server's log says 2, the main process says 2"
    got = workbench.open_evidence(case)
    assert (got.ok, lacking(got)) == (None, {"number of ranks": says})
    (case / "server.log").unlink()
    says = "launch.json says 4, the main process says 2"
    assert lacking(workbench.open_evidence(case))["number of ranks"] == says


def test_a_rank_that_every_source_has_is_missing_whatever_they_disagree_about(
    tmp_path: Path,
) -> None:
    got = workbench.open_evidence(resized(incident(tmp_path), "4", "3"))
    assert (got.state, got.missing_ranks) == ("dead_rank", (2,))


def test_titles_beyond_the_launch_keep_its_size_open(tmp_path: Path) -> None:
    got = workbench.open_evidence(resized(incident(tmp_path), "1", "1"))
    assert got.ok is None
    how = "launch.json says 1, the server's log says 1; the titles have 2"
    assert lacking(got) == {"number of ranks": how}


def test_each_host_of_a_launch_needs_a_main_process() -> None:
    def host(name: str, numbers: range, *extra: Process) -> Scene:
        given = tuple(dataclasses.replace(one, host=name) for one in extra)
        return healthy(
            host=name, numbers=numbers, extra=given, arguments={"tp-size": "4", "nnodes": "2"}
        )

    first = host("node0", range(2), process("parent", 900), process("detokenizer", 901))
    for extra, ok in ((process("parent", 900), True), (process("bystander", 902), None)):
        second = host("node1", range(2, 4), extra)
        both = dataclasses.replace(first, snapshots=(*first.snapshots, *second.snapshots))
        got = diagnose(both)
        assert got.ok is ok
        assert lacking(got) == ({} if ok else {"main process": "not in the evidence of node1"})


def test_a_serving_server_whose_stacks_do_not_move_is_not_cleared_by_its_cpu_time() -> None:
    log = [*started(2, "ready")]
    moving = [R(BATCHING, then=SAMPLING, cpu=0.9) for _ in range(2)]
    assert diagnose(healthy_of(moving, log)).ok is True
    spinning = [R(SAMPLING, cpu=0.9) for _ in range(2)]
    got = diagnose(healthy_of(spinning, log))
    assert got.ok is None
    assert got.state == "cannot_tell"
    assert "progress of ranks 0-1" in lacking(got)


def healthy_of(ranks: list[R], log: list[str]) -> Scene:
    return scene(ranks, log=log, port_open=True)


def test_one_snapshot_clears_nothing() -> None:
    got = diagnose(healthy(looks=1))
    assert got.ok is None
    assert lacking(got)["progress of ranks 0-1"] == "only one snapshot"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ok_follows_from_the_state_or_from_what_is_missing(case: Any) -> None:
    got = diagnose(case.scene)
    if got.state in ("hung", "stopped", "crashed", "dead_rank"):
        assert got.ok is False
    elif got.state in ("slow", "cannot_tell"):
        assert got.ok is None
        assert lacking(got)
    assert len(got.unknowns) <= 12
    assert got.contradiction() == ""


def test_ranks_that_came_to_the_same_share_a_line() -> None:
    ranks = [R(f"{BARRIER} {CAPTURE}") for _ in range(8)]
    arguments = {"tp-size": "16", "nnodes": "2"}
    got = diagnose(scene(ranks, arguments=arguments, log=started(8, "decode")))
    open_ranks = [i for i in got.verdict.coverage.having("open") if i.kind == "rank"]
    assert open_ranks == [
        Item("rank", "ranks 8-15 and their progress", "open", "host not collected", 8)
    ]


def test_a_log_alone_leaves_every_rank_open() -> None:
    log = Log("server.log", scene(IDLE, log=started(2, "decode")).logs[0].lines)
    got = diagnose(Scene("x", logs=(log,), arguments={"tp-size": "2"}, expected_ranks=2))
    assert got.ok is None
    assert lacking(got)["ranks 0-1 and their progress"] == "not in the evidence"


def test_one_replica_that_is_gone_does_not_hide_the_size_of_the_others() -> None:
    whole = asked(healthy(arguments={}))
    gone = dataclasses.replace(whole.worst, group=RankGroup((), 0, False))
    both = dataclasses.replace(whole, judgements=(*whole.judgements, gone))
    none = dataclasses.replace(whole, judgements=(gone,))

    def size(question: Question) -> tuple[str, str]:
        (found,) = (item for item in covered(question).items if item.kind == "launch size")
        return found.state, found.how

    assert size(both) == size(whole) == ("open", "the launch is not known; the titles have 2")
    assert size(none) == ("open", "the launch is not known")


def test_a_stopped_rank_is_never_compared() -> None:
    """Two snapshots of a process that is halted are equal: that says nothing of where it would get."""
    got = diagnose(scene((R(IDLE_0, state="T"), R(IDLE_N)), log=started(2, "ready")))
    how = {item.name: (item.state, item.how) for item in got.verdict.coverage.items}
    assert "stopped" in how["rank 0"][1]
    assert how["progress of rank 0"] == how["rank 0"]
    assert how["progress of rank 1"] != how["rank 1"]
