"""What a changed draft would have said in the same rounds: as that draft itself says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench
from tests.replay_samples import beside as sample
from tests.speculation.faults.faults import INCIDENT, SINGLE, write
from workbench.errors import WorkbenchError
from workbench.speculation.model.loading import load_draft
from workbench.speculation.result import Replay
from workbench.speculation.rounds.run import replay_rounds

RUN = INCIDENT / "runs" / "sglang-0.5.14"


@pytest.fixture(scope="module")
def reversed_fc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (fault,) = (f for f in SINGLE if f.name == "fc-reversed")
    return write(fault.changes, tmp_path_factory.mktemp("draft") / "reversed")


@pytest.fixture(scope="module")
def broken(reversed_fc: Path) -> Replay:
    return workbench.replay(
        INCIDENT / "target", reversed_fc, evidence=RUN / "fc-reversed", requests=4
    )


def test_it_says_what_the_repaired_draft_says(broken: Replay) -> None:
    found = broken.with_change("fc order 3 2 1")
    assert found.kept is not None
    assert found.kept.beside is not None
    assert broken.kept is not None
    assert broken.kept.beside is None
    assert broken.trial is not None
    assert broken.trial.target is not None
    healthy = load_draft(
        workbench.open_checkpoint(INCIDENT / "drafts" / "specforge"), broken.trial.target,
        engine="sglang==0.5.14", numerics=broken.trial.draft.settings.numerics,
    )  # fmt: skip
    driving = broken.trial.driving
    columns = found.kept.columns
    starts = [columns.prefix[columns.request == row].tolist() for row in range(4)]
    wanted = replay_rounds(healthy, driving, broken.trial.trace, starts)
    same = (found.kept.beside.tokens == wanted.tokens).all(1)
    assert same.mean() > 0.97  # of another extend than in the run, in bfloat16
    assert found.kept.beside.accepted.mean() > columns.accepted.mean() + 0.7
    assert set(np.unique(found.kept.beside.tokens)) <= set(found.kept.words)


def test_a_fault_that_the_replay_proves_stands_beside_by_itself(tmp_path: Path) -> None:
    (fault,) = (f for f in SINGLE if f.name == "layer-prefixed")
    found = workbench.replay(
        INCIDENT / "target", write(fault.changes, tmp_path / "draft"), engine="sglang==0.5.14",
        prompts=[list(range(300, 340)), list(range(700, 760))] * 5, new_tokens=24,
        expected=2.4,
    )  # fmt: skip
    assert found.ok is False
    assert found.kept is not None
    assert found.kept.beside is not None
    assert found.kept.beside.change == "reload decoder layer"
    assert found.kept.beside.accepted.mean() > found.kept.columns.accepted.mean()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (("fc ordr 3 2 1",), "not a change"),
        ((), "list of changes is empty"),
        (("d2t as offsets",), "changes nothing"),
    ],
)
def test_a_change_that_cannot_stand_beside_is_refused(
    changes: tuple[str, ...], what: str, broken: Replay
) -> None:
    with pytest.raises(WorkbenchError, match=what):
        broken.with_change(*changes)


def test_a_saved_replay_keeps_it_and_can_make_no_other(tmp_path: Path) -> None:
    made = sample()
    made.save(tmp_path / "r.json")
    found = workbench.load(tmp_path / "r.json")
    assert isinstance(found, Replay)
    assert found == made
    assert found.kept is not None
    assert found.kept.beside is not None
    assert found.kept.beside.words == "the decoder layer as the file holds it"
    with pytest.raises(WorkbenchError, match="no changed draft"):
        found.with_change("fc order 3 2 1")


@pytest.mark.parametrize(
    ("field", "value"),
    [("accepted", [9] * 6), ("accepted", [1] * 5), ("tokens", [[1, 2]] * 6), ("tokens", [[1]])],
)
def test_a_file_whose_chains_do_not_fit_is_refused(field: str, value: Any, tmp_path: Path) -> None:
    data = json.loads(sample().to_json())
    data["kept"]["beside"][field] = value
    (tmp_path / "r.json").write_text(json.dumps(data))
    with pytest.raises(WorkbenchError):
        workbench.load(tmp_path / "r.json")
