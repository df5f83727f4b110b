"""The verdict on a ledger: without any one of its checks there is no all-clear."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.forms import check_forms
from workbench.hang.ledger import LaunchLedger
from workbench.hang.ledger_verdict import CHECKS, covered

FOLDER = Path(__file__).parents[1] / "golden" / "saved-0.1"


def saved(name: str) -> LaunchLedger:
    found = workbench.load(FOLDER / f"launches-{name}.json")
    assert isinstance(found, LaunchLedger)
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_there_is_no_all_clear(check: Any) -> None:
    understood = saved("supported")
    assert covered(understood).ok is True
    assert covered(understood, [other for other in CHECKS if other is not check]).ok is None


def with_last(outcome: str) -> LaunchLedger:
    understood = saved("supported")
    *before, last = understood.launches
    last = dataclasses.replace(last, outcome=outcome)  # type: ignore[arg-type]
    return dataclasses.replace(understood, launches=(*before, last))


@pytest.mark.parametrize(
    ("outcome", "ok"),
    [("served", True), ("hung", False), ("crashed", False), ("unknown", None), ("stopped", None)],
)
def test_the_last_launch_has_to_serve(outcome: str, ok: bool | None) -> None:
    assert with_last(outcome).ok is ok


def test_launches_without_an_outcome_are_listed_together_and_decide_nothing() -> None:
    understood = saved("supported")
    blank = dataclasses.replace(understood.launches[0], outcome="unknown", name="blank")
    made = dataclasses.replace(understood, launches=(*[blank] * 5, *understood.launches))
    assert made.ok is True
    (text,) = made.verdict.missing
    assert text == (
        "launch 1 (blank), launch 2 (blank), launch 3 (blank) and 2 more: outcome not recorded"
    )


def test_an_empty_ledger_clears_nothing() -> None:
    assert saved("empty").verdict.state == "empty"
    assert saved("empty").ok is None


@pytest.mark.parametrize("name", ["supported", "consistent", "hung", "empty"])
def test_every_form_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forms(saved(name), f"launches-{name}", monkeypatch)
