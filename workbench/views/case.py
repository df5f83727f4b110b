"""A `Case`, laid out, and the data of its interactive view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.core.commands import PASTED, broken
from workbench.core.saving import strict
from workbench.triage.answer import what_next
from workbench.triage.records import Case
from workbench.views.parts import Code, Document, Findings, Group, Groups, Heading, Part, head
from workbench.views.parts import document as lay_out

_STATE = {True: "ok", False: "wrong", None: "unsure"}


def document(case: Case) -> Document:
    """Return the case as a document: the causes with their steps, what each job answered, the findings."""
    body = (
        *_causes(case),
        *_corrected(case),
        *_answers(case),
        *([Findings(case.findings)] if case.findings else []),
    )
    facts = [(thing.kind.capitalize(), _thing(thing.name, thing.text)) for thing in case.things]
    step = what_next(case.answers, case.causes) if case.ok is not True else ""
    return lay_out(case, facts, body, next_step=step, notes=case.notes)


def _thing(name: str, text: str) -> str:
    return f"{name} ({text})" if text else name


def _causes(case: Case) -> Iterator[Part]:
    if not case.causes:
        return
    yield Heading("Causes, the most damaging first")
    rows = (
        Group(
            "wrong" if one.certain else "unsure", one.title,
            ("" if one.certain else "likely",), (("in ", one.subject), ("do: ", one.next_step)),
        )
        for one in case.causes
    )  # fmt: skip
    yield Groups(tuple(rows), noun="cause")


def _corrected(case: Case) -> Iterator[Part]:
    if case.corrected:
        yield Heading("The launch, corrected")
        yield Code(case.corrected, command=True)


def _answers(case: Case) -> Iterator[Part]:
    yield Heading("What was asked, and answered")
    rows = (
        Group(_STATE[one.ok], one.job, (one.subject,), (("", one.text),)) for one in case.answers
    )
    yield Groups(tuple(rows), noun="answer")


def payload(case: Case, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON."""
    data: dict[str, Any] = head(document(case)) | {
        "causes": [[c.title, c.next_step, c.subject, c.certain] for c in case.causes],
        "answers": [[one.job, one.subject, one.ok, one.text] for one in case.answers],
        "corrected": case.corrected,
        "broken": "\n".join(broken(case.corrected, PASTED)) if case.corrected else "",
    }
    plain: dict[str, Any] = strict(data)
    return plain
