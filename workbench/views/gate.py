"""A `Gate`, laid out, and the data of its interactive view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from workbench.core.saving import strict
from workbench.core.verdict import WORST
from workbench.facts.engines import spoken
from workbench.preflight.gate_records import Cell, Gate
from workbench.views.parts import Code, Document, Findings, Group, Groups, Heading, Part, head
from workbench.views.parts import document as lay_out

_STATE = {True: "ok", False: "wrong", None: "unsure"}
_SIGN = {"ok": "ok", "wrong": "wrong", "open": "unsure"}


def document(gate: Gate) -> Document:
    """Return the gate as a document: the releases in ranges, weights and replay, the findings, the badge."""
    facts = [
        ("Draft", gate.draft), ("Target", gate.target), ("Digest", gate.digest), ("Date", gate.date),
        ("Asked for", gate.engines),
    ]  # fmt: skip
    found: list[Part] = [Findings(gate.findings)] if gate.findings else []
    badge: list[Part] = [Heading("Badge"), Code(gate.badge)] if gate.badge else []
    body = (
        *_releases(gate),
        *_others(gate),
        *found,
        *badge,
    )
    return lay_out(gate, facts, body, next_step=_next(gate), notes=gate.notes)


def _next(gate: Gate) -> str:
    if gate.ok is True:
        return ""
    step = next((one.next_step for one in gate.findings if one.next_step), "")
    return step or "Settle what is not checked, or ask for fewer releases with --engines."


def _releases(gate: Gate) -> Iterator[Part]:
    yield Heading("Releases")
    yield Groups(tuple(_ranges(gate)), noun="range")


def _ranges(gate: Gate) -> Iterator[Group]:
    """Yield a row for each range of releases that answer alike."""
    for (engine, ok, basis, text, described), ones in groupby(gate.cells, _alike):
        cells = list(ones)
        name = spoken(engine, cells[0].version)
        if len(cells) > 1:
            name += f" to {cells[-1].version}"
        fact = basis.replace("_", " ") if described else "not described"
        yield Group(_STATE[ok], name, (fact,) if fact else (), (("", text),))


def _alike(cell: Cell) -> tuple[str, bool | None, str, str, bool]:
    text = cell.text.replace(
        f"{cell.engine} {cell.version}", f"{spoken(cell.engine)} of this release"
    )
    return (
        cell.engine,
        cell.ok,
        cell.basis,
        text.replace(cell.version, "this release"),
        cell.described,
    )


def _others(gate: Gate) -> Iterator[Part]:
    yield Heading("Weights and acceptance")
    items = [item for item in gate.verdict.coverage.items if item.kind != "release"]
    yield Groups(
        tuple(Group(_SIGN[item.state], item.name, (), (("", item.how),)) for item in items),
        noun="item",
    )


def payload(gate: Gate, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON."""
    found = [item for item in gate.verdict.coverage.items if item.kind != "release"]
    items = sorted(found, key=lambda item: WORST.index(item.state))
    data: dict[str, Any] = head(document(gate)) | {
        "ranges": [
            [row.state, row.name, " ".join(row.facts), row.lines[0][1]] for row in _ranges(gate)
        ],
        "badge": gate.badge,
        "items": [
            {"kind": item.kind, "state": _SIGN[item.state], "name": item.name, "how": item.how}
            for item in items
        ],
    }
    plain: dict[str, Any] = strict(data)
    return plain
