"""`doctor`: recorded runs, checkpoints and lines; each cause with its step."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from tests.forms import check_forms
from workbench.cli.program import _with_verb
from workbench.errors import WorkbenchError
from workbench.triage.around import around
from workbench.triage.things import recognise

RUNS = "data/incident/runs"


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_the_incident_names_both_causes_with_one_step_each() -> None:
    said: list[str] = []
    found = workbench.doctor(
        f"{RUNS}/sglang-0.5.11/incident-eagle", say=lambda one: said.append(one.job)
    )
    assert found.ok is False
    assert said[0] == "acceptance"
    assert [cause.code for cause in found.causes] == ["keys_lost", "launched_as_eagle"]
    assert "10 of 16 keys" in found.summary
    assert "--speculative-algorithm EAGLE" in found.summary
    assert "accept len 1.00" in found.summary
    assert "workbench fix data/incident/drafts/speculators" in found.causes[0].next_step
    assert "--speculative-algorithm EAGLE3" in found.causes[1].next_step
    assert not found.causes[0].certain  # the served copy of the draft was not kept
    assert "--speculative-algorithm EAGLE3" in found.corrected


@pytest.mark.parametrize(
    ("run", "ok", "codes"),
    [
        ("sglang-0.5.11/incident", False, ["keys_lost"]),
        ("sglang-0.5.11/specforge", True, []),
        ("sglang-0.5.11/repaired", None, []),
        ("sglang-0.5.11/repaired-eagle", False, ["launched_as_eagle"]),
        ("sglang-0.5.14/eagle", False, ["launched_as_eagle"]),
        ("sglang-0.5.14/speculators", None, []),
        ("sglang-0.5.14/no-lm-head", False, []),
        ("sglang-0.5.14/fc-reversed", None, []),
    ],
)
def test_recorded_runs(run: str, ok: bool | None, codes: list[str]) -> None:
    found = workbench.doctor(f"{RUNS}/{run}")
    assert found.ok is ok
    assert [cause.code for cause in found.causes] == codes


def test_an_assertion_on_the_device_points_at_the_vocabulary() -> None:
    found = workbench.doctor(f"{RUNS}/sglang-0.5.14/d2t-absolute")
    assert found.ok is False
    assert found.causes[0].code == "device_assert"
    assert "d2t" in found.causes[0].title
    assert not found.causes[0].certain
    assert "serves" not in found.summary


def test_a_log_and_the_draft_belong_together() -> None:
    log = f"{RUNS}/sglang-0.5.11/incident/server.log"
    found = workbench.doctor(log, "data/incident/drafts/specforge")
    checked = next(one for one in found.answers if one.job == "check")
    assert "keys" not in checked.text  # this draft loads


def test_a_hang_is_the_first_cause() -> None:
    found = workbench.doctor("data/incident/hang/capture-hang")
    assert found.ok is False
    assert found.causes[0].code == "hang_hung"


def test_it_is_saved_and_shown_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = workbench.doctor(f"{RUNS}/sglang-0.5.11/incident-eagle")
    assert workbench.load(found.save(tmp_path / "case.json")) == found
    check_forms(found, "case-incident", monkeypatch)


@pytest.mark.parametrize(
    ("thing", "kinds"),
    [
        ("data/incident/hang", ["run", "run", "run"]),
        (f"{RUNS}/sglang-0.5.11/incident", ["run"]),
        (f"{RUNS}/sglang-0.5.11/incident/server.log", ["log"]),
        ("data/drafts/specforge", ["checkpoint"]),
        ("data/drafts/specforge/model.safetensors", ["checkpoint"]),
        ("python -m sglang.launch_server --model-path m", ["launch"]),
    ],
)
def test_each_thing_is_recognised(thing: str, kinds: list[str]) -> None:
    assert [one.kind for one in recognise(thing)] == kinds


def test_the_launches_of_a_folder_are_in_the_order_of_time() -> None:
    names = [Path(one.place).name for one in recognise("data/incident/hang")]
    assert names == ["first-start", "capture-hang", "relaunch-graphs-off"]


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        ("wieghts", "workbench weights"),
        ("docter", "workbench doctor"),
        ("some/model", "the Hub is not asked"),
        ("http://10.0.0.1:30000", "asks no server"),
        ("localhost:9", "nothing on this machine listens on port 9"),
        ("docs", "holds nothing that is known"),
    ],
)
def test_what_is_not_here_is_never_looked_up(thing: str, says: str) -> None:
    with pytest.raises(WorkbenchError, match=says):
        workbench.doctor(thing)


def test_a_thing_in_the_place_of_a_verb_is_for_doctor() -> None:
    assert _with_verb(["data/drafts"]) == ["doctor", "data/drafts"]
    assert _with_verb(["diff", "x"]) == ["diff", "x"]
    assert _with_verb(["--version"]) == ["--version"]
    assert _with_verb([]) == []


def test_without_anything_it_lists_what_lies_here(root: Path) -> None:
    listed = around(root / "data" / "drafts")
    assert any("specforge  (checkpoint)" in line for line in listed)
    with pytest.raises(WorkbenchError, match="nothing was handed over"):
        workbench.doctor()


def test_a_replay_is_handed_on_where_the_served_copy_is_not_here() -> None:
    found = workbench.doctor(f"{RUNS}/sglang-0.5.11/incident")
    answered = next(one for one in found.answers if one.job == "replay")
    assert answered.ok is None
    assert "the served copy is not here" in answered.text
    assert "--evidence data/incident/runs/sglang-0.5.11/incident" in answered.text
    proved = workbench.doctor(f"{RUNS}/sglang-0.5.11/incident-eagle")
    assert "replay" not in {
        one.job for one in proved.answers
    }  # a cause is proved: there is no need
