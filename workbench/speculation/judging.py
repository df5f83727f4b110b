"""The verdict on a replay: pure, from what was counted, what was expected and what static checks found.

The rules, in this order:

1. Texts that repeat themselves are no evidence: cannot tell.
2. Acceptance is that of the engine where a real one was seen, else the replay's. It is *low* where fewer
   than 80 % of the expected drafts are accepted, by more than chance; where nobody knows what to expect,
   only where hardly any is (`HARDLY` a round): a draft is not slandered for being small.
3. Low, and a cause is known that changes what is computed (a static check, weights that hold no known
   values): wrong.
4. Low without a known cause: cannot tell, and the ablations are the next step.
5. Not low: right only where an expectation says so and no static check is broken; else cannot tell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from workbench.result import GRAVITY, Finding
from workbench.speculation.expected import Expected
from workbench.speculation.observed import Launch
from workbench.speculation.result import Agreement
from workbench.speculation.tally import Logged, Tally
from workbench.speculation.texts import Texts

ENOUGH = 0.8  # of the expected drafts
HARDLY = 0.1  # accepted drafts a round
SURE = 1.645  # standard errors: one side of 95 %
FEW = 20  # rounds below which nothing is concluded
NEAR = 0.25  # logits: bfloat16 has steps of 1/16 between 8 and 16, and sums differ by a few of them
FAITHFUL = 0.95  # agreement below which replay and engine compute different things


@dataclasses.dataclass(frozen=True)
class Seen:
    """Everything that a verdict rests on; see `Replay` for the same names.

    Attributes
    ----------
    filled
        Weights that hold no known values.
    static
        What was known before the replay.
    real
        Whether rounds of a real engine were seen.
    alike
        Accept length of the replay counted as the expectation was, where that was from every place.
    """

    replayed: Tally | None
    observed: Tally | None
    logged: Logged | None
    expected: Expected | None
    steps: int
    engine: str
    launch: Launch | None
    agreement: Agreement | None = None
    fills: dict[str, float] = dataclasses.field(default_factory=dict)
    filled: tuple[str, ...] = ()
    texts: Texts | None = None
    static: tuple[Finding, ...] = ()
    real: bool = False
    alike: float | None = None

    @property
    def length(self) -> float | None:
        """Tokens a round: the engine's, else the replay's."""
        if self.real or self.replayed is None:
            if self.observed is not None:
                return self.observed.accept_length
            return self.logged.accept_length if self.logged else None
        return self.replayed.accept_length

    @property
    def rounds(self) -> int:
        """Rounds that the length is a mean of; a log's line is a mean of many."""
        tally = self.observed if self.real or self.replayed is None else self.replayed
        if tally is not None:
            return tally.rounds
        return FEW * self.logged.lines if self.logged else 0

    @property
    def low(self) -> bool | None:
        """Whether acceptance is lower than it should be; None where the rounds are too few to tell."""
        if self.length is None:
            return None
        accepted, comparable = self.length - 1, True
        if self.expected is None:
            return accepted < HARDLY
        if self.expected.counted == "places":
            same = self.agreement.share if self.agreement else 1.0
            comparable = self.alike is not None and (same or 0.0) >= FAITHFUL
            accepted = self.alike - 1 if self.alike is not None and comparable else accepted
        wanted = ENOUGH * (self.expected.accept_length - 1)
        tally = self.observed if self.real or self.replayed is None else self.replayed
        doubt = SURE * tally.error if tally is not None else 0.0
        if accepted + doubt < wanted:
            return True
        # Rounds of an engine accept less than places do, but a tree accepts more: then enough proves nothing.
        return False if comparable and accepted - doubt >= wanted else None


@dataclasses.dataclass(frozen=True)
class Judged:
    """The verdict."""

    ok: bool | None
    summary: str
    findings: tuple[Finding, ...]


def judge(seen: Seen) -> Judged:
    """Return the verdict, its sentence, and all findings, the static ones first among equals."""
    found = sorted(
        [*seen.static, *_unknown_memory(seen), *_texts(seen), *_fidelity(seen)],
        key=lambda f: GRAVITY[f.severity],
    )
    causes = [f for f in found if f.severity == "error" and f.changes_output]
    ok, said = _verdict(seen, causes)
    return Judged(ok, f"{_first(seen)} {said}".strip(), tuple(found))


