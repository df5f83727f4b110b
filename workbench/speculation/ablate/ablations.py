"""The result of all ablations of one pair: what each change restores, and the cause that follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from workbench.core.finding import Experiment, Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.speculation.ablate.ablations_saved import SavedAblations, SavedLift, SavedVerdict
from workbench.speculation.ablate.cause_records import NAMING, Cause, CauseFacts
from workbench.speculation.ablate.lifts import Lift, Reference
from workbench.speculation.ablate.static_checks import Hint
from workbench.speculation.judge.expected import Expected


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Ablations(Result):
    """Every counterfactual of one pair on the same evidence.

    Attributes
    ----------
    source, engine
        The draft's checkpoint, and what it was served with.
    counted
        ``rounds`` or ``places``: from where drafts begin; see `Expected.counted`.
    served
        What was accepted without any change.
    expected
        What should be, None where it is not known.
    lifts, pairs
        Single changes, best first, and two or more together.
    idle
        Switches that change nothing for this pair.
    entropy, largest_entropy
        Of the draft's distribution as served, in nats; near the largest it says nothing at all.
    cause
        What follows from the changes: what lost the acceptance, or why that is not known.
    verdict
        The answer, with every change, comparison and fault that it covers.
    observed, agreement
        The recorded engine's accept length and the share of its rounds that the replay has as it had.
    """

    schema: ClassVar[str] = "workbench.ablations/1"
    Saved: ClassVar[type[Saved]] = SavedAblations

    source: str
    engine: str
    counted: str
    served: Lift
    expected: Expected | None
    lifts: tuple[Lift, ...]
    pairs: tuple[Lift, ...]
    idle: tuple[str, ...]
    entropy: float
    largest_entropy: float
    distinct: tuple[float, float, float]
    cause: Cause
    verdict: Verdict
    observed: float | None = None
    agreement: float | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def build(
        cls,
        scene: CauseFacts,
        cause: Cause,
        verdict: Verdict,
        spread: tuple[float, float],
        *,
        counted: str,
        idle: tuple[str, ...],
        source: str,
        engine: str,
        notes: tuple[str, ...],
    ) -> Self:
        """Put what was measured and what follows from it into a result; `spread` as `entropy` has it."""
        singles = sorted((t.lift for t in scene.singles), key=lambda lift: -lift.accept_length)
        sets = {
            t.lift.switches: t.lift for t in (*scene.pairs, *scene.chain) if len(t.switches) > 1
        }
        pairs = sorted(sets.values(), key=lambda lift: -lift.accept_length)
        return cls(
            source=str(source),
            engine=engine,
            counted=counted,
            served=_served(scene.reference),
            expected=scene.reference.expected,
            lifts=tuple(singles),
            pairs=tuple(pairs),
            idle=idle,
            entropy=spread[0],
            largest_entropy=spread[1],
            distinct=scene.texts.distinct,
            cause=cause,
            verdict=verdict,
            observed=scene.observed,
            agreement=scene.agreement,
            findings=tuple(_findings(cause, scene)),
            notes=notes,
        )

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Ablations of {self.source}" + (f" in {self.engine}" if self.engine else "")

    def __getitem__(self, name: str) -> Lift:
        """Return a single change, or a pair as ``one + other``, by its name."""
        for lift in (*self.lifts, *self.pairs):
            if name == lift.name or (len(lift.switches) == 1 and name in lift.same):
                return lift
        raise KeyError(name)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a change, as served first."""
        for lift in (self.served, *self.lifts, *self.pairs):
            low, high = lift.restored_interval or (None, None)
            yield {
                "change": lift.name or "as served",
                "fact": " + ".join(lift.facts),
                "accept_length": lift.accept_length,
                "accept_length_low": lift.interval[0],
                "accept_length_high": lift.interval[1],
                "lift": lift.lift,
                "restored": lift.restored,
                "restored_low": low,
                "restored_high": high,
                "profile_restored": lift.profile,
                "per_position": list(lift.per_position),
                "rank": lift.rank,
                "reciprocal_rank": lift.reciprocal,
                "requests": lift.requests,
                "rounds": lift.rounds,
                "confirmed": lift.confirmed,
                "words": lift.words,
            }

    def saved(self) -> SavedAblations:
        """Return the ablations as they are written."""
        plain = fields_of(self) | {name: getattr(self, name) for name in _PLAIN}
        return SavedAblations(
            **plain | {"verdict": SavedVerdict.of(self.cause, self.verdict)},
            served=SavedLift.of(self.served),
            lifts=tuple(map(SavedLift.of, self.lifts)),
            pairs=tuple(map(SavedLift.of, self.pairs)),
        )

    @classmethod
    def restored(cls, saved: SavedAblations, verdict: Verdict) -> Self:
        """Rebuild the ablations; the one stored verdict is the cause and the verdict."""
        stored = saved.verdict.current(cls.schema)
        return cls(
            **{name: getattr(saved, name) for name in _PLAIN},
            served=saved.served.restored_lift(),
            lifts=tuple(lift.restored_lift() for lift in saved.lifts),
            pairs=tuple(lift.restored_lift() for lift in saved.pairs),
            cause=stored.cause(),
            verdict=stored.core(saved.ok, cls.schema),
            findings=saved.findings,
            notes=saved.notes,
        )

    def contradiction(self) -> str:
        """Return what contradicts the verdict: a cause under True, no cause under False."""
        if self.cause.ok is not self.ok:
            return f"the verdict's state is {self.cause.state}"
        if self.ok is False:
            names = {lift.switches for lift in (*self.lifts, *self.pairs)}
            if self.cause.state in NAMING and not self.cause.facts:
                return "the verdict names no cause"
            if self.cause.switches and self.cause.switches not in names:
                return f"the changes lack {' + '.join(self.cause.switches)}"
        wrong = [f for f in self.findings if f.code in _ACCUSING]
        if self.ok is not False and wrong:
            return f"a finding names a cause: {wrong[0].title}"
        if self.ok is True and self.expected is None:
            return "there is nothing that acceptance was compared with"
        return ""


