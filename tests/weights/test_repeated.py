"""Rows that are copies of other rows: named, unless a design repeats them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.weights_samples import pair
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights

GOOD = pair("layers.0.mlp.up_proj.weight", (64, 64))
UP = "layers.1.mlp.up_proj.weight"
TERNARY = ((-1.0, 0.0, 1.0, 2.0), (30, 40, 30))


@pytest.mark.parametrize(
    ("name", "shape", "more", "open_"),
    [
        (UP, (64, 64), {"copied_rows": 0.25}, True),
        (UP, (64, 64), {"copied_rows": 0.24}, False),
        (UP, (32, 64), {"copied_rows": 0.5}, True),
        (UP, (31, 64), {"copied_rows": 0.5}, False),
        (UP, (64, 63), {"copied_rows": 0.5}, False),
        (UP, (4, 64, 64), {"copied_rows": 0.5}, False),  # experts that were copied from one
        (UP, (64, 64), {"copied_rows": 0.5, "layout": "int4"}, False),
        (UP, (64, 64), {"copied_rows": 0.5, "bins": TERNARY}, False),
        ("layers.1.self_attn.q_proj.weight", (64, 64), {"copied_rows": 0.75}, True),
        ("layers.1.self_attn.k_proj.weight", (64, 64), {"copied_rows": 0.75}, False),
        ("layers.1.self_attn.qkv_proj.weight", (64, 64), {"copied_rows": 0.5}, False),
        ("transformer.h.1.attn.c_attn.weight", (64, 64), {"copied_rows": 0.5}, False),
        ("model.embed_tokens.weight", (64, 64), {"copied_rows": 0.5}, False),
    ],
)
def test_what_may_repeat_rows(
    name: str, shape: tuple[int, ...], more: dict[str, object], open_: bool
) -> None:
    found = WeightScan.build("models/x", [GOOD, pair(name, shape, **more)])
    codes = {finding.code for finding in found.findings}
    assert ("weights.repeated_rows" in codes) is open_
    assert found.ok is (None if open_ else True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_half_that_was_written_twice_is_found_in_the_file(dtype: type, tmp_path: Path) -> None:
    random = np.random.default_rng(3)

    def trained(seed: int) -> np.ndarray:  # type: ignore[type-arg]
        draw = np.random.default_rng(seed)
        signal = draw.normal(size=(128, 4)) @ draw.normal(size=(4, 96))
        return ((random.normal(size=(128, 96)) + signal) * 0.02).astype(dtype)

    good, bad = trained(1), trained(2)
    save_file({UP: bad, "layers.0.mlp.up_proj.weight": good}, tmp_path / "model.safetensors")
    whole = scan_weights(tmp_path)
    assert whole.ok is True
    assert whole.tensors[UP].copied_rows < 0.05
    bad[64:] = bad[:64]
    save_file({UP: bad, "layers.0.mlp.up_proj.weight": good}, tmp_path / "model.safetensors")
    found = scan_weights(tmp_path)
    assert found.tensors[UP].copied_rows == 0.5
    assert found.ok is None
    assert "50 % of the rows are copies of other rows" in found.to_text(120)
    rows = bad.astype(np.float64)
    rows /= np.linalg.norm(
        rows, axis=1, keepdims=True
    )  # all of one norm: it tells no row from another
    save_file({UP: rows.astype(dtype)}, tmp_path / "model.safetensors")
    assert scan_weights(tmp_path).tensors[UP].copied_rows == 0.0
