"""A `Replay` out of a `Trial`: rounds, the target's choices, agreement with the engine, and the verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.finding import Finding
from workbench.core.verdict import Item
from workbench.errors import WorkbenchError
from workbench.speculation.ablate.fingerprint import fingerprint
from workbench.speculation.ablate.static_checks import Hint, sufficient, unchecked
from workbench.speculation.evidence.facts import Facts
from workbench.speculation.evidence.prompts import Words
from workbench.speculation.evidence.tally import Agreement, Tally
from workbench.speculation.judge import unmodelled
from workbench.speculation.judge.comparable import comparable
from workbench.speculation.judge.counts import Counts, contradicting
from workbench.speculation.judge.coverage import Proof, ReplayEvidence
from workbench.speculation.judge.engine_features import compare_with_engine
from workbench.speculation.judge.engine_loss import engine_loses
from workbench.speculation.judge.judging import judge, suspects
from workbench.speculation.judge.measuring import State, measure
from workbench.speculation.judge.texts import describe
from workbench.speculation.judge.thresholds import HARDLY, NEAR, UNLIKE
from workbench.speculation.model.loading import FILLS
from workbench.speculation.result import COURSE, Replay
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.round_columns import Asked, RoundColumns
from workbench.speculation.rounds.setup import as_launched
from workbench.speculation.rounds.tops import tops_of

if TYPE_CHECKING:
    from workbench.speculation.judge.trial import Trial

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
    refused: Finding | None = None,
    notes: Sequence[str] = (),
    temperature: float = 0.0,
) -> Replay:
    """Replay a trial, and say what it shows.

    Parameters
    ----------
    hints
        Of the static checks, which cost nothing and go first.
    refused
        That the engine does not accept the draft's folder as it is.
    """
    replayed = trial.replayed
    if not len(replayed):
        raise WorkbenchError(
            "there are no rounds to replay",
            why="each answer has one token or none",
            next_step="Record longer answers, or give longer prompts.",
        )
    launch, driving = trial.launch, trial.driving
    own = Tally.of(replayed.accepted.tolist())
    observed, contradictions = _observed(trial, facts)
    fills = _fills(trial)
    texts = describe(trial.trace)
    agreement = _agreement(replayed) if trial.emitted is not None else None
    counts = Counts(
        replayed=own,
        observed=observed,
        logged=facts.logged if facts else None,
        expected=trial.expected,
        steps=driving.steps,
        topk=driving.topk,
        agreement=agreement,
        real=trial.emitted is not None,
        alike=_as_expected(trial),
        deepest=launch.steps if facts is not None and facts.launch is not None else None,
        contradictions=contradictions,
    )
    numbers = compare_with_engine(trial, facts) if facts else ()
    fields = unmodelled.of_trial(trial)
    known = ReplayEvidence(
        counts,
        engine=engine,
        launch=launch,
        fills=fills,
        filled=trial.draft.filled,
        texts=texts,
        static=(*(hint.finding for hint in hints), *numbers, *unmodelled.findings(fields)),
        unchecked=unchecked(trial),
        fields=fields,
        refused=refused,
        files=own.accept_length if _engine_loses(trial, fields) else None,
        ran=facts.launch.engine if facts is not None and facts.launch is not None else "",
    )
    shape = fingerprint(trial) if known.files is not None else None
    if shape is not None:
        known = dataclasses.replace(known, does=shape.sentence)
    if suspects(known):
        known = dataclasses.replace(known, proof=_proof(trial, hints, counts.length or 1.0))
    judged = judge(known)
    return Replay(
        target=target,
        draft=draft,
        evidence=facts.source if facts else "",
        engine=engine,
        algorithm=launch.algorithm,
        steps=driving.steps,
        topk=driving.topk,
        draft_tokens=driving.draft_tokens,
        verdict=judged.verdict,
        total=len(replayed),
        temperature=temperature,
        replayed=own,
        observed=observed,
        logged=counts.logged,
        expected=trial.expected,
        agreement=agreement,
        fills=fills,
        course=course_of(replayed, known=trial.emitted is not None),
        findings=judged.findings,
        notes=(*notes, *trial.notes, *trial.draft.notes),
        kept=_kept(trial, replayed, facts, words, known.proof),
        trial=trial,
        wording=words,
    )


def _engine_loses(trial: Trial, fields: Sequence[Item]) -> bool:
    """Tell whether the engine of the recorded rounds accepted less than its files do, all of it modelled."""
    if trial.emitted is None or unmodelled.named(fields) or not trial.launch.engine:
        return False
    share = float(trial.replayed.agrees().mean())
    return share < UNLIKE and engine_loses(trial.replayed, trial.expected)


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

    With them comes what contradicts: a histogram of other answers, a log of another run.
    """
    odd: list[str] = []
    emitted = None
    if trial.emitted is not None:
        emitted = Tally.of(n - 1 for request in trial.emitted for n in request)
    counted = _histograms(trial, facts)
    if counted is not None and emitted is not None and facts is not None and facts.run is not None:
        tokens, streamed = counted.accepted + counted.rounds, emitted.accepted + emitted.rounds
        # A length that a request stops at cuts its last round.
        cut = (trial.driving.steps + 1) * len(facts.run.requests)
        if not streamed <= tokens <= streamed + cut:
            odd.append(
                f"the answers' histograms count {tokens:,} tokens, and {streamed:,} were answered"
            )
            counted = None
    found = counted or emitted or (facts.tally if facts else None)
    return found, (*odd, *contradicting(found, facts.logged if facts else None))


