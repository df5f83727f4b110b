"""The widgets in this process: values are set, buttons clicked, threads waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.errors import WorkbenchError
from workbench.panels.controls import Controls
from workbench.panels.fields import Checklist
from workbench.panels.forms import Field, Option
from workbench.panels.opening import Panel

from ..conftest import ROOT

CASE = str(ROOT / "data/incident/hang/capture-hang")
DRAFT = str(ROOT / "data/drafts/speculators")


def put(controls: Controls, **values: Any) -> None:
    for name, value in values.items():
        controls.rows[name].input.value = value


def finish(panel: Panel) -> None:
    assert panel.wait(120)


def test_a_panel_attaches_to_nothing_and_reads_nothing_by_itself() -> None:
    panel = workbench.panel(CASE)
    controls = panel.controls()
    assert panel.result is None
    assert not controls.session.is_running
    assert controls._call.code.value == f"<pre>workbench.open_evidence(&#x27;{CASE}&#x27;)</pre>"
    assert controls._call.button.description == "Open case"


def test_the_button_runs_the_call_and_the_result_is_the_panels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another test's server, started at this moment, would be offered and chosen.
    monkeypatch.setattr(
        "workbench.hang.collect.collector.servers.find_servers", lambda everyone: []
    )
    panel = workbench.panel()
    controls = panel.controls()
    assert controls._call.copy.disabled  # nothing to run yet, so nothing to copy
    put(controls, path=CASE)
    assert panel.code == f"workbench.open_evidence({CASE!r})"
    assert controls.rows["snapshots"].input.disabled
    controls._call.button.click()
    finish(panel)
    controls.update()
    assert panel.result is not None
    assert panel.result.state == "hung"  # type: ignore[attr-defined]
    assert panel.results == (panel.result,)
    assert "Done in" in controls._call.status.value
    assert controls._call.stop.disabled
    assert not controls._call.button.disabled


def test_what_is_missing_is_shown_as_a_message() -> None:
    controls = workbench.panel("keys").controls()
    controls._call.button.click()
    assert "checkpoint is missing" in controls._call.message.value
    assert "Next:" in controls._call.message.value
    put(controls, ckpt=DRAFT)
    assert "engine is missing" in controls._call.code.value


def test_the_engine_is_a_choice_of_known_releases_or_any_text() -> None:
    controls = workbench.panel("keys").controls()
    assert "sglang==0.5.11" in controls.rows["model"].input.options
    put(controls, ckpt=DRAFT, model="sglang==0.5.8:LlamaForCausalLMEagle3")
    assert "LlamaForCausalLMEagle3" in controls._call.code.value


def test_each_job_keeps_its_values_and_its_result() -> None:
    panel = workbench.panel(CASE)
    controls = panel.controls()
    controls._call.button.click()
    finish(panel)
    controls._jobs.value = "weights"
    put(controls, ckpt="somewhere", sample="0.05")
    controls._jobs.value = "hang"
    assert controls.rows["path"].input.value == CASE
    controls._jobs.value = "weights"
    assert controls.rows["sample"].input.value == "0.05"
    assert "wb-panel-weights" in controls.root._dom_classes
    assert "wb-panel-hang" not in controls.root._dom_classes
    assert controls._call.status.value == ""  # the run was another job's


def test_what_is_heard_late_stays_with_its_own_job() -> None:
    controls = workbench.panel("keys").controls()
    target = controls.rows["target"].input
    controls._jobs.value = "replay"
    target.value = "typed before the job was changed"  # both jobs have a field of this name
    assert controls.session.values["keys"]["target"] == "typed before the job was changed"
    assert controls.session.values["replay"]["target"] == ""


def test_a_repaired_copy_follows_a_diff(tmp_path: Path) -> None:
    panel = workbench.panel(DRAFT)
    controls = panel.controls()
    assert controls._follow.layout.display == "none"
    put(controls, model="sglang==0.5.8")
    controls._call.button.click()
    finish(panel)
    controls.update()
    assert controls._follow.layout.display is None
    row = controls._follow_rows["out"]
    row.input.value = str(tmp_path / "copy")  # type: ignore[union-attr]
    assert "fix_checkpoint" in controls._follow_call.code.value
    controls._follow_call.button.click()
    finish(panel)
    assert [result.ok for result in panel.results] == [False, True]  # type: ignore[attr-defined]


def test_keys_of_the_page_bring_the_values_they_were_pressed_with() -> None:
    panel = workbench.panel()
    controls = panel.controls()
    # As panel.js sends them: texts of the inputs, numbers of the chosen options, states of the boxes.
    values = {
        "path": CASE,
        "server": 0,
        "snapshots": "3",
        "interval": "",
        "native": True,
        "other": 1,
    }
    controls._heard("run", {"keys": {"target": "of another job"}})
    assert not controls.session.is_running
    controls._heard("run", {"hang": values})
    finish(panel)
    assert panel.result is not None
    assert controls.session.values["hang"]["snapshots"] == 3
    assert (
        controls.session.values["hang"]["interval"] == 30.0
    )  # what is no number is left as it was
    assert controls.session.values["hang"]["native"] is True


def test_a_checklist_ticks_all_none_and_by_number() -> None:
    heard: list[tuple[Any, ...]] = []
    options = [Option("one", 1, "a"), Option("two", 2, "a"), Option("three", 3, "b")]
    field = Field("only", "Changes", "checklist", ())
    listed = Checklist(field, options, (1, 2, 3), lambda name, value: heard.append(value))
    listed.put({0: False})
    assert heard == [(2, 3)]
    every, none = listed.box.children[0].children[1:]
    none.click()
    assert listed.value == ()
    every.click()
    assert heard[1:] == [(), (1, 2, 3)]


@pytest.mark.parametrize(
    ("thing", "form", "field"),
    [
        (CASE, "hang", "path"),
        (str(ROOT / "data/incident/hang/first-start/server.log"), "hang", "path"),
        (DRAFT, "keys", "ckpt"),
        (f"{DRAFT}/model.safetensors", "keys", "ckpt"),
        (Path(DRAFT), "keys", "ckpt"),
        ("someone/some-draft", "keys", "ckpt"),
        ("http://127.0.0.1:30000", "weights", "ckpt"),
        (4711, "hang", "server"),
    ],
)
def test_what_is_given_opens_the_form_that_fits(thing: Any, form: str, field: str) -> None:
    session = workbench.panel(thing)._session
    assert session.form.name == form
    expected = thing if isinstance(thing, int) else str(thing)
    assert session.values[form][field] == expected


@pytest.mark.parametrize("thing", ["/nowhere/at/all.zip", 3.5, True, ["a"]])
def test_what_fits_nothing_is_refused(thing: Any) -> None:
    with pytest.raises(WorkbenchError) as caught:
        workbench.panel(thing)
    assert caught.value.next_step


def test_a_saved_result_opens_its_form_with_the_result(tmp_path: Path) -> None:
    found = workbench.diff_keys(DRAFT, "sglang==0.5.8")
    panel = workbench.panel(found.save(tmp_path / "diff.json"))
    assert panel.result is not None
    assert panel.result.to_json() == found.to_json()
    controls = panel.controls()
    assert controls._follow.layout.display is None
    controls._follow_rows["out"].input.value = "copy"  # type: ignore[union-attr]
    assert "fix_checkpoint" in controls._follow_call.code.value


def test_in_a_terminal_a_panel_is_text() -> None:
    panel = workbench.panel(CASE)
    assert "not run yet" in repr(panel)
    assert "workbench.open_evidence(" in repr(panel)
