"""The result of `gate`: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from msgspec import Struct

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.facts.engines import spoken


class Cell(Struct, frozen=True):
    """What one release does with the keys of the draft.

    Attributes
    ----------
    ok
        Of the diff of keys.
    basis
        How that is known: ``profile_verified``, ``profile_source_read``, …; "" where it is not.
    described
        Whether the loader of this release is described here; else it is listed, the badge leaves it out, and
        it decides nothing.
    """

    engine: str
    version: str
    ok: bool | None
    text: str
    basis: str = ""
    described: bool = True


class Baseline(Struct, frozen=True, kw_only=True):
    """The acceptance that a later draft is measured by: what ``--save-baseline`` writes.

    Attributes
    ----------
    prompts, target
        SHA-256 of the prompts and of the target's config: another question has another answer.
    """

    schema: str = "workbench.baseline/1"
    accept_length: float
    rounds: int
    requests: int
    new_tokens: int
    steps: int
    prompts: str
    target: str
    draft: str
    date: str


class SavedGate(Saved, frozen=True, kw_only=True):
    """The schema of a `Gate`."""

    draft: str
    target: str
    digest: str
    date: str
    engines: str
    cells: tuple[Cell, ...]
    accept_length: float | None
    baseline: float | None
    tolerance: float
    badge: str


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Gate(Result):
    """Whether a draft may be published, as `workbench.gate` found it.

    Attributes
    ----------
    verdict
        ``ok``: True: every release loads it whole, its weights are trained, and it accepts what the baseline
        does. False: one of these is proved wrong. None: cannot tell.
    draft, target
        As they were given.
    digest
        ``sha256:…`` of the draft's files.
    date
        The day on which it was asked, ``2026-11-30``.
    engines
        The releases that were asked for, as they were given.
    cells
        One for each release.
    accept_length, baseline, tolerance
        Of the replay, of the stored baseline, and by which share it may be lower; None where there is none.
    badge
        The text of the badge, "" where the coverage is not closed.
    """

    schema: ClassVar[str] = "workbench.gate/1"
    Saved: ClassVar[type[Saved]] = SavedGate

    verdict: Verdict
    draft: str
    target: str
    digest: str
    date: str
    engines: str
    cells: tuple[Cell, ...] = ()
    accept_length: float | None = None
    baseline: float | None = None
    tolerance: float = 0.05
    badge: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Gate of {self.draft}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a release."""
        for one in self.cells:
            release = {"engine": one.engine, "version": one.version, "ok": one.ok}
            yield release | {"basis": one.basis, "text": one.text}

    def saved(self) -> SavedGate:
        """Return the gate as it is written."""
        return SavedGate(**fields_of(self), **{name: getattr(self, name) for name in _PLAIN})

    @classmethod
    def restored(cls, saved: SavedGate, verdict: Verdict) -> Self:
        """Rebuild the gate."""
        plain = {name: getattr(saved, name) for name in _PLAIN}
        return cls(verdict=verdict, findings=saved.findings, notes=saved.notes, **plain)

    def contradiction(self) -> str:
        """Return what contradicts an all-clear."""
        bad = next((one for one in self.cells if one.ok is not True and one.described), None)
        if self.ok is True and bad is not None:
            return f"{spoken(bad.engine, bad.version)} does not load it whole"
        if self.badge and self.ok is not True:
            return "a badge is given, and the coverage is not closed"
        return ""


_PLAIN = (
    "draft", "target", "digest", "date", "engines", "cells", "accept_length", "baseline", "tolerance",
    "badge",
)  # fmt: skip
