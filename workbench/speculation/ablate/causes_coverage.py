"""What the ablations' question covers, the checks that settle it, and the verdict that follows.

The question: what, of all that can be changed about this pair, lost its acceptance? `items` lists what that
covers; each check of `CHECKS` settles some of it. What no check settles stays open, and the answer with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from workbench.core.verdict import Coverage, Item, Settled, State, Verdict, cover
from workbench.speculation.ablate.cause_records import (
    Cause,
    CauseFacts,
    Tried,
)
from workbench.speculation.ablate.static_checks import Hint
from workbench.speculation.judge.coverage import ACCEPTANCE, STATIC, TEXTS, fault_items
from workbench.speculation.judge.thresholds import FEW_REQUESTS, SMALL, UNLIKE

AMOUNT = ("amount of evidence", "number of requests")
RECORDED = ("recorded run", "recorded rounds, reproduced by the replay")
REPLAY = ("verdict of the replay", "the replay's own verdict on the same rounds")
_ALL = "changes of the draft, its launch and its texts"
_LOST = {
    "lost": "lost, and what loses it is not known",
    "draft_itself": "as its trainer means it, the draft accepts no more",
    "engine": "these files accept more than the engine that served them",
}
_OVERTURNED = {
    "found": "the repaired draft, served again, accepting as little as before",
    "pair": "the draft with both repaired, served again, accepting as little as before",
    "several": "the draft with all of them repaired, served again, accepting as little as before",
    "lost": "an expected acceptance that is of another draft, or of other texts",
    "draft_itself": "the trainer's own measurement on these texts, with a higher acceptance",
    "engine": "the same files, served by the same release on another machine, accepting as expected",
    "named": "the tensor, found under another name",
    "healthy": "an expected acceptance that is of another draft, or of other texts",
    "sampling": "a greedy server that accepts as little",
}


@dataclasses.dataclass(frozen=True)
class AblationQuestion:
    """All that the verdict of ablations is made of.

    Attributes
    ----------
    facts, cause
        What was measured, and what the rules conclude from it.
    catalogue
        The names of every switch for this pair, by what they are about.
    idle
        Those that change nothing for this pair.
    left
        Why some were not tried, "" where all were.
    beyond
        Why no switch can be tried about a fact, for each where that is so.
    unchecked, fields
        As `ReplayEvidence` has them.
    replayed_ok
        The answer of the replay that these ablations belong to, None where it cannot tell or there is none.
    """

    facts: CauseFacts
    cause: Cause
    catalogue: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    idle: tuple[str, ...] = ()
    left: str = ""
    beyond: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unchecked: str = ""
    fields: tuple[Item, ...] = ()
    replayed_ok: bool | None = None

    @property
    def contradicted(self) -> str:
        """How the replay's verdict contradicts the cause, "" where it does not."""
        if self.replayed_ok is False and self.cause.ok is True:
            return "acceptance is low, and its cause is known"
        if self.replayed_ok is True and self.cause.ok is False:
            return "acceptance is as expected"
        return ""


def answered(question: AblationQuestion) -> tuple[Cause, Verdict]:
    """Return the cause and the verdict; a cause that the coverage does not support is no cause."""
    coverage, cause = covered(question), question.cause
    if question.contradicted:
        cause = _unsupported(cause, _disagreeing(question))
        cause = dataclasses.replace(cause, next_step="Replay more prompts, and ablate again.")
    elif coverage.ok is not cause.ok:
        missing = next(coverage.having("open", essential=True))
        known = f"As far as is known: {cause.sentence}"
        cause = _unsupported(cause, f"Cannot tell: {missing.name}: {missing.how}. {known}")
    doubts = (_OVERTURNED[cause.state],) if cause.state in _OVERTURNED else ()
    return cause, Verdict(cause.state, cause.sentence, cause.confidence, coverage, doubts)


def _unsupported(cause: Cause, sentence: str) -> Cause:
    """Return that nobody can tell; what would have been the cause is the nearest."""
    return dataclasses.replace(
        cause,
        state="cannot_tell",
        sentence=sentence,
        facts=(),
        switches=(),
        confidence="unknown",
        nearest=cause.nearest or " + ".join(cause.switches),
    )


def _disagreeing(question: AblationQuestion) -> str:
    by_ablations = question.cause.sentence
    return (
        f"Cannot tell: the replay and its ablations disagree. By the replay {question.contradicted}. By the "
        f"ablations: {by_ablations[:1].lower()}{by_ablations[1:]}"
    )


