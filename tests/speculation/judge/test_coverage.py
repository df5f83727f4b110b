"""What replays and ablations cover: without any one of their checks there is no all-clear."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.speculation.ablate.test_causes import BROKEN, HEALTHY, hint, scaled, scene, tried
from workbench.core.finding import Finding
from workbench.core.verdict import Coverage, Settled
from workbench.speculation.ablate import causes_coverage
from workbench.speculation.ablate.cause_records import CauseFacts
from workbench.speculation.ablate.causes import judge
from workbench.speculation.ablate.causes_coverage import AblationQuestion, answered
from workbench.speculation.evidence.tally import Agreement, Logged, Tally
from workbench.speculation.judge import coverage
from workbench.speculation.judge.counts import Counts
from workbench.speculation.judge.coverage import Proof, ReplayEvidence
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.judging import judge as judge_replay
from workbench.speculation.judge.texts import Texts
from workbench.speculation.judge.unmodelled import items as unmodelled

GOOD, FEWER = Tally((100, 100, 100, 100)), Tally((200, 100, 100))
WANTED = Expected(2.5, (0.7, 0.5, 0.3))
PLAIN = Texts((0.6, 0.8, 0.9), (), 4, "", 0.0)
ERROR = Finding("key_dropped", "error", "ten keys are dropped", changes_output=True)
MAYBE = Finding("rope_differs", "note", "other rotary positions", changes_output=True)


def of_prompts(**changes: Any) -> ReplayEvidence:
    """A replay of prompts: nothing but the replay itself has drafted."""
    made = ReplayEvidence(Counts(GOOD, None, None, WANTED, 3), texts=PLAIN)
    return dataclasses.replace(made, **changes)


def of_run(**changes: Any) -> ReplayEvidence:
    """A recorded run, drafted again."""
    counts = Counts(
        GOOD, GOOD, None, WANTED, 3, agreement=Agreement(400, 398, 390), real=True, deepest=3
    )
    return dataclasses.replace(ReplayEvidence(counts, texts=PLAIN), **changes)


def of_log() -> ReplayEvidence:
    """A log, and nothing to replay."""
    log = Logged(30, 2.5, 0.5, 2.2, 2.8, 2.3, 0.1)
    return ReplayEvidence(Counts(None, None, log, WANTED, 3))


# Each check with a healthy case in which something rests on it.
RESTS: dict[str, Callable[[], ReplayEvidence]] = {
    "amount": of_prompts,
    "repetition": of_prompts,
    "one_run": of_run,
    "acceptance": of_run,
    "reproduction": of_run,
    "log_lines": of_log,
    "faults": of_prompts,
    "folder": lambda: of_prompts(engine="sglang==0.5.14"),
}


def not_checked(found: Coverage) -> set[str]:
    return {item.how for item in found.having("open", essential=True)}


@pytest.mark.parametrize("check", coverage.CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_a_replay_clears_nothing(check: Any) -> None:
    healthy = RESTS[check.__name__]()
    assert coverage.covered(healthy).ok is True
    rest = [other for other in coverage.CHECKS if other is not check]
    left = coverage.covered(healthy, rest)
    assert left.ok is None
    assert not_checked(left) == {"not checked"}


@pytest.mark.parametrize("make", [of_prompts, of_run, of_log])
def test_without_checks_every_item_of_a_replay_is_open(
    make: Callable[[], ReplayEvidence],
) -> None:
    bare = coverage.covered(make(), ())
    assert bare.ok is None
    assert {item.state for item in bare.items} == {"open"}
    names = [(item.kind, item.name) for item in bare.items]
    assert len(set(names)) == len(names)


NESTED = Finding("speculators_config", "error", "SGLang does not read its config")


def test_a_folder_that_the_engine_refuses_is_wrong_whatever_its_flat_form_accepts() -> None:
    found = judge_replay(of_prompts(engine="sglang==0.5.14", refused=NESTED))
    assert (found.ok, found.verdict.state) == (False, "refused")
    assert NESTED.title in found.summary
    assert NESTED in found.findings


def test_whether_a_folder_is_refused_is_open_where_nobody_looked() -> None:
    found = coverage.covered(of_prompts(engine="sglang==0.5.14", unchecked="it has no profile"))
    assert found.ok is None


@pytest.mark.parametrize("make", [of_prompts, of_run])
def test_a_static_fault_is_open_where_nothing_undid_it(
    make: Callable[..., ReplayEvidence],
) -> None:
    found = coverage.covered(make(static=(ERROR,)))
    assert found.ok is None
    (item,) = (item for item in found.items if item.kind == "fault")
    assert (item.name, item.state, item.essential) == (ERROR.title, "open", True)


def test_a_fault_that_two_checks_found_is_one_item() -> None:
    mild = dataclasses.replace(ERROR, severity="note", code="another")
    found = coverage.covered(of_prompts(static=(mild, ERROR, mild)))
    (item,) = (item for item in found.items if item.kind == "fault")
    assert (item.state, item.essential, found.ok) == ("open", True, None)


def test_what_may_be_meant_so_is_settled_by_acceptance_as_expected() -> None:
    found = coverage.covered(of_prompts(static=(MAYBE,)))
    assert found.ok is True
    (item,) = (item for item in found.items if item.kind == "fault")
    assert (item.state, item.essential) == ("ok", False)
    assert "as expected" in item.how


def test_only_the_fault_that_was_undone_is_wrong() -> None:
    low = dataclasses.replace(of_prompts().counts, replayed=FEWER)
    other = dataclasses.replace(ERROR, title="fc is cut")
    proof = Proof(True, (ERROR.title,), "the keys renamed", 2.4)
    found = coverage.covered(of_prompts(counts=low, static=(other, ERROR), proof=proof))
    assert found.ok is False
    states = {item.name: item.state for item in found.items if item.kind == "fault"}
    assert states == {ERROR.title: "wrong", other.title: "open"}


def test_a_fault_that_was_undone_in_vain_accuses_nobody() -> None:
    low = dataclasses.replace(of_prompts().counts, replayed=FEWER)
    proof = Proof(False, (ERROR.title,), "the keys renamed", 1.1)
    found = coverage.covered(of_prompts(counts=low, static=(ERROR,), proof=proof))
    assert found.ok is False  # lost for certain, and not by this
    assert [item.kind for item in found.having("wrong")] == ["acceptance"]
    (item,) = (item for item in found.items if item.kind == "fault")
    assert "the acceptance length is 1.10" in item.how


@pytest.mark.parametrize(
    ("make", "ok"), [(of_prompts, None), (of_run, True)], ids=["prompts", "run"]
)
def test_static_checks_that_could_not_be_made_keep_a_replay_of_prompts_open(
    make: Callable[..., ReplayEvidence], ok: bool | None
) -> None:
    """A real engine's rounds are what they are; the replay's own rest on the loader being known."""
    judged = judge_replay(make(unchecked="the profile does not describe this config"))
    assert judged.ok is ok
    assert any("the profile does not describe" in text for text in judged.verdict.missing)


def test_the_sentence_names_the_open_item() -> None:
    judged = judge_replay(of_prompts(unchecked="the profile does not describe this config"))
    assert judged.verdict.state == "cannot_tell"
    assert "Cannot tell: files, config and launch of the draft" in judged.summary
    assert "does not describe this config" in judged.summary


@pytest.mark.parametrize(
    ("make", "ok", "state", "sure"),
    [(of_run, True, "as_expected", "likely"), (of_log, True, "as_expected", "likely")],
)
def test_an_all_clear_says_what_would_overturn_it(
    make: Callable[[], ReplayEvidence], ok: bool, state: str, sure: str
) -> None:
    verdict = judge_replay(make()).verdict
    assert (verdict.ok, verdict.state, verdict.confidence) == (ok, state, sure)
    assert verdict.overturned_by


# -- fields of the config ------------------------------------------------------------------------


def test_a_field_that_changes_the_computation_is_open() -> None:
    found = list(unmodelled({"hidden_act": "gelu", "hidden_size": 8}, essential=True))
    assert [item.name for item in found] == ["hidden_act of the draft's config.json"]
    assert "computes with 'silu'" in found[0].how
    assert coverage.covered(of_prompts(fields=tuple(found))).ok is None
    # What a real engine accepted is accepted, with whatever it read.
    mild = tuple(unmodelled({"hidden_act": "gelu"}, essential=False))
    assert coverage.covered(of_run(fields=mild)).ok is True


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_act": "silu"},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"sliding_window": None},
        {"initializer_range": 0.02},
        {"mlp_bias": None},
    ],
)
def test_a_field_at_its_usual_value_is_no_item(config: dict[str, Any]) -> None:
    assert not list(unmodelled(config, essential=True))


def test_fields_that_are_not_known_are_one_item() -> None:
    config = {f"own_{n}": n for n in range(9)} | {"hidden_size": 8}
    (item,) = unmodelled(config, essential=True)
    assert (item.count, item.essential) == (9, False)
    assert item.name.endswith("own_5 and 3 more")


# -- ablations -----------------------------------------------------------------------------------


def question(facts: CauseFacts, **changes: Any) -> AblationQuestion:
    """All switches of the scene, tried; and one that changes nothing."""
    catalogue: dict[str, tuple[str, ...]] = {"fc": ("reload fc",)}
    for one in facts.singles:
        (switch,) = one.switches
        catalogue[switch.fact] = (*catalogue.get(switch.fact, ()), switch.name)
    made = AblationQuestion(facts, judge(facts), catalogue, ("reload fc",))
    return dataclasses.replace(made, **changes)


def healthy(**changes: Any) -> AblationQuestion:
    facts = scene(tried(HEALTHY, "layer", served=HEALTHY), served=HEALTHY)
    return question(dataclasses.replace(facts, observed=2.4, agreement=0.99), **changes)


@pytest.mark.parametrize("check", causes_coverage.CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_ablations_clear_nothing(check: Any) -> None:
    asked = healthy(replayed_ok=True)
    if check.__name__ == "faults":  # a recorded run is what it is, whatever a file says
        asked = question(scene(tried(HEALTHY, "layer", served=HEALTHY), served=HEALTHY))
    assert causes_coverage.covered(asked).ok is True
    rest = [other for other in causes_coverage.CHECKS if other is not check]
    left = causes_coverage.covered(asked, rest)
    assert left.ok is None
    assert not_checked(left) == {"not checked"}


def test_a_healthy_pair_is_cleared_with_everything_tried() -> None:
    cause, verdict = answered(healthy())
    assert (cause.state, verdict.ok, verdict.missing) == ("healthy", True, ())
    (layer,) = (item for item in verdict.coverage.items if item.name == "layer")
    assert layer.state == "ok"


def test_a_switch_that_was_left_out_keeps_the_answer_open() -> None:
    asked = healthy(left="interrupted")
    catalogue = {**asked.catalogue, "fc order": ("fc order 2 1", "fc order 1 2")}
    cause, verdict = answered(dataclasses.replace(asked, catalogue=catalogue))
    assert verdict.ok is None
    assert cause.state == verdict.state == "cannot_tell"
    assert verdict.missing == ("fc order: 2 of 2 not tried (interrupted)",)
    assert verdict.sentence.startswith("Cannot tell: fc order: 2 of 2")
    assert "Nothing is lost" in verdict.sentence


def test_what_cannot_be_tried_here_is_listed_and_decides_nothing() -> None:
    _, verdict = answered(healthy(beyond={"layer": "other layers are not known"}))
    assert verdict.ok is True
    assert verdict.missing == ("layer: other layers are not known",)


def test_the_cause_is_wrong_and_what_it_is_about_too() -> None:
    asked = question(scene(tried(HEALTHY, "layer"), tried(BROKEN, "order"), hints=[hint("layer")]))
    _, verdict = answered(asked)
    assert (verdict.ok, verdict.state) == (False, "found")
    wrong = {(item.kind, item.name) for item in verdict.coverage.having("wrong")}
    assert wrong == {
        causes_coverage.ACCEPTANCE, ("change", "layer"), ("fault", "layer is lost"),
    }  # fmt: skip
    assert verdict.overturned_by


@pytest.mark.parametrize(
    ("share", "state", "ok"), [(0.0, "ok", True), (0.01, "ok", True), (0.2, "open", None)]
)
def test_a_static_fault_is_settled_by_undoing_it(share: float, state: str, ok: bool | None) -> None:
    """Nothing is lost, and a fault is known: it costs nothing, or undoing it accepts more."""
    more = tuple(value * (1 + share) for value in HEALTHY)
    one = tried(more, "order", served=HEALTHY)
    facts = scene(one, served=HEALTHY, hints=[hint("order")])
    found = causes_coverage.covered(question(facts))
    (item,) = (item for item in found.items if item.kind == "fault")
    assert (item.state, found.ok) == (state, ok)


@pytest.mark.parametrize(
    ("served", "state", "how"),
    [(HEALTHY, "ok", "as expected with it"), (BROKEN, "open", "none of the changes undoes it")],
)
def test_a_static_fault_that_nothing_undid_is_settled_by_acceptance(
    served: tuple[float, ...], state: str, how: str
) -> None:
    facts = scene(tried(served, "layer", served=served), served=served, hints=[hint("order")])
    _, verdict = answered(question(facts))
    (item,) = (item for item in verdict.coverage.items if item.kind == "fault")
    assert (item.state, verdict.ok) == (state, state == "ok")
    assert how in item.how


@pytest.mark.parametrize("replayed_ok", [True, None, False])
def test_ablations_never_contradict_their_replay(replayed_ok: bool | None) -> None:
    accusing = question(scene(tried(HEALTHY, "layer")), replayed_ok=replayed_ok)
    for asked in (accusing, healthy(replayed_ok=replayed_ok)):
        cause, verdict = answered(asked)
        assert {verdict.ok, replayed_ok} != {True, False}
        if replayed_ok is None or asked.cause.ok is replayed_ok:
            assert verdict.ok is asked.cause.ok
        else:
            assert (verdict.ok, cause.state, cause.facts) == (None, "cannot_tell", ())
            assert "the replay and its ablations disagree" in verdict.sentence
            assert verdict.coverage.count("wrong") == 0
    # The change that restored it is still named, as the nearest.
    cause, _ = answered(dataclasses.replace(accusing, replayed_ok=True))
    assert cause.nearest == "layer"


def test_texts_that_are_refused_leave_every_switch_open() -> None:
    loops = Texts((0.1, 0.1, 0.1), tuple(range(50)), 60, "50 of 60 answers repeat themselves", 0.0)
    facts = dataclasses.replace(scene(), texts=loops)
    asked = AblationQuestion(facts, judge(facts), left="the texts are no evidence")
    _, verdict = answered(asked)
    assert (verdict.ok, verdict.state) == (None, "refused")
    assert sum(item.kind == "change" for item in verdict.coverage.items) == 1


def test_a_sampled_text_is_no_fault_and_no_proof_of_health() -> None:
    asked = question(scene(tried(HEALTHY, "temperature 0/sampling"), tried(scaled(0.2), "order")))
    cause, verdict = answered(asked)
    assert (verdict.ok, verdict.state, verdict.confidence) == (None, "sampling", "unknown")
    assert cause.facts == ("sampling",)
    assert any("which target answered them" in text for text in verdict.missing)


def test_checks_settle_only_what_is_listed() -> None:
    """What a check adds would be an item that nobody enumerated."""
    for made in (of_prompts(static=(ERROR, MAYBE)), of_run(), of_log()):
        listed = {(item.kind, item.name) for item in coverage.items(made)}
        assert {key(one) for check in coverage.CHECKS for one in check(made)} <= listed
    for asked in (healthy(), question(scene(tried(HEALTHY, "layer"), hints=[hint("layer")]))):
        listed = {(item.kind, item.name) for item in causes_coverage.items(asked)}
        settled = {key(one) for check in causes_coverage.CHECKS for one in check(asked)}
        assert settled <= listed


def key(settled: Settled) -> tuple[str, str]:
    return settled.kind, settled.name


@pytest.mark.parametrize(("share", "ok"), [(0.85, True), (0.849, None)])
def test_a_recorded_run_counts_where_the_replay_does_the_same(
    share: float, ok: bool | None
) -> None:
    """Also where nobody recorded an acceptance that could be called not reproduced."""
    asked = healthy()
    facts = dataclasses.replace(asked.facts, observed=None, agreement=share)
    cause, verdict = answered(question(facts))
    assert verdict.ok is ok
    assert cause.state == ("healthy" if ok else "cannot_tell")
