"""A replay in a panel, and a choice of its ablations."""

from __future__ import annotations

import json

import pytest

import workbench
from tests.speculation.ablate.test_causes import HEALTHY, scaled, scene, tried
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.ablate.causes import judge, judge_part
from workbench.speculation.result import Replay

from ..conftest import ROOT

pytest.importorskip("torch")
INCIDENT = ROOT / "data" / "incident"


@pytest.fixture(scope="module")
def replayed() -> Replay:
    lines = (INCIDENT / "training/prompts.jsonl").read_text().splitlines()[:2]
    prompts = [json.loads(line)["ids"] for line in lines]
    draft = INCIDENT / "drafts/speculators"
    return workbench.replay(INCIDENT / "target", draft, prompts, new_tokens=8)


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
    assert panel.result.ok is None
    left_open = {item.name for item in panel.result.verdict.coverage.having("open", essential=True)}
    assert "decoder layer" in left_open  # what was not asked for is not settled
    assert "fc" not in left_open
    tried = {name for lift in panel.result.lifts for name in lift.switches} | set(panel.result.idle)
    assert tried == {"reload fc"}


def test_nothing_selected_is_a_message(replayed: Replay) -> None:
    controls = workbench.panel(replayed).controls()
    count = len(controls.session.follow_options())
    controls._follow_rows["only"].put(dict.fromkeys(range(count), False))  # type: ignore[arg-type]
    controls._follow_call.button.click()
    assert "nothing is selected" in controls._follow_call.message.value


# Made-up measurements: one change that restores all, one that restores a little.
ONE, LITTLE = tried(HEALTHY, "layer"), tried(scaled(0.3), "order")


def test_some_changes_alone_name_no_cause() -> None:
    found = scene(ONE, LITTLE)
    assert judge_part(found, ()) == judge(found)
    assert judge(found).ok is False
    part = judge_part(found, ("theta 10000", "no map"))
    assert (part.state, part.ok, part.facts) == ("cannot_tell", None, ())
    assert "2 other changes were not tried" in part.sentence
    assert "With layer changed the accept length is 2.40" in part.sentence
    assert part.nearest == "layer"
    assert part.missing
    assert any("theta 10000, no map" in text for text in part.evidence_against)
    assert "without only=" in part.next_step


def test_some_changes_alone_clear_nothing() -> None:
    sampled = scene(tried(HEALTHY, "greedy/sampling"))
    assert judge(sampled).state == "sampling"
    assert judge_part(sampled, ("theta 10000",)).state == "cannot_tell"


def test_what_no_change_decides_is_the_same_with_some_of_them() -> None:
    whole = scene(tried(HEALTHY, "layer", served=HEALTHY), served=HEALTHY)
    assert judge_part(whole, ("theta 10000",)) == judge(whole)
    assert judge(whole).ok is True


def test_a_change_that_is_not_known_is_refused_with_near_names(replayed: Replay) -> None:
    with pytest.raises(WorkbenchError, match="reload decoder layer"):
        replayed.ablate(only=["reload decoder layr"])
    with pytest.raises(WorkbenchError, match="list of changes is empty"):
        replayed.ablate(only=[])


def test_a_loaded_replay_has_nothing_to_ablate(replayed: Replay) -> None:
    loaded = Replay.from_dict(replayed.to_dict())
    assert workbench.panel(loaded).controls()._follow.layout.display == "none"
