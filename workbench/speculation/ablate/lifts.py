"""One ablation's outcome against what was served and what is expected."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from workbench.speculation.ablate.switches import Switch
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.measuring import Array, Measured, interval
from workbench.speculation.judge.thresholds import PROFILE, VISIBLE


@dataclasses.dataclass(frozen=True, slots=True)
class Lift:
    """What one change, or two together, did to acceptance.

    Attributes
    ----------
    switches, facts, words
        Names of the switches that were turned, what they are about, and what they change in words.
    same
        Other switches that come to the very same state.
    remedy
        What to do where this is the cause.
    requests, rounds
        How much was replayed.
    accept_length, interval
        With the change; bootstrap over requests, 95 %.
    per_position
        Share of rounds with at least k drafts accepted.
    lift, lift_interval
        Difference to what was served, on the same requests and samples of them.
    restored, restored_interval
        (this - served) / (expected - served); None where nothing is expected or nothing was lost.
    profile
        Whether each position that had lost something has most of it back; None where it is not known.
    rank, reciprocal, sure
        As `measuring.Measured` has them.
    confirmed
        Replayed on all requests, not only on those of the first pass.
    """

    switches: tuple[str, ...]
    facts: tuple[str, ...]
    words: str
    requests: int
    rounds: int
    accept_length: float
    interval: tuple[float, float]
    per_position: tuple[float, ...]
    lift: float
    lift_interval: tuple[float, float]
    restored: float | None
    restored_interval: tuple[float, float] | None
    profile: bool | None
    rank: float
    reciprocal: float
    sure: float
    confirmed: bool
    same: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def name(self) -> str:
        """Its switches in one line."""
        return " + ".join(self.switches)


@dataclasses.dataclass(frozen=True)
class Reference:
    """What lifts are compared with: what was served, measured on the same requests, and the expectation."""

    served: Measured
    expected: Expected | None

    @property
    def loss(self) -> float | None:
        """Acceptance that was lost; None without an expectation."""
        if self.expected is None:
            return None
        return self.expected.accept_length - self.served.accept_length

    def draws_restored(self, found: Measured) -> Array | None:
        """Return bootstrap samples of the restored share."""
        if self.expected is None:
            return None
        served = self.served.draws()
        loss = self.expected.accept_length - served
        return np.asarray((found.draws() - served) / np.where(loss > 1e-9, loss, np.inf))

    def lift(self, switches: Sequence[Switch], found: Measured, confirmed: bool) -> Lift:
        """Return the outcome of some switches together."""
        draws = found.draws()
        gained = draws - self.served.draws()
        restored, within, loss = None, None, self.loss
        shares = self.draws_restored(found)
        if loss is not None and loss > 0 and shares is not None:
            restored = (found.accept_length - self.served.accept_length) / loss
            within = interval(shares)
        return Lift(
            switches=tuple(s.name for s in switches),
            facts=tuple(s.fact for s in switches),
            words=", and ".join(s.words for s in switches),
            requests=len(found.rounds),
            rounds=int(found.rounds.sum()),
            accept_length=found.accept_length,
            interval=interval(draws),
            per_position=found.per_position,
            lift=found.accept_length - self.served.accept_length,
            lift_interval=interval(gained),
            restored=restored,
            restored_interval=within,
            profile=self._profile(found),
            rank=found.rank,
            reciprocal=found.reciprocal,
            sure=found.sure,
            confirmed=confirmed,
            same=tuple(name for s in switches for name in s.same),
            remedy=" ".join(s.remedy for s in switches if s.remedy),
        )

    def _profile(self, found: Measured) -> bool | None:
        """Tell whether every position that lost something has most of it back, within chance."""
        if self.expected is None or not self.expected.per_position:
            return None
        high = np.quantile(found.deep_draws(), 0.975, axis=0)
        served = np.array(self.served.per_position)
        count = min(len(served), len(self.expected.per_position))
        wanted = np.array(self.expected.per_position[:count])
        lost = wanted - served[:count]
        back = high[:count] >= served[:count] + PROFILE * lost
        return bool(np.all(back | (lost < VISIBLE)))


def clear(one: Measured, other: Measured) -> bool:
    """Tell whether one state accepts more than another beyond chance, on the same samples of requests."""
    return bool(np.quantile(one.draws() - other.draws(), 0.025) > 0)
