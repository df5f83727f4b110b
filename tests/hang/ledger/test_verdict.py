"""The verdict on a ledger: without any one of its checks there is no all-clear."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.forms import check_forms
from workbench.hang.ledger.ledger import LaunchLedger, Ledger
from workbench.hang.ledger.verdict import CHECKS, covered, items

FOLDER = Path(__file__).parents[2] / "golden" / "saved-0.1"


def saved(name: str) -> LaunchLedger:
    found = workbench.load(FOLDER / f"launches-{name}.json")
    assert isinstance(found, LaunchLedger)
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_there_is_no_all_clear(check: Any) -> None:
    understood = saved("supported")
    assert covered(understood).ok is True
    assert covered(understood, [other for other in CHECKS if other is not check]).ok is None


def test_earlier_launches_are_listed_and_decide_nothing() -> None:
    understood = saved("supported")
    listed = list(items(understood))
    assert [i.kind for i in listed if i.essential] == ["last launch", "cause"]
    assert [i.kind for i in listed if not i.essential] == ["launch"] * (
        len(understood.launches) - 1
    )


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


@pytest.mark.parametrize("lines", [1, 2])
def test_a_line_that_cannot_be_read_may_be_the_last_launch(lines: int, tmp_path: Path) -> None:
    book = Ledger(tmp_path / "launches.jsonl")
    for launch in saved("supported").launches:
        book.record(launch)
    assert book.story().ok is True
    whole = book.path.read_text()
    hung = json.loads(whole.splitlines()[-1]) | {"outcome": "hung", "name": "the last"}
    torn = json.dumps(hung)[:-20]
    with book.path.open("a") as file:
        file.write("\n".join([torn] * lines))
    story = book.story()
    how = {1: "1 damaged or foreign line was skipped", 2: "2 damaged or foreign lines were skipped"}
    assert (story.ok, story.verdict.state, story.verdict.confidence) == (None, "open", "unknown")
    assert story.notes == (how[lines],)
    assert story.summary.endswith(f" {how[lines]}.")
    assert story.verdict.missing == (
        f"lines of the ledger: {how[lines]}: the last launch may be missing",
    )
    again = workbench.load(story.save(tmp_path / "story.json"))
    assert again == story
    assert again.ok is None
    book.path.write_text(torn)
    assert book.story().ok is None
    assert book.story().summary == f"No launch could be read. {how[1]}."


def test_a_known_hang_is_a_fault_whatever_was_not_read() -> None:
    assert dataclasses.replace(with_last("hung"), unread=("1 line was skipped",)).ok is False


def test_an_empty_ledger_clears_nothing() -> None:
    assert saved("empty").verdict.state == "empty"
    assert saved("empty").ok is None


@pytest.mark.parametrize("name", ["supported", "consistent", "hung", "empty"])
def test_every_form_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forms(saved(name), f"launches-{name}", monkeypatch)
