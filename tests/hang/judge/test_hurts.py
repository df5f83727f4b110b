"""Sixteen states of a real SGLang 0.5.14 on two H200, each recorded by the collector.

`data/scripts/incident/hang_gpu_hurts.py` made them; `truth.json` next to the zips says what was done.
Two ranks of one server: the one that was hurt is behind.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench

FOLDER = Path(__file__).parents[1] / "cases" / "gpu" / "hurts"
# The states that are right, and the ranks that have to be named; an abstention names none.
EXPECTED: dict[str, tuple[set[str], tuple[int, ...]]] = {
    "idle": ({"idle"}, ()),
    "load": ({"idle", "serving"}, ()),  # its requests had been answered
    "stopped-1": ({"hung"}, (1,)),
    "stopped-detokenizer": ({"stopped"}, ()),
    "sleep-1": ({"hung"}, (1,)),
    "sleep-0": ({"hung"}, (0,)),
    "spin-1": ({"cannot_tell"}, ()),
    "lock-1": ({"hung"}, (1,)),
    "queue-0": ({"hung"}, (0,)),
    "future-1": ({"hung"}, (1,)),
    "child-1": ({"hung"}, (1,)),
    "pipe-1": ({"hung"}, (1,)),
    "kernel-1": ({"hung"}, (1,)),
    "compute-1": ({"slow", "cannot_tell"}, ()),
    "extra-1": ({"hung"}, (1,)),
    "gloo-1": ({"hung"}, (1,)),
}


def test_every_recording_is_judged() -> None:
    recorded = json.loads((FOLDER / "truth.json").read_text())
    assert set(recorded) == set(EXPECTED) == {path.stem for path in FOLDER.glob("*.zip")}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hurt_of_a_real_server_is_named(name: str) -> None:
    states, behind = EXPECTED[name]
    got = workbench.open_evidence(FOLDER / f"{name}.zip")
    assert got.state in states
    assert got.odd_ranks == behind
    assert got.ok is (True if got.state in ("idle", "serving") else got.ok)
    assert got.ok is not True or got.state in ("idle", "serving")
    if got.state == "hung":
        assert got.ok is False


def test_what_the_watch_recorded_by_itself_names_the_rank() -> None:
    """A case of `workbench watch` on two H200 (`data/scripts/incident/watch_gpu.py`)."""
    got = workbench.open_evidence(FOLDER.parent / "watched-sleep-1.zip")
    assert (got.state, got.odd_ranks, got.ok) == ("hung", (1,), False)