def _verdict(seen: Seen, causes: list[Finding]) -> tuple[bool | None, str]:
    if seen.length is None:
        return None, "Nothing says how many drafts were accepted."
    if seen.rounds < FEW:
        return None, f"{seen.rounds} rounds are too few to conclude from."
    if seen.texts is not None and seen.texts.refused:
        return (
            None,
            f"Cannot tell: {seen.texts.refused}, and in a loop a broken draft is right too.",
        )
    if seen.low is None:
        some = f" ({causes[0].title.rstrip('.')})" if causes else ""
        return (
            None,
            f"{seen.rounds:,} rounds are too few to tell whether that is less than it should be{some}.",
        )
    if seen.low and causes:
        more = f" ({len(causes) - 1} more below)" if len(causes) > 1 else ""
        return False, f"A cause is known: {causes[0].title.rstrip('.')}{more}."
    if seen.low and seen.replayed is None:
        return None, "Counts alone do not say why; give texts, target and draft."
    if seen.low:
        return None, "No static check says why; the ablations change one thing at a time."
    if causes:
        return None, f"Yet {causes[0].title.rstrip('.')}: cannot tell what it costs."
    if seen.expected is None:
        return (
            None,
            "Whether that is what this draft can do, nobody knows: there is no expectation.",
        )
    return True, "That is what it should be."


def _first(seen: Seen) -> str:
    """Return the sentence that says what was accepted."""
    if seen.length is None:
        return ""
    who = seen.launch.engine.replace("==", " ") if seen.real and seen.launch else ""
    who = who or ("the engine" if seen.real or seen.replayed is None else "the replay")
    accepted = seen.length - 1
    wanted = f", {seen.expected.accept_length:.2f} expected" if seen.expected else ""
    if accepted < 0.0005:
        text = f"No draft token was accepted by {who} (accept length {seen.length:.2f}{wanted})."
    else:
        text = (
            f"Accept length {seen.length:.2f}{wanted}: {who} accepts {accepted:.2f} drafts a round."
        )
    if seen.alike is not None:
        text += f" Counted from every place, as the trainer does, the replay has {seen.alike:.2f}."
    return text


def _unknown_memory(seen: Seen) -> Iterator[Finding]:
    if not seen.filled:
        return
    lengths = [value for value in seen.fills.values() if not math.isnan(value)]
    spread = ", ".join(f"{value:.2f} ({name})" for name, value in seen.fills.items())
    names = ", ".join(f"`{name}`" for name in seen.filled[:3])
    names += " …" if len(seen.filled) > 3 else ""
    yield Finding(
        code="unwritten-memory",
        severity="error",
        title=f"{len(seen.filled)} weights of the draft hold what memory happened to hold",
        detail=f"Nothing writes {names} in {seen.engine or 'this engine'}. What they hold there is "
        f"unknown; replayed with several contents the accept length is {spread}.",
        evidence_for=(
            (f"whatever they hold, it stays between {min(lengths):.2f} and {max(lengths):.2f}",)
            if lengths
            else ()
        ),
        changes_output=True,
        next_step="`workbench diff` names the keys that this version drops, and the rename that mends it.",
    )


def _texts(seen: Seen) -> Iterator[Finding]:
    texts = seen.texts
    if texts is None:
        return
    if texts.refused:
        yield Finding(
            code="repetitive-text",
            severity="warning",
            title="The texts repeat themselves and are no evidence",
            detail=f"{texts.refused}. In a loop a draft is right without the target's features, so that "
            "a lost layer or a shifted one goes unseen.",
            evidence_for=(f"distinct pairs of tokens: {texts.distinct[1]:.0%}",),
            next_step="Record other prompts, or forbid the repetition.",
        )
    elif texts.looping:
        yield Finding(
            code="some-repetitive-text",
            severity="note",
            title=f"{len(texts.looping)} of {texts.requests} answers end in a loop",
            detail="Acceptance in them says little about the draft.",
        )
    if texts.sampled and seen.real:
        yield Finding(
            code="sampled-text",
            severity="note",
            title=f"{texts.other:.0%} of the text is not what this target chooses",
            detail="It was sampled, or written by another target. Drafts are compared with the text as "
            "it is, so that acceptance is lower than a greedy server's.",
            confidence="likely",
        )


def _fidelity(seen: Seen) -> Iterator[Finding]:
    same = seen.agreement
    if same is None or not same.rounds or same.share is None:
        return
    left = same.rounds - same.same_count
    detail = (
        f"{same.same_count:,} of {same.rounds:,} rounds accept as many drafts as the engine did, "
        f"{same.same_tokens:,} emit the same tokens."
    )
    if left:
        detail += f" Of the {left:,} others the target decided {same.near_ties:,} by less than {NEAR} logits."
    if same.share >= FAITHFUL:
        yield Finding(
            code="faithful",
            severity="note",
            title=f"The replay does what the engine did in {same.share:.1%} of the rounds",
            detail=detail,
        )
        return
    if seen.filled:
        yield Finding(
            code="unwritten-memory-differs",
            severity="note",
            title=f"Replay and engine part in {1 - same.share:.0%} of the rounds",
            detail=f"{detail} The engine computes with memory that nobody wrote and nobody knows, the "
            "replay with zeros there.",
        )
        return
    yield Finding(
        code="unfaithful",
        severity="warning",
        title=f"Replay and engine part in {1 - same.share:.0%} of the rounds",
        detail=f"{detail} What was replayed is not what ran: another draft or target, another version or "
        "launch, or memory of unknown content.",
        next_step="Check that target, draft and launch are those of the evidence.",
    )
