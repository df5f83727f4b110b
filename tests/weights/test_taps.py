"""Taps of a convolution's kernels: training shows in them where the matrix shows nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import workbench
from workbench.weights.taps import taps_of

SHAPE = (64, 48, 3)


def kernel(seed: int = 0, louder: float = 1.0, alike: float = 0.0) -> Any:
    """Return kernels whose middle tap is louder, or whose taps have something in common."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(SHAPE) + alike * random.standard_normal((*SHAPE[:2], 1))
    values[:, :, 1] *= louder
    return values.astype("f4")


def z_of(values: Any) -> float:
    taps = taps_of(values.reshape(len(values), -1), values.shape)
    return taps.z if taps else 0.0


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (kernel(), -10, 4),
        (kernel(louder=1.02), -10, 4),
        (kernel(louder=1.3), 6.5, 1e9),
        (kernel(alike=0.1), -10, 4),  # a correlation as small as fed-forward errors leave
        (kernel(alike=0.5), 6.5, 1e9),
        (np.repeat(kernel()[:, :, :1], 3, axis=2), -1, 1),  # inflated over time: copies
    ],
)
def test_taps_that_differ_or_depend_on_each_other(values: Any, low: float, high: float) -> None:
    assert low <= z_of(values) <= high


def test_no_taps_no_answer() -> None:
    plain = kernel()[:, :, :1]
    assert taps_of(plain.reshape(64, -1), plain.shape) is None
    assert taps_of(kernel().reshape(64, -1)[:, :90], SHAPE) is None  # a part of the columns


@pytest.mark.parametrize(("louder", "verdict"), [(1.0, "undecided"), (1.6, "trained")])
def test_a_folded_norm_hides_training_but_not_in_the_taps(
    louder: float, verdict: str, tmp_path: Path
) -> None:
    folded = kernel(louder=louder) * np.exp(np.random.default_rng(1).normal(0, 0.7, (64, 1, 1)))
    save_file({"block.conv.weight": torch.tensor(folded).float()}, tmp_path / "model.safetensors")
    found = workbench.scan_weights(tmp_path).tensors["block.conv.weight"]
    assert found.verdict == verdict
    assert ("taps of its kernels" in found.reason) == (verdict == "trained")
