"""A matrix without structure in its model: accused where it stands out among its kin, open where not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.weights_samples import pair
from workbench.weights.kin import among_kin
from workbench.weights.provenance import AS_MADE
from workbench.weights.records import JudgedPart, Judgement, Measure

Pair = tuple[Measure, Judgement]
SHAPE = (256, 256)
PLACES = ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")


def matrix(name: str, verdict: Any, structure: float, sigma: float = 0.02, **more: Any) -> Pair:
    measure, judgement = pair(f"{name}.weight", SHAPE, "at_init")
    statistics = (("gram", structure), ("tracy_widom", structure / 2), ("rows_read", 256.0))
    measure = dataclasses.replace(measure, std=sigma, kurtosis=0.0, dtype="F32")
    return measure, dataclasses.replace(judgement, verdict=verdict, statistics=statistics, **more)


def after(pairs: list[Pair], initializer_range: float | None = None) -> list[str]:
    measures, judgements = zip(*pairs, strict=True)
    return [one.verdict for one in among_kin(measures, judgements, initializer_range)]


def template(
    *structures: float, place: str = "self_attn.v_proj", sigma: float = 0.0187
) -> list[Pair]:
    """Layers of one place: trained beyond 6.5, at init below 4, open between."""
    return [
        matrix(
            f"model.layers.{layer}.{place}",
            "trained" if one > 6.5 else "at_init" if one < 4 else "undecided",
            one,
            sigma,
        )
        for layer, one in enumerate(structures)
    ]


HEAD = matrix("lm_head", "trained", 5000.0)


@pytest.mark.parametrize(
    ("structures", "verdict"),
    [
        # As a language model of rate 1e-4 has them after 1,000 and 6,000 steps.
        ((1.0, 16.6, 2.2, 2.0), "undecided"),
        ((1.4, 42.1, 3.7, 5.0), "undecided"),
        ((1.0, 12.9, 40.0, 60.0), "undecided"),  # one sibling just inside
        ((1.0, 13.1, 40.0, 60.0), "at_init"),  # and just outside
        ((1.0, 800.0, 900.0, 60.0), "at_init"),
        ((1.0, 2.0, 900.0, 60.0, 70.0), "at_init"),  # two layers that were never trained
    ],
)
def test_an_unknown_scale_needs_siblings_that_are_far_from_noise(
    structures: tuple[float, ...], verdict: str
) -> None:
    assert after([HEAD, *template(*structures)])[1] == verdict


def test_a_known_scale_is_an_init_next_to_any_siblings_that_were_trained() -> None:
    pairs = [HEAD, *template(1.0, 14.0, 2.0, 5.0, sigma=0.02)]
    assert after(pairs)[1] == "at_init"
    pairs = [HEAD, *template(1.0, 14.0, 2.0, 5.0, sigma=0.0134)]
    assert after(pairs)[1] == "undecided"
    assert after(pairs, initializer_range=0.0134)[1] == "at_init"


@pytest.mark.parametrize(
    ("mates", "verdict"),
    [
        ((5.0, 5.0, 1.0), "undecided"),  # two of three show a little
        ((5.0, 1.0, 1.0), "undecided"),
        ((1.0, 1.0, 1.0), "at_init"),
        ((5.0, 5.0, 13.1), "at_init"),  # one shows much
        ((5.0, 5.0, 12.9), "undecided"),
    ],
)
def test_a_known_scale_is_open_where_the_layer_shows_a_little_and_nothing_much(
    mates: tuple[float, ...], verdict: str
) -> None:
    layer = [
        matrix(
            f"midlayer.{place}",
            "trained" if one > 6.5 else "undecided" if one > 4 else "at_init",
            one,
        )
        for place, one in zip(PLACES, (*mates, 1.0), strict=True)
    ]
    assert after([HEAD, *layer])[-1] == verdict


def test_what_needs_no_kin_stays() -> None:
    alone = template(1.0, 5.0, 5.0)
    assert after(alone)[0] == "at_init"  # nothing is trained, and no norm moved
    pairs = [HEAD, *alone]
    assert after(pairs)[1] == "undecided"
    for proof in (
        {"family": "orthogonal"},
        {"corroboration": (AS_MADE,)},
        {"parts": (JudgedPart("rows", 0, 128, "at_init"),)},
    ):
        measure, judgement = pairs[1]
        proved = [HEAD, (measure, dataclasses.replace(judgement, **proof)), *pairs[2:]]
        assert after(proved)[1] == "at_init"


@pytest.mark.parametrize(
    ("name", "trained", "verdict"),
    [
        ("model.layers.0.shortcut_Q", True, "undecided"),  # a rotation that was computed and stored
        ("model.layers.0.shortcut_Q", False, "at_init"),
        ("model.layers.0.mlp.up_proj.weight", True, "at_init"),
    ],
)
def test_an_orthogonal_tensor_that_is_no_weight_may_be_computed(
    name: str, trained: bool, verdict: str
) -> None:
    measure, judgement = template(1.0, 5.0, 5.0)[0]
    drawn = (
        dataclasses.replace(measure, name=name),
        dataclasses.replace(judgement, verdict="at_init", family="orthogonal"),
    )
    assert after([*[HEAD] * trained, drawn])[-1] == verdict


def test_a_matrix_without_siblings_is_compared_with_the_others() -> None:
    fc = matrix("fc", "at_init", 1.0, 0.0312)
    strong = [matrix(f"midlayer.{place}", "trained", 90.0) for place in PLACES]
    assert after([HEAD, fc, *strong])[1] == "at_init"
    weak = [
        matrix(f"midlayer.{place}", "trained", z)
        for place, z in zip(PLACES, (7, 8, 90, 90), strict=True)
    ]
    assert after([HEAD, fc, *weak])[1] == "undecided"
    assert after([HEAD, fc])[1] == "undecided"


def test_the_reason_says_what_is_like_it() -> None:
    measures, judgements = zip(*[HEAD, *template(1.0, 16.6, 5.0)], strict=True)
    found = among_kin(measures, judgements)[1]
    assert "its siblings show hardly more" in found.reason
    assert "σ = 0.0187" in found.reason
    assert (found.family, found.sigma) == ("", None)
