"""Ablations of the shipped pair: switches, measuring, texts, expectations, and the result."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.speculation.faults import evidence
from tests.speculation.faults.cases import CASES, Case
from tests.speculation.faults.faults import (
    INCIDENT,
    NEW,
    OLD,
    Fault,
    absolute,
    blocks,
    exchanged,
    halves,
    listed,
    lost,
    neighbours,
    renamed,
    said,
    write,
    zeros,
)
from workbench.checkpoint.open import open_checkpoint
from workbench.core.saving import load
from workbench.display import static_html
from workbench.errors import WorkbenchError
from workbench.speculation.ablate import single_changes as bench
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.ablate.single_changes import ablate
from workbench.speculation.ablate.static_checks import check
from workbench.speculation.ablate.switches import alike, base, catalogue, same, turned
from workbench.speculation.evidence.observed import read_run
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.measuring import measure, summed, walked
from workbench.speculation.judge.texts import describe, distinct, repeats
from workbench.speculation.judge.trial import Trial
from workbench.speculation.rounds.run import replay_rounds, run_freely

REQUESTS = 8


def trial_of(folder: Path, *changes, engine: str = NEW, algorithm: str = "EAGLE3") -> Trial:
    fault = Fault("one", "", changes, frozenset(), engine, algorithm)
    return evidence.of_fault(fault, folder, REQUESTS)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> Trial:
    return trial_of(tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> tuple[Trial, Ablations]:
    trial = trial_of(tmp_path_factory.mktemp("broken"), blocks((2, 1, 0)))
    return trial, ablate(trial)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- switches ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "engine", "switch"),
    [
        ([], OLD, "reload decoder layer"),
        ([renamed("layers.0.", "draft_model.layers.0.")], NEW, "reload decoder layer"),
        ([renamed("fc.", "draft_model.fc.")], NEW, "reload fc"),
        ([renamed("norm.", "draft_model.norm.")], NEW, "reload last norm"),
        ([blocks((2, 1, 0))], NEW, "fc order 3 2 1"),
        ([blocks((1, 2, 0))], NEW, "fc order 3 1 2"),
        ([exchanged("mlp.gate_proj", "mlp.up_proj")], NEW, "exchange gate and up"),
        ([exchanged("hidden_norm", "input_layernorm")], NEW, "exchange entry norms"),
        ([absolute], NEW, "d2t as ids"),
        ([zeros], NEW, "map from t2d"),
        ([listed(2, 6, 9)], NEW, "layers -1"),
        ([listed(2, 6, 9)], NEW, "layers of the config"),
        ([said(norm_output=True)], NEW, "norm_output off"),
        ([said(fc_norm=True)], NEW, "fc_norm off"),
        ([said(rope_parameters={"rope_theta": 50.0, "rope_type": "default"})], NEW, "theta 10000"),
        (
            [said(rope_parameters={"rope_theta": 1e4, "rope_type": "linear", "factor": 8.0})],
            NEW,
            "no rotary scaling",
        ),
    ],
)
def test_a_switch_undoes_the_fault_that_a_file_has(tmp_path, healthy, changes, engine, switch):
    trial = trial_of(tmp_path, *changes, engine=engine)
    states = {
        name: state
        for found, state in turned(catalogue(trial, describe(trial.trace)), base(trial))[0]
        for name in (found.name, *found.same)
    }
    state, good = states[switch], base(healthy)
    weights = {n: t for n, t in state.draft.tensors.items() if not n.startswith("fc_norm")}
    assert not same(base(trial), good)
    assert alike(weights, good.draft.tensors)
    assert torch.equal(state.draft.to_target, good.draft.to_target)
    assert state.driving.aux == good.driving.aux
    assert state.draft.settings == good.draft.settings


def test_switches_of_weights_that_cannot_be_written_back_compute_the_same(tmp_path, healthy):
    wanted = measure(base(healthy), "places").deep
    for changes, switch in (
        ((halves,), "hidden before embedding"),
        ((neighbours,), "other rotary pairs"),
    ):
        trial = trial_of(tmp_path / switch, *changes)
        named = {s.name: s for s in catalogue(trial, describe(trial.trace))}
        broken = measure(base(trial), "places")
        mended = measure(named[switch].apply(base(trial)), "places")
        # The order of sums differs, so a near-tie may fall otherwise.
        assert np.abs(mended.deep - wanted).sum() <= 0.01 * wanted.sum()
        assert broken.deep.sum() < 0.7 * wanted.sum()


def test_launched_as_eagle_is_undone_whole(tmp_path, healthy):
    trial = trial_of(tmp_path, algorithm="EAGLE")
    kept, _ = turned(catalogue(trial, describe(trial.trace)), base(trial))
    state = next(state for switch, state in kept if switch.name == "launch as EAGLE3")
    assert same(state, base(healthy))
    assert not any(switch.fact in ("auxiliary layers", "lm_head reload") for switch, _ in kept)


def test_a_healthy_pair_has_idle_switches_and_none_that_come_to_the_same(healthy):
    kept, idle = turned(catalogue(healthy, describe(healthy.trace)), base(healthy))
    assert {"reload decoder layer", "d2t as offsets", "usual layers", "clean draft cache"} <= {
        *idle
    }
    states = [state for _, state in kept]
    assert not any(same(a, b) for n, a in enumerate(states) for b in states[:n])
    assert not any(same(state, base(healthy)) for state in states)


def test_other_layers_that_are_not_known_are_left_alone(healthy):
    kept = {k: healthy.trace.inputs[k] for k in (2, 6, 9)}
    trace = healthy.trace.__class__(**{**vars(healthy.trace), "inputs": kept})
    trial = healthy.replaced(trace=trace)
    names = {s.name for s, _ in turned(catalogue(trial, describe(trace)), base(trial))[0]}
    assert not any(name.startswith("layers") for name in names)


# -- measuring -----------------------------------------------------------------------------------


def test_rounds_are_walked_out_of_all_places(healthy):
    state = base(healthy)
    free = summed(run_freely(state.draft, state.driving, state.trace), REQUESTS, 4)
    walk = measure(state, "rounds")
    assert np.array_equal(free.deep, walk.deep)
    assert np.array_equal(free.rounds, walk.rounds)
    assert free.rank == walk.rank
    assert free.reciprocal == pytest.approx(walk.reciprocal)
    places = measure(state, "places")
    assert places.rounds.sum() > walk.rounds.sum()
    assert walk.accept_length < places.accept_length  # rounds begin at the harder places


def test_drafted_keys_that_stay_are_counted_round_after_round(healthy):
    state = base(healthy)
    stale = dataclasses.replace(state, driving=state.driving.replaced(refreshed=False))
    free = summed(run_freely(stale.draft, stale.driving, stale.trace), REQUESTS, 4)
    found = measure(stale, "rounds")
    assert np.array_equal(free.deep, found.deep)
    assert found.accept_length < measure(state, "rounds").accept_length
    # From every place there is no round before, and so nothing that could stay.
    assert np.array_equal(measure(stale, "places").deep, measure(state, "places").deep)


def test_a_walk_begins_where_the_last_round_ended(healthy):
    state = base(healthy)
    starts = [list(range(p + 1, p + 12)) for p in healthy.trace.prompts.tolist()]
    every = replay_rounds(state.draft, state.driving, state.trace, starts)
    kept = every.rows(walked(every))
    for request in range(REQUESTS):
        rows = kept.rows(kept.request == request)
        assert rows.prefix[0] == starts[request][0]
        assert np.array_equal(rows.prefix[1:], (rows.prefix + rows.accepted + 1)[:-1])


# -- texts and expectations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "loops"),
    [
        ([1, 2, 3] * 12, True),
        ([5] * 30, True),
        ([*range(30), *([7, 8] * 12)], True),
        (list(range(40)), False),
        ([*([7, 8] * 12), *range(100, 130)], False),
        ([1, 1, 1, 1], False),
        (([1, 2, 3, 4, 5, 6, 7, 8, 9, 9] * 8)[:70], True),
    ],
)
def test_loops(answer, loops):
    assert repeats(answer) is loops


def test_distinct():
    assert distinct([1, 2, 1, 2, 1], 2) == 0.5
    assert distinct([1], 2) == 1.0


def test_a_looping_text_is_refused_and_a_few_loops_are_left_out(tmp_path):
    trial = trial_of(tmp_path, engine=OLD)
    refused = ablate(trial.replaced(trace=evidence.looping(6)))
    assert refused.cause.state == "refused"
    assert refused.ok is None
    assert not refused.lifts
    assert describe(evidence.looping(3)).refused
    assert not describe(trial.trace).refused
    assert describe(trial.trace).other < 0.05


def test_sampled_texts_are_seen():
    assert describe(evidence.sampled(4, 20)).sampled


def test_the_trainer_promises():
    found = Expected.of_training(evidence.METRICS, 4)
    assert found.counted == "places"
    assert found.accept_length == pytest.approx(2.5591)
    two = Expected.of_training({"val/full_acc_0": 0.8, "val/full_acc_1": 0.5, "coverage": 0.9}, 4)
    assert two.accept_length == pytest.approx(1 + 0.9 * 1.3)
    assert "2 of 4 positions" in two.source
    assert "coverage 0.900" in two.source
    none = Expected.of_training({"eval": {"full_acc_0": 0.8}}, 1)
    assert none.accept_length == pytest.approx(1.8)
    assert "too high" in none.source


def test_the_trainer_promises_in_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"full_acc_0": 0.1}\n{"loss": 2}\n{"full_acc_0": 0.7}\n')
    assert Expected.of_training(path, 3).per_position == (0.7,)


@pytest.mark.parametrize("content", ["[]", "{}", "x", '{"full_acc_0": 7}', '{"full": [true]}'])
def test_metrics_that_promise_nothing(tmp_path, content):
    path = tmp_path / "metrics.json"
    path.write_text(content)
    with pytest.raises(WorkbenchError, match="does not hold an acceptance"):
        Expected.of_training(path, 4)


def test_an_expectation_by_hand():
    assert Expected.given(2.4).accept_length == 2.4
    for nothing in (1.0, 0.2, float("nan")):
        with pytest.raises(WorkbenchError, match="is not between 1 and"):
            Expected.given(nothing)


def test_a_healthy_run_as_expectation():
    run = read_run(evidence.HEALTHY).some(40)
    found = Expected.of_run(run)
    assert found.accept_length == pytest.approx(1 + sum(found.per_position), abs=1e-9)
    assert 2.3 < found.accept_length < 2.5


# -- static checks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "engine", "algorithm", "fact"),
    [
        ([], OLD, "EAGLE3", "decoder layer"),
        ([], NEW, "EAGLE", "launch"),
        ([lost("lm_head.weight")], NEW, "EAGLE3", "lm_head"),
        ([absolute], NEW, "EAGLE3", "draft vocabulary"),
        ([listed(2, 6, 9)], NEW, "EAGLE3", "auxiliary layers"),
        ([said(fc_norm=True)], NEW, "EAGLE3", "fc_norm"),
        (
            [said(rope_parameters={"rope_theta": 50.0, "rope_type": "default"})],
            NEW,
            "EAGLE3",
            "rotary positions",
        ),
    ],
)
def test_static_checks_suspect_the_fact(tmp_path, changes, engine, algorithm, fact):
    trial = trial_of(tmp_path, *changes, engine=engine, algorithm=algorithm)
    assert fact in {hint.fact for hint in check(trial)}


def test_static_checks_suspect_nothing_of_a_healthy_draft(healthy):
    assert not [hint for hint in check(healthy) if hint.sure and hint.fact]


# -- the result ----------------------------------------------------------------------------------


def test_the_cause_is_found_without_being_told(broken):
    result = broken[1]
    assert result.cause.state == "found"
    assert result.ok is False
    assert not result
    assert result.cause.facts == ("fc order",)
    assert result.cause.switches == ("fc order 3 2 1",)
    best = result["fc order 3 2 1"]
    assert best.restored == pytest.approx(1.0, abs=0.1)
    assert best.profile is True
    assert result.findings[0].code == "cause_found"
    assert result.findings[0].experiment is not None
    assert result.lifts[0] == best
    assert max(lift.restored for lift in result.lifts[1:]) < 0.8
    with pytest.raises(KeyError):
        result["no such switch"]


def test_the_result_survives_its_file(broken, tmp_path):
    result = broken[1]
    again = load(result.save(tmp_path / "a.json"))
    assert again == result
    assert again.verdict == result.verdict
    assert again.cause == result.cause
    assert len(list(result.rows())) == 1 + len(result.lifts) + len(result.pairs)
    assert result.to_pandas()["change"].iloc[0] == "as served"


def test_text_and_payload(broken):
    result = broken[1]
    text = result.to_text(80)
    assert max(map(len, text.splitlines())) <= 80
    assert "The cause is the fc order" in text
    assert "as served" in text
    data = result.payload()
    json.dumps(data, allow_nan=False)
    bars = {bar["name"]: bar for bar in data["bars"]}
    assert bars["fc order 3 2 1"]["cause"]
    assert len(bars["fc order 3 2 1"]["per_position"]) == 4
    assert sum(bar["cause"] for bar in data["bars"]) == 1
    small = result.payload(3000)
    assert small["left_out"] == len(data["bars"]) - len(small["bars"]) > 0
    assert small["bars"][1]["cause"]


def test_without_a_script_the_changes_are_listed(broken):
    result = broken[1]
    lift = result["fc order 3 2 1"]
    page = static_html.static(result)
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert re.search(
        rf"ok\s+fc order 3 2 1 .* {lift.accept_length:.2f} \s* {lift.restored:.0%} restored", text
    )
    assert "as served" in text
    assert f"{result.expected.accept_length:.2f} by" in text
    assert result.idle[0] in text
    assert "Overturned by" in text
    evil = dataclasses.replace(lift, switches=("<img src=x onerror=y>",))
    hostile = dataclasses.replace(result, lifts=(evil,), pairs=(evil,))
    assert "<img src=x" not in static_html.static(hostile)


def test_where_room_is_short_the_cause_stays(broken):
    result = broken[1]
    first, second = (lift.switches[0] for lift in result.lifts[:2])
    pair = dataclasses.replace(result.lifts[0], switches=(first, second))
    cause = dataclasses.replace(result.cause, switches=pair.switches)
    two = dataclasses.replace(result, pairs=(pair,), cause=cause)
    kept = two.payload(1)["bars"]
    assert [bar["name"] for bar in kept] == ["as served", pair.name]


def test_an_interrupted_run_says_so(broken, monkeypatch):
    trial, count = broken[0], 0

    def stop(state, counted):
        nonlocal count
        count += 1
        if count > 4:
            raise KeyboardInterrupt
        return measure(state, counted)

    monkeypatch.setattr(bench, "measure", stop)
    result = ablate(trial)
    assert len(result.lifts) == 3
    assert any("interrupted" in note for note in result.notes)
    assert result.ok is not True
    assert result.cause.state == "cannot_tell"  # what was not tried may restore more
    assert any(text.startswith("not tried: ") for text in result.cause.evidence_against)


def test_without_expectation_lifts_alone(broken):
    result = ablate(broken[0].replaced(expected=None).some([0, 1]), pairs=False)
    assert result.cause.state == "no_expectation"
    assert result.ok is None
    assert result.cause.nearest == "fc order 3 2 1"
    assert all(lift.restored is None for lift in result.lifts)
    assert Ablations.from_dict(json.loads(result.to_json())) == result


def test_a_healthy_draft_is_not_accused(healthy):
    result = ablate(healthy)
    assert result.cause.state == "healthy"
    assert result.ok is True
    assert bool(result)


def test_three_requests_do_not_tell_a_loss_from_chance(broken):
    few = ablate(broken[0].some([0, 1, 2]), pairs=False)
    assert few.cause.state == "cannot_tell"
    assert "too few" in few.summary


def test_the_incident_from_the_recorded_run_alone(tmp_path):
    trial = Trial.of_run(
        read_run(INCIDENT / "runs" / "sglang-0.5.11" / "incident").some(REQUESTS),
        evidence.target(),
        INCIDENT / "drafts" / "speculators",
        expected=Expected.of_training(evidence.METRICS, 4),
    )
    result = ablate(trial)
    assert result.cause.state == "found"
    assert result.cause.facts == ("decoder layer",)
    assert result.observed == 1.0
    assert result.agreement > 0.9
    assert result.cause.confidence == "certain"


def test_every_case_has_a_name_of_its_own():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    kinds = [case.kind for case in CASES]
    assert kinds.count("single") >= 16
    assert kinds.count("pair") >= 8
    assert all(isinstance(case, Case) and (case.facts or case.kind != "pair") for case in CASES)


def test_written_faults_are_files(tmp_path):
    folder = write((blocks((2, 1, 0)),), tmp_path / "x")
    assert open_checkpoint(folder)["fc.weight"].shape == (256, 768)


def test_recorded_features_without_their_target_are_ablated(broken):
    trial = broken[0]
    joined = trial.trace.features((2, 6, 9))
    trace = dataclasses.replace(
        trial.trace, target=None, choices=None, final=None, cache=(), inputs={0: joined}
    )
    driving = trial.driving.replaced(aux=(0,), extend="block")
    result = ablate(trial.replaced(target=None, trace=trace, driving=driving), pairs=False)
    assert result.cause.facts == ("fc order",)
    assert not any(name.startswith("layers") for lift in result.lifts for name in lift.switches)


def test_a_head_that_is_nowhere_is_named_by_the_trainers_semantics_too(tmp_path):
    trial = trial_of(tmp_path, lost("lm_head.weight"), engine="")
    assert trial.draft.filled == ("lm_head.weight",)
    named = {hint.fact for hint in check(trial) if hint.finding.code == "tensor_absent"}
    assert named == {"lm_head"}
