"""The result of `check`: frozen, no I/O."""

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
from workbench.launch.rules.records import WHEN, Moment


class Fault(Struct, frozen=True):
    """One thing that fails, or may fail.

    Attributes
    ----------
    moment
        When it shows.
    text
        What fails.
    code
        Of the finding that explains it.
    certain
        False where it may fail, and is not proved to.
    """

    moment: Moment
    text: str
    code: str = ""
    certain: bool = True


class Setting(Struct, frozen=True):
    """One argument of the launch, as it holds."""

    name: str
    value: str
    where: str = ""


class SavedLaunchCheck(Saved, frozen=True, kw_only=True):
    """The schema of a `LaunchCheck`."""

    source: str
    form: str
    engine: str
    version: str
    version_basis: str
    target: str
    draft: str
    faults: tuple[Fault, ...]
    arguments: tuple[Setting, ...]
    corrected: str
    left: tuple[str, ...]
    not_read: tuple[str, ...]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LaunchCheck(Result):
    """What a launch will do, as `workbench.check` found it before anything was started.

    Attributes
    ----------
    verdict
        ``ok``: True: it starts and serves as written, as far as a launch decides it. False: something
        fails for certain. None: cannot tell.
    source, form
        The launch as it was handed over.
    engine, version, version_basis
        What is launched, and how the release is known.
    target, draft
        As the launch names them, "" where it names none.
    faults
        What fails, the first in time first; then what may fail.
    arguments
        Every argument that was read, as it holds.
    corrected
        The line with the faults corrected, "" where no correction is known.
    left
        What is still wrong with that line.
    not_read
        What of the launch was not understood.
    """

    schema: ClassVar[str] = "workbench.launchcheck/1"
    Saved: ClassVar[type[Saved]] = SavedLaunchCheck

    verdict: Verdict
    source: str
    form: str
    engine: str
    version: str
    version_basis: str = ""
    target: str = ""
    draft: str = ""
    faults: tuple[Fault, ...] = ()
    arguments: tuple[Setting, ...] = ()
    corrected: str = ""
    left: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Launch of {self.engine_text}"

    @property
    def engine_text(self) -> str:
        """The engine with its version."""
        return f"{spoken(self.engine)} {self.version}".strip() or "an engine that is not known"

    @property
    def first(self) -> Fault | None:
        """The first thing that fails for certain, None where nothing does."""
        return next((one for one in self.faults if one.certain), None)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row an item of the coverage."""
        for item in self.verdict.coverage.items:
            yield {"kind": item.kind, "name": item.name, "state": item.state, "how": item.how}

    def saved(self) -> SavedLaunchCheck:
        """Return the check as it is written."""
        return SavedLaunchCheck(**fields_of(self), **{name: getattr(self, name) for name in _PLAIN})

    @classmethod
    def restored(cls, saved: SavedLaunchCheck, verdict: Verdict) -> Self:
        """Rebuild the check."""
        return cls(
            verdict=verdict,
            findings=saved.findings,
            notes=saved.notes,
            **{name: getattr(saved, name) for name in _PLAIN},
        )

    def contradiction(self) -> str:
        """Return what contradicts an all-clear, or an accusation."""
        certain = [one for one in self.faults if one.certain]
        if self.ok is True and certain:
            return f"it fails {WHEN[certain[0].moment]}"
        broken = [f for f in self.findings if f.changes_output and f.severity != "note"]
        if self.ok is True and broken:
            return f"a finding changes the output: {broken[0].title}"
        if self.ok is False and not certain:
            return "nothing is listed that fails"
        return ""


_PLAIN = (
    "source",
    "form",
    "engine",
    "version",
    "version_basis",
    "target",
    "draft",
    "faults",
    "arguments",
    "corrected",
    "left",
    "not_read",
)
