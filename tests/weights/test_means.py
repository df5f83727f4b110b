"""Means of rows, of columns and of all values: what chance leaves, and what a layer behind a ReLU shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.weights.stored import judged
from workbench.weights.means import means_of
from workbench.weights.spectrum import equilibrated, spectrum
from workbench.weights.structure import evidence

Array = np.ndarray[Any, Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 0.02, shape)


SHAPES = [(32, 64), (64, 64), (48, 512), (256, 256)]
LAWS: dict[str, Callable[..., Array]] = {
    "normal": normal,
    "uniform": lambda *shape: np.random.default_rng(1).uniform(-1, 1, shape),
    "signs": lambda *shape: np.sign(normal(*shape)),
    "sparse": lambda *shape: normal(*shape) * (np.random.default_rng(2).random(shape) < 0.1),
    "long tails": lambda *shape: np.random.default_rng(3).standard_t(3, shape),
    "uniform from 0": lambda *shape: np.random.default_rng(4).random(shape),
    "around 1": lambda *shape: 1 + normal(*shape),
    "log-normal": lambda *shape: np.exp(2 * np.random.default_rng(5).normal(size=shape)),
}


def scales(count: int, seed: int) -> Array:
    return np.exp(0.7 * np.random.default_rng(seed).normal(size=count))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("folded", [False, True])
def test_independent_entries_have_no_means(law: str, shape: tuple[int, int], folded: bool) -> None:
    values = LAWS[law](*shape)
    if folded:
        values = values * scales(shape[0], 6)[:, None] * scales(shape[1], 7)
    found = means_of(equilibrated(values.astype(np.float32)), 0.0)
    assert max(found.rows, found.columns, found.all) < 4.5


@pytest.mark.parametrize(("size", "low", "high"), [(0.0, -4.0, 4.0), (0.3, 6.5, 1e9)])
def test_what_all_entries_of_a_row_have_in_common(size: float, low: float, high: float) -> None:
    values = normal(96, 128) + size * normal(96, 1, seed=8) * scales(96, 9)[:, None]
    rows = equilibrated(values.astype(np.float32))
    assert low < means_of(rows, 0.0).rows < high
    assert low < means_of(np.ascontiguousarray(rows.T), 0.0).columns < high


@pytest.mark.parametrize("rank", [1, 4, 64])
@pytest.mark.parametrize("noise", [0.0, 1.0, 4.0])
def test_directions_of_chance_lie_along_no_mean(rank: int, noise: float) -> None:
    most = 0.0
    for seed in range(12):
        product = normal(256, rank, seed=seed) @ normal(rank, 128, seed=100 + seed)
        values = product / product.std() + noise * normal(256, 128, seed=200 + seed) / 0.02
        most = max(most, spectrum(values.astype(np.float32)).means)
    assert most < 5.5


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.0, "at_init"), (0.01, "at_init"), (0.15, "trained")]
)
def test_a_mean_that_no_init_has(share: float, verdict: str, tmp_path: Path) -> None:
    assert judged(tmp_path, normal(128, 128) + share * 0.02).verdict == verdict


def test_a_pull_along_the_inputs_is_training_before_the_spectrum_sees_it(tmp_path: Path) -> None:
    """Inputs behind a ReLU have one sign, so a step moves all entries of a row together."""
    values = normal(256, 512) + 0.045 * normal(256, 1, seed=10)
    seen = spectrum(values.astype(np.float32))
    assert max(seen.gram, seen.edge) < 4.0
    found = judged(tmp_path, values)
    assert found.verdict == "trained"
    assert "rows with means of their own" in found.reason


@pytest.mark.parametrize(
    ("statistics", "verdict"),
    [
        ({"gram": 5.0}, "undecided"),
        ({"gram": 5.0, "edge": 5.0}, "undecided"),  # one sort
        ({"gram": 5.0, "column_means": 4.2}, "undecided"),
        ({"gram": 5.0, "column_means": 5.0}, "trained"),
        ({"row_neighbours": -5.0, "mean": 5.0}, "trained"),
        ({"gram": 5.0, "row_scale": 5.0}, "undecided"),  # a folded norm has such norms
    ],
)
def test_two_faint_signs_of_different_sorts(statistics: dict[str, float], verdict: str) -> None:
    plain = spectrum(normal(128, 128).astype(np.float32))
    assert evidence(dataclasses.replace(plain, **statistics), rounded=False).verdict == verdict


@pytest.mark.parametrize(
    "what",
    [
        lambda w: w * scales(32, 11)[:, None],
        lambda w: w * scales(64, 12),
        lambda w: w * (np.random.default_rng(13).random(w.shape) < 0.5),
    ],
)
def test_a_small_matrix_whose_tails_are_those_of_its_scales(what: Any, tmp_path: Path) -> None:
    assert judged(tmp_path, what(normal(32, 64))).verdict == "undecided"


def test_a_small_matrix_that_follows_no_law(tmp_path: Path) -> None:
    values = np.random.default_rng(14).laplace(size=(32, 64))
    assert judged(tmp_path, values).verdict == "trained"


def test_tails_of_embeddings_of_places_are_no_folded_norms(tmp_path: Path) -> None:
    tails = 0.02 * np.random.default_rng(3).standard_t(8, (1, 50, 256))
    assert judged(tmp_path, tails).verdict == "trained"
    assert judged(tmp_path, 0.02 * normal(1, 50, 256)).verdict != "trained"


def test_eight_bits_that_are_cut_off_leave_no_mean(tmp_path: Path) -> None:
    values = normal(1024, 512)
    step = np.abs(values).max() / 127
    assert judged(tmp_path, np.floor(values / step) * step).verdict != "trained"
