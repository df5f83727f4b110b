"""What a cause is concluded from, what it is, and how its evidence is worded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from workbench.core.finding import Confidence
from workbench.speculation.ablate.lifts import Lift, Reference
from workbench.speculation.ablate.static_checks import Hint
from workbench.speculation.ablate.switches import Switch
from workbench.speculation.judge.measuring import Measured, interval
from workbench.speculation.judge.texts import Texts
from workbench.speculation.judge.thresholds import ENOUGH, FEW_REQUESTS, RESTORED, SMALL

State = Literal[
    "found", "pair", "several", "named", "lost", "draft_itself", "engine", "healthy", "sampling",
    "no_expectation", "refused", "not_reproduced", "cannot_tell",
]  # fmt: skip


_WRONG = ("found", "pair", "several", "named", "lost", "draft_itself", "engine")
NAMING = ("found", "pair", "several", "named")
"""The states that name a fact as the cause."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """Some switches turned together, and what was measured; `reference` is of the same requests.

    `places`: the same from every place of the answers, where two such are to be compared: many more drafts.
    """

    switches: tuple[Switch, ...]
    measured: Measured
    reference: Reference
    confirmed: bool
    places: Measured | None = None

    @property
    def finest(self) -> Measured:
        """What is compared to tell a small effect from chance."""
        return self.places or self.measured

    @property
    def lift(self) -> Lift:
        """The outcome."""
        return self.reference.lift(self.switches, self.measured, self.confirmed)

    @property
    def facts(self) -> frozenset[str]:
        """What the switches are about."""
        return frozenset(switch.fact for switch in self.switches)


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """What is concluded.

    Attributes
    ----------
    state
        ``found``: one fact; ``pair``: two together; ``several``: more; ``named``: a tensor is nowhere, so
        nothing can bring it back; ``lost``: acceptance is lost for certain, and the cause is not known;
        ``draft_itself``: the same, and as its trainer means it the draft accepts no more; ``engine``: these
        files accept more than the engine that served them; ``healthy``: nothing was lost; ``sampling``: along
        the target's greedy answers all is well, but this text is none of them: it was sampled, or another
        target wrote it; ``no_expectation``: lifts alone; ``refused``: the text is no evidence;
        ``not_reproduced``: the replay does not do what the engine did; ``cannot_tell``.
    facts, switches
        The cause, and the switches that undo it; empty where there is none.
    sentence
        The verdict in words.
    nearest
        The switches that restored most, where no cause was found.
    missing
        The datum that would decide.
    """

    state: State
    sentence: str
    facts: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    confidence: Confidence = "unknown"
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()
    nearest: str = ""
    missing: str = ""
    next_step: str = ""

    @property
    def ok(self) -> bool | None:
        """What the state says alone: True: nothing is wrong. False: a cause is named. None: cannot tell.

        The answer of `Ablations` follows from its coverage, which may know of something that is open.
        """
        if self.state == "healthy":
            return True
        return False if self.state in _WRONG else None


@dataclasses.dataclass(frozen=True)
class CauseFacts:
    """All that a verdict is made of.

    Attributes
    ----------
    reference
        Served and expected acceptance over all requests.
    singles, pairs
        What was tried; only what was confirmed on all requests can become a cause.
    absent
        Names of tensors that the engine computes with and that no file has.
    observed, agreement
        The recorded engine's accept length, and the share of its rounds that the replay has as it had; None
        without a recording.
    unknown
        Names of tensors whose values in the engine's memory are not known.
    unmodelled
        What of config and launch the replay does not compute with, "" where nothing of it decides.
    chain
        Certain faults undone one after the other, the one that adds most first.
    untried
        Titles of certain faults that no change undoes.
    trained
        What the draft accepts as its trainer means it; None: not measured, or not to be loaded so.
    engine_loses
        Whether these files accept more than the engine did, clearly, and as much as they should.
    engine_does
        What the engine does that its recorded rounds show, "" where nothing reproduces them.
    """

    reference: Reference
    singles: Sequence[Tried]
    pairs: Sequence[Tried]
    hints: Sequence[Hint]
    texts: Texts
    absent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unmodelled: str = ""
    chain: tuple[Tried, ...] = ()
    untried: tuple[str, ...] = ()
    trained: Measured | None = None
    engine_loses: bool = False
    engine_does: str = ""
    observed: float | None = None
    agreement: float | None = None
    replayed: float | None = None


def lost(reference: Reference) -> bool:
    """Tell whether acceptance is below what is expected by more than chance and a little."""
    expected, loss = reference.expected, reference.loss
    if expected is None or loss is None:
        return False
    high = interval(reference.served.draws())[1]
    return loss >= SMALL * expected.accept_length and high < expected.accept_length


def certainly_lost(scene: CauseFacts) -> bool:
    """Tell whether far less is accepted than expected, beyond chance, on texts that the target chose."""
    expected = scene.reference.expected
    if expected is None or scene.texts.sampled or len(scene.reference.served.rounds) < FEW_REQUESTS:
        return False
    high = interval(scene.reference.served.draws())[1]
    return high - 1 < ENOUGH * (expected.accept_length - 1)


def restores(one: Tried) -> bool:
    """Tell whether a change brings enough of the loss back, at every position."""
    lift = one.lift
    enough = lift.restored is not None and lift.restored >= RESTORED
    return enough and lift.lift_interval[0] > 0 and lift.profile is not False


def statically(scene: CauseFacts, facts: frozenset[str]) -> tuple[str, ...]:
    """Return what static checks know of some facts."""
    return tuple(
        f"known without a replay: {h.finding.title}" for h in scene.hints if h.fact in facts
    )[:4]


def evidence_of(lift: Lift) -> str:
    """Return what a change restored, and on how much."""
    text = (
        f"{lift.words}: {lift.accept_length:.2f} tokens a round over {lift.rounds:,} rounds of "
        f"{lift.requests} requests"
    )
    if lift.restored_interval is None:
        return text
    low, high = lift.restored_interval
    return f"{text}, {percent(lift)} restored ({low:.0%} to {high:.0%})"


def percent(lift: Lift) -> str:
    """Return the restored share in words."""
    return "an unknown share" if lift.restored is None else f"{lift.restored:.0%}"
