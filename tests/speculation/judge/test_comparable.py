"""What a replay is held against: as a chain or a tree, and with as many drafts as are expected."""

from __future__ import annotations

import pytest

from tests.speculation.faults import evidence
from tests.speculation.faults.faults import INCIDENT, NEW, Fault
from workbench.speculation.evidence.observed import read_run
from workbench.speculation.judge.comparable import comparable
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.trial import Trial


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    fault = Fault("none", "", (), frozenset(), NEW, "EAGLE3")
    return evidence.of_fault(fault, tmp_path_factory.mktemp("healthy"), 2)


def test_a_tree_is_held_against_a_trainers_chain_as_a_chain(trial: Trial) -> None:
    served = trial.driving.replaced(topk=4, draft_tokens=9)
    promised = Expected.of_training(evidence.METRICS, 2)
    changed, notes = comparable(trial.replaced(driving=served, expected=promised))
    assert (changed.driving.topk, changed.driving.steps, changed.driving.draft_tokens) == (1, 2, 3)
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("topk", "known", "steps"),
    [
        (1, 1, 1),
        (1, 2, 2),
        (1, 3, 3),
        (1, 0, 3),
        (0, 2, 3),  # of the same tree as was served, of which not all positions are known
    ],
)
def test_only_a_chain_is_replayed_with_as_many_drafts_as_are_expected(
    trial: Trial, topk: int, known: int, steps: int
) -> None:
    expected = Expected(2.0, (0.5, 0.3, 0.2)[:known], topk=topk)
    given = trial.replaced(driving=trial.driving.replaced(steps=3), expected=expected)
    changed, notes = comparable(given)
    assert (changed.driving.steps, len(notes)) == (steps, int(steps < 3))


def test_a_tree_is_no_expectation_of_a_chain(trial: Trial) -> None:
    run = read_run(INCIDENT / "runs" / "sglang-0.5.14" / "speculators-tree")
    chain = trial.replaced(expected=Expected.of_run(run))
    changed, notes = comparable(chain)
    assert changed.expected is None
    assert "width 4" in notes[0]
    tree = chain.replaced(driving=chain.driving.replaced(topk=4))
    assert comparable(tree) == (tree, [])
