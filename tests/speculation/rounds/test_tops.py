"""What the target says at the nodes of a tree: held against running it over each path by itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.speculation.model.test_draft import target_of, write_draft
from workbench.checkpoint.open import open_checkpoint
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.run import generate, replay_rounds
from workbench.speculation.rounds.tops import tops_of

TREE = Driving(steps=3, topk=3, draft_tokens=12, aux=(1, 2, 4))


@pytest.fixture
def case(tmp_path: Path) -> tuple[LlamaTarget, TargetTrace, Replayed]:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    return target, *generate(target, draft, TREE, [[5, 9, 2, 30], [7, 1, 1]], 10)


def path_of(round_: object, node: int) -> list[int]:
    nodes, tokens = round_.nodes, []  # type: ignore[attr-defined]
    while node >= 0:
        tokens.append(nodes[node].token)
        node = nodes[node].parent
    return tokens[::-1]


def test_each_node_has_what_the_target_says_at_its_parent(
    case: tuple[LlamaTarget, TargetTrace, Replayed],
) -> None:
    target, trace, replayed = case
    tops = tops_of(trace, replayed)
    fallen = 0
    for row in range(len(replayed)):
        told = tops.with_target_choices(replayed.round(row), row)
        text = trace.tokens[told.request, : told.prefix].tolist()
        for node in told.nodes:
            path = text + path_of(told, node.parent)
            alone = target.trace([path], [1], keep=())
            assert alone.choices is not None
            assert [t for t, _ in node.target_top] == alone.choices.tokens[0, -1].tolist()
            shares = [p for _, p in node.target_top]
            assert shares == pytest.approx(alone.choices.probabilities[0, -1].tolist(), abs=1e-5)
            fallen += node.parent >= 0 and not told.nodes[node.parent].accepted
            if not node.accepted and node.reason.startswith("target chose"):
                assert node.reason == f"target chose {node.target_top[0][0]}"
    assert fallen > 20  # most of it hangs on drafts that fell


def test_what_nobody_asked_is_unknown(case: tuple[LlamaTarget, TargetTrace, Replayed]) -> None:
    _, trace, replayed = case
    nodes = replayed.tokens.shape[1]
    few = tops_of(trace, replayed, most=nodes)
    alone = tops_of(dataclasses.replace(trace, target=None), replayed)
    nothing = tops_of(dataclasses.replace(trace, target=None, choices=None), replayed)
    for row in range(len(replayed)):
        for node in range(nodes):
            assert bool(few.at(row, node + 1)) == (row == 0 or bool(replayed.taken[row, node]))
            assert bool(alone.at(row, node + 1)) == bool(replayed.taken[row, node])
            assert nothing.at(row, node + 1) == ()
        assert len(few.at(row, 0)) == 5
        assert few.at(row, nodes + 1) == ()


def test_behind_a_token_that_the_target_has_not_nothing_is_known(
    case: tuple[LlamaTarget, TargetTrace, Replayed],
) -> None:
    target, trace, replayed = case
    tokens = replayed.tokens.copy()
    tokens[:, 0] = target.vocabulary + 3
    odd = dataclasses.replace(replayed, tokens=tokens, taken=replayed.taken & False)
    tops = tops_of(trace, odd)
    below = {0}
    for node, parent in enumerate(replayed.parents[0].tolist()):
        if parent in below:
            below.add(node)
        assert bool(tops.at(0, node + 1)) == (node not in below)
    assert len(below) < replayed.tokens.shape[1]


@pytest.mark.parametrize(("topk", "tokens"), [(1, 4), (3, 8)])
def test_the_drafts_own_best_are_kept_behind_each_node_that_it_drafted_on(
    topk: int, tokens: int, tmp_path: Path
) -> None:
    target = target_of()
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    driving = Driving(3, topk, tokens, (1, 2, 4))
    trace = target.trace([[5, 9, 2, 30, 7, 1, 8, 3], [7, 1, 1, 4, 6, 6, 2]], [3, 2])
    found = replay_rounds(draft, driving, trace, [[4, 6], [3]], tops=True)
    for row in range(len(found)):
        for node, parent in enumerate(found.parents[row].tolist()):
            own = found.first[row] if parent < 0 else found.own[row, parent]
            assert found.tokens[row, node] in own[:topk]
        at_end = found.own[row][found.depths[row] == driving.steps]
        assert (at_end == -1).all()
    asked = replay_rounds(draft, driving, trace, [[4, 6], [3]])
    assert (asked.own == -1).all()
    assert (asked.tokens == found.tokens).all()
