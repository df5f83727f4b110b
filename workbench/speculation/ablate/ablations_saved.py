"""How `Ablations` are written: the schema ``workbench.ablations/1``, with its types."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from msgspec import Struct, structs

from workbench.core.finding import Confidence
from workbench.core.saving import Saved
from workbench.core.verdict import OLD, Coverage, Item, Verdict, unrecorded
from workbench.speculation.ablate.cause_records import Cause, State
from workbench.speculation.ablate.lifts import Lift
from workbench.speculation.evidence.ranges import Count
from workbench.speculation.judge.expected import Counted, Expected

Pair = tuple[float | None, float | None]
_ORIGIN = "where the text comes from"
_NO_PROOF = "it may be sampled or another target's; version 0.1 took that for health"
_KNOWN = frozenset(("restored", "restored_interval", "profile"))  # None means something there


class SavedVerdict(Struct, frozen=True, kw_only=True):
    """The cause and the verdict in one; version 0.1 wrote the cause alone."""

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
    coverage: Coverage | None = None
    overturned_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, cause: Cause, verdict: Verdict) -> SavedVerdict:
        """Return a cause and its verdict as they are written."""
        fields = {field.name: getattr(cause, field.name) for field in dataclasses.fields(Cause)}
        return cls(**fields, coverage=verdict.coverage, overturned_by=verdict.overturned_by)

    @property
    def is_no_proof(self) -> bool:
        """Whether version 0.1 wrote True for a text that may be another target's."""
        return self.state == "sampling" and self.coverage is None

    def current(self, what: str) -> SavedVerdict:
        """Return it as this version judges: what is no proof is open, and loads."""
        if not self.is_no_proof:
            return self
        items = (Item("result", what, how=OLD), Item("text", _ORIGIN, how=_NO_PROOF))
        return structs.replace(self, confidence="unknown", coverage=Coverage(items))

    def cause(self) -> Cause:
        """Return the cause."""
        return Cause(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(Cause)}
        )

    def core(self, ok: bool | None, what: str) -> Verdict:
        """Return the verdict; `ok` is all that is known of the coverage of one by version 0.1."""
        coverage = self.coverage if self.coverage is not None else unrecorded(ok, what)
        return Verdict(self.state, self.sentence, self.confidence, coverage, self.overturned_by)


class SavedLift(Struct, frozen=True, kw_only=True):
    """One `Lift`, written: NaN is null."""

    switches: tuple[str, ...]
    facts: tuple[str, ...]
    words: str
    requests: Count
    rounds: Count
    accept_length: float | None
    interval: Pair
    per_position: tuple[float | None, ...]
    lift: float | None
    lift_interval: Pair
    restored: float | None
    restored_interval: Pair | None
    profile: bool | None
    rank: float | None
    reciprocal: float | None
    sure: float | None
    confirmed: bool
    same: tuple[str, ...] = ()
    remedy: str = ""

    @classmethod
    def of(cls, lift: Lift) -> SavedLift:
        """Return what a change did as it is written."""
        return cls(**{field.name: getattr(lift, field.name) for field in dataclasses.fields(Lift)})

    def restored_lift(self) -> Lift:
        """Return what a change did."""
        names = [field.name for field in dataclasses.fields(Lift)]
        fields = {name: getattr(self, name) for name in names}
        whole = {k: v for k, v in fields.items() if v is None and k in _KNOWN}
        return Lift(**{name: _nan(value) for name, value in fields.items()} | whole)


def _nan(value: Any) -> Any:
    """Return a value with NaN in the place of None."""
    if isinstance(value, tuple):
        return tuple(map(_nan, value))
    return math.nan if value is None else value


class SavedAblations(Saved, frozen=True, kw_only=True):
    """The schema of `Ablations`."""

    source: str
    engine: str
    counted: Counted
    served: SavedLift
    expected: Expected | None
    lifts: tuple[SavedLift, ...]
    pairs: tuple[SavedLift, ...]
    idle: tuple[str, ...]
    entropy: float | None
    largest_entropy: float | None
    distinct: tuple[float, float, float]
    # It holds the cause too, so it is no `Verdict`.
    verdict: SavedVerdict  # type: ignore[assignment]
    observed: float | None = None
    agreement: float | None = None

    def counted_ok(self) -> bool | None:
        """Return the stored ``ok``, but None where version 0.1 took sampled text for a proof."""
        return None if self.verdict.is_no_proof else self.ok
