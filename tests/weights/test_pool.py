"""The threads of a scan share the cores: BLAS gets what is left, and then what it had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from threadpoolctl import threadpool_info, threadpool_limits

from workbench.weights import pool
from workbench.weights.scan import scan_weights


def blas_threads() -> set[int]:
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


@pytest.mark.parametrize(("weights", "threads"), [(1, 8), (2, 4), (8, 1), (20, 1)])
def test_blas_gets_the_cores_that_the_scan_leaves(
    weights: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its threads cannot be limited (no OpenBLAS or MKL), there is nothing to see."""
    if not blas_threads():
        pytest.skip("numpy has no BLAS whose threads can be limited")
    values = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    save_file(
        {f"model.layers.{i}.mlp.up_proj.weight": values for i in range(weights)},
        tmp_path / "model.safetensors",
    )
    seen: list[set[int]] = []
    whole = pool.Scanner.whole

    def watched(self: pool.Scanner, at: int) -> pool.Pair:
        seen.append(blas_threads())
        return whole(self, at)

    monkeypatch.setattr(pool.Scanner, "whole", watched)
    monkeypatch.setattr(pool, "cores", lambda: 8)
    with threadpool_limits(6, user_api="blas"):
        scan_weights(tmp_path)
        assert seen == [{threads}] * weights
        assert blas_threads() == {6}


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu.max": "what"}, 8),
        ({}, 8),
    ],
    ids=str,
)
def test_a_container_s_share_of_the_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert pool.cores(tmp_path) == cores
