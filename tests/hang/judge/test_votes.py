"""NCCL's sequence numbers, the flight recorder and the engine's watchdog as witnesses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.hang.cases.build import LOOP, R, scene, started, written
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.group_facts import behind_by_flight
from workbench.hang.records import Scene


def timeout(rank: int, number: int, operation: str = "ALLREDUCE", group: str = "") -> str:
    return (
        f"[rank{rank}]:[E1129 13:40:08.408271257 ProcessGroupNCCL.cpp:607] [{group}Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=1, "
        "Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
    )


def from_log(*lines: str) -> Scene:
    """A log of lines as torch writes them, and nothing else."""
    from workbench.hang.records import Log, LogLine

    found = tuple(
        LogLine(i + 1, line, rank=line[1 : line.index("]")], level="error")
        for i, line in enumerate(lines)
    )
    return Scene("made by hand", logs=(Log("train.log", found, total_lines=len(found)),))


@pytest.mark.parametrize(
    ("numbers", "behind"),
    [
        ([120, 120, 120, 64], (3,)),
        ([120, 119, 120, 119], (1, 3)),
        ([120, 121], (0,)),
        ([120, 120, 120], ()),
        ([120], ()),
    ],
)
def test_who_launched_fewer_collectives_is_behind(
    numbers: list[int], behind: tuple[int, ...]
) -> None:
    got = diagnose(from_log(*(timeout(rank, n) for rank, n in enumerate(numbers))))
    assert (got.state, got.odd_ranks) == ("hung", behind)


def test_numbers_of_other_operations_and_groups_are_not_compared() -> None:
    other = from_log(timeout(0, 120), timeout(1, 64, "BROADCAST"))
    assert diagnose(other).odd_ranks == ()
    other = from_log(
        timeout(0, 120, group="PG ID 0 PG GUID 0(default_pg) "),
        timeout(1, 64, group="PG ID 2 PG GUID 5(tp) "),
    )
    assert diagnose(other).odd_ranks == ()


def recording(
    rank: int, last: int, state: str, operation: str = "nccl:all_reduce"
) -> dict[str, Any]:
    entries = [
        {"group": ["0", "default_pg"], "sequence": n, "operation": operation, "state": "completed"}
        for n in range(last - 3, last)
    ]
    entries.append({**entries[-1], "sequence": last, "state": state})
    return {"rank": rank, "entries": entries}


def test_the_flight_recorder_says_who_never_came() -> None:
    came = [recording(rank, 2100, "scheduled") for rank in range(3)]
    assert behind_by_flight({"flight": [*came, recording(3, 2099, "completed")]}) == (3,)
    # All that the others reached is done: nobody waits.
    done = [recording(rank, 2100, "completed") for rank in range(3)]
    assert behind_by_flight({"flight": [*done, recording(3, 2099, "completed")]}) == ()
    pairs = [recording(rank, 2100, "scheduled", "nccl:send 0->1") for rank in range(3)]
    assert behind_by_flight({"flight": [*pairs, recording(3, 2099, "completed")]}) == ()
    assert behind_by_flight({}) == ()


WATCHDOG = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
SYNC = f"synchronize LlamaForCausalLM.forward Scheduler.run_batch {LOOP}"


def test_three_hundred_seconds_without_a_batch_are_evidence_of_time() -> None:
    ranks = [R(SYNC) for _ in range(2)]
    lines = [*started(2, "ready"), *(f"900 TP{rank}| {WATCHDOG}" for rank in range(2))]
    one_look = scene(ranks, looks=1, log=lines)
    assert diagnose(one_look).state == "hung"
    later = written([*lines, "990 TP0| Decode batch, #running-req: 3, #token: 91"])
    went_on = dataclasses.replace(one_look, logs=(later,))
    assert diagnose(went_on).state == "cannot_tell"
    without = scene(ranks, looks=1, log=started(2, "ready"))
    assert diagnose(without).state == "cannot_tell"
