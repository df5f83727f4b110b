"""The pair of another shape on a real engine: the replay does what the engine did, healthy or broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.speculation.faults import untuned

pytest.importorskip("transformers")
REQUESTS = 16


@pytest.mark.parametrize("fault", untuned.RECORDED, ids=lambda fault: fault.name)
def test_the_recorded_rounds_are_replayed(fault: untuned.Fault, tmp_path: Path) -> None:
    trial = untuned.of_recording(fault.name, REQUESTS, tmp_path / "draft", fault)
    replayed = trial.replayed
    assert replayed.agrees().mean() > 0.95
    assert trial.observed == pytest.approx(replayed.accept_length, abs=0.06)


def test_the_rounds_of_a_broken_draft_are_not_those_of_the_healthy_one(tmp_path: Path) -> None:
    """What the test above would not notice: files that make no difference."""
    (reversed_fc,) = (fault for fault in untuned.RECORDED if fault.name == "fc-reversed")
    trial = untuned.of_recording("chain", REQUESTS, tmp_path / "draft", reversed_fc)
    assert trial.replayed.agrees().mean() < 0.7