_PLAIN = (
    "source", "engine", "counted", "expected", "idle", "entropy", "largest_entropy", "distinct",
    "observed", "agreement",
)  # fmt: skip
_ACCUSING = (
    "cause_found", "two_causes", "several_causes", "cause_named", "acceptance_lost",
    "draft_accepts_no_more", "engine_accepts_less",
)  # fmt: skip


def _served(reference: Reference) -> Lift:
    lift = reference.lift((), reference.served, True)
    return dataclasses.replace(lift, words="as served", restored=None, restored_interval=None)


def _findings(cause: Cause, scene: CauseFacts) -> Iterator[Finding]:
    """Yield the cause, then what is known without a replay and whether the replay confirms it."""
    wrong = cause.ok is False
    experiment = None
    if cause.state in ("found", "pair", "several"):
        tried = (*scene.singles, *scene.pairs, *scene.chain)
        best = next(t.lift for t in tried if t.lift.switches == cause.switches)
        experiment = Experiment(
            change=cause.next_step or cause.sentence,
            if_right=f"the server logs an accept len near {best.accept_length:.2f}",
            if_wrong="it stays where it is: replay that run, and this cause is not the only one",
        )
    yield Finding(
        code={
            "found": "cause_found", "pair": "two_causes", "several": "several_causes",
            "named": "cause_named", "lost": "acceptance_lost", "draft_itself": "draft_accepts_no_more",
            "engine": "engine_accepts_less",
            "healthy": "nothing_lost", "sampling": "sampled_text",
            "no_expectation": "no_expectation", "refused": "repetitive_text",
            "not_reproduced": "not_reproduced", "cannot_tell": "cause_unknown",
        }[cause.state],
        severity="error" if wrong else "note" if cause.ok else "warning",
        title=cause.sentence,
        detail=f"Missing: {cause.missing}." if cause.missing else "",
        evidence_for=cause.evidence_for,
        evidence_against=cause.evidence_against,
        confidence=cause.confidence,
        changes_output=wrong,
        next_step=cause.next_step,
        experiment=experiment,
    )  # fmt: skip
    for hint in scene.hints:
        yield _with_replay_answer(hint, cause, scene)


def _with_replay_answer(hint: Hint, cause: Cause, scene: CauseFacts) -> Finding:
    """Return a static finding with the replay's answer about its fact."""
    finding = hint.finding
    if hint.fact and hint.fact in cause.facts:
        confirmed = "the replay confirms that this lost the acceptance"
        return dataclasses.replace(finding, evidence_for=(*finding.evidence_for, confirmed))
    tried = [t.lift for t in scene.singles if t.facts == {hint.fact}]
    if tried and cause.ok is not None and finding.severity != "note":
        best = max(tried, key=lambda lift: lift.accept_length)
        other = f"{best.words}: {best.lift:+.2f} tokens a round, which is not the loss"
        against = (*finding.evidence_against, other)
        return dataclasses.replace(finding, evidence_against=against)
    return finding
