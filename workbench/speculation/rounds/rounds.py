"""Drafting rounds side by side: the draft's pass over the whole text, and each round's tree."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.speculation.evidence.driving import Driving
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.model.layers import (
    DECODE_TILE,
    EXTEND_TILE,
    AttentionContext,
    attend,
    below,
    bias_of,
    causal_bias,
    extend_tiles,
    joined,
    rows_of,
)
from workbench.speculation.rounds import tree as trees

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 32  # requests at a time
Past = Sequence[Sequence[tuple["Tensor", "Tensor"]]]


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Rounds in columns, [rounds] each.

    Attributes
    ----------
    request, index
        Which request, the how-manyth round of it.
    known, before
        Tokens known before the round, and before the one before it (0: it is the first).
    observed
        Tokens that an engine emitted in it, -1 unknown.
    """

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
    ) -> Rounds:
        """Put rounds into columns: for each request where they began, and what they emitted."""
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

    @classmethod
    def first(cls, trace: TargetTrace) -> Rounds:
        """Return the first round of each request: it begins after the answer's first token."""
        return cls.of([[n + 1] if n + 1 < m else [] for n, m in _spans(trace)], None, trace)

    @classmethod
    def joined(cls, parts: Sequence[Rounds]) -> Rounds:
        """Put rounds one below the other."""
        import torch

        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def after(self, emitted: Tensor, trace: TargetTrace) -> tuple[Rounds, Tensor]:
        """Return the rounds that follow where the text goes on, and which of these they follow."""
        known = self.known + emitted
        kept = (known < trace.lengths[self.request]).nonzero()[:, 0]
        following = Rounds(self.request, self.index + 1, known, self.known, self.observed)
        return following.rows(kept), kept

    def rows(self, at: Tensor) -> Rounds:
        """Return some of the rounds."""
        names = [field.name for field in dataclasses.fields(self)]
        return Rounds(*(getattr(self, name)[at] for name in names))


@dataclasses.dataclass(frozen=True)
class Cache:
    """The draft's pass over the whole text: features, keys and values by layer, and the slots' outputs."""

    hidden: Tensor
    tokens: Tensor
    past: list[tuple[Tensor, Tensor]]
    normed: Tensor
    fed: Tensor


def extend(
    draft: Draft,
    driving: Driving,
    trace: TargetTrace,
    tokens: Tensor | None = None,
    unwritten: Tensor | None = None,
) -> Cache:
    """Run the draft over all slots with the target's features.

    Parameters
    ----------
    tokens
        The token of each slot, [requests, places]; None: the one after it.
    unwritten
        Slots of which keys and values were never written, and are zero, [requests, places].
    """
    import torch

    s = draft.settings
    hidden = draft.features(trace.features(driving.aux))
    if tokens is None:
        tokens = trace.tokens.roll(0 if driving.lagging else -1, dims=1)
    parts: list[tuple[list[tuple[Tensor, Tensor]], Tensor, Tensor]] = []
    for start in range(0, len(tokens), _ROWS):
        rows = slice(start, start + _ROWS)
        bias = causal_bias(tokens.shape[1], trace.lengths[rows])
        tiles = extend_tiles(
            trace.begins[rows], torch.arange(tokens.shape[1], device=tokens.device)
        )
        past: list[tuple[Tensor, Tensor]] = []

        def attention(
            layer: int, q: Tensor, k: Tensor, v: Tensor,
            bias: Tensor = bias, past: Any = past, tiles: Tensor = tiles, rows: slice = rows,
        ) -> Tensor:  # fmt: skip
            if unwritten is not None:
                k, v = (x.masked_fill(unwritten[rows][..., None, None], 0.0) for x in (k, v))
            past.append((k, v))
            return attend(q, AttentionContext(k, v, bias, tiles), None, s.scale, s.numerics)

        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens[rows])
        normed, fed = draft.forward(tokens[rows], hidden[rows], positions, attention)
        parts.append((past, normed, fed))
    kept = [below([p[0][n] for p in parts]) for n in range(s.layers)]
    return Cache(
        hidden, tokens, kept, torch.cat([p[1] for p in parts]), torch.cat([p[2] for p in parts])
    )


