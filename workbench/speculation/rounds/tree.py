"""The draft's tree as SGLang grows and prunes it; a chain is the tree of width one.

Level 0 holds the k best tokens of the root. Each later level runs the k branches that are forwarded, takes
the k best of each (k² candidates, scored by the product of probabilities), records all of them and forwards
the best k. In the end the best candidates of all levels are kept, in the order in which they were recorded.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Level:
    """Candidates of one level, [rounds, k] at first and [rounds, k · k] later.

    Attributes
    ----------
    scores, tokens, probabilities
        Product of probabilities along the path, target id, and the draft's probability at its place.
    forwarded
        Which of them are run further, [rounds, k], best first.
    """

    scores: Tensor
    tokens: Tensor
    probabilities: Tensor
    forwarded: Tensor


@dataclasses.dataclass(frozen=True)
class Tree:
    """What is kept, [rounds, nodes]; parents come before their children.

    Attributes
    ----------
    tokens, probabilities
        Target id, and the draft's probability of it at its place.
    parents
        Index of each node's parent, -1: the root.
    depths
        1 for a child of the root.
    branches
        Which of the branches forwarded at the level before a node hangs on; 0 at the first level.
    runs
        Which of the branches forwarded at its own level a node is; -1: it was not drafted on.
    """

    tokens: Tensor
    probabilities: Tensor
    parents: Tensor
    depths: Tensor
    branches: Tensor
    runs: Tensor


def best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of each row and where they stand; of equals the first comes first."""
    if count == 1:
        # NaN counts as the largest here, as on a GPU.
        where = values.argmax(-1, keepdim=True)
        return values.gather(-1, where), where
    order = values.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return values.gather(-1, order), order


def first_level(probabilities: Tensor, ids: Tensor) -> Level:
    """Return level 0 of the root's k best, both [rounds, k]."""
    import torch

    count = ids.shape[-1]
    all_of_them = torch.arange(count, device=ids.device).expand_as(ids)
    return Level(probabilities, ids, probabilities, all_of_them)


def next_level(before: Level, probabilities: Tensor, ids: Tensor) -> Level:
    """Return the level that follows.

    Parameters
    ----------
    before
        The level whose forwarded branches were run.
    probabilities, ids
        The k best of each branch, [rounds, k, k].
    """
    count = ids.shape[-1]
    scores = before.scores.gather(1, before.forwarded)[:, :, None] * probabilities
    flat = scores.flatten(1)
    _, forwarded = best(flat, count)
    return Level(flat, ids.flatten(1), probabilities.flatten(1), forwarded)


def prune(levels: list[Level], nodes: int) -> Tree:
    """Keep the best `nodes` candidates of all levels."""
    import torch

    topk = levels[0].tokens.shape[1]
    rounds, device = levels[0].tokens.shape[0], levels[0].tokens.device
    scores = torch.cat([level.scores for level in levels], dim=1)
    tokens = torch.cat([level.tokens for level in levels], dim=1)
    probabilities = torch.cat([level.probabilities for level in levels], dim=1)
    sizes = [level.tokens.shape[1] for level in levels]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    depth = torch.cat(
        [torch.full((size,), number + 1, device=device) for number, size in enumerate(sizes)]
    )
    # Where each candidate's parent stands among all candidates, -1: the root.
    parents = [torch.full((rounds, topk), -1, device=device)]
    for number in range(1, len(levels)):
        origin = levels[number - 1].forwarded + starts[number - 1]
        parents.append(origin.repeat_interleave(topk, dim=1))
    parent = torch.cat(parents, dim=1)
    branch = torch.cat(
        [torch.zeros(topk, dtype=torch.long, device=device)]
        + [torch.arange(topk, device=device).repeat_interleave(topk)] * (len(levels) - 1)
    )
    nodes = min(nodes, scores.shape[1])
    kept = best(scores, nodes)[1].sort(dim=1).values if topk > 1 else None
    if kept is None:  # a chain: one candidate a level, whatever its score
        kept = torch.arange(nodes, device=device).expand(rounds, nodes)
    wanted = parent.gather(1, kept)
    found = kept[:, None, :] == wanted[:, :, None]
    index = torch.where(found.any(-1), found.float().argmax(-1), -1)
    return Tree(
        tokens.gather(1, kept),
        probabilities.gather(1, kept),
        index,
        depth[kept],
        branch[kept],
        _runs(levels, starts, kept),
    )


def _runs(levels: list[Level], starts: list[int], kept: Tensor) -> Tensor:
    """Return which forwarded branch of its level each kept candidate is, -1 for none; the last is not run."""
    import torch

    run = [level.forwarded + start for level, start in zip(levels, starts, strict=True)][:-1]
    if not run:
        return torch.full_like(kept, -1)
    found = kept[:, :, None] == torch.cat(run, dim=1)[:, None, :]
    topk = levels[0].forwarded.shape[1]
    return torch.where(found.any(-1), found.float().argmax(-1) % topk, -1)
