"""Acceptance of one state of a draft over the shared texts, in sums by request, and its bootstrap."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.speculation.evidence.driving import Driving
from workbench.speculation.judge.expected import Counted
from workbench.speculation.model.eagle3 import Draft
from workbench.speculation.model.features import TargetTrace
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.rounds import extend
from workbench.speculation.rounds.run import replay_rounds, run_freely

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
DRAWS = 2000  # bootstrap samples
_SEED = 20


@dataclasses.dataclass(frozen=True)
class State:
    """A draft, how it is driven, and the target's pass that it reads: what a switch changes."""

    draft: Draft
    driving: Driving
    trace: TargetTrace


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one state accepts, by request.

    Attributes
    ----------
    rounds
        Rounds of each request that were counted: the text goes on behind them for more than a draft, so
        that none is cut. [requests]
    deep
        Rounds with at least k drafts accepted, [requests, steps].
    rank
        Median rank of the target's token in the draft's distribution at the root, NaN where it is never in
        its vocabulary.
    reciprocal
        Mean of 1 / rank at the root, 0 outside of the draft's vocabulary: a finer sign than acceptance.
    sure
        Mean probability of the draft's own best token at the root.
    covered
        Share of the target's tokens that the draft's vocabulary has.
    """

    rounds: Array
    deep: Array
    rank: float
    reciprocal: float
    sure: float
    covered: float

    @property
    def accept_length(self) -> float:
        """Tokens a round."""
        total = int(self.rounds.sum())
        return 1.0 + float(self.deep.sum()) / total if total else math.nan

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of rounds with at least k drafts accepted."""
        total = max(int(self.rounds.sum()), 1)
        return tuple(float(value) / total for value in self.deep.sum(0))

    def draws(self) -> Array:
        """Return accept lengths of bootstrap samples of the requests, the same samples for every state."""
        return self._drawn(self.deep.sum(1)) + 1.0

    def deep_draws(self) -> Array:
        """Return the per-position shares of the same samples, [draws, steps]."""
        return np.stack([self._drawn(column) for column in self.deep.T], axis=1)

    def _drawn(self, sums: Array) -> Array:
        weights = resamples(len(self.rounds))
        return np.asarray((weights @ sums) / np.maximum(weights @ self.rounds, 1))


_DRAWN: dict[int, Array] = {}


def resamples(requests: int) -> Array:
    """Return how often each request is in each bootstrap sample, [draws, requests]."""
    if requests not in _DRAWN:
        _DRAWN.clear()
        generator = np.random.default_rng(_SEED)
        even = np.full(requests, 1 / requests)
        _DRAWN[requests] = generator.multinomial(requests, even, DRAWS).astype(np.float64)
    return _DRAWN[requests]


def interval(draws: Array) -> tuple[float, float]:
    """Return the middle 95 % of bootstrap samples."""
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)


def measure(state: State, counted: Counted) -> Measured:
    """Draft along the texts.

    Parameters
    ----------
    counted
        ``rounds``: freely, each round from where the one before ended, as an engine does. ``places``: from
        every place of the answers, as trainers count; what an engine leaves in the draft's cache between
        rounds has no meaning there and is left out.
    """
    driving, steps = state.driving, state.driving.steps
    # Where a round sees more of the one before than its text; what was rejected needs the target itself.
    chained = not driving.refreshed or driving.extend == "accepted"
    chained = chained or (driving.extend == "block" and state.trace.target is not None)
    if counted == "rounds" and chained:
        return summed(run_freely(state.draft, driving, state.trace), len(state.trace), steps)
    driving = driving.replaced(extend="prefix", refreshed=True)
    replayed = replay_rounds(state.draft, driving, state.trace, places(state.trace, driving))
    if counted == "rounds":
        replayed = replayed.rows(walked(replayed))
    return summed(replayed, len(state.trace), steps)


def walked(every: Replayed) -> Array:
    """Return which rounds a free run has, given those from every place.

    What a round drafts follows from the text before it, so a run is a walk: the next round begins where the
    last one ended.
    """
    chosen = np.zeros(len(every), dtype=bool)
    following, request = -1, -1
    ends = (every.prefix + every.accepted + 1).tolist()
    for row, (whose, at) in enumerate(
        zip(every.request.tolist(), every.prefix.tolist(), strict=True)
    ):
        if whose != request or at == following:
            chosen[row], request, following = True, whose, ends[row]
    return chosen


def places(trace: TargetTrace, driving: Driving) -> list[list[int]]:
    """Return every place of each answer behind which the text goes on for a whole draft."""
    spans = zip(trace.prompts.tolist(), trace.lengths.tolist(), strict=True)
    return [list(range(prompt + 1, length - driving.steps)) for prompt, length in spans]


def summed(replayed: Replayed, requests: int, steps: int) -> Measured:
    """Return sums by request of the rounds that are not cut by the text's end."""
    whole = replayed.rows(replayed.left > steps)
    rounds = np.bincount(whole.request, minlength=requests)
    deep = np.stack(
        [
            np.bincount(whole.request[whole.accepted >= k], minlength=requests)
            for k in range(1, steps + 1)
        ],
        axis=1,
    )
    ranks = whole.ranks[:, 0].astype(float) if len(whole) else np.zeros(0)
    known = ranks > 0
    return Measured(
        rounds=rounds,
        deep=deep,
        rank=float(np.median(ranks[known])) if known.any() else math.nan,
        reciprocal=float((known / np.maximum(ranks, 1)).mean()) if len(ranks) else 0.0,
        sure=float(np.nan_to_num(whole.first_probabilities[:, 0]).mean()) if len(whole) else 0.0,
        covered=float(known.mean()) if len(ranks) else 0.0,
    )


def entropy(state: State) -> tuple[float, float]:
    """Return the mean entropy of the draft's distribution at all places, and the largest it could be."""
    import torch

    with torch.no_grad():
        cache = extend(state.draft, state.driving, state.trace)
        found: list[Tensor] = []
        for row, (begin, end) in enumerate(_answers(state.trace)):
            logits = state.draft.logits(cache.normed[row, begin:end])
            spread = torch.distributions.Categorical(
                logits=torch.nan_to_num(logits), validate_args=False
            )
            found.append(spread.entropy())  # type: ignore[no-untyped-call]
        every = torch.cat(found)
    return float(every.mean()), math.log(state.draft.vocabulary)


def _answers(trace: TargetTrace) -> Sequence[tuple[int, int]]:
    spans = zip(trace.prompts.tolist(), trace.lengths.tolist(), strict=True)
    return [(prompt - 1, length - 1) for prompt, length in spans]
