"""Draft recorded rounds again, each from where the engine began it, and verify them.

The target has run once over prompts and answers (`TargetTrace`). One pass of the draft over the whole text
gives its keys and values and what every slot drafts first, since after each round an engine enters the
verified tokens again with the target's features. What is left for a round are the later steps of its own
tree, and rounds do not wait for each other: they are drafted side by side. Only where an engine lets a round
see what the round before rejected (`Driving.extend` is ``block``) are they drafted one after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.speculation import tree as trees
from workbench.speculation.driving import Driving
from workbench.speculation.eagle3 import Draft
from workbench.speculation.features import TargetTrace
from workbench.speculation.layers import attend, bias_of, causal_bias
from workbench.speculation.replayed import Replayed
from workbench.speculation.verify import greedy

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDS = 512  # rounds at a time
_ROWS = 32  # requests at a time


def replay_rounds(
    draft: Draft,
    driving: Driving,
    trace: TargetTrace,
    starts: Sequence[Sequence[int]],
    emitted: Sequence[Sequence[int]] | None = None,
) -> Replayed:
    """Draft and verify rounds again, each from its own beginning.

    Parameters
    ----------
    draft, driving
        The draft as loaded, and how it is driven: change either for an ablation and leave `trace` as it is.
    trace
        The target's pass over the requests.
    starts
        For each request, how many of its tokens were known before each round (at least 2: the prompt and
        the first token of the answer).
    emitted
        How many tokens the engine emitted in each; None: not known.

    Returns
    -------
    Replayed
        Rounds in the order of requests and rounds.
    """
    import torch

    with torch.no_grad():
        rounds = _Rounds.of(starts, emitted, trace)
        cache = _extend(draft, driving, trace)
        if driving.extend == "block":
            return _one_after_the_other(draft, driving, trace, rounds, cache)
        parts = [
            _draft(draft, driving, trace, rounds.rows(at), cache)
            for at in torch.split(torch.arange(len(rounds), device=trace.tokens.device), _ROUNDS)
        ]
        return _verified(driving, trace, rounds, parts)


@dataclasses.dataclass(frozen=True)
class _Rounds:
    """Rounds in columns; `before` is where the round before began, 0 for the first of a request."""

    request: Tensor
    index: Tensor
    known: Tensor
    before: Tensor
    observed: Tensor

    @classmethod
    def of(
        cls,
        starts: Sequence[Sequence[int]],
        emitted: Sequence[Sequence[int]] | None,
        trace: TargetTrace,
    ) -> _Rounds:
        import torch

        rows = []
        for request, known in enumerate(starts):
            for index, at in enumerate(known):
                seen = emitted[request][index] if emitted is not None else -1
                rows.append((request, index, at, known[index - 1] if index else 0, seen))
        table = torch.tensor(rows, device=trace.tokens.device).reshape(-1, 5)
        return cls(*table.unbind(1))

    def __len__(self) -> int:
        return len(self.request)

    def rows(self, at: Tensor) -> _Rounds:
        names = [field.name for field in dataclasses.fields(self)]
        return _Rounds(*(getattr(self, name)[at] for name in names))


@dataclasses.dataclass(frozen=True)
class _Cache:
    """The draft's pass over the whole text: features, keys and values by layer, and the slots' outputs."""

    hidden: Tensor
    tokens: Tensor
    past: list[tuple[Tensor, Tensor]]
    normed: Tensor
    fed: Tensor


def _extend(draft: Draft, driving: Driving, trace: TargetTrace) -> _Cache:
    """Run the draft over all slots with the target's features."""
    import torch

    s = draft.settings
    hidden = draft.features(trace.features(driving.aux))
    tokens = trace.tokens.roll(0 if driving.lagging else -1, dims=1)
    parts: list[tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]] = []
    for start in range(0, len(tokens), _ROWS):
        rows = slice(start, start + _ROWS)
        bias = causal_bias(tokens.shape[1], trace.lengths[rows])
        past: list[tuple[Tensor, Tensor]] = []

        def attention(
            layer: int, q: Tensor, k: Tensor, v: Tensor, bias: Tensor = bias, past: Any = past
        ) -> Tensor:
            past.append((k, v))
            return attend(q, (k, v, bias), None, s.scale, s.numerics)

        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens[rows])
        normed, fed = draft.forward(tokens[rows], hidden[rows], positions, attention)
        parts.append((past, normed, fed))
    joined = [
        (torch.cat([p[0][n][0] for p in parts]), torch.cat([p[0][n][1] for p in parts]))
        for n in range(s.layers)
    ]
    return _Cache(
        hidden, tokens, joined, torch.cat([p[1] for p in parts]), torch.cat([p[2] for p in parts])
    )