def covered(question: AblationQuestion, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage of ablations; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    return cover(items(question), (one for check in chosen for one in check(question)))


def items(question: AblationQuestion) -> Iterator[Item]:
    """Yield everything that the question covers."""
    yield Item(*AMOUNT)
    yield Item(*TEXTS)
    yield Item(*ACCEPTANCE)
    if question.facts.agreement is not None:
        yield Item(*RECORDED)
    if question.replayed_ok is not None:
        yield Item(*REPLAY)
    for fact, names in question.catalogue.items():
        essential = fact not in question.beyond
        yield Item("change", fact, count=len(names), essential=essential)
    if not question.catalogue:
        yield Item("change", _ALL)
    yield Item(*STATIC, essential=question.facts.agreement is None)
    yield from fault_items(hint.finding for hint in question.facts.hints)
    yield from question.fields


def amount(question: AblationQuestion) -> Iterator[Settled]:
    """Settle whether there are requests enough."""
    count = len(question.facts.reference.served.rounds)
    few = count < FEW_REQUESTS
    how = f"{count} requests" + (f"; {FEW_REQUESTS} or more are needed" if few else "")
    yield Settled(*AMOUNT, "open" if few else "ok", how)


def repetition(question: AblationQuestion) -> Iterator[Settled]:
    """Settle whether the texts repeat themselves."""
    texts = question.facts.texts
    if texts.refused:
        yield Settled(*TEXTS, "open", texts.refused)
    else:
        yield Settled(*TEXTS, "ok", f"{len(texts.kept)} of {texts.requests} answers do not")


def acceptance(question: AblationQuestion) -> Iterator[Settled]:
    """Settle whether acceptance is as expected, or lost by what the rules name."""
    cause = question.cause
    if cause.ok is False and not question.contradicted:
        lost_by = f"lost by the {' and the '.join(cause.facts)}"
        yield Settled(*ACCEPTANCE, "wrong", lost_by if cause.facts else _LOST[cause.state])
    elif cause.ok and not question.contradicted:
        expected = question.facts.reference.expected
        wanted = f"{expected.accept_length:.2f} expected" if expected else cause.state
        yield Settled(*ACCEPTANCE, "ok", wanted)
    else:
        why = question.contradicted and "the replay and its ablations disagree"
        yield Settled(*ACCEPTANCE, "open", why or cause.missing or "what lowers it is not known")


def reproduction(question: AblationQuestion) -> Iterator[Settled]:
    """Settle whether the replay does what the recorded engine did."""
    share = question.facts.agreement
    if share is None:
        return
    state: State = "ok" if share >= UNLIKE else "open"
    yield Settled(*RECORDED, state, f"{share:.0%} of the rounds agree")


def replay_verdict(question: AblationQuestion) -> Iterator[Settled]:
    """Settle whether the replay and its ablations agree."""
    if question.replayed_ok is not None:
        how = question.contradicted
        yield Settled(*REPLAY, "open" if how else "ok", how or "both agree, or one cannot tell")


def switches(question: AblationQuestion) -> Iterator[Settled]:
    """Settle for each fact whether all of its switches were tried."""
    done = set(question.idle)
    for one in question.facts.singles:
        done.update(one.lift.switches, one.lift.same)
    for fact, names in question.catalogue.items():
        rest = [name for name in names if name not in done]
        if question.cause.ok is False and fact in question.cause.facts:
            state: State = "open" if question.contradicted else "wrong"
            yield Settled("change", fact, state, "changing it brings acceptance back")
        elif fact in question.beyond:
            yield Settled("change", fact, "open", question.beyond[fact])
        elif rest:
            why = question.left or "left out"
            yield Settled("change", fact, "open", f"{len(rest)} of {len(names)} not tried ({why})")
        else:
            yield Settled("change", fact, "ok", "each was tried, or changes nothing here")
    if not question.catalogue:
        yield Settled("change", _ALL, "open", question.left or "left out")


def faults(question: AblationQuestion) -> Iterator[Settled]:
    """Settle each static fault by what undoing it did."""
    how = question.unchecked
    hints = question.facts.hints
    found = sum(h.finding.severity == "error" and h.finding.changes_output for h in hints)
    yield Settled(*STATIC, "open" if how else "ok", how or f"faults found: {found or 'none'}")
    for hint in hints:
        if hint.finding.changes_output:
            yield _settled(hint, question)


def _settled(hint: Hint, question: AblationQuestion) -> Settled:
    kind, title, cause = "fault", hint.finding.title, question.cause
    if cause.ok is False and hint.fact in cause.facts:
        grave = hint.finding.severity == "error" and not question.contradicted
        return Settled(kind, title, "wrong" if grave else "open", "undone, acceptance comes back")
    tried = [t for t in question.facts.singles if t.facts == {hint.fact} and t.confirmed]
    if not tried and cause.ok:
        return Settled(kind, title, "ok", "acceptance is as expected with it")
    if not tried:
        return Settled(kind, title, "open", "none of the changes undoes it")
    best = max(tried, key=lambda one: one.measured.accept_length)
    how = f"with {best.lift.words}: {best.lift.lift:+.2f} tokens a round"
    return Settled(kind, title, "open" if _gains(best) else "ok", how)


def _gains(one: Tried) -> bool:
    """Tell whether undoing something accepts more, by more than chance and a little."""
    expected = one.reference.expected
    length = expected.accept_length if expected else one.reference.served.accept_length
    return one.lift.lift >= SMALL * length and one.lift.lift_interval[0] > 0


Check = Callable[[AblationQuestion], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (
    amount, repetition, acceptance, reproduction, replay_verdict, switches, faults,
)  # fmt: skip
