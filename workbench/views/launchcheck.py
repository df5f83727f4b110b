"""A `LaunchCheck`, laid out, and the data of its interactive view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.core.commands import PASTED, broken
from workbench.core.palette import ORDER
from workbench.core.saving import strict
from workbench.core.verdict import WORST, Item
from workbench.launch.rules.records import WHEN
from workbench.preflight.records import LaunchCheck
from workbench.views.parts import (
    Code,
    Document,
    Findings,
    Group,
    Groups,
    Heading,
    Part,
    Prose,
    head,
)
from workbench.views.parts import document as lay_out

SHOWN = 24
# Kinds of which every item has a line of its own; keys and parameters of a model are counted together.
_SINGLE = (
    "release",
    "launch",
    "parser",
    "combination",
    "sum",
    "model",
    "loading",
    "weight",
    "machine",
)
_GROUPED = {
    "key": "keys",
    "parameter": "parameters",
    "contract": "contracts",
    "argument": "arguments",
}
_STATE = {"ok": "ok", "wrong": "wrong", "open": "unsure"}


def document(check: LaunchCheck) -> Document:
    """Return the check as a document: what fails when, the line to paste, the findings, what was checked."""
    body = (
        *_faults(check),
        *_corrected(check),
        *([Findings(check.findings)] if check.findings else []),
        *_checked(check),
    )
    return lay_out(check, list(_facts(check)), body, next_step=_next(check), notes=check.notes)


def _facts(check: LaunchCheck) -> Iterator[tuple[str, str]]:
    yield (
        "Launch",
        f"{check.form}, {check.source}" if check.source != "a command line" else check.form,
    )
    how = f" ({check.version_basis})" if check.version_basis else ""
    yield (
        "Engine",
        f"{check.engine_text}{how}" if check.version else f"{check.engine_text}, release not known",
    )
    yield "Target", check.target or "not named"
    yield "Draft", check.draft or "none"


def _next(check: LaunchCheck) -> str:
    """Return the one step: of what fails first, else to give what is missing."""
    if check.ok is True:
        return ""
    if check.first is None:
        return _missing(check)
    found = next((f for f in check.findings if f.code == check.first.code), None)
    return found.next_step if found is not None else ""


def _missing(check: LaunchCheck) -> str:
    """Return how to give what is missing first."""
    if not check.engine:
        return "Give the command line that starts the server."
    if not check.version:
        return f"Give the release: `--engine {check.engine}==VERSION`."
    depends = next((text for text in check.not_read if "depends on" in text), "")
    if depends:
        return "Give the command with the values that the shell puts in."
    unread = {
        item.name
        for item in check.verdict.coverage.items
        if item.state == "open" and item.essential
    }
    if "the models are there" in unread:
        return "Give the models: `--target PATH`, `--draft PATH`."
    return "Settle what is not checked: the first of it is the most important."


def _faults(check: LaunchCheck) -> Iterator[Part]:
    if not check.faults:
        return
    yield Heading("What fails, and when")
    rows = (
        Group(
            "wrong" if one.certain else "unsure", one.text, (one.moment,), (("", WHEN[one.moment]),)
        )
        for one in check.faults
    )
    yield Groups(tuple(rows), noun="fault")


def _corrected(check: LaunchCheck) -> Iterator[Part]:
    if check.corrected:
        yield Heading("The line, corrected")
        yield Code(check.corrected, command=True)
        for text in check.left:
            yield Prose(text, "still wrong: ")


def _checked(check: LaunchCheck) -> Iterator[Part]:
    items = check.verdict.coverage.items
    yield Heading("What was checked")
    yield Groups(tuple(_rows(items)), shown=SHOWN, noun="item")


def _rows(items: tuple[Item, ...]) -> Iterator[Group]:
    single = [item for item in items if item.kind in _SINGLE]
    yield from (
        Group(_STATE[item.state], item.name, (), (("", item.how),))
        for item in sorted(single, key=lambda item: WORST.index(item.state))
    )
    for kind, name in _GROUPED.items():
        of_kind = [item for item in items if item.kind == kind]
        if of_kind:
            yield _counted(name, of_kind)


def _counted(name: str, items: list[Item]) -> Group:
    """Return one line for the items of a kind, with those that are not healthy by name."""
    worst = min((item.state for item in items), key=WORST.index)
    count = sum(item.count for item in items)
    bad = [item for item in items if item.state != "ok"]
    lines = tuple(("", f"{item.name}: {item.how}") for item in bad[:6])
    more = (("", f"… and {len(bad) - 6} more"),) if len(bad) > 6 else ()
    return Group(_STATE[worst], f"{count:,} {name}", (), lines + more)


def payload(check: LaunchCheck, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON; every item has a row."""
    rows = [
        {
            "kind": item.kind,
            "state": _STATE[item.state],
            "name": item.name,
            "how": item.how,
            "count": item.count,
        }
        for item in sorted(check.verdict.coverage.items, key=lambda item: WORST.index(item.state))
    ]
    kept = rows if limit is None else rows[: max(40, limit // 120)]
    data: dict[str, Any] = head(document(check)) | {
        "faults": [[one.moment, one.text, one.certain] for one in check.faults],
        "corrected": check.corrected,
        "broken": "\n".join(broken(check.corrected, PASTED)) if check.corrected else "",
        "left": list(check.left),
        "items": kept,
        "left_out": len(rows) - len(kept),
        "order": list(ORDER),
    }
    plain: dict[str, Any] = strict(data)
    return plain