@dataclasses.dataclass(frozen=True)
class _Drafted:
    """Trees, and for each level the rank of the wanted token in each branch's distribution."""

    tree: trees.Tree
    ranks: Tensor
    first: tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True)
class _Extra:
    """What the root sees beside the text: keys and values [rounds, places, …] by layer, and their bias."""

    past: list[tuple[Tensor, Tensor]]
    bias: Tensor


class _Branches:
    """Attention of the later steps: a branch sees the text up to its root, and what it drafted itself."""

    def __init__(
        self, draft: Draft, past: list[tuple[Tensor, Tensor]], bias: Tensor, topk: int
    ) -> None:
        self.settings = draft.settings
        self.past, self.bias = past, bias.expand(-1, topk, -1)
        self.own: list[list[tuple[Tensor, Tensor]]] = [[] for _ in past]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch

        s = self.settings
        self.own[layer].append((k, v))
        keys = torch.stack([pair[0] for pair in self.own[layer]], dim=2)
        values = torch.stack([pair[1] for pair in self.own[layer]], dim=2)
        free = torch.zeros(keys.shape[:3], device=q.device)
        shared = (*self.past[layer], self.bias)
        return attend(q, shared, (keys, values, free), s.scale, s.numerics)

    def move(self, branch: Tensor) -> None:
        """Give each branch the keys and values of `branch`, [rounds, branches]."""
        import torch

        rows = torch.arange(len(branch), device=branch.device)[:, None]
        self.own = [[(k[rows, branch], v[rows, branch]) for k, v in pairs] for pairs in self.own]


def _draft(
    draft: Draft,
    driving: Driving,
    trace: TargetTrace,
    rounds: _Rounds,
    cache: _Cache,
    extra: _Extra | None = None,
) -> _Drafted:
    """Draft the trees of some rounds."""
    import torch

    device, topk = trace.tokens.device, driving.topk
    root = rounds.known - 2
    normed, fed = cache.normed[rounds.request, root], cache.fed[rounds.request, root]
    past = [(k[rounds.request], v[rounds.request]) for k, v in cache.past]
    places = torch.arange(trace.tokens.shape[1], device=device)
    bias = bias_of(places[None, :] <= root[:, None])[:, None]
    if driving.extend != "prefix":
        normed, fed = _root_again(draft, rounds, cache, past, bias, extra)
    wanted = _wanted(trace, rounds, driving.steps)
    inverse = _inverse(draft, trace)
    logits = draft.logits(normed)
    probabilities, ids = _best(logits, topk)
    level = trees.first_level(probabilities, draft.to_target[ids])
    levels = [level]
    ranks = [_ranks(logits[:, None], wanted[:, :1], inverse).expand(-1, topk)]
    first = _first(draft, logits)
    fed = fed[:, None].expand(-1, topk, -1)
    before = trace.tokens[rounds.request, root + 1][:, None].expand(-1, topk)
    branches = _Branches(draft, past, bias, topk)
    for step in range(1, driving.steps):
        if step > 1:
            parent = level.forwarded // topk
            fed = fed.gather(1, parent[..., None].expand_as(fed))
            before = before.gather(1, parent)
            if driving.moved:
                branches.move(parent)
        tokens = level.tokens.gather(1, level.forwarded)
        given, before = (before if driving.lagging else tokens), tokens
        ahead = 0 if driving.frozen else step + driving.ahead
        positions = (root + ahead)[:, None].expand_as(tokens)
        normed, fed = draft.forward(given, fed, positions, branches)
        logits = draft.logits(normed)
        probabilities, ids = _best(logits, topk)
        level = trees.next_level(level, probabilities, draft.to_target[ids])
        levels.append(level)
        ranks.append(_ranks(logits, wanted[:, step : step + 1], inverse))
    tree = trees.prune(levels, driving.draft_tokens - 1)
    row = torch.arange(len(root), device=device)[:, None]
    found = torch.stack(ranks, dim=1)[row, tree.depths - 1, tree.branches]
    return _Drafted(tree, found, first)


