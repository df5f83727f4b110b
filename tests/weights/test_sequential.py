"""Templates of many matrices: a sketch of each, and the full spectrum where it could change the answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.weights.stored import Array, normal
from tests.weights_samples import pair
from workbench.weights import sequential
from workbench.weights.results import WeightScan
from workbench.weights.scan import scan_weights
from workbench.weights.sequential import SKETCHED

SIDE, COUNT = 128, 20


def scanned(folder: Path, change: dict[int, Array], monkeypatch: pytest.MonkeyPatch) -> WeightScan:
    monkeypatch.setattr(sequential, "SKETCH", SIDE * SIDE // 2)
    monkeypatch.setattr("workbench.weights.pool.SKETCH", SIDE * SIDE // 2)
    monkeypatch.setattr(sequential, "SMALLEST_SIZE_4_BITS", 0)
    values = {at: change.get(at, normal(SIDE, SIDE, seed=at)) for at in range(COUNT)}
    named = {f"layers.{at}.up_proj.weight": torch.from_numpy(one) for at, one in values.items()}
    save_file(named, folder / "model.safetensors")
    return scan_weights(folder)


def sketched(scan: WeightScan) -> list[str]:
    return [row.name for row in scan.tensors if dict(row.statistics).get(SKETCHED)]


def test_of_a_template_at_init_eight_are_judged_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = scanned(tmp_path, {}, monkeypatch)
    assert {row.verdict for row in scan.tensors} == {"at_init"}
    assert len(sketched(scan)) == COUNT - 8
    row = scan.tensors[sketched(scan)[0]]
    assert "from 64 of 128 rows" in row.power_text
    assert "8 of its siblings were judged in full" in "; ".join(row.corroboration)


def test_one_that_shows_training_has_all_of_them_judged_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    directions = random.standard_normal((SIDE, 4)) * np.exp(random.standard_normal((SIDE, 1)))
    other = directions @ (random.standard_normal((4, SIDE)) * np.exp(random.standard_normal(SIDE)))
    trained = normal(SIDE, SIDE) + np.float32(other) * 0.05
    scan = scanned(tmp_path, {7: trained}, monkeypatch)
    assert scan.tensors["layers.7.up_proj.weight"].verdict == "trained"
    assert sketched(scan) == []
    assert [row.verdict for row in scan.tensors].count("at_init") == COUNT - 1


def test_what_only_the_full_spectrum_sees_is_seen_where_all_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A direction too weak for half of the rows: eight in full show it, so all are judged in full."""
    random = np.random.default_rng(4)
    outer = np.outer(random.standard_normal(SIDE), random.standard_normal(SIDE)) * 0.02 / SIDE
    weak = {
        at: normal(SIDE, SIDE, seed=at) + np.float32(outer) * np.float32(19.5)
        for at in range(COUNT)
    }
    scan = scanned(tmp_path, weak, monkeypatch)
    verdicts = [row.verdict for row in scan.tensors]
    assert verdicts.count("undecided") > COUNT // 2
    assert sketched(scan) == []


def test_the_same_scan_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (scanned(tmp_path, {}, monkeypatch) for _ in range(2))
    assert sketched(first) == sketched(again)


@pytest.mark.parametrize(
    ("left_open", "open_in_full", "in_full"),
    [
        (0, (), 8),
        (2, (), 10),  # a tenth of 20: those two and the eight
        (3, (), 20),  # more than chance leaves open
        (2, (0,), 10),  # one of the eight stays open in full
        (2, (0, 19), 20),  # and two of them
        (2, (3, 4), 10),  # those that the sketch left open say nothing of the others
    ],
)
def test_a_few_open_sketches_do_not_have_all_judged_in_full(
    left_open: int, open_in_full: tuple[int, ...], in_full: int
) -> None:
    asked: list[int] = []

    def judged(at: int, verdict: Any) -> tuple[int, sequential.Pair]:
        measure, judgement = pair(f"layers.{at}.up_proj.weight", (64, 64), "at_init")
        return at, (measure, dataclasses.replace(judgement, verdict=verdict))

    def again(some: list[int]) -> sequential.Found:
        asked.extend(some)
        for at in some:
            yield judged(at, "undecided" if at in open_in_full else "at_init")

    # The eight are 0, 2, 5, 8, 10, 13, 16 and 19: those that a sketch leaves open are others.
    open_ = (3, 4, 6)[:left_open]
    first = (judged(at, "undecided" if at in open_ else "at_init") for at in range(COUNT))
    found = dict(sequential.refined(iter(first), dict.fromkeys(range(COUNT), 0), again))
    assert sorted(found) == list(range(COUNT))
    assert len(asked) == in_full
