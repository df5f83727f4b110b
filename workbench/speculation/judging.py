"""The verdict on a replay: pure, from what was counted, what was expected and what static checks found.

The rules, in this order:

1. Texts that repeat themselves are no evidence, nor are counts that contradict each other or cannot be:
   cannot tell.
2. Acceptance is that of the engine where a real one was seen, else the replay's. It is *low* where fewer
   than 80 % of the expected drafts are accepted, by more than chance, and as expected where less than 3 % of
   the expected length is missing, or less than 5 % that may be chance; between them nobody can tell. Where
   nobody knows what to expect it is low only where hardly any is accepted (`HARDLY` a round): a draft is not
   slandered for being small.
3. Low, and something is known that changes what is computed (a static check, weights that hold no known
   values): wrong where undoing it brings acceptance back. Where it does not, or nobody can undo it, that it
   is broken is said, and not that it is the cause.
4. Low without that: cannot tell, and the ablations are the next step.
5. Not low: right only where an expectation says so, no static check is broken, no part of a log is much
   lower, and the replay does what the engine did; else cannot tell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from workbench.core.finding import GRAVITY, Finding
from workbench.speculation.expected import Expected
from workbench.speculation.observed import Launch
from workbench.speculation.result import Agreement
from workbench.speculation.tally import Logged, Tally
from workbench.speculation.texts import Texts

ENOUGH = 0.8  # of the expected drafts
SMALL, UNSURE = 0.03, 0.05  # of the expected length: too little to miss, and by chance
_MUCH = 1.3  # times the expected drafts: then the expectation is of something else
HARDLY = 0.1  # accepted drafts a round
SURE = 1.645  # standard errors: one side of 95 %
FEW = 20  # rounds below which nothing is concluded
NEAR = 0.25  # logits: bfloat16 has steps of 1/16 between 8 and 16, and sums differ by a few of them
FAITHFUL = 0.95  # agreement below which replay and engine compute different things
UNLIKE = 0.85  # and below which what was replayed is not what ran
LINES = 5  # of a log, below which nothing is concluded
_STRETCH = (
    0.5  # of the expected drafts: a log that is lower for a tenth of its lines is no clear one
)
_APART = 0.3  # of the accepted drafts, by which two counts of one run do not differ


@dataclasses.dataclass(frozen=True)
class Proof:
    """What came of undoing what is known to be wrong, on some of the requests.

    Attributes
    ----------
    proved
        Whether that brings acceptance back.
    said
        What was undone, as the findings' titles say it.
    words, length
        The change, and the accept length with it; "" and None where nothing could be undone.
    """

    proved: bool
    said: tuple[str, ...] = ()
    words: str = ""
    length: float | None = None


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
    ran
        The engine that the evidence is of, where another one was replayed.
    topk
        Width of the tree.
    deepest
        Drafts that a round can accept, where a launch says so.
    proof
        What came of undoing what static checks suspect.
    contradictions
        Parts of the evidence that cannot be of one run, each in a sentence.
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
    ran: str = ""
    topk: int = 1
    deepest: int | None = None
    proof: Proof | None = None
    contradictions: tuple[str, ...] = ()

    @property
    def tally(self) -> Tally | None:
        """The rounds that count: the engine's, else the replay's."""
        return self.observed if self.real or self.replayed is None else self.replayed

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
        return FEW * self.logged.lines if self.logged else 0

    @property
    def few(self) -> str:
        """What there is too little of, "" where there is enough."""
        if self.tally is None and self.logged is not None and self.logged.lines < LINES:
            return f"{self.logged.lines} {'line' if self.logged.lines == 1 else 'lines'} of a log"
        return f"{self.rounds} rounds" if self.rounds < FEW else ""

    @property
    def doubtful(self) -> str:
        """Why these counts say nothing, "" where they may."""
        tally, most = self.tally, self.deepest
        if most is not None and tally is not None and any(tally.histogram[most + 1 :]):
            deep = max(k for k, n in enumerate(tally.histogram) if n)
            return f"a round of {most} drafts cannot accept {deep}, and so these are not its rounds"
        if most is not None and self.length is not None and self.length > most + 1.005:
            return f"a round of {most} drafts cannot emit {self.length:.2f} tokens"
        return "; ".join(self.contradictions)

    def _accepted(self, length: float) -> tuple[float, bool]:
        """Return accepted drafts a round as far as the expectation reaches, and whether both are alike."""
        known = len(self.expected.per_position) if self.expected else 0
        if self.expected is not None and self.expected.topk == 1 < self.topk:
            return length - 1, False  # a tree accepts more than a chain
        if self.tally is not None and 0 < known < self.steps:
            return sum(self.tally.per_position(known)), True
        return length - 1, True

    @property
    def unlike(self) -> str:
        """What says that another thing was replayed than what ran, "" where nothing does."""
        share = self.agreement.share if self.agreement is not None else None
        if share is None or share >= UNLIKE:
            return ""
        return f"replay and engine part in {1 - share:.0%} of the rounds: what was replayed is not what ran"

    @property
    def stretch(self) -> bool:
        """Whether a log has stretches that are far lower than its mean."""
        log, alone = self.logged, self.tally is None
        if not alone or log is None or log.tenth is None or self.expected is None:
            return False
        return log.tenth - 1 < _STRETCH * (self.expected.accept_length - 1)

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
        if not comparable or accepted - self.doubt > _MUCH * wanted:
            return None
        missing = (wanted - accepted) / self.expected.accept_length
        chance = accepted + self.doubt >= wanted
        return False if missing < SMALL or (chance and missing < UNSURE) else None

    def _compared(self, length: float) -> tuple[float, bool]:
        """Return accepted drafts a round, counted as the expectation is where that can be."""
        if self.expected is None or self.expected.counted != "places":
            return self._accepted(length)
        same = self.agreement.share if self.agreement else 1.0
        alike = self.alike is not None and (same or 0.0) >= FAITHFUL
        return (self.alike - 1 if self.alike is not None and alike else length - 1), alike

    @property
    def doubt(self) -> float:
        """How much of the accept length may be chance."""
        counted = self.tally or self.logged
        return SURE * counted.error if counted is not None else 0.0

    @property
    def between(self) -> str:
        """Why acceptance is neither low nor as expected."""
        if self.expected is None or self.length is None:
            return ""
        accepted, comparable = self._compared(self.length)
        wanted = self.expected.accept_length - 1
        if not comparable:
            return (
                "the expectation is counted otherwise (chains against trees, places against rounds)"
            )
        if accepted - self.doubt > _MUCH * wanted:
            return "that is far more than expected: the expectation is of another draft, or of other texts"
        missing = (wanted - accepted) / self.expected.accept_length
        if accepted + self.doubt >= wanted or accepted - self.doubt < ENOUGH * wanted:
            some = f"{self.rounds:,} rounds do not tell how much of that is chance"
            return f"{missing:.0%} less than expected, and {some}"
        return (
            f"{missing:.0%} less than expected, and not by chance: the ablations tell what costs it"
        )


@dataclasses.dataclass(frozen=True)
class Judged:
    """The verdict."""

    ok: bool | None
    summary: str
    findings: tuple[Finding, ...]


def judge(seen: Seen) -> Judged:
    """Return the verdict, its sentence, and all findings, the static ones first among equals."""
    found = sorted(
        [*seen.static, *_unknown_memory(seen), *_texts(seen), *_fidelity(seen), *_doubts(seen)],
        key=lambda f: GRAVITY[f.severity],
    )
    ok, said = _verdict(seen, _causes(found))
    return Judged(ok, f"{_first(seen)} {said}".strip(), tuple(found))


def suspects(seen: Seen) -> bool:
    """Tell whether the verdict rests on what is known to be wrong, so that undoing that is worth its time."""
    found = [*seen.static, *_unknown_memory(seen)]
    return bool(_early(seen) is None and seen.low and _causes(found))


def _causes(found: Sequence[Finding]) -> list[Finding]:
    return [f for f in found if f.severity == "error" and f.changes_output]


def _early(seen: Seen) -> str | None:
    """Return why nothing can be concluded, None where something may."""
    if seen.length is None:
        return "Nothing says how many drafts were accepted."
    if seen.few:
        return f"{seen.few} are too few to conclude from."
    if seen.texts is not None and seen.texts.refused:
        return f"Cannot tell: {seen.texts.refused}, and in a loop a broken draft is right too."
    if seen.doubtful:
        return f"Cannot tell: {seen.doubtful}."
    return None


def _verdict(seen: Seen, causes: list[Finding]) -> tuple[bool | None, str]:
    early = _early(seen)
    if early is not None:
        return None, early
    if seen.low is None and seen.unlike:
        return None, f"Cannot tell: {seen.unlike}."
    if seen.low is None:
        some = f" Known to be wrong: {_titles(causes, ())}." if causes else ""
        return None, f"Cannot tell: {seen.between}.{some}"
    if seen.low and causes:
        return _suspected(seen, causes)
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
    return _cleared(seen)


def _suspected(seen: Seen, causes: list[Finding]) -> tuple[bool | None, str]:
    """Return the verdict on acceptance that is low beside something that is known to be wrong."""
    proof = seen.proof
    if proof is None:
        known = f"Known to be wrong: {_titles(causes, ())}."
        if seen.replayed is None:
            return None, f"{known} Counts alone do not say what it costs; give texts and target."
        return None, f"{known} What it costs, the ablations tell."
    undone = (
        ""
        if proof.length is None
        else f"with {proof.words} the accept length is {proof.length:.2f}"
    )
    if proof.proved:
        return False, f"A cause is known: {_titles(causes, proof.said)}{undone and ': ' + undone}."
    vain = f" But {undone}: that alone does not bring it back." if undone else ""
    return None, (
        f"Known to be wrong: {_titles(causes, ())}.{vain} The ablations change one thing at a time."
    )


def _titles(causes: list[Finding], first: tuple[str, ...]) -> str:
    """Return the title of what was undone, or of the first, and how many there are beside it."""
    titles = [cause.title.rstrip(".") for cause in causes]
    chosen = next((title for title in titles if title in first), titles[0])
    return f"{chosen} ({len(causes) - 1} more below)" if len(causes) > 1 else chosen


def _cleared(seen: Seen) -> tuple[bool | None, str]:
    """Return the verdict on acceptance that is as it should be."""
    if seen.unlike:
        return None, f"Yet {seen.unlike}, and its counts may be of something else."
    if seen.stretch and seen.logged is not None:
        return None, (
            f"Yet a tenth of the log's lines say {seen.logged.tenth:.2f} or less: some requests, or some "
            "time, go wrong. Look at those lines alone."
        )
    return True, "That is what it should be."


def contradicting(tally: Tally | None, log: Logged | None) -> tuple[str, ...]:
    """Say where answers and the log beside them cannot be of one run, beyond chance and other requests."""
    length = tally.accept_length if tally is not None else None
    if tally is None or length is None or log is None or log.lines < LINES:
        return ()
    high, low = max(length, log.accept_length) - 1, min(length, log.accept_length) - 1
    if high - low <= max(_APART, _APART * high) + SURE * (tally.error + log.error):
        return ()
    return (
        f"the log's accept length is {log.accept_length:.2f}, that of the answers {length:.2f}",
    )


def _doubts(seen: Seen) -> Iterator[Finding]:
    if seen.doubtful:
        yield Finding(
            code="evidence-contradicts",
            severity="warning",
            title="The evidence cannot be of one run",
            detail=f"{seen.doubtful[:1].upper()}{seen.doubtful[1:]}.",
            next_step="Record launch, log and answers of one server together, with --stream-interval 1.",
        )


def _first(seen: Seen) -> str:
    """Return the sentence that says what was accepted."""
    if seen.length is None:
        return ""
    ran = seen.ran or (seen.launch.engine if seen.launch else "")
    who = ran.replace("==", " ") if seen.real else ""
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