@dataclasses.dataclass(frozen=True)
class Drafted:
    """Trees, and for each level the rank of the wanted token in each branch's distribution.

    `first` and `own` have the draft's best tokens at the root and behind each node, with their probabilities.
    `made` has the keys and values of each layer and later step, [rounds, branches, heads, …]; it is empty
    where nobody needs them.
    """

    tree: trees.Tree
    ranks: Tensor
    first: tuple[Tensor, Tensor]
    own: tuple[Tensor, Tensor]
    made: Past = ()

    def rows(self, at: Tensor) -> Drafted:
        """Return some of the rounds."""
        tree = trees.Tree(*(getattr(self.tree, f.name)[at] for f in dataclasses.fields(self.tree)))
        made = [[(k[at], v[at]) for k, v in steps] for steps in self.made]
        first, own = ((ids[at], shares[at]) for ids, shares in (self.first, self.own))
        return Drafted(tree, self.ranks[at], first, own, made)


@dataclasses.dataclass(frozen=True)
class Extra:
    """What the root sees beside the text: keys and values [rounds, places, …] by layer, bias and places."""

    past: list[tuple[Tensor, Tensor]]
    bias: Tensor
    places: Tensor


class Branches:
    """Attention of the later steps: a branch sees the text up to its root, and what it drafted itself."""

    def __init__(
        self, draft: Draft, past: list[tuple[Tensor, Tensor]], bias: Tensor, root: Tensor, topk: int
    ) -> None:
        import torch

        self.settings = draft.settings
        self.past, self.bias, self.root = past, bias.expand(-1, topk, -1), root
        places = torch.arange(bias.shape[-1], device=bias.device)
        self.tiles = (places // DECODE_TILE).expand_as(self.bias)
        self.own: list[list[tuple[Tensor, Tensor]]] = [[] for _ in past]
        self.made: list[list[tuple[Tensor, Tensor]]] = [[] for _ in past]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep this step's keys and values, and attend."""
        import torch

        s = self.settings
        self.own[layer].append((k, v))
        self.made[layer].append((k, v))
        keys = torch.stack([pair[0] for pair in self.own[layer]], dim=2)
        values = torch.stack([pair[1] for pair in self.own[layer]], dim=2)
        free = torch.zeros(keys.shape[:3], device=q.device)
        number = torch.arange(keys.shape[2], device=q.device)
        tiles = ((self.root + 1)[:, None, None] + number) // DECODE_TILE
        own = AttentionContext(keys, values, free, tiles.expand_as(free))
        seen = AttentionContext(*self.past[layer], self.bias, self.tiles)
        return attend(q, seen, own, s.scale, s.numerics, running=False)

    def move(self, branch: Tensor) -> None:
        """Give each branch the keys and values of `branch`, [rounds, branches]."""
        import torch

        rows = torch.arange(len(branch), device=branch.device)[:, None]
        self.own = [[(k[rows, branch], v[rows, branch]) for k, v in pairs] for pairs in self.own]


def draft_rounds(
    draft: Draft,
    driving: Driving,
    trace: TargetTrace,
    rounds: Rounds,
    cache: Cache,
    extra: Extra | None = None,
    tops: bool = False,
) -> Drafted:
    """Draft the trees of some rounds; `tops` keeps the draft's best tokens behind each node, too."""
    import torch

    device, topk = trace.tokens.device, driving.topk
    root = rounds.known - 2
    normed, fed = cache.normed[rounds.request, root], cache.fed[rounds.request, root]
    past = [rows_of(pair, rounds.request) for pair in cache.past]
    places = torch.arange(trace.tokens.shape[1], device=device)
    bias = bias_of(places[None, :] <= root[:, None])[:, None]
    if driving.extend != "prefix":
        normed, fed = _root_again(draft, rounds, cache, past, bias, extra)
    wanted = wanted_text(trace, rounds, driving.steps)
    inverse = _inverse(draft, trace)
    logits = draft.logits(normed)
    probabilities, ids = _best(logits, topk)
    level = trees.first_level(probabilities, draft.to_target[ids])
    levels = [level]
    ranks = [_ranks(logits[:, None], wanted[:, :1], inverse).expand(-1, topk)]
    first = _first(draft, logits)
    behind: list[tuple[Tensor, Tensor]] = []
    fed = fed[:, None].expand(-1, topk, -1)
    before = trace.tokens[rounds.request, root + 1][:, None].expand(-1, topk)
    branches = Branches(draft, past, bias, root, topk)
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
        if tops:
            behind.append(_first(draft, logits))
        ranks.append(_ranks(logits, wanted[:, step : step + 1], inverse))
    tree = trees.prune(levels, driving.draft_tokens - 1)
    row = torch.arange(len(root), device=device)[:, None]
    found = torch.stack(ranks, dim=1)[row, tree.depths - 1, tree.branches]
    own = _behind(tree, behind, first[0].shape[-1])
    return Drafted(tree, found, first, own, () if driving.refreshed else branches.made)


def _root_again(
    draft: Draft,
    rounds: Rounds,
    cache: Cache,
    past: list[tuple[Tensor, Tensor]],
    bias: Tensor,
    extra: Extra | None,
) -> tuple[Tensor, Tensor]:
    """Run the root's slot again where an extend sees the last round's slots twice."""
    import torch

    s = draft.settings
    root = (rounds.known - 2)[:, None]
    places = torch.arange(bias.shape[-1], device=bias.device)[None, :]
    twice = (places >= rounds.before[:, None] - 1) & (places <= root) & (rounds.before > 0)[:, None]
    # The text, what was rejected behind it, and the last block once more.
    biases, numbers = [bias, bias_of(twice)[:, None]], [places, places * 0 + bias.shape[-1]]
    if extra is not None:
        biases.insert(1, extra.bias[:, None])
        numbers.insert(1, extra.places)
    tiles = torch.cat([n.expand(len(root), -1) for n in numbers], dim=1)[:, None] // EXTEND_TILE
    whole = torch.cat(biases, dim=-1)

    def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = [past[layer], past[layer]]
        if extra is not None:
            parts.insert(1, extra.past[layer])
        return attend(q, AttentionContext(*joined(parts), whole, tiles), None, s.scale, s.numerics)

    at = rounds.request[:, None], root
    normed, fed = draft.forward(cache.tokens[at], cache.hidden[at], root, attention)
    return normed[:, 0], fed[:, 0]


def rejected(
    draft: Draft, driving: Driving, trace: TargetTrace, rounds: Rounds, drafts: Tensor
) -> Extra:
    """Return the slots of the last verification that were rejected: the target's features, token 0.

    `drafts` are the tokens that were drafted in the round before, [rounds, drafts].
    """
    import torch

    s = draft.settings
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
    return Extra(past[: s.layers], bias_of(number[None, :] > accepted[:, None]), positions)


def wanted_text(trace: TargetTrace, rounds: Rounds, steps: int) -> Tensor:
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


def _behind(
    tree: trees.Tree, levels: Sequence[tuple[Tensor, Tensor]], count: int
) -> tuple[Tensor, Tensor]:
    """Return the draft's best tokens behind each node, [rounds, nodes, `count`]; -1 and NaN where unknown."""
    import torch

    shape = (*tree.tokens.shape, count)
    tokens = torch.full(shape, -1, device=tree.tokens.device)
    shares = torch.full(shape, math.nan, device=tree.tokens.device)
    if levels:
        on = (tree.runs >= 0) & (tree.depths <= len(levels))
        row, node = on.nonzero(as_tuple=True)
        at = row, tree.depths[row, node] - 1, tree.runs[row, node]
        tokens[row, node] = torch.stack([ids for ids, _ in levels], dim=1)[at]
        shares[row, node] = torch.stack([values for _, values in levels], dim=1)[at]
    return tokens, shares


def _ranks(logits: Tensor, wanted: Tensor, inverse: Tensor) -> Tensor:
    """Return the rank of the wanted token in each branch, [rounds, branches].

    0 where it is not known, -1 where the draft's vocabulary does not have it.
    """
    inside = (wanted >= 0) & (wanted < len(inverse))
    ids = inverse[wanted.clamp(0, len(inverse) - 1)]
    known = inside & (ids >= 0)
    own = logits.gather(-1, ids.clamp(min=0)[:, :, None].expand(-1, logits.shape[1], 1))
    rank = 1 + (logits > own).sum(-1)
    return rank * known - ((wanted >= 0) & ~known).long()


def _spans(trace: TargetTrace) -> list[tuple[int, int]]:
    return list(zip(trace.prompts.tolist(), trace.lengths.tolist(), strict=True))
