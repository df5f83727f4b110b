"""The verdict on made-up measurements: what may be accused, what may not, and how sure."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from workbench.core.finding import Finding
from workbench.speculation.ablate.cause_records import CauseFacts, Tried, lost
from workbench.speculation.ablate.causes import judge, needs_pairs
from workbench.speculation.ablate.chains import chain_of
from workbench.speculation.ablate.lifts import Reference, clear
from workbench.speculation.ablate.static_checks import Hint
from workbench.speculation.ablate.switches import Switch
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.measuring import Measured, interval
from workbench.speculation.judge.texts import Texts

REQUESTS, ROUNDS = 60, 40
HEALTHY = (0.6, 0.36, 0.25, 0.17)
BROKEN = (0.05, 0.0, 0.0, 0.0)
EXPECTED = Expected(1 + sum(HEALTHY), HEALTHY, "a healthy run")
PLAIN = Texts((0.6, 0.8, 0.9), (), REQUESTS, "", 0.0)


def measured(profile: tuple[float, ...], seed: int = 0, requests: int = REQUESTS) -> Measured:
    """Return what a draft of that profile accepts; one seed has the same easy and hard requests."""
    generator = np.random.default_rng(seed)
    ease = generator.normal(1, 0.15, requests)
    deep = np.stack([np.round(np.clip(p * ease, 0, 1) * ROUNDS) for p in profile], axis=1)
    return Measured(np.full(requests, ROUNDS), deep, 1.0, 0.5, 0.5, 0.9)


def switch(name: str, fact: str = "") -> Switch:
    return Switch(name, fact or name, f"{name} changed", lambda state: state, f"Repair {name}.")


def tried(profile: tuple[float, ...], *names: str, confirmed: bool = True, served=BROKEN) -> Tried:
    reference = Reference(measured(served), EXPECTED)
    switches = tuple(switch(*name.split("/")) for name in names)
    return Tried(switches, measured(profile), reference, confirmed)


def scene(*singles: Tried, served: tuple[float, ...] = BROKEN, **fields: object) -> CauseFacts:
    reference = Reference(measured(served), EXPECTED)
    base = CauseFacts(reference, singles, (), (), PLAIN)
    return dataclasses.replace(base, **fields)


def hint(fact: str, code: str = "key_dropped", confidence: str = "certain") -> Hint:
    return Hint(
        fact, Finding(code, "error", f"{fact} is lost", confidence=confidence, changes_output=True)
    )


def scaled(share: float) -> tuple[float, ...]:
    """Return a profile that has so much of the loss back at every position."""
    return tuple(b + share * (h - b) for b, h in zip(BROKEN, HEALTHY, strict=True))


def test_one_change_that_restores_is_the_cause():
    verdict = judge(scene(tried(HEALTHY, "layer"), tried(scaled(0.3), "order")))
    assert verdict.state == "found"
    assert verdict.ok is False
    assert verdict.facts == ("layer",)
    assert verdict.switches == ("layer",)
    assert "from 1.05 to 2.40" in verdict.sentence
    assert any("next best: order changed, 30%" in text for text in verdict.evidence_against)


@pytest.mark.parametrize(
    ("hints", "confidence"),
    [
        ([], "likely"),
        ([hint("layer")], "certain"),
        ([hint("layer", confidence="possible")], "likely"),
        ([hint("order")], "likely"),
    ],
)
def test_certain_only_where_static_evidence_agrees(hints, confidence):
    verdict = judge(scene(tried(HEALTHY, "layer"), tried(BROKEN, "order"), hints=hints))
    assert verdict.confidence == confidence
    against = [text for text in verdict.evidence_against if "not confirmed" in text]
    assert len(against) == sum(h.fact == "order" for h in hints)


def test_two_changes_that_restore_as_much_are_not_told_apart():
    verdict = judge(scene(tried(HEALTHY, "layer"), tried(scaled(0.97), "order")))
    assert verdict.state == "lost"
    assert verdict.ok is False
    assert not verdict.facts
    assert "cannot distinguish the two" in verdict.sentence


def test_two_switches_of_one_fact_are_one_cause():
    both = (tried(HEALTHY, "theta 1e4/rotary"), tried(scaled(0.99), "theta 1e5/rotary"))
    verdict = judge(scene(*both))
    assert verdict.state == "found"
    assert verdict.facts == ("rotary",)
    assert verdict.alike == ("theta 1e5",)


@pytest.mark.parametrize(
    ("share", "near"), [(0.1, ""), (0.3, "layer"), (0.5, "layer"), (0.75, "layer")]
)
def test_less_than_enough_accuses_nobody(share, near):
    verdict = judge(scene(tried(scaled(share), "layer"), tried(BROKEN, "order")))
    assert verdict.state == "lost"
    assert not verdict.facts
    assert verdict.nearest == near
    assert "undertrained" in verdict.missing


def test_nothing_lifts_an_undertrained_draft():
    verdict = judge(scene(tried(BROKEN, "layer"), tried(scaled(-0.5), "order")))
    assert verdict.state == "lost"
    assert verdict.nearest == ""


def test_what_was_not_confirmed_on_all_requests_is_no_cause():
    verdict = judge(scene(tried(HEALTHY, "layer", confirmed=False)))
    assert verdict.state == "lost"


def test_the_profile_must_come_back():
    # As many tokens, but all of them at the first position: another draft, not the mended one.
    odd = (0.99, 0.13, 0.07, 0.0)
    lift = tried(odd, "layer").lift
    assert lift.restored is not None
    assert lift.restored > 0.8
    assert lift.profile is False
    assert judge(scene(tried(odd, "layer"))).state == "lost"


def test_without_a_loss_nothing_is_accused():
    whole = scene(tried(HEALTHY, "layer", served=HEALTHY), served=HEALTHY)
    assert judge(whole).state == "healthy"
    assert judge(whole).ok is True
    assert not lost(whole.reference)
    assert not needs_pairs(whole)


def test_without_an_expectation_only_lifts_are_told():
    reference = Reference(measured(BROKEN), None)
    one = Tried((switch("layer"),), measured(HEALTHY), reference, True)
    verdict = judge(CauseFacts(reference, [one], [], [], PLAIN))
    assert verdict.state == "no_expectation"
    assert verdict.ok is None
    assert verdict.nearest == "layer"
    assert "not known" in verdict.sentence
    assert one.lift.restored is None
    assert one.lift.profile is None


def test_repetitive_text_is_refused():
    texts = Texts(
        (0.1, 0.1, 0.1), tuple(range(50)), REQUESTS, "50 of 60 answers repeat themselves", 0.0
    )
    verdict = judge(scene(tried(HEALTHY, "layer"), texts=texts))
    assert verdict.state == "refused"
    assert verdict.ok is None
    assert not verdict.facts


def test_a_replay_that_does_not_do_what_the_engine_did_accuses_nothing():
    good = scene(tried(HEALTHY, "layer"), observed=1.0, agreement=0.4, replayed=2.1)
    verdict = judge(good)
    assert verdict.state == "not_reproduced"
    assert not verdict.facts
    assert "40%" in verdict.sentence
    # Where the engine's memory is not known the replay cannot do the same, and that is no reason.
    unknown = dataclasses.replace(good, unknown=("layers.0.mlp.up_proj.weight",))
    assert judge(unknown).state == "found"
    assert any("is not known" in text for text in judge(unknown).evidence_against)


def test_sampled_text_is_no_fault_of_the_draft():
    verdict = judge(scene(tried(HEALTHY, "temperature 0/sampling"), tried(scaled(0.2), "order")))
    assert verdict.state == "sampling"
    # Another target would leave the same text: that is for its recording to say.
    assert verdict.ok is None
    assert "another target" in verdict.sentence


def pair(profile: tuple[float, ...], *names: str) -> Tried:
    return tried(profile, *names)


def test_two_causes_one_behind_the_other():
    singles = (tried(scaled(0.05), "launch"), tried(BROKEN, "layer"))
    both = pair(HEALTHY, "launch", "layer")
    verdict = judge(scene(*singles, pairs=[both, pair(scaled(0.3), "launch", "order")]))
    assert verdict.state == "pair"
    assert set(verdict.facts) == {"launch", "layer"}
    assert verdict.confidence == "likely"
    sure = judge(scene(*singles, pairs=[both], hints=[hint("launch"), hint("layer")]))
    assert sure.confidence == "certain"


def test_a_second_change_that_adds_nothing_is_not_accused():
    # The first alone restores almost enough; what the second adds is chance.
    singles = (tried(scaled(0.78), "layer"), tried(BROKEN, "order"))
    verdict = judge(scene(*singles, pairs=[pair(scaled(0.81), "layer", "order")]))
    assert verdict.state == "lost"
    assert "too little" in verdict.sentence


def test_pairs_that_are_alike_are_not_told_apart():
    singles = (tried(BROKEN, "launch"),)
    both = [pair(HEALTHY, "launch", "layer"), pair(scaled(0.9), "launch", "order")]
    assert judge(scene(*singles, pairs=both)).state == "lost"


def test_a_tensor_that_is_nowhere_is_named_and_not_proved():
    absent = hint("lm_head", code="tensor_absent")
    one = scene(
        tried(BROKEN, "target's head/lm_head"),
        served=(0.001, 0.0, 0.0, 0.0),
        hints=[absent],
        absent=("lm_head.weight",),
        unknown=("lm_head.weight",),
    )
    verdict = judge(one)
    assert verdict.state == "named"
    assert verdict.facts == ("lm_head",)
    assert verdict.confidence == "likely"
    assert "may hide behind" in verdict.sentence
    # A draft that works in part does not lack it.
    partly = dataclasses.replace(one, reference=Reference(measured(scaled(0.5)), EXPECTED))
    assert judge(partly).state == "lost"


def test_intervals_hold_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(4)
    inside = 0
    for _ in range(200):
        deep = generator.binomial(20, 0.5, (50, 1)).astype(float)
        low, high = interval(Measured(np.full(50, 20), deep, 1, 1, 1, 1).draws())
        inside += low <= 1.5 <= high
    assert 0.88 <= inside / 200 <= 0.99


def test_clear_is_paired():
    # The requests differ far more than the two states do; on the same requests the second is always better.
    generator = np.random.default_rng(1)
    base = generator.integers(0, 30, 50).astype(float)[:, None]
    rounds = np.full(50, ROUNDS)
    one, other = (Measured(rounds, base + add, 1, 1, 1, 1) for add in (1.0, 0.0))
    assert clear(one, other)
    assert not clear(other, one)
    assert not clear(one, one)
    low, high = interval(one.draws())
    assert low < other.accept_length < high


def test_a_replay_that_loses_nothing_does_not_clear_an_engine_that_did():
    told = {"observed": 1.0, "agreement": 0.4, "replayed": 2.4, "unknown": ("k_proj",)}
    verdict = judge(scene(tried(HEALTHY, "layer", served=HEALTHY), served=HEALTHY, **told))
    assert verdict.state == "not_reproduced"
    assert verdict.ok is None
    # Memory that nobody knows explains why a replay that does lose is not the same.
    assert judge(scene(tried(HEALTHY, "layer"), **told)).state == "found"


def test_a_loss_that_may_be_chance_is_no_health():
    """Eight requests, four of which accept much more than the others: any mean is within chance."""
    deep = np.outer([1.6, 0.2] * 4, np.array(HEALTHY) * ROUNDS)
    few = Measured(np.full(8, ROUNDS), deep, 1.0, 0.5, 0.5, 0.9)
    wide = dataclasses.replace(scene(), reference=Reference(few, EXPECTED))
    assert not lost(wide.reference)
    verdict = judge(wide)
    assert (verdict.state, verdict.ok) == ("cannot_tell", None)
    assert "may be chance" in verdict.sentence
    little = dataclasses.replace(few, deep=deep / 0.9)
    assert (
        judge(dataclasses.replace(wide, reference=Reference(little, EXPECTED))).state == "healthy"
    )


# -- certain faults, undone together ---------------------------------------------------------------


def steps(*parts: tuple[float, str], last: Tried | None = None) -> tuple[Tried, ...]:
    """Return a chain: each part has so much of the loss back, with one fact more."""
    names: list[str] = []
    out = []
    for share, fact in parts:
        names.append(fact)
        out.append(tried(scaled(share), *names))
    return tuple(out)


def test_a_certain_fault_goes_before_what_restores_as_much_by_accident():
    """Another flag hides the same loss, and nothing speaks for it."""
    both = (tried(scaled(0.97), "norm"), tried(scaled(0.93), "flag"))
    alone = judge(scene(*both))
    assert (alone.state, alone.facts) == ("lost", ())
    verdict = judge(scene(*both, hints=[hint("norm")], chain=(both[0],)))
    assert (verdict.state, verdict.facts, verdict.confidence) == ("found", ("norm",), "certain")
    assert "no static check speaks for it" in " ".join(verdict.evidence_against)
    # One that clearly restores more than the certain fault is not passed over.
    less, more = tried(scaled(0.82), "norm"), tried(HEALTHY, "flag")
    assert judge(scene(less, more, hints=[hint("norm")], chain=(less,))).facts != ("norm",)


def test_three_faults_come_out_as_an_account():
    chain = steps((0.5, "layer"), (0.9, "residual"), (1.0, "norm"))
    hints = [hint(fact) for fact in ("layer", "residual", "norm")]
    singles = [tried(BROKEN, fact) for fact in ("layer", "residual", "norm")]
    verdict = judge(scene(*singles, hints=hints, chain=chain))
    assert (verdict.state, verdict.facts) == ("several", ("layer", "residual", "norm"))
    assert verdict.sentence.startswith("Three causes: layer, residual and norm.")
    assert "layer +0.68, residual +0.54, norm +0.13, unexplained 0.00" in verdict.sentence
    assert verdict.ok is False


def test_a_certain_fault_that_adds_nothing_is_no_cause():
    chain = steps((0.98, "layer"), (1.0, "residual"))
    hints = [hint("layer"), hint("residual")]
    verdict = judge(scene(tried(scaled(0.98), "layer"), hints=hints, chain=chain))
    assert (verdict.state, verdict.facts) == ("found", ("layer",))
    assert any("adds nothing: residual is lost" in text for text in verdict.evidence_against)


def test_the_cause_is_not_said_while_a_certain_fault_is_untried():
    one = tried(HEALTHY, "flag")
    verdict = judge(scene(one, hints=[hint("bias")], untried=("bias is lost",)))
    assert (verdict.state, verdict.facts, verdict.nearest) == ("lost", (), "flag")
    assert "bias is lost" in verdict.sentence
    known = judge(
        scene(one, hints=[hint("flag"), hint("bias")], chain=(one,), untried=("bias is lost",))
    )
    assert (known.state, known.confidence) == ("found", "likely")
    assert known.sentence.startswith("A cause is the flag")


def test_without_an_expectation_a_certain_fault_that_lifts_concludes():
    def unexpected(share: float, **more: object):
        one = tried(scaled(share), "layer")
        reference = dataclasses.replace(one.reference, expected=None)
        one = dataclasses.replace(one, reference=reference)
        given = {"hints": [hint("layer")], "chain": (one,)} | more
        return judge(scene(one, reference=reference, **given))

    assert unexpected(1.0).state == "found"
    assert "What to expect is not known" in unexpected(1.0).sentence
    assert unexpected(0.05).state == "no_expectation"
    assert unexpected(1.0, hints=(), chain=()).state == "no_expectation"


def test_a_draft_that_accepts_no_more_as_its_trainer_means_it_says_so():
    singles = (tried(BROKEN, "layer"), tried(BROKEN, "order"))
    verdict = judge(scene(*singles, trained=measured(BROKEN)))
    assert (verdict.state, verdict.ok, verdict.facts) == ("draft_itself", False, ())
    assert verdict.sentence.startswith("The draft itself accepts no more: 1.05")
    assert judge(scene(*singles, trained=measured(HEALTHY))).state == "lost"
    assert judge(scene(*singles)).state == "lost"


def test_sampled_texts_show_no_certain_loss():
    sampled = dataclasses.replace(PLAIN, other=0.3)
    assert judge(scene(tried(BROKEN, "layer"), texts=sampled)).state == "cannot_tell"


def test_an_engine_that_accepts_less_than_its_files_is_the_answer():
    given = {"agreement": 0.4, "observed": 1.08, "replayed": 2.46}
    verdict = judge(scene(served=HEALTHY, engine_loses=True, **given))
    assert (verdict.state, verdict.ok, verdict.facts) == ("engine", False, ())
    assert verdict.sentence.startswith(
        "Look at the engine: on the same texts these files accept 2.46"
    )
    assert judge(scene(served=HEALTHY, engine_loses=False, **given)).state == "not_reproduced"
    first = judge(scene(served=HEALTHY, unmodelled="the replay does not model --x 8", **given))
    assert first.sentence.startswith("Cannot tell: the replay does not model --x 8.")


def test_a_chain_adds_what_is_missed_most_first():
    """Each set is named in the order of the chain, whatever order it was measured in."""
    shares = {"a": 0.1, "b": 0.6, "c": 0.3}

    def on_all(switches):
        return tried(scaled(sum(shares[s.name] for s in switches)), *(s.name for s in switches))

    chain = chain_of([switch(name) for name in shares], on_all)
    assert [one.lift.switches for one in chain] == [("b",), ("b", "c"), ("b", "c", "a")]
    assert [one.switches[-1].fact for one in chain] == ["b", "c", "a"]
