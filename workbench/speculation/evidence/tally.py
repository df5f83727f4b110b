"""How many drafts rounds accepted: the counts that every rate and every verdict is made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest
from typing import Any, Self

from workbench.speculation.evidence.ranges import Count, Number

MOST_DRAFTS = 256  # accepted in one round; no engine drafts as deep
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")  # in an answer's meta_info


def is_histogram(value: Any, most: int = 1 << 40) -> bool:
    """Tell whether a value that was read counts rounds by the number of their accepted drafts."""
    good = isinstance(value, list) and len(value) <= MOST_DRAFTS + 1
    return good and all(type(n) is int and 0 <= n < most for n in value)


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """Rounds by the number of drafts that each accepted.

    Attributes
    ----------
    histogram
        Entry k: rounds that accepted k drafts.
    """

    histogram: tuple[int, ...]

    @classmethod
    def of(cls, accepted: Iterable[int]) -> Self:
        """Count rounds, each given by its accepted drafts."""
        counts: dict[int, int] = {}
        for number in accepted:
            counts[int(number)] = counts.get(int(number), 0) + 1
        deepest = max(counts, default=-1)
        return cls(tuple(counts.get(k, 0) for k in range(deepest + 1)))

    @classmethod
    def summed(cls, histograms: Iterable[Sequence[int]]) -> Self:
        """Add up histograms of any lengths."""
        return cls(tuple(map(sum, zip_longest(*histograms, fillvalue=0))))

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        """Drafts accepted in all of them, without the target's own tokens."""
        return sum(k * n for k, n in enumerate(self.histogram))

    @property
    def accept_length(self) -> float | None:
        """Tokens a round, the target's own included; None without rounds."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    @property
    def error(self) -> float:
        """Standard error of the accept length; infinite where one round says nothing of the spread."""
        rounds = self.rounds
        if rounds < 2:
            return math.inf
        mean = self.accepted / rounds
        spread = sum(n * (k - mean) ** 2 for k, n in enumerate(self.histogram)) / (rounds - 1)
        return math.sqrt(spread / rounds)

    def per_position(self, deepest: int) -> tuple[float, ...]:
        """Return the share of rounds that accepted at least k drafts, from k = 1 on."""
        rounds = self.rounds
        if not rounds:
            return ()
        left = [rounds, *(rounds - gone for gone in accumulate(self.histogram))]
        return tuple(left[min(k, len(left) - 1)] / rounds for k in range(1, deepest + 1))


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """What a server's log says of acceptance, line by line.

    Attributes
    ----------
    lines
        Number of log lines with an ``accept len``.
    accept_length, accept_rate
        Their means; the rate None where the log has none.
    lowest, highest
        The extremes of ``accept len``.
    tenth
        What a tenth of the lines stay below; None where it is not known.
    deviation
        Standard deviation between the lines.
    """

    lines: Count
    accept_length: Number
    accept_rate: Number | None
    lowest: Number
    highest: Number
    tenth: Number | None = None
    deviation: Number = 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite of one line."""
        return self.deviation / math.sqrt(self.lines) if self.lines > 1 else math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """How often a replay does what the engine did.

    Attributes
    ----------
    rounds
        Rounds compared.
    same_count, same_tokens
        Rounds that accept as many drafts; and that emit the very tokens.
    near_ties
        Of the others, how many the target decided by less than bfloat16 can tell.
    """

    rounds: Count
    same_count: Count
    same_tokens: Count
    near_ties: Count = 0

    @property
    def share(self) -> float | None:
        """Share of rounds that accept as many drafts as the engine did."""
        return self.same_count / self.rounds if self.rounds else None