def _root_again(
    draft: Draft,
    rounds: _Rounds,
    cache: _Cache,
    past: list[tuple[Tensor, Tensor]],
    bias: Tensor,
    extra: _Extra | None,
) -> tuple[Tensor, Tensor]:
    """Run the root's slot again where an extend sees the last round's slots twice."""
    import torch

    s = draft.settings
    root = (rounds.known - 2)[:, None]
    places = torch.arange(bias.shape[-1], device=bias.device)[None, :]
    twice = (places >= rounds.before[:, None] - 1) & (places <= root) & (rounds.before > 0)[:, None]
    seen = bias + twice[:, None] * math.log(2)

    def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if extra is None:
            return attend(q, (*past[layer], seen), None, s.scale, s.numerics)
        keys, values = (
            torch.cat([both, more], dim=1)
            for both, more in zip(past[layer], extra.past[layer], strict=True)
        )
        whole = torch.cat([seen, extra.bias[:, None]], dim=-1)
        return attend(q, (keys, values, whole), None, s.scale, s.numerics)

    at = rounds.request[:, None], root
    normed, fed = draft.forward(cache.tokens[at], cache.hidden[at], root, attention)
    return normed[:, 0], fed[:, 0]


def _one_after_the_other(
    draft: Draft, driving: Driving, trace: TargetTrace, rounds: _Rounds, cache: _Cache
) -> Replayed:
    """Draft the first rounds of all requests, then the second ones with what the first ones rejected."""
    import torch

    parts: list[_Drafted] = []
    order: list[Tensor] = []
    last = torch.zeros(
        len(trace), driving.draft_tokens - 1, dtype=torch.long, device=rounds.known.device
    )
    for index in range(int(rounds.index.max()) + 1 if len(rounds) else 0):
        at = (rounds.index == index).nonzero()[:, 0]
        now = rounds.rows(at)
        extra = _rejected(draft, driving, trace, now, last) if index else None
        found = _draft(draft, driving, trace, now, cache, extra)
        last[now.request] = found.tree.tokens
        parts.append(found)
        order.append(at)
    back = torch.cat(order).argsort() if order else torch.zeros(0, dtype=torch.long)
    return _verified(driving, trace, rounds, parts, back)


def _rejected(
    draft: Draft, driving: Driving, trace: TargetTrace, rounds: _Rounds, last: Tensor
) -> _Extra:
    """Return the slots of the last verification that were rejected: the target's features, token 0."""
    import torch

    s = draft.settings
    drafts = last[rounds.request]
    count = drafts.shape[1]
    accepted = rounds.known - rounds.before - 1
    number = torch.arange(1, count + 1, device=drafts.device)
    assert trace.target is not None
    parents = (number - 2).expand_as(drafts)
    features = trace.target.branches(
        trace, rounds.request, rounds.before, drafts, parents, driving.aux
    ).features
    hidden = draft.features(features)
    positions = (rounds.before - 1)[:, None] + number[None, :]
    past: list[tuple[Tensor, Tensor]] = []

    def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        past.append((k, v))
        return torch.zeros(*q.shape[:3], v.shape[-1], device=q.device)

    draft.forward(torch.zeros_like(drafts), hidden, positions, attention)
    return _Extra(past[: s.layers], bias_of(number[None, :] > accepted[:, None]))


def _wanted(trace: TargetTrace, rounds: _Rounds, steps: int) -> Tensor:
    """Return the text that follows each round's beginning, [rounds, steps + 1], -1 past its end.

    An engine's text is what its target chose; for the place behind the last token the trace's choice stands.
    """
    import torch

    at = rounds.known[:, None] + torch.arange(steps + 1, device=rounds.known.device)
    length = trace.lengths[rounds.request][:, None]
    text = trace.tokens[rounds.request[:, None], at.clamp(max=trace.tokens.shape[1] - 1)]
    text = torch.where(at < length, text, -1)
    if trace.choices is None:
        return text
    behind = trace.choices.best[rounds.request[:, None], (length - 1)]
    return torch.where(at == length, behind, text)


