"""States of real servers on H200, each recorded by the collector or by the watch.

Sixteen of SGLang 0.5.14 with two ranks (`data/scripts/incident/hang_gpu_hurts.py`; `truth.json` next to the
zips says what was done): the rank that was hurt is behind. The others, of 0.5.14 and 0.5.11, are of
`hang_gpu_more.py`: replicas and one rank (`more`), and two ranks that share a card (`shared`). What is
expected of them (`expected.json`) was written before they were recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench

FOLDER = Path(__file__).parents[1] / "cases" / "gpu" / "hurts"
OTHERS = {
    f"{folder}/{name}": expected
    for folder in ("more", "shared")
    for name, expected in json.loads((FOLDER.parent / folder / "expected.json").read_text()).items()
}
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


def test_every_further_recording_is_judged() -> None:
    recorded = {f"{path.parent.name}/{path.stem}" for path in FOLDER.parent.glob("*/*.zip")}
    assert set(OTHERS) == {name for name in recorded if not name.startswith("hurts/")}


@pytest.mark.parametrize("name", OTHERS)
def test_a_hurt_of_other_servers_is_as_expected_beforehand(name: str) -> None:
    expected = OTHERS[name]
    got = workbench.open_evidence(FOLDER.parent / f"{name}.zip")
    assert got.state in expected["states"]
    assert set(expected.get("must", ())) <= set(got.odd_ranks) <= set(expected["may"])
    assert (got.ok is True) is expected.get("ok", False)
    assert got.version == ("0.5.11" if "/old-" in name else "0.5.14")


@pytest.mark.parametrize("name", ["capture-hidden", "old-capture-hidden", "old-capture-hidden_oom"])
def test_who_left_the_capture_is_told_and_a_shared_card_counts_once(name: str) -> None:
    got = workbench.open_evidence(FOLDER.parent / "shared" / f"{name}.zip")
    [note] = [one for one in got.findings if one.code == "left_the_capture"]
    assert note.title.startswith("TP1 registers the buffers of its capture, TP0 is still in")
    assert any(text.startswith("1 GPU: ") for text in got.findings[0].evidence_for)
    assert "which rank is at fault is not known" in got.findings[0].title
    assert got.findings[0].next_step.startswith("--disable-custom-all-reduce")
