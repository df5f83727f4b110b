"""The statistics of singular values: calm on independent entries of any law, awake to structure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from benchmarks.weights_accuracy.schemes import normal, orthogonal, to_bf16, truncated, uniform
from workbench.weights.spectrum import DENSE, Spectrum, equilibrated, spectrum

Array = np.ndarray[Any, Any]
CALM = 4.5
STATISTICS = ("gram", "edge", "row_scale", "column_scale", "row_neighbours", "column_neighbours")
SHAPES = ((64, 64), (200, 32), (32, 2048), (256, 480), (3000, 96), (700, 640))


def values(seen: Spectrum) -> dict[str, float]:
    return {name: getattr(seen, name) for name in STATISTICS}


def planted(shape: tuple[int, int], factor: float, seed: int = 0) -> Array:
    """Noise and a direction of so many times (m n)^(-1/4) of its norm."""
    random = np.random.default_rng(seed)
    m, n = shape
    outer = np.outer(random.standard_normal(m), random.standard_normal(n))
    outer *= np.sqrt(m * n) / np.linalg.norm(outer)
    noise = random.standard_normal(shape)
    return np.asarray(noise + factor * (m * n) ** -0.25 * outer, dtype=np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("law", ["normal", "uniform", "truncated", "heavy"])
def test_independent_entries_are_calm(shape: tuple[int, int], law: str) -> None:
    for seed in range(3):
        random = np.random.default_rng([seed, *shape])
        drawn = {
            "normal": lambda random=random: normal(shape, 0.02, random),
            "uniform": lambda random=random: uniform(shape, 3.0, random),
            "truncated": lambda random=random: truncated(shape, 1.0, random),
            "heavy": lambda random=random: random.standard_t(12, shape).astype(np.float32),
        }[law]()
        found = values(spectrum(drawn))
        assert max(map(abs, found.values())) < CALM, found


def test_blocks_of_different_scales_are_noise_still() -> None:
    random = np.random.default_rng(1)
    fused = np.concatenate([normal((256, 192), sigma, random) for sigma in (0.02, 0.05, 0.01)])
    found = values(spectrum(fused))
    assert max(map(abs, found.values())) < CALM, found


def test_scales_of_columns_are_noise_too() -> None:
    random = np.random.default_rng(2)
    seen = spectrum(
        normal((300, 300), 1.0, random) * np.exp(random.standard_normal(300)).astype("f4")
    )
    assert abs(seen.gram) < CALM
    assert seen.edge < CALM
    assert seen.column_scale > 50  # they are no block's, and are told


@pytest.mark.parametrize("shape", [(256, 256), (96, 1000), (800, 600)])
def test_a_direction_is_seen_above_the_theoretical_limit_only(shape: tuple[int, int]) -> None:
    below = [spectrum(planted(shape, 0.5, seed)).edge for seed in range(4)]
    above = [spectrum(planted(shape, 2.2, seed)).edge for seed in range(4)]
    assert max(below) < CALM
    assert min(above) > 6.5


def test_lanczos_agrees_with_the_singular_values() -> None:
    matrix = planted((DENSE + 90, 900), 2.0)
    seen = spectrum(matrix)
    transposed = spectrum(np.ascontiguousarray(matrix.T))
    small = spectrum(np.ascontiguousarray(matrix[:DENSE]))
    assert seen.edge == pytest.approx(transposed.edge, rel=0.02)
    assert small.edge > 6.5
    # Against numpy's own: one that the edge's z value can be undone for.
    m, n = matrix.shape
    equal = matrix - matrix.mean()
    for _ in range(3):
        equal /= np.sqrt((equal**2).mean(axis=1, keepdims=True))
        equal /= np.sqrt((equal**2).mean(axis=0))
    largest = np.linalg.svd(equal, compute_uv=False)[0] ** 2
    root = np.sqrt(n - 1) + np.sqrt(m)
    spread = root * (1 / np.sqrt(n - 1) + 1 / np.sqrt(m)) ** (1 / 3)
    assert seen.edge == pytest.approx(((largest - root**2) / spread + 1.2065) / 1.268, rel=0.01)


def test_the_edge_of_pure_noise_is_reached_by_lanczos() -> None:
    found = [
        spectrum(np.random.default_rng(s).standard_normal((600, 4000), dtype="f4")).edge
        for s in range(8)
    ]
    assert -1.5 < np.mean(found) < 0.7
    assert 0.4 < np.std(found) < 1.6


@pytest.mark.parametrize("shape", [(128, 128), (64, 300), (300, 64)])
def test_orthogonal_rows(shape: tuple[int, int]) -> None:
    matrix = orthogonal(shape, np.random.default_rng(3))
    assert spectrum(matrix).orthogonality < 1e-9
    assert spectrum(to_bf16(matrix)).orthogonality < 1e-3
    assert spectrum(matrix).gram < -6.5
    assert spectrum(normal(shape, 1.0, np.random.default_rng(3))).orthogonality > 0.7


def test_it_is_blind_to_scale_and_leaves_its_input() -> None:
    matrix = planted((100, 150), 1.5)
    kept = matrix.copy()
    one, other = spectrum(matrix), spectrum(matrix * np.float32(2**-20))
    assert np.array_equal(matrix, kept)
    for name, value in values(one).items():
        assert getattr(other, name) == pytest.approx(value, abs=0.02), name


@pytest.mark.filterwarnings("error")
def test_degenerate_matrices_give_numbers() -> None:
    random = np.random.default_rng(4)
    with_holes = normal((64, 64), 1.0, random)
    with_holes[10:20] = 0
    with_holes[:, 5] = 0
    for matrix in (
        np.zeros((8, 8), "f4"), np.ones((8, 8), "f4"), np.ones((1, 8), "f4"), np.eye(8, dtype="f4"),
        normal((2, 500), 1.0, random), with_holes, normal((64, 64), 1e-18, random),
    ):  # fmt: skip
        seen = spectrum(matrix)
        assert all(np.isfinite(dataclasses.astuple(seen))), matrix[:2, :2]
    assert abs(spectrum(with_holes).gram) < CALM


@pytest.mark.parametrize("tiny", [1e-19, 1e-22, 1e-23, 1e-30])
def test_rows_and_columns_of_next_to_nothing_are_left_out(tiny: float) -> None:
    """Filters that died by weight decay: their squares are the smallest numbers that float32 has, or none."""
    values = np.random.default_rng(9).normal(size=(64, 96)).astype(np.float32)
    whole = spectrum(values[8:, 5:])
    values[:8] *= np.float32(tiny)
    values[:, :5] *= np.float32(tiny)
    found = spectrum(values)
    assert abs(found.gram - whole.gram) < 1.5
    assert max(abs(found.edge), abs(found.gram), abs(found.row_means)) < 5
    matrix = equilibrated(values)
    assert np.isfinite(matrix).all()
    assert np.abs(np.square(matrix).mean(axis=1) - 1).max() < 0.2
