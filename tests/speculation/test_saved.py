"""Saved replays and ablations: those of version 0.1 load, and no file is believed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.replay_samples import answer, chain
from workbench.core.finding import Finding
from workbench.core.verdict import OLD, Coverage, Item, Verdict
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.result import Replay

OLDER = Path(__file__).parents[1] / "golden" / "saved-0.1"
REPLAYS = {
    "replay-cannot_tell": None,
    "replay-counted": None,
    "replay-ok": True,
    "replay-wrong": False,
}
ABLATIONS = {
    "found": False, "pair": False, "named": False, "healthy": True, "sampling": None, "refused": None,
    "no_expectation": None, "not_reproduced": None, "cannot_tell": None,
}  # fmt: skip


def read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((OLDER / f"{name}.json").read_text())
    return data


def load(data: dict[str, Any], tmp_path: Path) -> Any:
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(data))
    return workbench.load(file)


@pytest.mark.parametrize(("name", "ok"), REPLAYS.items())
def test_a_replay_of_version_0_1_loads(name: str, ok: bool | None) -> None:
    data = read(name)
    assert "verdict" not in data
    replay = workbench.load(OLDER / f"{name}.json")
    assert isinstance(replay, Replay)
    assert (replay.ok, replay.summary) == (ok, data["summary"])
    assert replay.accept_length == data["accept_length"]
    assert len(replay.rounds) == (data["kept"] or {"rounds": 0})["rounds"]
    assert {item.how for item in replay.verdict.coverage.items} == {OLD}


@pytest.mark.parametrize(("state", "ok"), ABLATIONS.items())
def test_ablations_of_version_0_1_load(state: str, ok: bool | None) -> None:
    data = read(f"ablations-{state}")
    found = workbench.load(OLDER / f"ablations-{state}.json")
    assert isinstance(found, Ablations)
    assert (found.ok, found.verdict.state, found.cause.state) == (ok, state, state)
    assert found.summary == data["summary"]
    assert list(found.cause.facts) == data["verdict"]["facts"]
    assert [lift.accept_length for lift in found.lifts] == [
        d["accept_length"] for d in data["lifts"]
    ]
    assert OLD in {item.how for item in found.verdict.coverage.items}


def test_sampled_text_that_version_0_1_called_healthy_loads_and_proves_nothing() -> None:
    """Neither believed nor refused.

    The lists of such a file agree, and people have it, so it loads. Its True was the rule's and not the
    evidence's: text that this target would not choose may be another target's, and then the launch is wrong.
    """
    data = read("ablations-sampling")
    assert data["ok"] is True
    found = workbench.load(OLDER / "ablations-sampling.json")
    assert isinstance(found, Ablations)
    assert (found.ok, found.verdict.confidence, found.cause.ok) == (None, "unknown", None)
    assert [item.state for item in found.verdict.coverage.items] == ["open", "open"]
    assert "another target's; version 0.1 took that for health" in found.to_text(200)
    assert Ablations.from_dict(found.to_dict()) == found


@pytest.mark.parametrize("ok", [True, False])
def test_sampled_text_with_a_coverage_is_not_excused(ok: bool, tmp_path: Path) -> None:
    data = workbench.load(OLDER / "ablations-sampling.json").to_dict()
    with pytest.raises(WorkbenchError, match="is not a saved workbench result"):
        load(data | {"ok": ok}, tmp_path)
    state = "ok" if ok else "wrong"
    data["verdict"]["coverage"] = {
        "items": [item | {"state": state} for item in data["verdict"]["coverage"]["items"]]
    }
    with pytest.raises(WorkbenchError, match="state is sampling"):
        load(data | {"ok": ok}, tmp_path)


@pytest.mark.parametrize("name", [*REPLAYS, *(f"ablations-{state}" for state in ABLATIONS)])
def test_every_key_of_version_0_1_is_still_written(name: str) -> None:
    data = read(name)
    written = workbench.load(OLDER / f"{name}.json").to_dict()
    assert written.keys() >= data.keys()
    judged_anew = {"ok", "confidence"} if name == "ablations-sampling" else set()
    same = [key for key in data if key not in {"verdict", "findings"} | judged_anew]
    assert {key: written[key] for key in same} == {key: data[key] for key in same}
    if "verdict" in data:
        kept = {key for key in data["verdict"] if key not in judged_anew}
        assert all(written["verdict"][key] == data["verdict"][key] for key in kept)
        assert written["verdict"].keys() >= data["verdict"].keys()
        assert {"coverage", "overturned_by"} <= written["verdict"].keys()


def test_speculations_own_ok_in_a_verdict_is_of_no_account(tmp_path: Path) -> None:
    data = read("ablations-found")
    data["verdict"]["ok"] = False
    assert load(data, tmp_path).ok is False


REPLAY_EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("replay-cannot_tell", {"ok": True}, "a finding changes the output: ten keys are dropped"),
    ("replay-wrong", {"ok": True}, "a finding changes the output"),
    ("replay-counted", {"ok": True}, "nothing that acceptance was compared with"),
    ("replay-ok", {"expected": None}, "nothing that acceptance was compared with"),
    ("replay-ok", {"observed": [400], "replayed": [400], "expected": {"accept_length": 2.5}},
     "the acceptance length is 1.00"),
    ("replay-ok", {"observed": None, "replayed": None, "logged": None}, "not enough counts"),
    ("replay-ok", {"agreement": {"rounds": 9, "same_count": 3, "same_tokens": 3, "near_ties": 0}},
     "differ in 67%"),
    ("replay-wrong", {"ok": True, "findings": [], "expected": {"accept_length": 2.5, "counted": "places"}},
     "the acceptance length is 1.00"),
    ("replay-ok", {"expected": {"accept_length": 4.1, "counted": "places"}},
     "the acceptance length is 2.42"),
    ("replay-wrong", {"findings": []}, "there is no finding of a cause"),
    ("replay-ok", {"ok": "yes"}, "Expected"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), REPLAY_EDITS)
def test_a_replay_that_contradicts_itself_is_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WorkbenchError, match="is not a saved workbench result") as error:
        load(read(name) | change, tmp_path)
    assert message in str(error.value)


ABLATION_EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("ablations-found", {"ok": True}, "state is found"),
    ("ablations-found", {"ok": None}, "state is found"),
    ("ablations-cannot_tell", {"ok": True}, "state is cannot_tell"),
    ("ablations-cannot_tell", {"ok": False}, "state is cannot_tell"),
    ("ablations-healthy", {"expected": None}, "nothing that acceptance was compared with"),
    ("ablations-found", {"lifts": []}, "changes lack fc order 3 2 1"),
    ("ablations-found", {"counted": "drafts"}, "Invalid enum value 'drafts'"),
]


@pytest.mark.parametrize(("name", "change", "message"), ABLATION_EDITS)
def test_ablations_that_contradict_themselves_are_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WorkbenchError, match="is not a saved workbench result") as error:
        load(read(name) | change, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"), [("state", "fine"), ("confidence", "sure"), ("facts", "fc"), ("facts", [])]
)
def test_a_cause_of_other_words_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    data = read("ablations-found")
    data["verdict"][field] = value
    with pytest.raises(WorkbenchError, match="is not a saved workbench result"):
        load(data, tmp_path)


def test_an_accusing_finding_under_an_all_clear_is_refused(tmp_path: Path) -> None:
    data = read("ablations-healthy")
    data["findings"] = read("ablations-found")["findings"]
    with pytest.raises(WorkbenchError, match="a finding names a cause"):
        load(data, tmp_path)


def test_ok_is_what_the_coverage_makes_it(tmp_path: Path) -> None:
    data = chain().to_dict()
    assert data["ok"] is None
    with pytest.raises(WorkbenchError, match="what was checked makes it None"):
        load(data | {"ok": True}, tmp_path)
    data["verdict"]["coverage"]["items"][0]["state"] = "ok"
    with pytest.raises(WorkbenchError, match="what was checked makes it True"):
        load(data, tmp_path)
    with pytest.raises(WorkbenchError, match="a finding changes the output"):
        load(data | {"ok": True}, tmp_path)


def test_the_coverage_of_ablations_is_saved_with_its_cause(tmp_path: Path) -> None:
    found = workbench.load(OLDER / "ablations-healthy.json")
    assert isinstance(found, Ablations)
    coverage = Coverage((Item("acceptance", "acceptance", "ok", "2.37 of 2.39"),))
    verdict = Verdict("healthy", found.summary, "likely", coverage, ("another expectation",))
    again = workbench.load(dataclasses.replace(found, verdict=verdict).save(tmp_path / "a.json"))
    assert isinstance(again, Ablations)
    assert again.verdict == verdict
    assert again.cause == found.cause


def test_no_result_holds_the_numbers_that_follow_from_others(tmp_path: Path) -> None:
    """Acceptance length and shares in a file are for its readers; what is loaded counts them again."""
    error = Finding("key_dropped", "error", "keys are dropped", changes_output=True)
    data = chain(verdict=answer(False, "x"), findings=(error,)).to_dict()
    loaded = load(data | {"accept_length": 9.0, "per_position": [1.0]}, tmp_path)
    assert loaded.to_dict() == data
