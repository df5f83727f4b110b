"""Saved diagnoses and ledgers: read as they were written, never believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.hang.cases import CASES
from tests.hang_samples import diverged, idle, partly_seen
from workbench.core.verdict import OLD
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis

FOLDER = Path(__file__).parents[1] / "golden" / "saved-0.1"
HANGS = {
    "hung": False, "odd": False, "stopped": False, "crashed": False, "dead_rank": False, "slow": None,
    "cannot_tell": None, "partly-seen": None, "idle": True, "serving": True,
}  # fmt: skip
LEDGERS = {"empty": None, "hung": False, "consistent": None, "several": None, "supported": True}


def load(data: dict[str, Any], folder: Path) -> Any:
    file = folder / "x.json"
    file.write_text(json.dumps(data))
    return workbench.load(file)


@pytest.mark.parametrize("name", HANGS)
def test_a_diagnosis_of_version_01_loads_and_says_what_it_lacks(name: str, tmp_path: Path) -> None:
    old = json.loads((FOLDER / f"hang-{name}.json").read_text())
    found = workbench.load(FOLDER / f"hang-{name}.json")
    assert isinstance(found, HangDiagnosis)
    assert found.ok is HANGS[name]
    assert (found.state, found.summary, found.confidence) == (
        old["state"], old["summary"], old["confidence"]
    )  # fmt: skip
    assert list(found.overturns) == old["overturns"]
    assert OLD in found.to_text(200)
    for text in old["unknowns"]:
        assert any(text in one for one in found.unknowns)
    again = workbench.load(found.save(tmp_path / "again.json"))
    assert again == found
    new = again.to_dict()
    assert {key: new[key] for key in old if key != "unknowns"} == {
        key: old[key] for key in old if key != "unknowns"
    }


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_of_version_01_loads_and_is_concluded_anew(name: str, tmp_path: Path) -> None:
    old = json.loads((FOLDER / f"launches-{name}.json").read_text())
    found = workbench.load(FOLDER / f"launches-{name}.json")
    assert found.ok is LEDGERS[name]
    assert [one.code for one in found.findings] == [one["code"] for one in old["findings"]]
    new = found.to_dict()
    assert [
        {name: launch[name] for name in was}
        for launch, was in zip(new["launches"], old["launches"], strict=True)
    ] == old["launches"]
    for key in ("configurations", "source", "ok", "notes"):
        assert new[key] == old[key]
    assert [step and len(step["changed"]) for step in new["steps"]] == [
        step and len(step["changed"]) for step in old["steps"]
    ]
    assert workbench.load(found.save(tmp_path / "again.json")) == found


@pytest.mark.parametrize("case", CASES[:6], ids=lambda case: case.name)
def test_a_diagnosis_is_read_as_it_was_written(case: Any, tmp_path: Path) -> None:
    got = diagnose(case.scene)
    assert workbench.load(got.save(tmp_path / "x.json")) == got


def edited_to_idle(data: dict[str, Any]) -> None:
    data["state"] = "idle"


def edited_to_idle_everywhere(data: dict[str, Any]) -> None:
    data["state"] = data["verdict"]["state"] = "idle"
    all_items_ok(data)


def all_items_ok(data: dict[str, Any]) -> None:
    data["ok"] = True
    for item in data["verdict"]["coverage"]["items"]:
        item["state"] = "ok"
    data["unknowns"] = []


def wrong_ok(data: dict[str, Any]) -> None:
    data["ok"] = True


def as_if_of_01(data: dict[str, Any]) -> None:
    data["ok"] = True
    del data["verdict"]


def idle_of_01(data: dict[str, Any]) -> None:
    data["state"] = "idle"
    as_if_of_01(data)


def without_odd(data: dict[str, Any]) -> None:
    edited_to_idle_everywhere(data)
    data["odd_ranks"] = data["waiting_ranks"] = []


def without_rows(data: dict[str, Any]) -> None:
    without_odd(data)
    data["ranks"] = []


def surer(data: dict[str, Any]) -> None:
    data["confidence"] = "certain"


def nothing_open(data: dict[str, Any]) -> None:
    data["unknowns"] = []


def other_sentence(data: dict[str, Any]) -> None:
    data["summary"] = "All is well."


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    one.__name__: one
    for one in (
        edited_to_idle, edited_to_idle_everywhere, all_items_ok, wrong_ok, as_if_of_01, idle_of_01,
        without_odd, without_rows, surer, nothing_open, other_sentence,
    )
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_hung_case_edited_to_a_healthy_one_does_not_load(edit: str, tmp_path: Path) -> None:
    data = json.loads(diverged().to_json())
    EDITS[edit](data)
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        load(data, tmp_path)


def cleared_of_01(data: dict[str, Any], state: str) -> dict[str, Any]:
    """As somebody would edit a fault of version 0.1: all that a list or an answer says."""
    lists = ("odd_ranks", "waiting_ranks", "missing_ranks", "not_collected", "unknowns", "ranks")
    return data | {name: [] for name in (*lists, "findings")} | {"state": state, "ok": True}


@pytest.mark.parametrize("state", ["idle", "serving"])
@pytest.mark.parametrize("name", [one for one in HANGS if one not in ("idle", "serving")])
def test_a_fault_of_version_01_edited_to_an_all_clear_does_not_load(
    name: str, state: str, tmp_path: Path
) -> None:
    old = json.loads((FOLDER / f"hang-{name}.json").read_text())
    with pytest.raises(workbench.WorkbenchError, match=f"rule {old['rule']} does not give {state}"):
        load(cleared_of_01(old, state), tmp_path)


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ({"rule": "R6"}, "rule R6 does not give idle"),
        ({"phase": "graph_decode"}, "the phase is graph_decode"),
        ({"wait_class": "HOST_COLL"}, "the ranks wait in HOST_COLL"),
        ({"experiment": {"change": "relaunch"}}, "the experiment is not that of"),
        ({"summary": "hung in warm-up: all ranks"}, "the summary begins with hung"),
        ({"summary": "Cannot tell: no rule applies"}, "the summary begins with cannot"),
        ({"summary": "dead rank: rank 1"}, "the summary begins with dead"),
        ({"summary": "slow, not hung"}, "the summary begins with slow"),
    ],
    ids=str,
)  # fmt: skip
def test_an_all_clear_of_version_01_has_the_rule_phase_and_words_of_one(
    edits: dict[str, Any], why: str, tmp_path: Path
) -> None:
    healthy = json.loads((FOLDER / "hang-idle.json").read_text())
    changed = {k: healthy[k] | v if isinstance(v, dict) else v for k, v in edits.items()}
    with pytest.raises(workbench.WorkbenchError, match=why):
        load(healthy | changed, tmp_path)
    again = {name: healthy[name] for name in edits}
    assert load(healthy | changed | again, tmp_path).ok is True


def with_missing(data: dict[str, Any]) -> None:
    data["missing_ranks"] = [1]


def with_a_rank_unseen(data: dict[str, Any]) -> None:
    data["ranks"][1]["standing"] = "not_seen"


def with_an_error(data: dict[str, Any]) -> None:
    data["findings"] = [{"code": "x", "severity": "error", "title": "it hangs"}]


def slow_but_ok(data: dict[str, Any]) -> None:
    data["state"] = data["verdict"]["state"] = "slow"


@pytest.mark.parametrize(
    "edit", [with_missing, with_a_rank_unseen, with_an_error, slow_but_ok], ids=lambda e: e.__name__
)
def test_an_all_clear_that_its_lists_contradict_does_not_load(
    edit: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    data = json.loads(idle().to_json())
    assert load(data, tmp_path).ok is True
    edit(data)
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        load(data, tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("ok",), "yes"),
        (("state",), "fine"),
        (("phase",), "asleep"),
        (("wait_class",), "NAP"),
        (("confidence",), "sure"),
        (("odd_ranks",), [-1]),
        (("times",), ["now"]),
        (("ranks", 0, "standing"), "well"),
        (("ranks", 0, "rank"), -1),
        (("ranks", 0, "moving"), "no"),
        (("tree", 0, "depth"), 3),
        (("tree", 1, "depth"), 10**12),
        (("threads", 0, "frames"), [10**6]),
        (("threads", 0, "frames"), [-1]),
        (("timeline", 0, "begin"), "early"),
        (("experiment",), None),
        (("findings", 0, "severity"), "bad"),
        (("verdict", "coverage", "items", 0, "state"), "fine"),
    ],
    ids=str,
)
def test_a_field_of_another_type_or_word_does_not_load(
    path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    data = json.loads(partly_seen().to_json())
    at = data
    for step in path[:-1]:
        at = at[step]
    assert at[path[-1]] != value
    at[path[-1]] = value
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        load(data, tmp_path)


def test_a_field_that_is_not_known_is_ignored(tmp_path: Path) -> None:
    assert load(json.loads(idle().to_json()) | {"later": 1}, tmp_path).ok is True


@pytest.mark.parametrize("edit", ["ok", "outcome", "launches", "started", "command"])
def test_an_edited_ledger_does_not_load(edit: str, tmp_path: Path) -> None:
    data = workbench.load(FOLDER / "launches-hung.json").to_dict()
    if edit == "ok":
        data["ok"] = True
    elif edit == "launches":
        data["launches"] = data["launches"][:1]
    else:
        data["launches"][0][edit] = {"outcome": "well", "started": True, "command": "rm"}[edit]
    with pytest.raises(workbench.WorkbenchError, match="a field of it is wrong"):
        load(data, tmp_path)
