"""The result of `workbench.replay`: frozen, columnar inside, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.errors import WorkbenchError
from workbench.facts import metrics
from workbench.loaders.registry import parse
from workbench.speculation.evidence.tally import Agreement, Logged, Tally
from workbench.speculation.judge.counts import Counts
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.thresholds import FAR
from workbench.speculation.rounds.records import Round
from workbench.speculation.rounds.round_columns import RoundColumns, Rounds
from workbench.speculation.saved import SavedReplay, SavedRounds

if TYPE_CHECKING:
    from workbench.speculation.evidence.prompts import Words
    from workbench.speculation.judge.trial import Trial

__all__ = ["COURSE", "Agreement", "Replay"]

COURSE = 96  # pieces that the picture of a whole run is made of
_PLAIN = (
    "target", "draft", "evidence", "engine", "algorithm", "steps", "topk", "draft_tokens", "temperature",
    "total", "logged", "expected", "agreement",
)  # fmt: skip


# Of the expected drafts; a replay that was right accepted 0.90 of what was expected from every place.


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Replay(Result):
    """Rounds of drafting and verification, replayed, with what a real engine did.

    Attributes
    ----------
    target, draft, evidence
        Where they come from; `evidence` is empty where there was none.
    engine, algorithm
        As which engine the draft was loaded and driven ("" is as its trainer means it), launched how.
    steps, topk, draft_tokens, temperature
        Of the tree and of the verification.
    verdict
        The answer, with every count, comparison and fault that it covers. ``ok``: True: acceptance is what
        is expected. False: it is not, and a cause is known. None: cannot tell (there is nothing to compare
        with, or the cause is not known).
    replayed, observed
        Rounds by accepted drafts: of the replay, and of the engine. None where there are none.
    logged
        What the server's log says.
    expected
        The acceptance that it should have; None where it is not known.
    agreement
        How often the replay does what the engine did; None without rounds of an engine.
    fills
        Accept length for each content that uninitialised memory may have had: ``zero``, ``random``, ``nan``.
    total
        Rounds in all; a loaded or exported result may keep fewer.
    course
        Mean accepted drafts over the run, in at most `COURSE` pieces: (replayed, observed or None).
    """

    schema: ClassVar[str] = "workbench.replay/1"
    Saved: ClassVar[type[Saved]] = SavedReplay

    target: str
    draft: str
    evidence: str
    engine: str
    algorithm: str
    steps: int
    topk: int
    draft_tokens: int
    verdict: Verdict
    total: int
    temperature: float = 0.0
    replayed: Tally | None = None
    observed: Tally | None = None
    logged: Logged | None = None
    expected: Expected | None = None
    agreement: Agreement | None = None
    fills: dict[str, float] = dataclasses.field(default_factory=dict)
    course: tuple[tuple[float, float | None], ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    kept: RoundColumns | None = None
    trial: Trial | None = None
    wording: Words | None = None

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"replay: {self.draft}"

    @cached_property
    def rounds(self) -> Rounds:
        """All rounds, each a `Round` made when it is asked for."""
        return Rounds(self.kept)

    @property
    def accept_length(self) -> float | None:
        """Tokens a round, the target's own included: of the replay, else of the evidence."""
        if self.replayed is not None:
            return self.replayed.accept_length
        return self.observed_length

    @property
    def observed_length(self) -> float | None:
        """Tokens a round as the engine had them, by its rounds, else by its log."""
        if self.observed is not None:
            return self.observed.accept_length
        return self.logged.accept_length if self.logged else None

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of rounds in which at least k drafts were accepted, from k = 1 on."""
        seen = self.replayed or self.observed
        return seen.per_position(self.steps) if seen else ()

    def accept_rate(self, engine: str | None = None, *, observed: bool = False) -> metrics.Printed:
        """Return what a version of an engine would print for these rounds, and what that number means.

        Parameters
        ----------
        engine
            ``"sglang==0.5.9"``, ``"vllm"``; by default the one that was replayed.
        observed
            Of the engine's own rounds rather than of the replay's.

        Raises
        ------
        WorkbenchError
            No version is known, or there are no rounds.
        """
        named = engine or self.engine
        chosen = parse(named) if named else None
        if chosen is None or (chosen.name == "sglang" and not chosen.version):
            raise WorkbenchError(
                "which version's accept rate?",
                why="SGLang has printed the same rounds in four ways",
                next_step='Ask for accept_rate(engine="sglang==0.5.14").',
            )
        seen = self.observed if observed or self.replayed is None else self.replayed
        if seen is None:
            raise WorkbenchError(
                "there are no rounds to compute a rate from",
                why="the evidence is a log alone" if self.logged else "",
                next_step="Give evidence with the rounds, or a target to run.",
            )
        counts = metrics.Acceptance(seen.rounds, seen.accepted, self.steps, self.draft_tokens)
        return metrics.accept_rate(chosen.name, chosen.version or "", counts)

    def ablate(self, **options: Any) -> Any:
        """Change one thing at a time on the same evidence, and report what restores acceptance.

        Parameters
        ----------
        options
            As `workbench.speculation.ablate.single_changes` takes them: ``pairs``, ``requests``, ``only``.

        Returns
        -------
        Ablations
            What each change restores, and the verdict.

        Raises
        ------
        WorkbenchError
            The result was loaded from a file, or holds no rounds: models and evidence are needed.
        """
        if self.trial is None:
            raise WorkbenchError(
                "this replay cannot be ablated",
                why="a saved result holds no models and no features, and counts alone have no rounds",
                next_step="Call workbench.replay(target, draft, …) again, and .ablate() on what it returns.",
            )
        from workbench.speculation.ablate.single_changes import ablate

        return ablate(self.trial, replayed_ok=self.ok, **options)

    def with_change(self, *changes: str) -> Self:
        """Return the replay with what a changed draft says in the same rounds.

        Where `replay` itself proves a fault, what the draft says without it is there already.

        Parameters
        ----------
        changes
            Names of changes, as `ablate` lists them; several are made together.

        Raises
        ------
        WorkbenchError
            A change is not known for this pair, or changes nothing; the result was loaded from a file.
        """
        if self.trial is None or self.kept is None:
            raise WorkbenchError(
                "no changed draft can be run for this replay",
                why="a saved result holds no models and no features",
                next_step="Call workbench.replay(target, draft, …) again, then .with_change() on that.",
            )
        from workbench.speculation.ablate.beside import beside

        found = beside(self.trial, self.kept.columns, changes)
        kept = dataclasses.replace(self.kept, beside=found)
        if self.wording is not None:
            kept = dataclasses.replace(kept, words=self.wording.of(kept.used()))
        return dataclasses.replace(self, kept=kept)

    def show(self, row: int = 0, width: int | None = None) -> str:
        """Return one round as text: the text so far, the tree, the target's choices, why it stopped."""
        from workbench.core import render

        return render.parts_to_text(render.layout(self).round_parts(self, row), width)

    def next_rejection(self, row: int = -1) -> int | None:
        """Return the next round after `row` that rejects a draft, None if there is none."""
        if self.kept is None:
            return None
        columns = self.kept.columns
        fell = columns.accepted < columns.depths.max(axis=1, initial=0)
        found = fell[row + 1 :].nonzero()[0]
        return int(found[0]) + row + 1 if len(found) else None

    def saved(self) -> SavedReplay:
        """Return the replay as it is written; no weights, no logits, no trial."""
        return SavedReplay(
            **fields_of(self),
            **{name: getattr(self, name) for name in _PLAIN},
            accept_length=self.accept_length,
            per_position=self.per_position,
            replayed=self.replayed.histogram if self.replayed else None,
            observed=self.observed.histogram if self.observed else None,
            fills=dict(self.fills),
            course=self.course,
            kept=SavedRounds.of(self.kept.bounded()) if self.kept else None,
        )

    @classmethod
    def restored(cls, saved: SavedReplay, verdict: Verdict) -> Self:
        """Rebuild the replay; its rounds are checked to belong together."""
        return cls(
            **{name: getattr(saved, name) for name in _PLAIN},
            verdict=verdict,
            replayed=None if saved.replayed is None else Tally(saved.replayed),
            observed=None if saved.observed is None else Tally(saved.observed),
            fills={name: value for name, value in saved.fills.items() if value is not None},
            course=saved.course[:COURSE],
            findings=saved.findings,
            notes=saved.notes,
            kept=None if saved.kept is None else saved.kept.restored(),
        )

    def contradiction(self) -> str:
        """Return what contradicts the verdict: a fault or a loss under True, nothing lost under False."""
        broken = [f for f in self.findings if f.severity == "error" and f.changes_output]
        if self.ok is True:
            if broken:
                return f"a finding changes the output: {broken[0].title}"
            if self.expected is None:
                return "there is nothing that acceptance was compared with"
            counts = self._counts()
            if counts.length is None or counts.few:
                return "there are not enough counts of accepted drafts"
            # What was counted from every place is not stored, and rounds accept somewhat less than places
            # do: there only a length that is far lower contradicts.
            low = counts.low
            if self.expected.counted == "places":
                wanted = self.expected.accept_length - 1
                low = counts.length - 1 + counts.doubt < FAR * wanted
            if low:
                return f"the acceptance length is {counts.length:.2f}"
            if counts.unlike:
                return counts.unlike
        if self.ok is False and not broken:
            return "there is no finding of a cause"
        return ""

    def _counts(self) -> Counts:
        return Counts(
            self.replayed,
            self.observed,
            self.logged,
            self.expected,
            self.steps,
            topk=self.topk,
            agreement=self.agreement,
            real=self.agreement is not None,
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a round."""
        for item in self.rounds:
            yield _row(item)


def _row(item: Round) -> dict[str, Any]:
    best = item.nodes[0] if item.nodes else None
    return {
        "request": item.request,
        "round": item.index,
        "prefix": item.prefix,
        "accepted": len(item.accepted),
        "observed": None if item.observed is None else len(item.observed) - 1,
        "stop": item.stop,
        "bonus": item.bonus,
        "first_draft": best.token if best else None,
        "first_probability": best.probability if best else None,
        "first_rank": best.target_rank if best else None,
        "margin": item.margin,
    }