def _histograms(trial: Trial, facts: Facts | None) -> Tally | None:
    requests = facts.run.requests if facts and facts.run else ()
    if not requests or len(requests) != len(trial.trace):
        return None
    if not all(r.histogram for r in requests):
        return None
    return Tally.summed(request.histogram for request in requests)


def _proof(trial: Trial, hints: Sequence[Hint], length: float) -> Proof:
    """Undo what is known to be wrong, and return what comes of it."""
    from workbench.speculation.ablate.single_changes import undone

    whole = sufficient(hints)
    cause, lifts = undone(trial, hints)
    chosen = [one for one in lifts if set(one.switches) == set(cause.switches)]
    best = max(chosen or lifts, key=lambda one: one.accept_length, default=None)
    proved, sure = cause.ok is False, cause.confidence
    if cause.state == "no_expectation" and best is not None:
        # What it should be is not known; but from hardly any to some is an effect, and more than chance.
        proved = best.accept_length - 1 > 3 * HARDLY and best.lift_interval[0] > HARDLY
        sure = "likely"
    facts = set(cause.facts) or set(best.facts if best is not None else ())
    titles = tuple(h.finding.title.rstrip(".") for h in hints if h.fact in facts)
    if not proved and whole and length - 1 < HARDLY:
        # Too few requests for the ablations' rules, or no expectation; but from nothing to some is an effect.
        back = best is not None and best.accept_length - 1 > 3 * HARDLY
        if back or best is None:
            words, reached = (best.words, best.accept_length) if best else ("", None)
            return Proof(True, whole, words, reached, "certain", best.switches if best else ())
    if best is None or cause.state == "named":
        return Proof(proved, titles, confidence=sure)
    return Proof(proved, titles, best.words, best.accept_length, sure, best.switches)


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


def _kept(
    trial: Trial, replayed: Replayed, facts: Facts | None, words: Words, proof: Proof | None
) -> RoundColumns:
    """Return the rounds, and beside them what the draft says without the fault that is proved."""
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
    kept = RoundColumns(replayed, tops.tokens, tops.shares, requests)
    if proof is not None and proof.proved and proof.switches:
        from workbench.speculation.ablate.beside import beside

        kept = dataclasses.replace(kept, beside=beside(trial, replayed, proof.switches))
    return dataclasses.replace(kept, words=words.of(kept.used()))
