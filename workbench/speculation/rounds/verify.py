"""Verification: which drafted tokens the target takes, greedily or by sampling."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from workbench.speculation.rounds.tree import Tree


@dataclasses.dataclass(frozen=True)
class Walk:
    """The accepted path of each round.

    Attributes
    ----------
    accepted
        Number of drafted tokens taken, [rounds].
    taken
        Whether each node was, [rounds, nodes].
    bonus
        The target's own token after the path, [rounds]; -1 where unknown.
    """

    accepted: Tensor
    taken: Tensor
    bonus: Tensor


def greedy(tree: Tree, wanted: Tensor) -> Walk:
    """Walk down each tree along what the target wants.

    Parameters
    ----------
    wanted
        The target's choice at each depth along its own path, [rounds, depth + 1]: column d is the token that
        follows d accepted ones. -1 where unknown: the walk stops there.
    """
    import torch

    rounds = torch.arange(len(wanted), device=wanted.device)
    at = torch.full_like(rounds, -1)
    alive = torch.ones_like(rounds, dtype=torch.bool)
    accepted = torch.zeros_like(rounds)
    taken = torch.zeros_like(tree.tokens, dtype=torch.bool)
    for depth in range(wanted.shape[1] - 1):
        fits = (tree.parents == at[:, None]) & (tree.tokens == wanted[:, depth, None])
        fits &= (wanted[:, depth, None] >= 0) & (tree.depths == depth + 1)
        alive = alive & fits.any(1)
        child = fits.float().argmax(1)
        at = torch.where(alive, child, at)
        taken[rounds[alive], child[alive]] = True
        accepted = accepted + alive
    return Walk(accepted, taken, wanted.gather(1, accepted[:, None])[:, 0])


def sample_sglang(
    tokens: list[int],
    parents: list[int],
    target: Tensor,
    generator: torch.Generator,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
) -> tuple[list[int], int]:
    """Verify one tree by sampling, as SGLang does by default: the draft's probabilities play no part.

    Parameters
    ----------
    tokens, parents
        The drafted nodes; parent -1 is the root.
    target
        The target's probabilities [1 + nodes, vocabulary] after temperature and cuts, row 0 at the root.
    generator
        Of the coins: one for each node that is reached, one for the last token.

    Returns
    -------
    tuple
        The nodes accepted, in order, and the token that follows them.
    """
    import torch

    at, path = -1, []
    while True:
        row = target[at + 1].clone()
        coin = float(torch.rand((), generator=generator, device=generator.device))
        reached, found = 0.0, False
        for node in (n for n, parent in enumerate(parents) if parent == at):
            own = float(target[at + 1, tokens[node]])
            reached += own
            if own > 0 and (coin < reached / threshold_acc or own >= threshold_single):
                path.append(node)
                at, found = node, True
                break
            row[tokens[node]] = 0.0
        if not found:
            return path, _draw(row, target[at + 1], generator)


def sample_vllm(
    tokens: list[int],
    target: Tensor,
    generator: torch.Generator,
    draft: Tensor | None = None,
) -> tuple[int, int]:
    """Verify one chain by vLLM's rejection sampling.

    Parameters
    ----------
    target
        The target's probabilities [1 + drafts, vocabulary].
    draft
        The draft's probabilities [drafts, vocabulary]; None: each draft counts as certain.

    Returns
    -------
    tuple
        How many drafts were accepted, and the token that follows them.
    """
    import torch

    for place, token in enumerate(tokens):
        coin = float(torch.rand((), generator=generator, device=generator.device))
        claimed = 1.0 if draft is None else float(draft[place, token])
        own = float(target[place, token])
        if own > 0 and claimed > 0 and own / claimed >= coin:
            continue
        row = target[place].clone()
        if draft is None:
            row[token] = 0.0
        else:
            row = (row - draft[place]).clamp(min=0)
        return place, _draw(row, target[place], generator)
    return len(tokens), _draw(target[len(tokens)], target[len(tokens)], generator)


def _draw(row: Tensor, otherwise: Tensor, generator: torch.Generator) -> int:
    import torch

    row = row if float(row.sum()) > 0 else otherwise
    return int(torch.multinomial(row, 1, generator=generator))
