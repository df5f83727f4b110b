"""A draft's cache that nobody refreshes: verified tokens keep the keys that were made while drafting them.

No engine does so. It is what becomes of a draft when the extend after a round is left out: from round to
round more of what it attends to was computed from its own features instead of the target's.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.layers import AttentionContext, attend, bias_of, rows_of
from workbench.speculation.rounds.rounds import Cache, Drafted, Rounds, wanted_text
from workbench.speculation.rounds.verify import greedy

if TYPE_CHECKING:
    from torch import Tensor


def keep_drafted(
    draft: Draft, trace: TargetTrace, rounds: Rounds, cache: Cache, before: Drafted
) -> None:
    """Write the keys of accepted drafts into the cache, and enter the new root behind them.

    What was accepted but never drafted on (the deepest draft, the bonus token) is entered with the
    target's features: without it there would be nothing to go on from.

    Parameters
    ----------
    rounds
        The rounds that begin now.
    cache
        Of the draft's pass over the text; it is changed.
    before
        What the same requests drafted in the round before.
    """
    import torch

    s = draft.settings
    steps = len(before.made[0]) + 1
    request = rounds.request[:, None]
    root = (rounds.known - 2)[:, None]
    # The slots behind the last root: one for each depth, and one for the bonus token.
    depth = torch.arange(1, steps + 2, device=root.device)[None, :]
    slots = ((rounds.before - 2)[:, None] + depth).clamp(max=trace.tokens.shape[1] - 1)
    accepted = rounds.known - rounds.before - 1
    # More than was drafted: a round is missing, and the target's features stay.
    whole = accepted <= steps
    new = (slots <= root) & whole[:, None]
    branch = _branches(trace, rounds, before, steps)
    drafted = (branch >= 0) & new
    places = torch.arange(trace.tokens.shape[1], device=root.device)
    seen = bias_of(places[None, None, :] <= slots[..., None])
    row = torch.arange(len(root), device=root.device)[:, None]

    def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for part, (made, kept) in enumerate(zip((k, v), cache.past[layer], strict=True)):
            own = made.clone()
            for step, pair in enumerate(before.made[layer]):
                mine = pair[part][row[:, 0], branch[:, step].clamp(min=0)]
                on = drafted[:, step, None, None]
                own[:, step] = torch.where(on, mine, own[:, step])
            at = (request.expand_as(slots)[new], slots[new])
            kept[at] = own[new]
        both = rows_of(cache.past[layer], rounds.request)
        return attend(q, AttentionContext(*both, seen), None, s.scale, s.numerics)

    at = request, slots
    normed, fed = draft.forward(cache.tokens[at], cache.hidden[at], slots, attention)
    at = rounds.request[whole], root[whole, 0]
    last = row[whole, 0], accepted[whole]
    cache.normed[at], cache.fed[at] = normed[last], fed[last]


def _branches(trace: TargetTrace, rounds: Rounds, before: Drafted, steps: int) -> Tensor:
    """Return which branch drafted on the accepted token of each depth, [rounds, steps + 1]; -1 for none."""
    import torch

    tree = before.tree
    earlier = dataclasses.replace(rounds, known=rounds.before)
    walk = greedy(tree, wanted_text(trace, earlier, steps))
    # The text says how many were accepted; a tree may happen to go on along it.
    accepted = (rounds.known - rounds.before - 1)[:, None]
    on = walk.taken & (tree.depths <= accepted)
    found = torch.full((len(rounds), steps + 1), -1, device=tree.tokens.device)
    row, node = on.nonzero(as_tuple=True)
    found[row, tree.depths[row, node] - 1] = tree.runs[row, node]
    return found
