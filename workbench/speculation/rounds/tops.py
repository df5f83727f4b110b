"""What the target would say at every node of every round: along its text, and behind drafts that fell."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from workbench.speculation.model.features import TOP, TargetTrace
from workbench.speculation.rounds.replayed import Array, Replayed

if TYPE_CHECKING:
    from workbench.speculation.rounds.records import Round

MOST_CELLS = (
    1 << 17
)  # nodes that the target is run over: 32,000 rounds of a chain of 4, 2,000 trees of 63


@dataclasses.dataclass(frozen=True, eq=False)
class Tops:
    """The target's best tokens after the root (place 0) and after each node (its number + 1).

    Attributes
    ----------
    tokens, shares
        Target ids and probabilities, best first, [rounds, 1 + nodes, TOP]; -1 and NaN where unknown.
    """

    tokens: Array
    shares: Array

    def at(self, row: int, place: int) -> tuple[tuple[int, float], ...]:
        """Return the pairs of one place, none where they are unknown."""
        if place >= self.tokens.shape[1]:
            return ()
        pairs = zip(self.tokens[row, place].tolist(), self.shares[row, place].tolist(), strict=True)
        return tuple((token, share) for token, share in pairs if token >= 0)

    def with_target_choices(self, plain: Round, row: int) -> Round:
        """Return a round whose nodes have the target's choices at their parents."""
        nodes = tuple(
            dataclasses.replace(node, target_top=self.at(row, node.parent + 1))
            for node in plain.nodes
        )
        return dataclasses.replace(plain, nodes=nodes)


def tops_of(trace: TargetTrace, replayed: Replayed, most: int = MOST_CELLS) -> Tops:
    """Return the target's choices at all nodes, as far as they can be known.

    Parameters
    ----------
    trace
        It knows the text, which is the accepted path. With its target, the target is asked what it would
        have said behind drafts that fell, too.
    most
        For how many nodes at most, beginning with the first rounds.
    """
    rounds, nodes = replayed.tokens.shape
    found = Tops(
        np.full((rounds, nodes + 1, TOP), -1, dtype=np.int64),
        np.full((rounds, nodes + 1, TOP), math.nan),
    )
    if nodes and trace.target is not None:
        _ask(found, trace, replayed, min(rounds, max(0, most // nodes)))
    if trace.choices is not None:
        _read(found, trace, replayed)
    return found


def _ask(found: Tops, trace: TargetTrace, replayed: Replayed, asked: int) -> None:
    """Run the target over the trees of the first rounds."""
    import torch

    target = trace.target
    assert target is not None
    if not asked:
        return
    device = trace.tokens.device

    def column(values: Array) -> torch.Tensor:
        return torch.from_numpy(values[:asked]).to(device)

    tokens = column(replayed.tokens)
    # A draft past the target's vocabulary has no embedding: what follows it is unknown.
    held = tokens < target.vocabulary
    for node in range(tokens.shape[1]):
        parent = column(replayed.parents)[:, node]
        above = held.gather(1, parent.clamp(min=0)[:, None])[:, 0]
        held[:, node] &= (parent < 0) | above
    with torch.no_grad():
        choices = target.branches(
            trace,
            column(replayed.request),
            column(replayed.prefix),
            tokens.clamp(max=target.vocabulary - 1),
            column(replayed.parents),
            None,
        ).choices
    assert choices is not None
    width = choices.tokens.shape[-1]
    known = held.cpu().numpy()[..., None]
    found.tokens[:asked, 1:, :width] = np.where(known, choices.tokens.cpu().numpy(), -1)
    shares = choices.probabilities.cpu().numpy()
    found.shares[:asked, 1:, :width] = np.where(known, shares, math.nan)


def _read(found: Tops, trace: TargetTrace, replayed: Replayed) -> None:
    """Take what the trace holds of the root and of accepted nodes."""
    assert trace.choices is not None
    best = trace.choices.tokens.cpu().numpy()
    sure = trace.choices.probabilities.cpu().numpy()
    ends = trace.lengths.cpu().numpy()[replayed.request]
    width = best.shape[-1]
    for place in range(found.tokens.shape[1]):
        depth = replayed.depths[:, place - 1] if place else np.zeros(len(replayed), dtype=np.int64)
        on = replayed.taken[:, place - 1] if place else np.ones(len(replayed), dtype=bool)
        at = replayed.prefix - 1 + depth
        rows = (on & (at < ends)).nonzero()[0]
        found.tokens[rows, place, :width] = best[replayed.request[rows], at[rows]]
        found.shares[rows, place, :width] = sure[replayed.request[rows], at[rows]]
