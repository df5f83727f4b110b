"""The result of `doctor`: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from msgspec import Struct

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict

Job = Literal[
    "check", "hang", "acceptance", "diff", "weights", "launch", "traceback", "replay", "words"
]  # fmt: skip


class Cause(Struct, frozen=True):
    """One fault that was found.

    Attributes
    ----------
    title
        The fault, in one statement.
    next_step
        The one thing to do about it.
    job, subject
        Which job found it, in what.
    certain
        False where it is likely, and not proved.
    """

    code: str
    title: str
    next_step: str
    job: Job
    subject: str
    certain: bool = True


class Answered(Struct, frozen=True):
    """What one job answered about one thing."""

    job: Job
    subject: str
    ok: bool | None
    text: str

    @property
    def line(self) -> str:
        """The answer in one line."""
        sign = {True: "✓", False: "✗", None: "?"}[self.ok]
        return f"{sign} {self.job} of {self.subject}: {self.text}"


class Recognised(Struct, frozen=True):
    """One thing that was handed over, and what it is."""

    name: str
    kind: str
    text: str


class SavedCase(Saved, frozen=True, kw_only=True):
    """The schema of a `Case`."""

    things: tuple[Recognised, ...]
    answers: tuple[Answered, ...]
    causes: tuple[Cause, ...]
    corrected: str


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Case(Result):
    """What `workbench.doctor` found in everything that it was handed.

    Attributes
    ----------
    verdict
        ``ok``: False: a fault is proved, or acceptance is lost for certain. True: what was handed over is
        healthy. None: cannot tell.
    things
        What was handed over, and what it is.
    answers
        What each job answered, in the order in which they ran.
    causes
        The faults, the most damaging first; each with its one next step.
    corrected
        The launch with its faults corrected, "" where that is not known.
    """

    schema: ClassVar[str] = "workbench.case/1"
    Saved: ClassVar[type[Saved]] = SavedCase

    verdict: Verdict
    things: tuple[Recognised, ...] = ()
    answers: tuple[Answered, ...] = ()
    causes: tuple[Cause, ...] = ()
    corrected: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Case: " + ", ".join(thing.name for thing in self.things[:3])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row an answer."""
        for one in self.answers:
            yield {"job": one.job, "subject": one.subject, "ok": one.ok, "text": one.text}

    def saved(self) -> SavedCase:
        """Return the case as it is written."""
        return SavedCase(**fields_of(self), **{name: getattr(self, name) for name in _PLAIN})

    @classmethod
    def restored(cls, saved: SavedCase, verdict: Verdict) -> Self:
        """Rebuild the case."""
        plain = {name: getattr(saved, name) for name in _PLAIN}
        return cls(verdict=verdict, findings=saved.findings, notes=saved.notes, **plain)

    def contradiction(self) -> str:
        """Return what contradicts an all-clear."""
        if self.ok is not True:
            return ""
        certain = [one for one in self.causes if one.certain]
        if certain:
            return f"a fault is proved: {certain[0].title}"
        bad = [one for one in self.answers if one.ok is not True and one.job != "weights"]
        return f"{bad[0].job} of {bad[0].subject} is not ok" if bad else ""


_PLAIN = ("things", "answers", "causes", "corrected")
