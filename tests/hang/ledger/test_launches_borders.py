"""Both sides of each border of the ledger's conclusions: one launch more, one change more, one value more."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.hang.ledger.test_launches import codes, launch, ledger
from workbench.evidence.launches import Launch
from workbench.hang.ledger.differences import differences
from workbench.hang.ledger.rules import passes_needed

OFF = "--disable-cuda-graph"


def series(*outcomes: tuple[str, str], **more: Any) -> dict[str, tuple[str, str]]:
    """Return what is concluded of launches, each given by its flags and what came of it."""
    launches = [
        launch(f"n{i}", flags, outcome, **more) for i, (flags, outcome) in enumerate(outcomes)
    ]
    return {
        f.code.removeprefix("launches."): (f.severity, f.confidence)
        for f in ledger(*launches).findings
    }


HUNG, SERVED = ("", "hung"), ("", "served")
CHANGED = (OFF, "served")
SUPPORTED, CONSISTENT = ("note", "likely"), ("note", "possible")
INTERMITTENT, REFUTED = ("warning", "certain"), ("warning", "certain")


@pytest.mark.parametrize(
    ("hung", "starts", "needed"),
    [(1, 1, 6), (2, 2, 4), (1, 2, 6), (1, 3, 9), (3, 10, 10), (9, 10, 2), (10, 10, 2), (1, 10, 34)],
)
def test_how_many_clean_starts_are_seldom_luck(hung: int, starts: int, needed: int) -> None:
    rate = hung / (starts + 1 if hung >= starts else starts)
    assert passes_needed(hung, starts) == needed
    assert (1 - rate) ** needed < 0.03 <= (1 - rate) ** (needed - 1)


def test_a_change_is_supported_by_enough_clean_starts_and_by_flipping_back() -> None:
    # Before it hung once of one; with it six starts are clean, and without it it hangs again.
    six = [HUNG, *[CHANGED] * 6]
    assert series(*six)["consistent"] == CONSISTENT
    # Flipped back it has hung twice of two: four clean starts are enough, three are not.
    assert series(HUNG, *[CHANGED] * 4, HUNG) == {"supported": SUPPORTED}
    assert series(HUNG, *[CHANGED] * 3, HUNG) == {"consistent": CONSISTENT}
    assert series(HUNG, *[CHANGED] * 4, SERVED)["consistent"] == CONSISTENT
    assert series(HUNG, *[CHANGED] * 4, ("", "unknown"))["consistent"] == CONSISTENT
    assert series(HUNG, *[CHANGED] * 4, ("", "crashed"))["supported"] == SUPPORTED


def test_a_change_with_which_it_hangs_is_refuted() -> None:
    assert series(HUNG, (OFF, "hung")) == {"refuted": REFUTED}
    assert series(HUNG, (OFF, "crashed")) == {"refuted": REFUTED}
    mixed = series(HUNG, CHANGED, (OFF, "hung"))
    assert mixed == {"refuted": REFUTED, "intermittent": INTERMITTENT}


def test_what_is_not_judged() -> None:
    assert series(SERVED, CHANGED) == {}
    assert series(HUNG, (OFF, "unknown")) == {}
    assert series(HUNG, (f"{OFF} --tp-size 4", "served")) == {"several": ("warning", "certain")}
    assert series(HUNG, HUNG) == {}
    # Judged once, at its first launch.
    assert list(series(HUNG, CHANGED, HUNG, CHANGED)) == ["consistent"]


def test_a_launch_that_hangs_now_and_then_is_intermittent() -> None:
    assert series(HUNG, SERVED) == {"intermittent": INTERMITTENT}
    assert series(HUNG, HUNG) == {}
    assert series(SERVED, SERVED) == {}
    assert series(HUNG, ("", "unknown")) == {}


def test_a_crash_is_no_hang_in_words() -> None:
    def title(*outcomes: str) -> str:
        found = ledger(*(launch(f"n{i}", "", o) for i, o in enumerate(outcomes))).findings
        return found[0].title

    assert "hung 1 of 2" in title("hung", "served")
    assert "failed 1 of 2" in title("crashed", "served")


def test_an_earlier_success_speaks_against_a_change() -> None:
    def against(*outcomes: tuple[str, str]) -> int:
        launches = [launch(f"n{i}", flags, o) for i, (flags, o) in enumerate(outcomes)]
        (one,) = [f for f in ledger(*launches).findings if f.code == "launches.consistent"]
        return len(one.evidence_against)

    assert against(HUNG, CHANGED) == 1
    assert against(SERVED, HUNG, CHANGED) == 2


# -- what differs -----------------------------------------------------------------------------------


def sets(first: Launch, second: Launch) -> tuple[list[str], list[str], list[str]]:
    found = differences(first, second)
    return tuple([c.name for c in group] for group in (found.changed, found.harmless, found.unsure))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("one", "other", "changed", "harmless"),
    [
        ("", "--tp-size 4", ["tp-size"], []),
        ("", "--port 1", [], ["port"]),
        ("", "--served-model-name x", [], ["served-model-name"]),
        ("", "--random-seed 3", ["random-seed"], []),
        # A graph's size matters where graphs are captured.
        ("", "--cuda-graph-max-bs 8", ["cuda-graph-max-bs-decode"], []),
        (OFF, f"{OFF} --cuda-graph-max-bs 8", [], ["cuda-graph-max-bs-decode"]),
        (
            "--cuda-graph-backend-decode=disabled",
            "--cuda-graph-backend-decode=disabled --cuda-graph-max-bs-prefill 8",
            ["cuda-graph-max-bs-prefill"],
            [],
        ),
        # One switch does both kinds of graphs; two flags are two changes.
        ("", OFF, ["disable-cuda-graph"], []),
        (
            "",
            "--cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill=disabled",
            ["cuda-graph-backend-decode", "cuda-graph-backend-prefill"],
            [],
        ),
        ("", "--cuda-graph-backend-decode=disabled", ["cuda-graph-backend-decode"], []),
        # Of a draft nothing matters without one.
        ("", "--speculative-num-steps 3", [], ["speculative-num-steps"]),
        (
            "--speculative-algorithm EAGLE3",
            "--speculative-algorithm EAGLE",
            ["speculative-algorithm"],
            [],
        ),
        ("", "--speculative-algorithm EAGLE3", ["speculative-algorithm"], []),
        (
            "--speculative-algorithm EAGLE3",
            "--speculative-algorithm EAGLE3 --speculative-num-steps 3",
            ["speculative-num-steps"],
            [],
        ),
        (
            "",
            "--speculative-algorithm EAGLE3 --speculative-num-steps 3",
            ["speculative-algorithm"],
            ["speculative-num-steps"],
        ),
    ],
)
def test_which_differences_count(
    one: str, other: str, changed: list[str], harmless: list[str]
) -> None:
    got = sets(launch("a", one), launch("b", other))
    assert (got[0], got[1]) == (changed, harmless)
    assert got[2] == []
    back = sets(launch("b", other), launch("a", one))
    assert (back[0], back[1]) == (changed, harmless)


def test_versions_and_gpus_that_one_record_lacks_are_no_difference() -> None:
    known, other = launch("a", gpus=("H200",)), launch("b", gpus=("H100",))
    assert sets(known, launch("c"))[0] == []
    assert sets(known, other)[0] == ["GPUs"]
    assert sets(launch("a", version="0.5.14"), launch("b", version="0.5.12"))[0] == ["sglang"]
    assert sets(launch("a", version="0.5.14"), launch("b", version=""))[0] == []
    one, two = launch("a", environment={"NCCL_DEBUG": "INFO"}), launch("b")
    assert sets(one, two) == (["NCCL_DEBUG"], [], [])


def test_a_launch_of_which_only_the_log_is_known_leaves_things_open() -> None:
    typed = launch("a", "--schedule-policy lpm", "hung", environment={"NCCL_DEBUG": "INFO"})
    logged = launch(
        "b", "", "served", resolved={"schedule-policy": "fcfs", "tp-size": "8", "model-path": "m"}
    )
    logged = dataclasses.replace(logged, command=())
    found = differences(typed, logged)
    # What one names and the other's log has is a change; what one leaves to its engine is not known.
    assert "schedule-policy" in {c.name for c in found.changed}
    assert "NCCL_DEBUG" in {c.name for c in found.unsure}
    assert "tp-size" not in {c.name for c in (*found.changed, *found.unsure)}
    assert found.unsure
    assert "consistent" not in {c.removeprefix("launches.") for c in codes(ledger(typed, logged))}


def test_one_change_is_no_warning_and_two_are() -> None:
    assert differences(launch("a"), launch("b", "--tp-size 4")).warning == ""
    assert "2 things" in differences(launch("a"), launch("b", "--tp-size 4 --dp-size 2")).warning
    assert codes(ledger(launch("a"), launch("b", "--tp-size 4 --dp-size 2"))) == [
        "launches.several"
    ]
