"""Verdicts on what is neither a plain init nor trained, and what other tensors say about one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workbench.weights.likeness import Likeness
from workbench.weights.matrices import judge_matrix
from workbench.weights.records import QUANTILES, Judgement, Measure
from workbench.weights.relations import relate
from workbench.weights.spectrum import drawn_in, spectrum
from workbench.weights.verdict import Context

from .test_verdict import Array, of, one, random


def a_measure(name: str, shape: tuple[int, ...] = (64, 64), **more: Any) -> Measure:
    plain: dict[str, Any] = {
        "dtype": "F32", "layout": "", "count": math.prod(shape), "seen": math.prod(shape), "mean": 0.0,
        "std": 0.02, "min": -0.1, "max": 0.1, "absmax": 0.1, "zeros": 0, "nan": 0, "inf": 0, "denormal": 0,
        "skew": 0.0, "kurtosis": 0.0, "quantiles": (0.0,) * len(QUANTILES),
    }  # fmt: skip
    return Measure(name=name, shape=shape, **(plain | more))


def related(
    pairs: Iterable[tuple[Measure, Judgement]], target: Mapping[str, Likeness] | None = None
) -> dict[str, Judgement]:
    measures, judgements = zip(*pairs, strict=True)
    before = [j.verdict for j in judgements]
    found = relate(measures, judgements, target)
    assert [j.verdict for j in found] == before
    return {m.name: j for m, j in zip(measures, found, strict=True)}


INIT, TRAINED = Judgement("at_init", "", "normal"), Judgement("trained", "")
ZEROS, ONES = Judgement("at_init", "", "zeros", stage=0), Judgement("at_init", "", "ones", stage=0)


def test_siblings_bias_norms_and_precision_corroborate() -> None:
    layers = [
        (a_measure(f"layers.{i}.proj.weight", exact_in_fp16=0.001), TRAINED) for i in range(5)
    ]
    layers[3] = (a_measure("layers.3.proj.weight", exact_in_fp16=1.0), INIT)
    beside = [
        (a_measure("layers.3.proj.bias", (64,)), ZEROS),
        (a_measure("layers.3.input_layernorm.weight", (64,)), ONES),
        (a_measure("layers.3.post_attention_layernorm.weight", (64,)), ONES),
    ]
    found = related([*layers, *beside])
    said = " | ".join(found["layers.3.proj.weight"].corroboration)
    assert "its bias is zero" in said
    assert "2 norms next to it are at init" in said
    assert "4 of its 4 siblings look trained" in said
    assert "exact in fp16, those of 4 siblings are not" in said
    assert found["layers.1.proj.weight"].corroboration == ()


def test_all_alike_is_said_too() -> None:
    found = related(
        [(a_measure(f"layers.{i}.experts.{j}.w1"), INIT) for i in range(2) for j in range(3)]
    )
    assert {j.corroboration for j in found.values()} == {("so are all 5 siblings of its shape",)}


def test_copies_and_the_targets_own() -> None:
    pairs = [
        (a_measure("experts.0.w", digest="x"), TRAINED), (a_measure("experts.1.w", digest="x"), TRAINED),
        (a_measure("experts.2.w", digest="y"), TRAINED), (a_measure("embed_tokens.weight", digest="e"), INIT),
        (a_measure("a.norm", (512,), digest="1"), ONES), (a_measure("b.norm", (512,), digest="1"), ONES),
        (a_measure("p.weight", digest=""), INIT), (a_measure("q.weight", digest=""), INIT),
    ]  # fmt: skip
    found = related(
        pairs, target={"embed_tokens.weight": Likeness("model.embed_tokens.weight", 0.0, True)}
    )
    assert found["experts.0.w"].corroboration == ("equal, bit by bit, to experts.1.w",)
    assert found["experts.2.w"].corroboration == ()
    assert any(
        "target's model.embed_tokens.weight" in t
        for t in found["embed_tokens.weight"].corroboration
    )
    assert not any("equal" in text for name in "ab" for text in found[f"{name}.norm"].corroboration)
    assert not any("equal" in text for text in found["p.weight"].corroboration)


def test_trained_is_decided_by_the_measure_where_it_is_plain() -> None:
    def never(start: int, stop: int) -> Array:
        raise AssertionError("no value has to be read again")

    rows: Callable[[int, int], Array] = never
    plain = a_measure(
        "a.weight", kurtosis=2.0, row_dispersion=90.0, column_dispersion=40.0, ks=(9.0, 30.0, 12.0)
    )
    plain = dataclasses.replace(plain, shape=(512, 512), count=512 * 512, seen=512 * 512)
    found = judge_matrix(plain, rows, Context())
    assert (found.verdict, found.stage) == ("trained", 1)
    for one_sided in (
        {"column_dispersion": 1.0},
        {"row_dispersion": 1.0},
        {"kurtosis": 0.01},
        {"kurtosis": 0.2},  # what norms as different as these give by themselves
        {"zeros": 5_000},
        {"seen": 100},
    ):
        with pytest.raises(AssertionError, match="no value"):
            judge_matrix(dataclasses.replace(plain, **one_sided), rows, Context())


def test_a_fixed_basis_is_no_orthogonal_init(tmp_path: Path) -> None:
    """A Fourier basis was never trained, yet it is not what an init draws either: it has structure."""
    at = np.arange(128)
    fourier = np.cos(np.pi * np.outer(at, at + 0.5) / 128).astype("f4")
    found = one(tmp_path, fourier, "stft.weight")
    assert found.verdict == "trained"
    assert "like their neighbours" in found.reason or "depend on each other" in found.reason


# Inits that are no plain normal, and what was done to some of them.


def _normal(*shape: int, seed: int = 0) -> Array:
    return random(seed).normal(0, 0.02, shape).astype(np.float32)


def _rare(share: float) -> Array:
    return _normal(512, 512) * (random(1).random((512, 512)) < share)


_FOLDED = np.exp(0.5 * random(2).normal(size=(1, 512))).astype(np.float32)
NOT_TRAINED: dict[str, Callable[[], Array]] = {
    "sparse": lambda: _rare(0.1),
    "very sparse": lambda: _rare(0.01),
    "Student's t of 3 degrees": lambda: random(3).standard_t(3, (512, 512)).astype(np.float32),
    "a norm folded into the columns": lambda: _normal(512, 512) * _FOLDED,
    "scales of rows": lambda: _normal(512, 512) * _FOLDED.T,
    "scales of rows and columns": lambda: _normal(512, 512) * _FOLDED.T * _FOLDED,
    "sparse, with scales of rows and columns": lambda: _rare(0.1) * _FOLDED.T * _FOLDED,
    "signs": lambda: np.sign(_normal(1500, 1500)),
    "signs with scales of rows": lambda: np.sign(_normal(512, 512)) * _FOLDED.T,
    "rows of norm one": lambda: (w := _normal(512, 256)) / np.linalg.norm(w, axis=1)[:, None],
    "identity": lambda: np.eye(256, dtype=np.float32),
    "Dirac": lambda: torch.nn.init.dirac_(torch.empty(64, 64, 3, 3)).numpy(),
}


def _spiked(one_of: int, height: float) -> Array:
    """Return noise of which one value of so many is a spike of one sign."""
    values = _normal(256, 256)
    values[random(3).random(values.shape) < 1 / one_of] = height * 0.02
    return values


# Independent entries of laws with long tails, of one side: the mean is no direction, nor is a norm.
LONG_TAILS: dict[str, Callable[[], Array]] = {
    **{f"{height:g}, one of {one_of}": partial(_spiked, one_of, height)
       for height in (30.0, 100.0, 1e3) for one_of in (2000, 1000, 850, 350, 100, 30)},
    **{f"log-normal {side}": partial(lambda side: np.exp(2 * random(4).normal(size=(side, side))), side)
       for side in (256, 512)},
    "Cauchy": lambda: random(5).standard_cauchy((512, 512)),
}  # fmt: skip


@pytest.mark.parametrize("what", LONG_TAILS)
def test_independent_entries_with_long_tails_show_no_structure(what: str) -> None:
    found = spectrum(LONG_TAILS[what]().astype(np.float32))
    assert max(found.gram, found.edge, abs(found.row_scale), abs(found.column_scale)) < 6.0
    assert found.gram > -6.0


def test_only_where_a_value_is_far_out_others_are_moved() -> None:
    values = _spiked(1000, 7.0)
    assert drawn_in(values) is values
    values[3, 4] = -30 * 0.02
    moved = drawn_in(values)
    assert np.abs(moved).max() < 7 * 0.02
    assert (moved == values).mean() > 0.99


def test_where_all_that_is_not_zero_is_one_number_nothing_is_moved() -> None:
    values = (_rare(0.5) != 0).astype(np.float32)
    found = spectrum(values)
    assert abs(found.edge) < 6.0
    assert found.kurtosis < -1.5  # of a coin


@pytest.mark.parametrize("height", [0.0, 100.0])
def test_structure_is_seen_below_long_tails(height: float) -> None:
    values = _normal(256, 256) + np.outer(_normal(256, seed=4), _normal(256, seed=5)) * 25
    assert spectrum(values).edge > 50
    spikes = random(6).random(values.shape) < 1 / 1000
    found = spectrum(np.where(spikes, np.float32(height * 0.02), values).astype(np.float32))
    assert found.edge > 50
    assert (found.kurtosis > 10) == (height > 0)  # the tails are reported as they are


@pytest.mark.parametrize("what", NOT_TRAINED)
def test_an_init_of_another_sort_is_not_called_trained(tmp_path: Path, what: str) -> None:
    assert one(tmp_path, NOT_TRAINED[what]()).verdict == "undecided"


@pytest.mark.parametrize("value", [10.0, 100.0, 1e4, 1e6, 1e8])
def test_one_value_far_out_makes_no_structure(tmp_path: Path, value: float) -> None:
    values = _normal(512, 512)
    values[3, 4] = value
    assert one(tmp_path, values).verdict == ("undecided" if value < 1e5 else "invalid")


def test_zeros_in_rows_and_columns_make_no_trained_matrix(tmp_path: Path) -> None:
    values = _normal(512, 512)
    values[256:] = values[:, 256:] = 0
    judgement = one(tmp_path, values)
    assert (judgement.verdict, judgement.family) == ("at_init", "normal")
    assert judgement.sigma == pytest.approx(0.02, rel=0.02)


def test_a_value_that_went_astray_is_found_in_a_trained_matrix(tmp_path: Path) -> None:
    values = _normal(256, 256) + np.outer(_normal(256, seed=4), _normal(256, seed=5)) * 100
    assert one(tmp_path, values).verdict == "undecided"  # one drawn direction
    values[5, 7] = 20.0  # a "super weight"
    assert one(tmp_path, values).verdict == "trained"  # tails that no drawn direction has
    values[5, 7] = 1e6
    assert one(tmp_path, values).verdict == "invalid"


def test_values_beside_empty_rows_and_columns_may_be_too_few(tmp_path: Path) -> None:
    values = np.zeros((512, 512), np.float32)
    values[3, 4] = 0.5
    block = np.zeros((512, 512), np.float32)
    block[:16, :16] = _normal(16, 16)
    found = of(tmp_path, {"one.weight": values, "block.weight": block})
    assert {judgement.verdict for judgement in found.values()} == {"undecided"}
    assert "16 × 16" in found["block.weight"].reason


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("d2t", torch.arange(8000)),
        ("t2d", torch.arange(8000) % 3 == 0),
        ("ids", torch.randint(0, 99, (128, 128))),
        ("layers.0.self_attn.rotary_emb.cos_cached", torch.randn(128, 64)),
        ("h.0.attn.bias", torch.ones(1, 1, 64, 64).tril()),
        ("steps", torch.arange(512, dtype=torch.int32)),
    ],
)
def test_what_holds_no_weights_is_not_judged(
    tmp_path: Path, name: str, values: torch.Tensor
) -> None:
    judgement = of(tmp_path, {name: values})[name]
    assert judgement.verdict == "undecided"
    assert judgement.reason.startswith("not a weight: ")
