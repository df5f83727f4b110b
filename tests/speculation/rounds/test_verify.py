"""Verification: the greedy walk, and samplers that must give the target's own distribution."""

from __future__ import annotations

import pytest
import torch

from workbench.speculation.rounds.tree import Tree
from workbench.speculation.rounds.verify import greedy, sample_sglang, sample_vllm


def tree_of(tokens: list[int], parents: list[int]) -> Tree:
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    rows = [
        torch.tensor([x]) for x in (tokens, [0.5] * len(tokens), parents, depths, parents, parents)
    ]
    return Tree(*rows)


def test_the_walk_follows_the_target_and_stops_where_it_turns() -> None:
    tokens, parents = [5, 6, 7, 8, 9, 7], [-1, -1, 0, 1, 3, 1]
    walk = greedy(tree_of(tokens, parents), torch.tensor([[6, 8, 1, 2]]))
    assert int(walk.accepted) == 2
    assert walk.taken.tolist() == [[False, True, False, True, False, False]]
    assert int(walk.bonus) == 1
    # 7 hangs on 5 and on 6; the one below 6 is taken.
    walk = greedy(tree_of(tokens, parents), torch.tensor([[6, 7, 3, 2]]))
    assert walk.taken.tolist() == [[False, True, False, False, False, True]]
    assert int(greedy(tree_of(tokens, parents), torch.tensor([[4, 6, 8, 9]])).accepted) == 0


def test_the_walk_ends_where_the_text_does() -> None:
    walk = greedy(tree_of([5, 6, 7], [-1, 0, 1]), torch.tensor([[5, -1, -1, -1]]))
    assert (int(walk.accepted), int(walk.bonus)) == (1, -1)
    whole = greedy(tree_of([5, 6, 7], [-1, 0, 1]), torch.tensor([[5, 6, 7, 3]]))
    assert (int(whole.accepted), int(whole.bonus)) == (3, 3)


def test_of_two_siblings_of_one_token_the_first_is_taken() -> None:
    walk = greedy(tree_of([5, 5, 6], [-1, -1, 1]), torch.tensor([[5, 6, 1]]))
    assert walk.taken.tolist() == [[True, False, False]]


P = torch.tensor([0.45, 0.3, 0.15, 0.1])
DRAWS = 4000


def first_tokens(kind: str) -> torch.Tensor:
    """Return how often each token is emitted first, as a share."""
    g = torch.Generator().manual_seed(11)
    target = torch.stack([P, P.flip(0), P.roll(1), P.roll(2)])
    count = torch.zeros(4)
    for _ in range(DRAWS):
        if kind == "sglang tree":
            path, last = sample_sglang([1, 3, 0], [-1, -1, 0], target, g)
            count[[1, 3, 0][path[0]] if path else last] += 1
        elif kind == "sglang chain":
            path, last = sample_sglang([2, 0], [-1, 0], target[:3], g)
            count[2 if path else last] += 1
        else:
            draft = None
            drafted = [2, 0]
            if kind == "vllm with probabilities":
                draft = torch.tensor([[0.1, 0.2, 0.6, 0.1], [0.7, 0.1, 0.1, 0.1]])
                drafted = [int(torch.multinomial(row, 1, generator=g)) for row in draft]
            accepted, last = sample_vllm(drafted, target[:3], g, draft)
            count[drafted[0] if accepted else last] += 1
    return count / DRAWS


@pytest.mark.parametrize("kind", ["sglang chain", "sglang tree", "vllm", "vllm with probabilities"])
def test_sampling_keeps_the_targets_distribution(kind: str) -> None:
    # Four standard deviations of a share of 4000 draws are at most 0.032.
    torch.testing.assert_close(first_tokens(kind), P, rtol=0, atol=0.032)


def test_a_chain_is_accepted_as_often_as_the_target_would_say_it() -> None:
    g = torch.Generator().manual_seed(5)
    target = torch.stack([P, P])
    took = sum(len(sample_sglang([0], [-1], target, g)[0]) for _ in range(DRAWS)) / DRAWS
    assert took == pytest.approx(0.45, abs=0.032)


def test_a_threshold_lets_likely_tokens_pass() -> None:
    g = torch.Generator().manual_seed(5)
    target = torch.stack([P, P])
    assert all(sample_sglang([0], [-1], target, g, 0.4)[0] == [0] for _ in range(50))
    # Nothing that the target cannot say is ever taken.
    sure = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    assert all(sample_sglang([0], [-1], sure, g) == ([], 1) for _ in range(50))
    assert sample_vllm([0], sure, g)[0] == 0
