"""A replay inside `doctor`: where files and log name no cause, the recorded rounds say where it lies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.speculation.evidence.tally import Logged
from workbench.triage import jobs
from workbench.triage.evidence import Found, Served
from workbench.triage.records import Case
from workbench.triage.things import Thing

RUN = "data/incident/runs/sglang-0.5.11/incident"


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Case:
    """Hand over the incident's run with the repaired draft: nothing of its files explains what was served."""
    repaired = tmp_path_factory.mktemp("drafts") / "repaired"
    incident = root / "data" / "incident"
    workbench.fix_checkpoint(
        incident / "drafts" / "speculators", "sglang==0.5.11", repaired, target=incident / "target"
    )
    return workbench.doctor(root / RUN, repaired, incident / "target")


def test_the_replay_answers_where_nothing_else_does(examined: Case) -> None:
    assert [one.ok for one in examined.answers if one.job == "check"] == [True]
    assert examined.ok is False
    assert [cause.code for cause in examined.causes] == ["other_copy_served"]
    (cause,) = examined.causes
    assert cause.job == "replay"
    assert not cause.certain
    assert "accept 2.06 tokens a round, not 1.00" in cause.title
    assert "another copy was served" in examined.summary


class Replayed:
    """Stands in for a replay of one acceptance length."""

    def __init__(self, length: float, ok: bool | None) -> None:
        self.accept_length, self.ok = length, ok


def of(length: float, ok: bool | None = None, logged: bool = True) -> list[str]:
    log = Logged(9, 1.0, None, 1.0, 1.0) if logged else None
    one = Served(Thing("run", "run", "run"), logged=log, draft=Found("draft"))
    found: Any = Replayed(length, ok)
    return [cause.code for cause in jobs._of_replay(found, one, "line")]


@pytest.mark.parametrize(
    ("length", "right"),
    [
        (1.0, ["draft_accepts_nothing"]),
        (1.05, ["draft_accepts_nothing"]),
        (1.06, []),
        (1.19, []),
        (1.2, ["other_copy_served"]),
    ],
)
def test_what_a_length_means(length: float, right: list[str]) -> None:
    assert of(length) == right


def test_without_a_log_or_with_an_all_clear_it_accuses_nobody() -> None:
    assert of(2.0, logged=False) == []
    assert of(2.0, ok=True) == []


def test_a_replay_that_is_not_run_names_no_cause() -> None:
    one = Served(Thing("run", "run", "run"), draft=Found("draft", stands_in=True))
    assert jobs.replay(dataclasses.replace(one, target=Found("target"))).causes == ()
