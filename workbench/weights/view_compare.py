"""A `WeightComparison` as text, and as the data of its interactive view."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from workbench.display.text import Page, plural
from workbench.errors import shorten
from workbench.weights.changes import STATES, Change
from workbench.weights.names import named, places
from workbench.weights.picture import Part, assemble, significant
from workbench.weights.results import WeightComparison

SHOWN = 40  # templates that the text lists

MODES = (
    {
        "key": "change",
        "label": "Relative change",
        "kind": "log",
        "low": -4.0,  # always from 0.01 % to 100 %: two comparisons can be laid side by side
        "high": 0.0,
        "note": "The norm of the difference over that of the first; several tensors in a cell: their median.",
    },
    {"key": "state", "label": "State", "kind": "state"},
)


def text(comparison: WeightComparison, width: int | None = None) -> str:
    """Return the comparison for a terminal: sentence, findings, and every template with its change."""
    page = Page(width)
    page.verdict(comparison.ok, comparison.summary)
    page.prose(f"first:  {comparison.before}")
    page.prose(f"second: {comparison.after}")
    for note in comparison.notes:
        page.prose(note, "  note: ")
    if comparison.findings:
        page.heading("Findings")
        for item in comparison.findings:
            page.finding(item)
    page.heading("Tensors: norm of the difference / norm of the first")
    _templates(page, comparison)
    return str(page)


def _templates(page: Page, comparison: WeightComparison) -> None:
    rows = comparison.changes
    where = places(rows.names)
    groups: dict[tuple[Any, ...], list[Change]] = {}
    order = {state: at for at, state in enumerate(STATES)}
    for at in sorted(range(len(rows)), key=lambda i: order[rows[i].state]):
        row = rows[at]
        key = (row.state, int(where.stack[at]), int(where.kind[at]), row.shape, row.shape_after)
        groups.setdefault(key, []).append(row)
    for members in list(groups.values())[:SHOWN]:
        first = members[0]
        [name, *others] = named([row.name for row in members])
        more = f" and {plural(len(others), 'template')} more" if others else ""
        count = f"×{len(members):,}" if len(members) > 1 else ""
        shape = list(first.shape or first.shape_after)
        page.group(first.state, shorten(name) + more, count, str(shape), _amount(members))
        if first.state == "shape":
            page.prose(f"became {list(first.shape_after)}", "      ")
        if first.reason:
            page.prose(first.reason, "      ")
    if len(groups) > SHOWN:
        page.prose(f"… and {len(groups) - SHOWN:,} more templates (to_html shows all)", "    ")


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
        modes=MODES,
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
    head = {
        "schema": comparison.schema,
        "title": comparison.title,
        "verdict": {"ok": comparison.ok, "line": comparison.summary},
        "facts": [
            ["First", comparison.before],
            ["Second", comparison.after],
            *(["Note", note] for note in comparison.notes),
        ],
        "findings": [finding.to_dict() for finding in comparison.findings],
        "preview": _preview(comparison),
        "noun": "tensor",
        "stateLabel": "State",
        "noise": 0,
    }
    return assemble(head, part, limit)


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


def _preview(comparison: WeightComparison) -> list[dict[str, Any]]:
    rows = []
    for state, words in STATES.items():
        found = [row for row in comparison.changes if row.state == state]
        for name in named([row.name for row in found])[:8]:
            rows.append([{"state": state, "text": words}, name])
    return [{"kind": "table", "head": ["State", "Tensors"], "rows": rows[:32]}] if rows else []