def _inverse(draft: Draft, trace: TargetTrace) -> Tensor:
    """Return the draft id of each target id, -1 where the draft has no such token."""
    import torch

    size = max(int(draft.to_target.max()), int(trace.tokens.max())) + 1
    inverse = torch.full((size,), -1, device=draft.to_target.device)
    inverse[draft.to_target] = torch.arange(draft.vocabulary, device=draft.to_target.device)
    return inverse


def _best(logits: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    """Return probability and draft id of the best tokens."""
    values, ids = trees.best(logits, topk)
    return (values - logits.logsumexp(-1, keepdim=True)).exp(), ids


def _first(draft: Draft, logits: Tensor) -> tuple[Tensor, Tensor]:
    probabilities, ids = _best(logits, min(5, logits.shape[-1]))
    return draft.to_target[ids], probabilities


def _ranks(logits: Tensor, wanted: Tensor, inverse: Tensor) -> Tensor:
    """Return the rank of the wanted token in each branch, [rounds, branches]; 0 where there is none."""
    known = (wanted >= 0) & (wanted < len(inverse))
    ids = inverse[wanted.clamp(0, len(inverse) - 1)]
    known = known & (ids >= 0)
    own = logits.gather(-1, ids.clamp(min=0)[:, :, None].expand(-1, logits.shape[1], 1))
    rank = 1 + (logits > own).sum(-1)
    return rank * known


def _verified(
    driving: Driving,
    trace: TargetTrace,
    rounds: _Rounds,
    parts: list[_Drafted],
    back: Tensor | None = None,
) -> Replayed:
    """Verify all trees and put everything into columns."""
    import torch

    if not parts:
        raise WorkbenchError(
            "there are no rounds to replay",
            why="no request was answered with more than one token",
            next_step="Record longer answers.",
        )

    def joined(values: list[Tensor]) -> Tensor:
        whole = torch.cat(values)
        return whole if back is None else whole[back]

    tree = trees.Tree(
        *(
            joined([getattr(part.tree, field.name) for part in parts])
            for field in dataclasses.fields(trees.Tree)
        )
    )
    wanted = _wanted(trace, rounds, driving.steps)
    walk = greedy(tree, wanted)
    choices, margins = _choices(trace, rounds, driving.steps)
    columns = {
        "request": rounds.request,
        "index": rounds.index,
        "prefix": rounds.known,
        "tokens": tree.tokens,
        "parents": tree.parents,
        "depths": tree.depths,
        "probabilities": tree.probabilities,
        "taken": walk.taken,
        "ranks": joined([part.ranks for part in parts]),
        "accepted": walk.accepted,
        "bonus": walk.bonus,
        "wanted": wanted,
        "choices": choices,
        "margins": margins,
        "observed": rounds.observed,
        "left": trace.lengths[rounds.request] - rounds.known,
        "first": joined([part.first[0] for part in parts]),
        "first_probabilities": joined([part.first[1] for part in parts]),
    }
    return Replayed(**{name: value.cpu().numpy() for name, value in columns.items()})


def _choices(trace: TargetTrace, rounds: _Rounds, steps: int) -> tuple[Tensor, Tensor]:
    """Return the target's own choices along the text and their margins; -1 and NaN where unknown."""
    import torch

    place = rounds.known[:, None] - 1 + torch.arange(steps + 1, device=rounds.known.device)
    inside = place < trace.lengths[rounds.request][:, None]
    at = rounds.request[:, None], place.clamp(max=trace.tokens.shape[1] - 1)
    if trace.choices is None:
        nothing = torch.full(place.shape, -1, device=place.device)
        return nothing, torch.full(place.shape, math.nan, device=place.device)
    return (
        torch.where(inside, trace.choices.best[at], -1),
        torch.where(inside, trace.choices.margin[at], math.nan),
    )
