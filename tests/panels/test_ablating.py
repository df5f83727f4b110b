"""A replay in a panel, and a choice of its ablations."""

from __future__ import annotations

import pytest

import workbench
from workbench.errors import WorkbenchError
from workbench.speculation.ablations import Ablations
from workbench.speculation.result import Replay

from ..conftest import ROOT

pytest.importorskip("torch")
INCIDENT = ROOT / "data" / "incident"


@pytest.fixture(scope="module")
def replayed() -> Replay:
    return workbench.replay(
        INCIDENT / "target",
        INCIDENT / "drafts/speculators",
        evidence=INCIDENT / "runs/sglang-0.5.14/d2t-absolute",
        expected=2.5,
        requests=8,
        engine="trainer",
    )


def test_a_replay_opens_the_list_of_its_ablations(replayed: Replay) -> None:
    panel = workbench.panel(replayed)
    controls = panel.controls()
    names = [option.value for option in controls.session.follow_options()]
    assert "reload decoder layer" in names
    assert "result.ablate()" in controls._follow_call.code.value  # all are selected: none is named
    listed = controls._follow_rows["only"]
    listed.put({at: name == "reload fc" for at, name in enumerate(names)})  # type: ignore[arg-type]
    assert "only=[&#x27;reload fc&#x27;]" in controls._follow_call.code.value
    controls._follow_call.button.click()
    assert panel.wait(300)
    assert isinstance(panel.result, Ablations)
    assert [one.result for one in controls.session.ended["replay"]] == [replayed, panel.result]
    tried = {name for lift in panel.result.lifts for name in lift.switches} | set(panel.result.idle)
    assert tried == {"reload fc"}


def test_nothing_selected_is_a_message(replayed: Replay) -> None:
    controls = workbench.panel(replayed).controls()
    count = len(controls.session.follow_options())
    controls._follow_rows["only"].put(dict.fromkeys(range(count), False))  # type: ignore[arg-type]
    controls._follow_call.button.click()
    assert "no change is selected" in controls._follow_call.message.value


def test_some_changes_alone_name_no_cause(replayed: Replay) -> None:
    found = replayed.ablate(only=["layers -1", "layers +1"])
    if found.verdict.state == "healthy":
        pytest.fail("this evidence loses acceptance: the test would show nothing")
    assert found.ok is None
    assert found.verdict.missing
    assert "ablate() without only=" in found.verdict.next_step


def test_a_change_that_is_not_known_is_refused_with_near_names(replayed: Replay) -> None:
    with pytest.raises(WorkbenchError, match="reload decoder layer"):
        replayed.ablate(only=["reload decoder layr"])
    with pytest.raises(WorkbenchError, match="only is empty"):
        replayed.ablate(only=[])


def test_a_loaded_replay_has_nothing_to_ablate(replayed: Replay) -> None:
    loaded = Replay.from_dict(replayed.to_dict())
    assert workbench.panel(loaded).controls()._follow.layout.display == "none"
