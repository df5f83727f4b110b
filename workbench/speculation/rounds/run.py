"""Draft recorded rounds again, each from where the engine began it, and verify them; or run freely.

The target has run once over prompts and answers (`TargetTrace`). One pass of the draft over the whole text
gives its keys and values and what every slot drafts first, since after each round an engine enters the
verified tokens again with the target's features. What is left for a round are the later steps of its own
tree, and rounds do not wait for each other: they are drafted side by side. Only where an engine lets a round
see what the round before rejected (`Driving.extend` is ``block``), or where what was drafted stays
(`Driving.refreshed` is false), are they drafted one after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import Target, TargetTrace, Tokens
from workbench.speculation.model.threads import few_threads
from workbench.speculation.rounds import tree as trees
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.rounds import (
    Cache,
    Drafted,
    Rounds,
    draft_rounds,
    extend,
    rejected,
    wanted_text,
)
from workbench.speculation.rounds.stale import keep_drafted
from workbench.speculation.rounds.verify import greedy

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDS = 256  # rounds at a time


def replay_rounds(
    draft: Draft,
    driving: Driving,
    trace: TargetTrace,
    starts: Sequence[Sequence[int]],
    emitted: Sequence[Sequence[int]] | None = None,
    *,
    tops: bool = False,
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
    tops
        Whether to keep the draft's best tokens behind each node: to be looked at, not to be measured.

    Returns
    -------
    Replayed
        Rounds in the order of requests and rounds.
    """
    import torch

    with few_threads(draft.settings.hidden), torch.no_grad():
        rounds = Rounds.of(starts, emitted, trace)
        cache = extend(draft, driving, trace)
        if driving.extend == "block" or not driving.refreshed:
            return _one_after_the_other(draft, driving, trace, rounds, cache, tops)
        parts = [
            draft_rounds(draft, driving, trace, rounds.rows(at), cache, tops=tops)
            for at in torch.split(torch.arange(len(rounds), device=trace.tokens.device), _ROUNDS)
        ]
        return verified(driving, trace, rounds, parts)


def run_freely(
    draft: Draft, driving: Driving, trace: TargetTrace, *, tops: bool = False
) -> Replayed:
    """Return the rounds of a greedy run over the trace's text, each from where the one before ended.

    Greedy verification emits the target's own text whatever is drafted, so the text is known; only where its
    rounds begin depends on the draft. The first begins after the answer's first token, the last one reaches
    the end of the text.
    """
    import torch

    with few_threads(draft.settings.hidden), torch.no_grad():
        cache = extend(draft, driving, trace)
        now = Rounds.first(trace)
        if not len(now):
            raise _nothing()
        before, parts, columns = None, [], []
        while len(now):
            found = next_rounds(draft, driving, trace, now, cache, before, tops)
            before = found
            parts.append(found)
            columns.append(now)
            walk = greedy(found.tree, wanted_text(trace, now, driving.steps))
            now, kept = now.after(walk.accepted + 1, trace)
            before = found.rows(kept)
        rounds = Rounds.joined(columns)
        order = (rounds.request * (len(columns) + 1) + rounds.index).argsort()
        return verified(driving, trace, rounds.rows(order), parts, order)


def generate(
    target: Target, draft: Draft, driving: Driving, prompts: Sequence[Tokens], new_tokens: int
) -> tuple[TargetTrace, Replayed]:
    """Answer prompts greedily and draft along: the target's trace of the answers, and the rounds."""
    if new_tokens < 2:
        raise WorkbenchError(
            "an answer of one token has no rounds",
            why="the first token comes from the prompt alone",
            next_step="Ask for two tokens or more.",
        )
    answers = target.greedy(prompts, new_tokens)
    texts = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    trace = target.trace(texts, [len(prompt) for prompt in prompts])
    return trace, run_freely(draft, driving, trace)


def _one_after_the_other(
    draft: Draft, driving: Driving, trace: TargetTrace, rounds: Rounds, cache: Cache, tops: bool
) -> Replayed:
    """Draft the first rounds of all requests, then the second ones with what the first ones rejected."""
    import torch

    parts: list[Drafted] = []
    order: list[Tensor] = []
    last: Drafted | None = None
    row_of = torch.zeros(len(trace), dtype=torch.long, device=rounds.known.device)
    for index in range(int(rounds.index.max()) + 1 if len(rounds) else 0):
        at = (rounds.index == index).nonzero()[:, 0]
        now = rounds.rows(at)
        before = last.rows(row_of[now.request]) if last is not None else None
        last = next_rounds(draft, driving, trace, now, cache, before, tops)
        row_of[now.request] = torch.arange(len(at), device=at.device)
        parts.append(last)
        order.append(at)
    back = torch.cat(order).argsort() if order else None
    return verified(driving, trace, rounds, parts, back)


def next_rounds(
    draft: Draft,
    driving: Driving,
    trace: TargetTrace,
    now: Rounds,
    cache: Cache,
    before: Drafted | None,
    tops: bool = False,
) -> Drafted:
    """Draft one round of each request; `before` is what the same requests drafted the round before.

    Where the cache is not refreshed, what they drafted is written into it.
    """
    extra = None
    if not driving.refreshed:
        driving = driving.replaced(extend="prefix")
        if before is not None:
            keep_drafted(draft, trace, now, cache, before)
    elif driving.extend == "block" and before is not None:
        extra = rejected(draft, driving, trace, now, before.tree.tokens)
    return draft_rounds(draft, driving, trace, now, cache, extra, tops)


def verified(
    driving: Driving,
    trace: TargetTrace,
    rounds: Rounds,
    parts: list[Drafted],
    back: Tensor | None = None,
) -> Replayed:
    """Verify all trees and put everything into columns."""
    import torch

    if not parts:
        raise _nothing()

    def joined(values: list[Tensor]) -> Tensor:
        whole = torch.cat(values)
        return whole if back is None else whole[back]

    tree = trees.Tree(
        *(
            joined([getattr(part.tree, field.name) for part in parts])
            for field in dataclasses.fields(trees.Tree)
        )
    )
    wanted = wanted_text(trace, rounds, driving.steps)
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
        "own": joined([part.own[0] for part in parts]),
        "own_probabilities": joined([part.own[1] for part in parts]),
    }
    return Replayed(**{name: value.cpu().numpy() for name, value in columns.items()})


def _choices(trace: TargetTrace, rounds: Rounds, steps: int) -> tuple[Tensor, Tensor]:
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


def _nothing() -> WorkbenchError:
    return WorkbenchError(
        "there are no rounds to replay",
        why="each answer has one token or none",
        next_step="Record longer answers.",
    )
