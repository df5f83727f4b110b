"""How many drafts were accepted, held against what is expected: pure, no verdict."""

from __future__ import annotations

import dataclasses

from workbench.speculation.evidence.tally import Agreement, Logged, Tally
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.thresholds import (
    APART,
    ENOUGH,
    FAITHFUL,
    FAR,
    FEW_LINES,
    FEW_ROUNDS,
    HARDLY,
    MUCH,
    SMALL,
    STRETCH,
    SURE,
    UNLIKE,
    UNSURE,
)


@dataclasses.dataclass(frozen=True)
class Counts:
    """What was accepted, and what is expected; see `Replay` for the same names.

    Attributes
    ----------
    real
        Whether rounds of a real engine were recorded.
    alike
        Accept length of the replay counted as the expectation was, where that was from every place.
    topk
        Width of the tree.
    deepest
        Drafts that a round can accept, where a launch says so.
    contradictions
        Parts of the evidence that cannot be of one run, each in a sentence.
    """

    replayed: Tally | None
    observed: Tally | None
    logged: Logged | None
    expected: Expected | None
    steps: int
    topk: int = 1
    agreement: Agreement | None = None
    real: bool = False
    alike: float | None = None
    deepest: int | None = None
    contradictions: tuple[str, ...] = ()

    @property
    def tally(self) -> Tally | None:
        """The rounds that count: the engine's, else the replay's."""
        return self.observed if self.real or self.replayed is None else self.replayed

    @property
    def of_engine(self) -> bool:
        """Whether a real engine accepted them."""
        return self.real or self.replayed is None

    @property
    def length(self) -> float | None:
        """Tokens a round: the engine's, else the replay's."""
        if self.tally is not None:
            return self.tally.accept_length
        return self.logged.accept_length if self.logged else None

    @property
    def rounds(self) -> int:
        """Rounds that the length is a mean of; a log's line is a mean of many."""
        if self.tally is not None:
            return self.tally.rounds
        return FEW_ROUNDS * self.logged.lines if self.logged else 0

    @property
    def few(self) -> str:
        """What there is too little of, "" where there is enough."""
        if self.tally is None and self.logged is not None and self.logged.lines < FEW_LINES:
            return f"{self.logged.lines} {'line' if self.logged.lines == 1 else 'lines'} of a log"
        return f"{self.rounds} rounds" if self.rounds < FEW_ROUNDS else ""

    @property
    def doubtful(self) -> str:
        """Why these counts say nothing, "" where they may."""
        tally, most = self.tally, self.deepest
        if most is not None and tally is not None and any(tally.histogram[most + 1 :]):
            deep = max(k for k, n in enumerate(tally.histogram) if n)
            return f"a round of {most} drafts cannot accept {deep}, so these are not its rounds"
        if most is not None and self.length is not None and self.length > most + 1.005:
            return f"a round of {most} drafts cannot emit {self.length:.2f} tokens"
        return "; ".join(self.contradictions)

    @property
    def unlike(self) -> str:
        """Why what was replayed is not what ran, "" where it is."""
        share = self.agreement.share if self.agreement is not None else None
        if share is None or share >= UNLIKE:
            return ""
        return (
            f"replay and engine differ in {1 - share:.0%} of the rounds: what was replayed is not "
            "what ran"
        )

    @property
    def stretch(self) -> bool:
        """Whether a log has stretches that are far lower than its mean."""
        log, alone = self.logged, self.tally is None
        if not alone or log is None or log.tenth is None or self.expected is None:
            return False
        return log.tenth - 1 < STRETCH * (self.expected.accept_length - 1)

    @property
    def doubt(self) -> float:
        """How much of the accept length may be chance."""
        counted = self.tally or self.logged
        return SURE * counted.error if counted is not None else 0.0

    @property
    def low(self) -> bool | None:
        """Whether acceptance is lower than it should be; None where the rounds are too few to tell."""
        if self.length is None:
            return None
        if self.expected is None:
            return self.length - 1 < HARDLY
        accepted, comparable = self._compared(self.length)
        wanted = self.expected.accept_length - 1
        if accepted + self.doubt < ENOUGH * wanted:
            return True
        # Rounds of an engine accept less than places do, but a tree accepts more: then enough proves nothing.
        if not comparable or accepted - self.doubt > MUCH * wanted:
            return None
        missing = (wanted - accepted) / self.expected.accept_length
        chance = accepted + self.doubt >= wanted
        return False if missing < SMALL or (chance and missing < UNSURE) else None

    @property
    def lost(self) -> bool:
        """Whether fewer drafts are accepted than expected for certain.

        Rounds of an engine accept less than places do: where only the other was counted, it must be far less.
        """
        if self.expected is None or self.length is None or self.low is not True:
            return False
        accepted, comparable = self._compared(self.length)
        if comparable or self.expected.counted != "places":
            return True
        return accepted + self.doubt < FAR * (self.expected.accept_length - 1)

    @property
    def between(self) -> str:
        """Why acceptance is neither low nor as expected."""
        if self.expected is None or self.length is None:
            return ""
        accepted, comparable = self._compared(self.length)
        wanted = self.expected.accept_length - 1
        if not comparable:
            return "the expectation is counted differently (chains or trees, places or rounds)"
        if accepted - self.doubt > MUCH * wanted:
            return (
                "that is far more than expected: the expectation is of another draft, or of other "
                "texts"
            )
        missing = (wanted - accepted) / self.expected.accept_length
        if accepted + self.doubt >= wanted or accepted - self.doubt < ENOUGH * wanted:
            return (
                f"{missing:.0%} less than expected, and {self.rounds:,} rounds are too few to tell "
                "how much of that is chance"
            )
        return (
            f"{missing:.0%} less than expected, more than chance: the ablations look for the cause"
        )

    def _compared(self, length: float) -> tuple[float, bool]:
        """Return accepted drafts a round, counted as the expectation is where that can be."""
        if self.expected is None or self.expected.counted != "places":
            return self._accepted(length)
        same = self.agreement.share if self.agreement else 1.0
        alike = self.alike is not None and (same or 0.0) >= FAITHFUL
        return (self.alike - 1 if self.alike is not None and alike else length - 1), alike

    def _accepted(self, length: float) -> tuple[float, bool]:
        """Return accepted drafts a round as far as the expectation reaches, and whether both are alike."""
        known = len(self.expected.per_position) if self.expected else 0
        if self.expected is not None and self.expected.topk == 1 < self.topk:
            return length - 1, False  # a tree accepts more than a chain
        if self.tally is not None and 0 < known < self.steps:
            return sum(self.tally.per_position(known)), True
        return length - 1, True


def contradicting(tally: Tally | None, log: Logged | None) -> tuple[str, ...]:
    """Return where answers and a log cannot be of one run, beyond chance and other requests."""
    if tally is None or log is None or log.lines < FEW_LINES:
        return ()
    length = tally.accept_length
    if length is None:
        return ()
    high, low = max(length, log.accept_length) - 1, min(length, log.accept_length) - 1
    if high - low <= max(APART, APART * high) + SURE * (tally.error + log.error):
        return ()
    return (
        f"the log's acceptance length is {log.accept_length:.2f}, that of the answers {length:.2f}",
    )
