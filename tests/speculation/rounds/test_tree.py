"""The tree: SGLang's selection and parents, told again step by step for one round at a time."""

from __future__ import annotations

import pytest
import torch

from workbench.speculation.model.target import ancestry
from workbench.speculation.rounds import tree as trees


def grown(
    topk: int, steps: int, nodes: int, seed: int
) -> tuple[trees.Tree, list[list[float]], list[list[int]], list[list[int]]]:
    """Grow trees of three rounds; return them, and for round 1 its scores, tokens and parent lists."""
    g = torch.Generator().manual_seed(seed)
    p, ids = draw(g, 3, topk)
    level = trees.first_level(p, ids)
    levels = [level]
    scores, tokens, parents = [p[1].tolist()], [ids[1].tolist()], [list(range(-1, topk))]
    own = p[1].tolist()
    for step in range(1, steps):
        p, ids = draw(g, 3 * topk, topk)
        p, ids = p.reshape(3, topk, topk), ids.reshape(3, topk, topk)
        level = trees.next_level(level, p, ids)
        levels.append(level)
        flat = [own[branch] * float(p[1, branch, n]) for branch in range(topk) for n in range(topk)]
        order = sorted(range(topk * topk), key=lambda n: -flat[n])[:topk]
        scores.append(flat)
        tokens.append(ids[1].flatten().tolist())
        parents.append([n + topk * topk * (step - 1) + topk for n in order])
        own = [flat[n] for n in order]
    return trees.prune(levels, nodes), scores, tokens, parents


def draw(g: torch.Generator, rows: int, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    p = torch.rand(rows, 50, generator=g).softmax(-1).sort(-1, descending=True).values[:, :topk]
    p = p + torch.rand(rows, topk, generator=g) * 1e-3
    ids = torch.stack([torch.randperm(1000, generator=g)[:topk] for _ in range(rows)])
    return p.sort(-1, descending=True).values, ids


@pytest.mark.parametrize(("topk", "steps", "nodes"), [(4, 4, 15), (2, 3, 6), (3, 5, 30), (8, 2, 9)])
def test_selection_and_parents_are_sglangs(topk: int, steps: int, nodes: int) -> None:
    tree, scores, tokens, parents = grown(topk, steps, nodes, seed=topk)
    flat = [s for level in scores for s in level]
    named = [t for level in tokens for t in level]
    kept = sorted(sorted(range(len(flat)), key=lambda n: -flat[n])[:nodes])
    assert tree.tokens[1].tolist() == [named[n] for n in kept]
    listed = [n for level in parents[:-1] for n in level]
    for node, candidate in enumerate(kept):
        block = candidate // topk  # which entry of the parent list it hangs on; 0 is the root
        wanted = -1 if block == 0 else kept.index(listed[block])
        assert int(tree.parents[1, node]) == wanted
        above = 0 if wanted < 0 else int(tree.depths[1, wanted])
        assert int(tree.depths[1, node]) == above + 1
        assert wanted < node


def test_a_chain_keeps_every_step_whatever_its_score() -> None:
    level = trees.first_level(torch.tensor([[1e-9]]), torch.tensor([[5]]))
    after = trees.next_level(level, torch.tensor([[[float("nan")]]]), torch.tensor([[[7]]]))
    last = trees.next_level(after, torch.tensor([[[1.0]]]), torch.tensor([[[9]]]))
    tree = trees.prune([level, after, last], 3)
    assert tree.tokens.tolist() == [[5, 7, 9]]
    assert tree.parents.tolist() == [[-1, 0, 1]]
    assert tree.depths.tolist() == [[1, 2, 3]]


def test_a_node_sees_its_ancestors_and_nobody_else() -> None:
    parents = torch.tensor([[-1, -1, 0, 2, 1]])
    seen, depth = ancestry(parents)
    assert depth.tolist() == [[1, 1, 2, 3, 2]]
    assert [row.nonzero()[:, 0].tolist() for row in seen[0]] == [
        [0],
        [1],
        [0, 2],
        [0, 2, 3],
        [1, 4],
    ]


def test_of_equals_the_first_is_the_best() -> None:
    values, where = trees.best(torch.tensor([[1.0, 3.0, 3.0, 3.0]]), 2)
    assert where.tolist() == [[1, 2]]
    assert values.tolist() == [[3.0, 3.0]]
    assert trees.best(torch.tensor([[1.0, float("nan"), 2.0]]), 1)[1].tolist() == [[1]]
