"""The borders of what ablations name as a cause, without chance."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.speculation.ablate.test_causes import HEALTHY, PLAIN, hint, switch
from workbench.core.finding import Finding
from workbench.speculation.ablate.cause_records import NAMING, CauseFacts, Tried, lost
from workbench.speculation.ablate.causes import judge, needs_pairs
from workbench.speculation.ablate.lifts import Reference, clear
from workbench.speculation.ablate.static_checks import Hint, sufficient
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.measuring import Measured

REQUESTS, ROUNDS = 40, 1000
EXPECTED = Expected(1 + sum(HEALTHY), HEALTHY, "a healthy run")
BROKEN = (0.05, 0.0, 0.0, 0.0)


def flat(profile: tuple[float, ...], requests: int = REQUESTS, ease: Any = 1.0) -> Measured:
    """Return what a draft of that profile accepts, the same in every request unless some are easier."""
    deep = np.outer(np.ones(requests) * ease, np.array(profile) * ROUNDS)
    return Measured(np.full(requests, ROUNDS), deep, 1.0, 0.5, 0.5, 0.9)


def share(of: float, served: tuple[float, ...] = BROKEN) -> tuple[float, ...]:
    return tuple(b + of * (h - b) for b, h in zip(served, HEALTHY, strict=True))


def tried(
    profile: tuple[float, ...] | float,
    *names: str,
    served: tuple[float, ...] = BROKEN,
    expected: Expected = EXPECTED,
    confirmed: bool = True,
) -> Tried:
    values = share(profile, served) if isinstance(profile, float) else profile
    switches = tuple(switch(*name.split("/")) for name in names)
    return Tried(switches, flat(values), Reference(flat(served), expected), confirmed)


def scene(*singles: Tried, served: tuple[float, ...] = BROKEN, **fields: Any) -> CauseFacts:
    base = CauseFacts(Reference(flat(served), EXPECTED), singles, (), (), PLAIN)
    return dataclasses.replace(base, **fields)


def state(given: CauseFacts) -> str:
    verdict = judge(given)
    wanted = {"healthy": True, "lost": False} | dict.fromkeys(NAMING, False)
    assert verdict.ok is wanted.get(verdict.state)
    assert bool(verdict.facts) == (verdict.state in (*NAMING, "sampling"))
    return verdict.state


def test_a_cause_brings_most_of_the_loss_back() -> None:
    assert state(scene(tried(0.81, "layer"))) == "found"
    assert state(scene(tried(0.79, "layer"))) == "lost"
    assert state(scene(tried(1.0, "layer", confirmed=False))) == "lost"
    # Two switches about one fact are no single change.
    assert state(scene(tried(1.0, "one/layer", "two/layer"))) == "lost"


def test_another_fact_that_is_enough_by_itself_is_a_rival() -> None:
    assert state(scene(tried(1.0, "layer"), tried(0.79, "order"))) == "found"
    assert state(scene(tried(1.0, "layer"), tried(0.81, "order"))) == "lost"
    assert state(scene(tried(0.81, "layer"), tried(0.81, "order"))) == "lost"
    assert state(scene(tried(1.0, "a/layer"), tried(0.9, "b/layer"))) == "found"
    alike = [judge(scene(tried(1.0, "a/layer"), tried(s, "b/layer"))).alike for s in (0.81, 0.79)]
    assert alike == [("b",), ()]


def test_a_rival_within_chance_is_one_too() -> None:
    ease = np.where(np.arange(REQUESTS) % 2, 1.0, 0.6)
    other = tried(0.79, "order")
    near = dataclasses.replace(other, measured=flat(share(0.82), ease=ease * 1.18))
    assert not clear(tried(0.81, "layer").measured, near.measured)
    assert state(scene(tried(0.81, "layer"), near)) == "lost"


def test_each_position_has_most_of_its_loss_back() -> None:
    def profile(back: float) -> bool | None:
        values = (*HEALTHY[:3], HEALTHY[3] * back)
        return tried(values, "layer").lift.profile

    assert profile(0.61) is True
    assert profile(0.59) is False
    # What lost hardly anything does not count.
    odd = tried((*HEALTHY[:3], 0.0), "layer", served=(0.05, 0.0, 0.0, 0.151))
    lost_more = tried((*HEALTHY[:3], 0.0), "layer", served=(0.05, 0.0, 0.0, 0.149))
    assert odd.lift.profile is True
    assert lost_more.lift.profile is False
    plain = dataclasses.replace(EXPECTED, per_position=())
    assert tried(1.0, "layer", expected=plain).lift.profile is None
    assert state(scene(tried((*HEALTHY[:3], 0.1), "layer"))) == "lost"


def test_how_sure_a_cause_is() -> None:
    def confidence(spread: float, **more: Any) -> tuple[float, str]:
        ease = np.where(np.arange(8) % 2, 1 + spread, 1 - spread)
        found = flat(HEALTHY, 8, ease)
        reference = Reference(flat(BROKEN, 8), EXPECTED)
        one = Tried((switch("layer"),), found, reference, True)
        hints = [hint("layer", **more)]
        verdict = judge(scene(one, reference=reference, hints=hints))
        assert verdict.state == "found"
        within = one.lift.restored_interval
        assert within is not None
        return within[0], verdict.confidence

    low, sure = confidence(0.75)
    assert low > 0.4
    assert sure == "certain"
    low, sure = confidence(0.95)
    assert 0 < low < 0.4
    assert sure == "likely"
    near = [confidence(spread / 100) for spread in range(80, 95, 2)]
    assert any(0.35 < low < 0.4 for low, _ in near)
    assert all((sure == "certain") == (low >= 0.4) for low, sure in near)
    assert confidence(0.0, confidence="likely")[1] == "likely"
    assert judge(scene(tried(1.0, "layer"), hints=[hint("order")])).confidence == "likely"
    assert judge(scene(tried(1.0, "layer"))).confidence == "likely"


def test_what_lifts_nothing_is_no_next_best() -> None:
    for share_back, named in ((0.0, False), (0.1, True)):
        verdict = judge(scene(tried(1.0, "layer"), tried(share_back, "order")))
        assert any("next best" in text for text in verdict.evidence_against) is named


def test_a_loss_that_is_small_or_may_be_chance_is_none() -> None:
    def served(missing: float) -> tuple[float, ...]:
        """A draft that accepts so much of the expected length less."""
        lack = missing * EXPECTED.accept_length
        return tuple(h * (1 - lack / sum(HEALTHY)) for h in HEALTHY)

    assert state(scene(served=served(0.029))) == "healthy"
    assert state(scene(served=served(0.031))) == "cannot_tell"
    assert not needs_pairs(scene(served=served(0.029)))
    assert needs_pairs(scene(served=served(0.031)))
    ease = [1.6, 0.4] * 4
    for missing, wanted in ((0.049, "healthy"), (0.051, "cannot_tell")):
        reference = Reference(flat(served(missing), 8, ease), EXPECTED)
        assert not lost(reference)
        assert state(scene(reference=reference)) == wanted


def test_without_an_expectation_nothing_is_known_to_be_lost() -> None:
    assert lost(Reference(flat(BROKEN), EXPECTED)) is True
    assert lost(Reference(flat(BROKEN), None)) is False


def test_few_requests_say_nothing() -> None:
    for requests, wanted in ((8, "healthy"), (7, "cannot_tell")):
        reference = Reference(flat(HEALTHY, requests), EXPECTED)
        assert state(scene(reference=reference)) == wanted


def test_a_replay_that_does_otherwise_decides_nothing() -> None:
    told = {"observed": 1.0, "replayed": 2.0}
    assert state(scene(tried(1.0, "layer"), agreement=0.85, **told)) == "found"
    assert state(scene(tried(1.0, "layer"), agreement=0.849, **told)) == "not_reproduced"
    assert (
        state(scene(tried(1.0, "layer"), agreement=0.849, **(told | {"observed": None}))) == "found"
    )
    memory = {"unknown": ("fc.weight",)}
    assert state(scene(tried(1.0, "layer"), agreement=0.4, **told, **memory)) == "found"
    whole = scene(served=HEALTHY, agreement=0.4, **told, **memory)
    assert state(whole) == "not_reproduced"
    nothing = dataclasses.replace(whole, reference=Reference(flat(BROKEN), None))
    assert state(nothing) == "no_expectation"


def test_what_is_near() -> None:
    near = [judge(scene(tried(s, "layer"))).nearest for s in (0.19, 0.21)]
    assert near == ["", "layer"]


@pytest.mark.parametrize(
    ("alone", "together", "wanted"),
    [
        (0.0, 1.0, "pair"),
        (0.0, 0.81, "pair"),
        (0.0, 0.79, "lost"),
        (0.79, 0.95, "pair"),
        (0.79, 0.93, "lost"),
    ],
)
def test_both_of_a_pair_are_needed(alone: float, together: float, wanted: str) -> None:
    singles = (tried(alone, "launch"), tried(0.0, "layer"))
    pair = tried(together, "launch", "layer")
    assert state(scene(*singles, pairs=[pair])) == wanted
    assert state(scene(*reversed(singles), pairs=[pair])) == wanted


def test_a_pair_with_a_rival_is_not_told_apart() -> None:
    singles = (tried(0.0, "launch"),)
    first = tried(1.0, "launch", "layer")
    for other, wanted in ((0.79, "pair"), (0.81, "lost")):
        assert state(scene(*singles, pairs=[first, tried(other, "launch", "order")])) == wanted
    assert state(scene(*singles, pairs=[tried(1.0, "a/launch", "b/launch")])) == "lost"


@pytest.mark.parametrize(
    ("hints", "confidence"),
    [
        (("launch", "layer"), "certain"),
        (("launch",), "likely"),
        (("layer",), "likely"),
        ((), "likely"),
    ],
)
def test_how_sure_a_pair_is(hints: tuple[str, ...], confidence: str) -> None:
    singles = (tried(0.0, "launch"), tried(0.0, "layer"))
    pair = tried(1.0, "launch", "layer")
    given = scene(*singles, pairs=[pair], hints=[hint(fact) for fact in hints])
    assert judge(given).confidence == confidence
    unsure = scene(*singles, pairs=[pair], hints=[hint(f, confidence="likely") for f in hints])
    assert judge(unsure).confidence == "likely"


def test_a_tensor_that_is_nowhere_leaves_nothing_that_works() -> None:
    absent = hint("lm_head", code="tensor_absent")
    lacks = {"hints": [absent], "absent": ("lm_head.weight",)}
    drafts = EXPECTED.accept_length - 1
    for accepted, wanted in ((0.099, "named"), (0.101, "lost")):
        served = (accepted * drafts, 0.0, 0.0, 0.0)
        assert state(scene(served=served, **lacks)) == wanted
    served = (0.01, 0.0, 0.0, 0.0)
    two = [absent, hint("fc", code="tensor_absent")]
    assert state(scene(served=served, **(lacks | {"hints": two}))) == "lost"
    assert state(scene(served=served, hints=[absent])) == "lost"
    assert state(scene(served=served, **(lacks | {"hints": [hint("lm_head")]}))) == "lost"
    assert judge(scene(served=served, **lacks)).confidence == "likely"


def test_sampled_text_clears_a_draft_only_where_that_is_all() -> None:
    assert state(scene(tried(1.0, "greedy/sampling"))) == "sampling"
    assert state(scene(tried(1.0, "greedy/sampling"), tried(0.81, "layer"))) == "lost"
    assert judge(scene(tried(1.0, "greedy/sampling"))).confidence == "unknown"
    assert judge(scene(served=HEALTHY)).confidence == "likely"


def test_what_alone_explains_that_nothing_is_accepted() -> None:
    sure = hint("decoder layer")
    assert sufficient([dataclasses.replace(sure, whole=True)]) == ("decoder layer is lost",)
    assert sufficient([sure]) == ()
    assert sufficient([dataclasses.replace(hint("fc", confidence="likely"), whole=True)]) == ()
    harmless = Finding("key_dropped", "error", "a name", changes_output=False)
    assert sufficient([Hint("fc", harmless, whole=True)]) == ()
