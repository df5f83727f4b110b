"""A `Replay` out of a `Trial`: rounds, the target's choices, agreement with the engine, and the verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import WorkbenchError
from workbench.result import Finding
from workbench.speculation.asking import Words
from workbench.speculation.beside import beside
from workbench.speculation.facts import Facts
from workbench.speculation.judging import NEAR, Judged, Seen, judge
from workbench.speculation.kept import Asked, Kept
from workbench.speculation.loading import FILLS
from workbench.speculation.measuring import State, measure
from workbench.speculation.replayed import Replayed
from workbench.speculation.result import COURSE, Agreement, Replay
from workbench.speculation.setup import as_launched
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
    findings: Sequence[Finding] = (),
    notes: Sequence[str] = (),
    temperature: float = 0.0,
) -> Replay:
    """Replay a trial, and say what it shows.

    Parameters
    ----------
    findings
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
    observed = _observed(trial, facts)
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
        static=(*findings, *(beside(trial, facts) if facts else ())),
        steps=driving.steps,
        engine=engine,
        launch=launch,
        real=trial.emitted is not None,
        alike=_as_expected(trial),
    )
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


def _observed(trial: Trial, facts: Facts | None) -> Tally | None:
    """Count the engine's rounds: its own histograms where every request has one, else what was emitted."""
    requests = facts.run.requests if facts and facts.run else ()
    if requests and len(requests) == len(trial.trace) and all(r.histogram for r in requests):
        total = [0] * max(len(r.histogram) for r in requests)
        for request in requests:
            for accepted, rounds in enumerate(request.histogram):
                total[accepted] += rounds
        return Tally(tuple(total))
    if trial.emitted is None:
        return facts.tally if facts else None
    return Tally.of(n - 1 for request in trial.emitted for n in request)


def _as_expected(trial: Trial) -> float | None:
    """Return the accept length counted as the expectation was, where that is from every place of the text.

    A trainer counts chains: a tree is not to be praised for its width.
    """
    if trial.expected is None or trial.expected.counted != "places":
        return None
    some = trial.some(range(min(_PLACES, len(trial.trace))))
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
