"""A `WeightComparison`, laid out, and the data of its interactive view."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.views.parts import Document, Findings, Group, Groups, Heading, head
from workbench.views.parts import Part as Shown
from workbench.views.parts import document as lay_out
from workbench.weights.changes import STATES, Change
from workbench.weights.comparison import WeightComparison
from workbench.weights.names import named, places
from workbench.weights.picture import COMPARE_MODES, Part, assemble, significant


def document(comparison: WeightComparison) -> Document:
    """Return the comparison as a document: findings, and every template with its change."""
    facts = [("First", comparison.before), ("Second", comparison.after)]
    body: tuple[Shown, ...] = (
        *([Findings(comparison.findings)] if comparison.findings else []),
        Heading("Tensors: norm of the difference / norm of the first"),
        Groups(tuple(_templates(comparison))),
    )
    return lay_out(comparison, facts, body, notes=comparison.notes)


def _templates(comparison: WeightComparison) -> Iterator[Group]:
    rows = comparison.changes
    where = places(rows.names)
    groups: dict[tuple[Any, ...], list[Change]] = {}
    order = {state: at for at, state in enumerate(STATES)}
    for at in sorted(range(len(rows)), key=lambda i: order[rows[i].state]):
        row = rows[at]
        key = (row.state, int(where.stack[at]), int(where.kind[at]), row.shape, row.shape_after)
        groups.setdefault(key, []).append(row)
    for members in groups.values():
        first = members[0]
        [name, *others] = named([row.name for row in members])
        more = f" and {plural(len(others), 'template')} more" if others else ""
        count = f"×{len(members):,}" if len(members) > 1 else ""
        shape = list(first.shape or first.shape_after)
        became = [f"became {list(first.shape_after)}"] if first.state == "shape" else []
        lines = tuple(("", text) for text in (*became, first.reason) if text)
        facts = (count, str(shape), _amount(members))
        yield Group(first.state, shorten(name) + more, facts, lines)


def _amount(members: list[Change]) -> str:
    if members[0].state != "changed":
        return STATES[members[0].state]
    values = [row.change for row in members if row.change is not None]
    if not values:
        return "changed from zero"
    low, high = min(values), max(values)
    return f"{low:.2g}" if high <= 1.05 * low else f"{low:.2g} to {high:.2g}"


def payload(comparison: WeightComparison, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON, within `limit` bytes compressed."""
    rows = comparison.changes
    numbers = {
        name: np.array([_number(getattr(row, name)) for row in rows], dtype=np.float64)
        for name in ("change", "largest", "moved")
    }
    shapes = np.empty(len(rows), dtype=object)
    for at, row in enumerate(rows):
        shapes[at] = row.shape or row.shape_after
    part = Part(
        names=rows.names,
        states=np.array([row.state for row in rows], dtype=object),
        order=tuple(STATES),
        words=STATES,
        numbers=numbers,
        modes=COMPARE_MODES,
        columns=(
            {"key": "change", "label": "Change"},
            {"key": "moved", "label": "Moved"},
            {"key": "largest", "label": "Largest"},
        ),
        shapes=shapes,
        dtypes=np.array([row.dtype or row.dtype_after for row in rows], dtype=object),
        detail=lambda at: _detail(rows[at]),
        prominent=np.array([sum(size > 1 for size in shape) > 1 for shape in shapes], dtype=bool),
    )
    first = head(document(comparison)) | {"noun": "tensor", "stateLabel": "State", "noise": 0}
    return assemble(first, part, limit)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _detail(row: Change) -> dict[str, Any]:
    became = [] if row.shape_after in ((), row.shape) else [["Became", str(list(row.shape_after))]]
    kinds = (
        []
        if row.same_dtype or not row.dtype_after
        else [["Stored as", f"{row.dtype}, then {row.dtype_after}"]]
    )
    facts = [
        ["change", significant(row.change)],
        ["elements moved", significant(row.moved)],
        ["largest difference", significant(row.largest)],
    ]
    return {
        "reason": row.reason,
        "more": became + kinds,
        "facts": facts if row.compared else [],
    }
