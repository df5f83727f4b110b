"""The results of a replay: frozen, no I/O, no weights and no full logits."""

from __future__ import annotations

import dataclasses

Stop = str
"""Why a path ended: ``rejected``, ``leaf`` (all drafts accepted), ``length``, ``unknown``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One drafted token of a round's tree. Node 0, the verified token that roots the tree, is not one.

    Attributes
    ----------
    token, parent, depth
        Target-vocabulary id; index of its parent node (-1: the root); 1 for the first draft.
    probability
        The draft's probability of it at its place, over the draft vocabulary.
    accepted
        Whether verification took it.
    target_top
        The target's choices at the *parent's* place, best first: (token, probability).
    target_rank
        Rank (1 = best) of the target's choice in the draft's distribution there; None where the choice is not
        in the draft vocabulary or unknown.
    outside
        The target's choice there is known, and the draft's vocabulary does not have it.
    reason
        Why it fell: "" if accepted, else ``target chose N``, ``parent rejected``, ``not reached`` ...
    """

    token: int
    parent: int
    depth: int
    probability: float
    accepted: bool
    target_top: tuple[tuple[int, float], ...] = ()
    target_rank: int | None = None
    reason: str = ""
    outside: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """One round: draft, verify, bonus.

    Attributes
    ----------
    request, index
        Which prompt; the how-manyth round of it.
    prefix
        Number of tokens before the round, the root (last verified token) included.
    nodes
        The tree, in the engine's order.
    accepted
        Tokens of the accepted path.
    bonus
        The target's own token after it; None where unknown.
    observed
        What a real engine emitted in this round (accepted and bonus), None without evidence.
    margin
        The smallest difference between the target's two best logits at a place that decided this round;
        None where unknown. Near zero means that bf16 may decide otherwise.
    """

    request: int
    index: int
    prefix: int
    nodes: tuple[Node, ...]
    accepted: tuple[int, ...]
    bonus: int | None
    stop: Stop
    observed: tuple[int, ...] | None = None
    margin: float | None = None
