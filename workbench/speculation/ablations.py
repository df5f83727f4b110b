"""The result of all ablations of one pair: what each change restores, and the cause that follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from workbench.core.finding import Experiment, Finding
from workbench.core.result import Result
from workbench.speculation.causes import Scene, Verdict
from workbench.speculation.expected import Expected
from workbench.speculation.lifts import Lift, Reference
from workbench.speculation.measuring import State, entropy
from workbench.speculation.static_checks import Hint


@dataclasses.dataclass(frozen=True, eq=False)
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
        What should be, None where nobody knows.
    lifts, pairs
        Single changes, best first, and two together.
    idle
        Switches that change nothing for this pair.
    entropy, largest_entropy
        Of the draft's distribution as served, in nats; near the largest it says nothing at all.
    verdict
        What follows.
    observed, agreement
        The recorded engine's accept length and the share of its rounds that the replay has as it had.
    """

    schema: ClassVar[str] = "workbench.ablations/1"

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
    verdict: Verdict
    observed: float | None = None
    agreement: float | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def build(
        cls,
        scene: Scene,
        verdict: Verdict,
        start: State,
        *,
        counted: str,
        idle: tuple[str, ...],
        source: str,
        engine: str,
        notes: tuple[str, ...],
    ) -> Self:
        """Put a scene and its verdict into a result."""
        spread, largest = entropy(start)
        singles = sorted((t.lift for t in scene.singles), key=lambda lift: -lift.accept_length)
        pairs = sorted((t.lift for t in scene.pairs), key=lambda lift: -lift.accept_length)
        return cls(
            source=str(source),
            engine=engine,
            counted=counted,
            served=_served(scene.reference),
            expected=scene.reference.expected,
            lifts=tuple(singles),
            pairs=tuple(pairs),
            idle=idle,
            entropy=spread,
            largest_entropy=largest,
            distinct=scene.texts.distinct,
            verdict=verdict,
            observed=scene.observed,
            agreement=scene.agreement,
            findings=tuple(_findings(verdict, scene)),
            notes=notes,
        )

    @property
    def ok(self) -> bool | None:
        """True: nothing is wrong. False: a cause is named. None: cannot tell."""
        return self.verdict.ok

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""
        return self.verdict.sentence

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Ablations of {self.source}" + (f" in {self.engine}" if self.engine else "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ablations) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.source, self.engine, self.summary))

    def __bool__(self) -> bool:
        """Return True only where `ok` is."""
        return self.ok is True

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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "schema": self.schema,
            "ok": self.ok,
            "summary": self.summary,
            "source": self.source,
            "engine": self.engine,
            "counted": self.counted,
            "expected": None if self.expected is None else dataclasses.asdict(self.expected),
            "served": self.served.to_dict(),
            "lifts": [lift.to_dict() for lift in self.lifts],
            "pairs": [lift.to_dict() for lift in self.pairs],
            "idle": list(self.idle),
            "entropy": self.entropy,
            "largest_entropy": self.largest_entropy,
            "distinct": list(self.distinct),
            "verdict": self.verdict.to_dict(),
            "observed": self.observed,
            "agreement": self.agreement,
            "findings": [finding.to_dict() for finding in self.findings],
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the result from `to_dict`."""
        expected = data["expected"]
        if expected is not None:
            expected = Expected(**{**expected, "per_position": tuple(expected["per_position"])})
        plain = (
            "source", "engine", "counted", "entropy", "largest_entropy", "observed", "agreement",
        )  # fmt: skip
        return cls(
            **{name: data[name] for name in plain},
            served=Lift.from_dict(data["served"]),
            expected=expected,
            lifts=tuple(Lift.from_dict(lift) for lift in data["lifts"]),
            pairs=tuple(Lift.from_dict(lift) for lift in data["pairs"]),
            idle=tuple(data["idle"]),
            distinct=(data["distinct"][0], data["distinct"][1], data["distinct"][2]),
            verdict=Verdict.from_dict(data["verdict"]),
            findings=tuple(Finding.from_dict(finding) for finding in data["findings"]),
            notes=tuple(data["notes"]),
        )

    def to_text(self, width: int | None = None) -> str:
        """Return the verdict, the table of changes and the findings as text."""
        from workbench.speculation.ablations_view import text

        return text(self, width)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.speculation.ablations_view import payload

        return payload(self, limit)


def _served(reference: Reference) -> Lift:
    lift = reference.lift((), reference.served, True)
    return dataclasses.replace(lift, words="as served", restored=None, restored_interval=None)


def _findings(verdict: Verdict, scene: Scene) -> Iterator[Finding]:
    """Yield the verdict, then what is known without a replay and whether the replay confirms it."""
    wrong = verdict.ok is False
    experiment = None
    if verdict.state in ("found", "pair"):
        best = next(
            t.lift for t in (*scene.singles, *scene.pairs) if t.lift.switches == verdict.switches
        )
        experiment = Experiment(
            change=verdict.next_step or verdict.sentence,
            if_right=f"the server logs an accept length near {best.accept_length:.2f}",
            if_wrong="it stays where it is: replay that run, and this cause is not the only one",
        )
    yield Finding(
        code={
            "found": "cause-found", "pair": "two-causes", "named": "cause-named",
            "healthy": "nothing-lost", "sampling": "sampled-text",
            "no_expectation": "no-expectation", "refused": "repetitive-text",
            "not_reproduced": "not-reproduced", "cannot_tell": "cause-unknown",
        }[verdict.state],
        severity="error" if wrong else "note" if verdict.ok else "warning",
        title=verdict.sentence,
        detail=f"Missing: {verdict.missing}." if verdict.missing else "",
        evidence_for=verdict.evidence_for,
        evidence_against=verdict.evidence_against,
        confidence=verdict.confidence,
        changes_output=wrong,
        next_step=verdict.next_step,
        experiment=experiment,
    )  # fmt: skip
    for hint in scene.hints:
        yield _told(hint, verdict, scene)


def _told(hint: Hint, verdict: Verdict, scene: Scene) -> Finding:
    """Return a static finding with what the replay says of its fact."""
    finding = hint.finding
    if hint.fact and hint.fact in verdict.facts:
        said = "the replay confirms that this lost the acceptance"
        return dataclasses.replace(finding, evidence_for=(*finding.evidence_for, said))
    tried = [t.lift for t in scene.singles if t.facts == {hint.fact}]
    if tried and verdict.ok is not None and finding.severity != "note":
        best = max(tried, key=lambda lift: lift.accept_length)
        said = f"{best.words}: {best.lift:+.2f} tokens a round, which is not the loss"
        against = (*finding.evidence_against, said)
        return dataclasses.replace(finding, evidence_against=against)
    return finding
