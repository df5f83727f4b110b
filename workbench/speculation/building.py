"""A `Replay` out of a `Trial`: rounds, the target's choices, agreement with the engine, and the verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import WorkbenchError
from workbench.speculation.asking import Words
from workbench.speculation.beside import beside
from workbench.speculation.comparable import comparable
from workbench.speculation.facts import Facts
from workbench.speculation.judging import (
    HARDLY,
    NEAR,
    Judged,
    Proof,
    Seen,
    contradicting,
    judge,
    suspects,
)
from workbench.speculation.kept import Asked, Kept
from workbench.speculation.loading import FILLS
from workbench.speculation.measuring import State, measure
from workbench.speculation.replayed import Replayed
from workbench.speculation.result import COURSE, Agreement, Replay
from workbench.speculation.setup import as_launched
from workbench.speculation.static_checks import Hint, sufficient
from workbench.speculation.tally import Tally
from workbench.speculation.texts import look
from workbench.speculation.tops import tops_of

if TYPE_CHECKING:
    from workbench.speculation.trial import Trial

_FILLED = 24  # requests that are replayed with every fill
_PLACES = 64  # requests that are drafted at every place, where the trainer counted so


def build(
    trial: Trial,
    *,
    target: str,
    draft: str,
    facts: Facts | None,
    engine: str,
    words: Words,
    hints: Sequence[Hint] = (),
    notes: Sequence[str] = (),
    temperature: float = 0.0,
) -> Replay:
    """Replay a trial, and say what it shows.

    Parameters
    ----------
    hints
        Of the static checks, which cost nothing and go first.
    """
    replayed = trial.replayed
    if not len(replayed):
        raise WorkbenchError(
            "there are no rounds to replay",
            why="no request was answered with more than one token",
            next_step="Record longer answers, or give longer prompts.",
        )
    launch, driving = trial.launch, trial.driving
    own = Tally.of(replayed.accepted.tolist())
    observed, contradictions = _observed(trial, facts)
    fills = _fills(trial)
    texts = look(trial.trace)
    agreement = _agreement(replayed) if trial.emitted is not None else None
    seen = Seen(
        replayed=own,
        observed=observed,
        logged=facts.logged if facts else None,
        expected=trial.expected,
        agreement=agreement,
        fills=fills,
        filled=trial.draft.filled,
        texts=texts,
        static=(*(hint.finding for hint in hints), *(beside(trial, facts) if facts else ())),
        steps=driving.steps,
        engine=engine,
        launch=launch,
        real=trial.emitted is not None,
        alike=_as_expected(trial),
        ran=facts.launch.engine if facts is not None and facts.launch is not None else "",
        topk=driving.topk,
        deepest=launch.steps if facts is not None and facts.launch is not None else None,
        contradictions=contradictions,
    )
    if suspects(seen):
        seen = dataclasses.replace(seen, proof=_proof(trial, hints, seen.length or 1.0))
    judged: Judged = judge(seen)
    return Replay(
        target=target,
        draft=draft,
        evidence=facts.source if facts else "",
        engine=engine,
        algorithm=launch.algorithm,
        steps=driving.steps,
        topk=driving.topk,
        draft_tokens=driving.draft_tokens,
        ok=judged.ok,
        summary=judged.summary,
        total=len(replayed),
        temperature=temperature,
        replayed=own,
        observed=observed,
        logged=seen.logged,
        expected=trial.expected,
        agreement=agreement,
        fills=fills,
        course=course_of(replayed, known=trial.emitted is not None),
        findings=judged.findings,
        notes=(*notes, *trial.notes, *trial.draft.notes),
        kept=_kept(trial, replayed, facts, words),
        trial=trial,
    )


def course_of(replayed: Replayed, *, known: bool) -> tuple[tuple[float, float | None], ...]:
    """Return mean accepted drafts over the run in at most `COURSE` pieces, replayed and observed."""
    pieces = np.array_split(np.arange(len(replayed)), min(COURSE, len(replayed)))
    return tuple(
        (
            round(float(replayed.accepted[rows].mean()), 4),
            round(float((replayed.observed[rows] - 1).mean()), 4) if known else None,
        )
        for rows in pieces
    )


def _observed(trial: Trial, facts: Facts | None) -> tuple[Tally | None, tuple[str, ...]]:
    """Count the engine's rounds: its own histograms where every request has one, else what was emitted.

    Beside it stands what contradicts: a histogram of other answers, a log of another run.
    """
    said: list[str] = []
    emitted = None
    if trial.emitted is not None:
        emitted = Tally.of(n - 1 for request in trial.emitted for n in request)
    counted = _histograms(trial, facts)
    if counted is not None and emitted is not None and facts is not None and facts.run is not None:
        tokens, streamed = counted.accepted + counted.rounds, emitted.accepted + emitted.rounds
        # A length that a request stops at cuts its last round.
        cut = (trial.driving.steps + 1) * len(facts.run.requests)
        if not streamed <= tokens <= streamed + cut:
            said.append(
                f"the answers' histograms count {tokens:,} tokens, and {streamed:,} were answered"
            )
            counted = None
    found = counted or emitted or (facts.tally if facts else None)
    return found, (*said, *contradicting(found, facts.logged if facts else None))


def _histograms(trial: Trial, facts: Facts | None) -> Tally | None:
    requests = facts.run.requests if facts and facts.run else ()
    if not requests or len(requests) != len(trial.trace):
        return None
    if not all(r.histogram for r in requests):
        return None
    return Tally.summed(request.histogram for request in requests)


def _proof(trial: Trial, hints: Sequence[Hint], length: float) -> Proof:
    """Undo what is known to be wrong, and say what comes of it."""
    from workbench.speculation.ablate import undone

    whole = sufficient(hints)
    verdict, lifts = undone(trial, hints)
    chosen = [one for one in lifts if set(one.switches) == set(verdict.switches)]
    best = max(chosen or lifts, key=lambda one: one.accept_length, default=None)
    proved = verdict.ok is False
    if verdict.state == "no_expectation" and best is not None:
        # Nobody knows how much there should be; but from hardly any to some is an effect, and no chance.
        proved = best.accept_length - 1 > 3 * HARDLY and best.lift_interval[0] > HARDLY
    facts = set(verdict.facts) or set(best.facts if best is not None else ())
    said = tuple(h.finding.title.rstrip(".") for h in hints if h.fact in facts)
    if not proved and whole and length - 1 < HARDLY:
        # Too few requests for the ablations' rules, or no expectation; but from nothing to some is no chance.
        back = best is not None and best.accept_length - 1 > 3 * HARDLY
        if back or best is None:
            return Proof(
                True, whole, best.words if best else "", best.accept_length if best else None
            )
    if best is None or verdict.state == "named":
        return Proof(proved, said)
    return Proof(proved, said, best.words, best.accept_length)


def _as_expected(trial: Trial) -> float | None:
    """Return the accept length counted as the expectation was, where that is from every place of the text.

    A trainer counts chains: a tree is not to be praised for its width.
    """
    if trial.expected is None or trial.expected.counted != "places":
        return None
    some, _ = comparable(trial.some(range(min(_PLACES, len(trial.trace)))))
    steps = some.driving.steps
    chain = some.driving.replaced(topk=1, draft_tokens=steps + 1)
    found = measure(State(some.draft, chain, some.trace), "places").accept_length
    return None if math.isnan(found) else found


def _agreement(replayed: Replayed) -> Agreement:
    same = replayed.agrees()
    at = np.arange(replayed.margins.shape[1])[None, :]
    decided = np.where(at <= replayed.accepted[:, None], replayed.margins, math.inf)
    narrow = np.nan_to_num(decided, nan=math.inf).min(axis=1) < NEAR
    return Agreement(
        len(same), int(same.sum()), int(replayed.same_tokens().sum()), int((~same & narrow).sum())
    )


def _fills(trial: Trial) -> dict[str, float]:
    """Return the accept length for each content that memory nobody wrote may have had."""
    if not trial.draft.filled:
        return {}
    some = trial.some(range(min(_FILLED, len(trial.trace))))
    some = some.replaced(driving=some.driving.replaced(extend="prefix"))
    target: Any = trial.target
    found: dict[str, float] = {}
    for fill in FILLS:
        draft, _ = as_launched(
            trial.launch, trial.checkpoint, target, memory=trial.memory, fill=fill
        )
        found[fill] = some.replaced(draft=draft).replayed.accept_length
    return found


def _kept(trial: Trial, replayed: Replayed, facts: Facts | None, words: Words) -> Kept:
    names = [r.name for r in facts.run.requests] if facts and facts.run else []
    if facts and not names:
        names = [r.name for r in facts.recorded]
    trace = trial.trace
    lengths, prompts = trace.lengths.tolist(), trace.prompts.tolist()
    requests = tuple(
        Asked(names[row] if row < len(names) else str(row), tuple(tokens[:length]), prompt)
        for row, (tokens, length, prompt) in enumerate(
            zip(trace.tokens.tolist(), lengths, prompts, strict=True)
        )
    )
    tops = tops_of(trace, replayed)
    kept = Kept(replayed, tops.tokens, tops.shares, requests)
    return dataclasses.replace(kept, words=words.of(kept.used()))
