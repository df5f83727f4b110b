"""Structure that no training made is not called trained; what is trained still is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.weights.stored import Array, judged, normal, trained


def fed_back(values: Array, loud: int, times: float, seed: int) -> Array:
    """Round to 15 levels a row and group of 128, and feed each column's error into later ones (GPTQ)."""
    random = np.random.default_rng(seed)
    width = values.shape[1]
    seen = random.standard_normal((3 * width, width))
    seen[:, random.permutation(width)[:loud]] *= times
    hessian = seen.T @ seen
    hessian += np.eye(width) * 0.01 * np.diag(hessian).mean()
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T
    left, found = values.astype(np.float64), np.empty_like(values)
    for at in range(width):
        if at % 128 == 0:
            scale = np.abs(left[:, at : at + 128]).max(axis=1) / 7
        found[:, at] = np.clip(np.rint(left[:, at] / scale), -8, 7) * scale
        error = (left[:, at] - found[:, at]) / upper[at, at]
        left[:, at:] -= np.outer(error, upper[at, at:])
    return found


def orthogonal(size: int) -> Array:
    q, r = np.linalg.qr(normal(size, size, seed=5))
    return np.asarray(q * np.sign(np.diag(r)))


RANDOM: dict[str, tuple[Callable[[], Array], str]] = {
    "error feedback": (lambda: fed_back(normal(384, 384), 6, 60, 1), "direction"),
    "product": (lambda: normal(384, 192) @ normal(192, 512), "product of random factors"),
    "product of few": (lambda: normal(384, 12) @ normal(12, 512), "product of random factors"),
    "three factors": (
        lambda: normal(384, 256) @ normal(256, 256) @ normal(256, 512),
        "product of random factors",
    ),
    "merged adapter": (
        lambda: normal(512, 512) + normal(512, 48, seed=1) @ normal(48, 512, seed=2) * 7,
        "product of random factors",
    ),
    "merged adapter of few": (
        lambda: normal(512, 512) + normal(512, 8, seed=1) @ normal(8, 512, seed=2) * 12,
        "8 directions only",
    ),
    "slice of an orthogonal init": (lambda: orthogonal(512)[:200, :384], "orthogonal"),
    "repeated heads": (
        lambda: np.repeat(normal(4, 48, 384), 3, axis=0).reshape(-1, 384),
        "192 × 384 distinct",
    ),
    "tiles": (lambda: np.tile(normal(128, 96), (3, 4)), "128 × 96 distinct"),
    "block diagonal": (
        lambda: np.kron(np.eye(6), np.ones((64, 64))) * normal(384, 384),
        "",
    ),
    "copies on a diagonal": (lambda: np.kron(np.eye(6), normal(64, 64)), "64 × 64 distinct"),
}


@pytest.mark.parametrize("kind", RANDOM)
def test_structure_of_random_values_is_no_training(tmp_path: Path, kind: str) -> None:
    make, why = RANDOM[kind]
    found = judged(tmp_path, make())
    assert (found.verdict, why in found.reason) == ("undecided", True), found.reason


TRAINED: dict[str, Callable[[], Array]] = {
    "error feedback": lambda: fed_back(
        trained("model.layers.3.mlp.up_proj.weight")[:256], 6, 20, 2
    ),
    "repeated heads": lambda: np.repeat(
        trained("model.layers.3.self_attn.k_proj.weight").reshape(4, 32, 256), 2, axis=0
    ).reshape(-1, 256),
    "merged adapter": lambda: (
        trained("model.layers.3.mlp.gate_proj.weight") + normal(480, 8) @ normal(8, 256) * 10
    ),
    "transposed": lambda: trained("model.layers.3.mlp.down_proj.weight").T,
    "spread evenly": lambda: trained("model.layers.6.mlp.up_proj.weight"),
}


@pytest.mark.parametrize("kind", TRAINED)
def test_the_same_done_to_trained_values_is_training(tmp_path: Path, kind: str) -> None:
    found = judged(tmp_path, TRAINED[kind]())
    assert found.verdict == "trained", found.reason


def test_orthogonal_is_an_init_only_where_the_entries_follow_its_law(tmp_path: Path) -> None:
    assert judged(tmp_path, orthogonal(256)[:128]).family == "orthogonal"
    left, _, right = np.linalg.svd(
        trained("layers.0.self_attn.k_proj.weight", "drafts/speculators"), full_matrices=False
    )
    found = judged(tmp_path, torch.from_numpy(left @ right).bfloat16())
    assert found.verdict == "undecided"
    assert "do not follow the law of an orthogonal init" in found.reason
