"""What every form of a result is made of: one document, a few kinds of parts.

A part is frozen data: it knows neither columns nor colours nor HTML. `workbench.display` lowers each kind of
part to terminal text, static HTML and Markdown; a kind that one of them cannot show does not exist
(tests/views/test_parts.py holds that). So no form can lack what another one says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeAlias

from workbench.core.finding import SURE, Experiment, Finding
from workbench.core.result import Result
from workbench.core.verdict import Item

SHOWN = 40
"""How many rows of a list text and static HTML show, unless its part says otherwise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """A cell of a table that begins with the sign of a state."""

    state: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """A cell of a table that is a bar on an axis from 0 to 1.

    ``open``: its end is not known. ``text`` replaces the bar where there is no room for it.
    """

    start: float
    end: float
    open: bool = False
    text: str = ""


Cell: TypeAlias = str | Sign | Bar


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The verdict with its doubts; a form that cannot show the doubts cannot show the verdict.

    Attributes
    ----------
    checked
        What was settled, counted by kind: ``16 keys``.
    sure
        How sure it is, in words; "" where it is certain or where there is no answer.
    unchecked
        What is open, in words; what the answer hangs on comes first.
    next_step
        The one thing to do now.
    """

    ok: bool | None
    sentence: str
    sure: str = ""
    checked: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    overturned_by: tuple[str, ...] = ()
    next_step: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What the answer rests on: names and values."""

    rows: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """What was concluded, each with its evidence and how sure it is."""

    findings: tuple[Finding, ...]
    title: str = "Findings"


@dataclasses.dataclass(frozen=True, slots=True)
class Heading:
    """The title of what follows."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Prose:
    """A sentence or a paragraph; `lead` is what it begins with (``missing: ``)."""

    text: str
    lead: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Code:
    """Lines that keep their places: a program's text, a map of signs; or a command, to paste into a shell."""

    text: str
    command: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under a head; a head of empty names is not shown."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: int = SHOWN
    noun: str = "row"


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """One line of `Groups`: a sign, a name, facts at the right, and lines of detail under it.

    A line of detail is (lead, text); ``name`` is a dotted name or a phrase.
    """

    state: str
    name: str
    facts: tuple[str, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Groups:
    """Things of a kind, those that matter most first.

    ``left_out`` counts what is not among the rows at all.
    """

    rows: tuple[Group, ...]
    shown: int = SHOWN
    noun: str = "template"
    left_out: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """One line of an `Outline`: a label at the left, then text at a depth."""

    label: str
    depth: int
    text: str
    moving: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Outline:
    """A tree, a line a branch; a moving branch is marked."""

    rows: tuple[Branch, ...]
    shown: int = SHOWN


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The one change to try, and what each outcome would mean."""

    experiment: Experiment
    title: str = "The one next experiment"


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """An image as PNG; `text` says the same where no image can be shown."""

    png: bytes
    alt: str
    text: str


Part: TypeAlias = (
    Answer | Facts | Findings | Heading | Prose | Code | Table | Groups | Outline | Plan | Picture
)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A result, laid out: the verdict with its doubts, the facts, then what the job has to show."""

    schema: str
    title: str
    answer: Answer
    facts: Facts
    body: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part, in the order in which it is read."""
        return (self.answer, self.facts, *self.body)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all parts."""
        return tuple(f for part in self.body if isinstance(part, Findings) for f in part.findings)


def document(
    result: Result,
    facts: Iterable[tuple[str, str]],
    body: Iterable[Part],
    *,
    sentence: str = "",
    next_step: str = "",
    notes: Iterable[str] = (),
) -> Document:
    """Lay out a result: its verdict and doubts are taken from its `Verdict`, and from nowhere else.

    Parameters
    ----------
    facts
        What the answer rests on.
    body
        The parts after those.
    sentence
        The verdict's sentence as it is shown, where it differs from the stored one.
    next_step
        The one thing to do now; by default that of the first finding, unless all is well.
    notes
        Remarks, which follow the facts.
    """
    verdict = result.verdict
    if not next_step and result.ok is not True and result.findings:
        next_step = result.findings[0].next_step
    answer = Answer(
        ok=result.ok,
        sentence=sentence or verdict.sentence,
        sure="" if result.ok is None else SURE[verdict.confidence],
        checked=_checked(verdict.coverage.items),
        unchecked=verdict.missing,
        overturned_by=verdict.overturned_by,
        next_step=next_step,
    )
    rows = (*facts, *(("Note", note) for note in notes))
    return Document(result.schema, result.title, answer, Facts(tuple(rows)), tuple(body))


def _checked(items: Iterable[Item]) -> tuple[str, ...]:
    """Return how many things of each kind were settled: ``16 keys``; of a single one, its kind."""
    counts: dict[str, int] = {}
    for item in items:
        if item.state != "open":
            counts[item.kind] = counts.get(item.kind, 0) + item.count
    return tuple(kind if n == 1 else f"{n:,} {plural_of(kind)}" for kind, n in counts.items())


def plural_of(noun: str) -> str:
    """Return the plural of a kind of item."""
    if noun.endswith("x"):
        return {"matrix": "matrices"}.get(noun, noun + "es")
    if noun.endswith(("s", "sh", "ch")):
        return noun + "es"
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else noun + "s"


def head(laid_out: Document) -> dict[str, Any]:
    """Return what the data of every interactive view begins with: the same verdict, doubts and facts."""
    answer = laid_out.answer
    return {
        "schema": laid_out.schema,
        "title": laid_out.title,
        "verdict": {
            "ok": answer.ok,
            "line": answer.sentence,
            "sure": answer.sure,
            "checked": list(answer.checked),
            "unchecked": list(answer.unchecked),
            "overturned_by": list(answer.overturned_by),
            "next_step": answer.next_step,
        },
        "facts": [list(row) for row in laid_out.facts.rows],
        "findings": [finding.to_dict() for finding in laid_out.findings],
    }
