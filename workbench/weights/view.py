"""A `WeightScan` as text, and as the data of its interactive view."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.display.text import Page, glyph, plural, table
from workbench.errors import shorten
from workbench.weights.columns import ScannedTensor
from workbench.weights.names import named
from workbench.weights.picture import Part, assemble, significant
from workbench.weights.results import WeightScan
from workbench.weights.seen import Seen
from workbench.weights.structure import AT_INIT

VERDICTS = ("invalid", "at_init", "constant", "undecided", "trained", "not_weights")
"""In the order in which they are looked at; tables of integers are ``not_weights``."""

WORDS = {
    "at_init": "at init",
    "not_weights": "not weights",
}
SHOWN = 40  # templates that the text lists

MODES = (
    {"key": "state", "label": "Verdict", "kind": "state"},
    {"key": "std", "label": "Standard deviation", "kind": "log"},
    {"key": "kurtosis", "label": "Excess kurtosis", "kind": "symlog"},
)


def states(scan: WeightScan) -> tuple[Seen, np.ndarray[Any, Any]]:
    """Return the scan as it was seen, and the state of each tensor in the view."""
    return scan.seen, np.where(scan.seen.counts, scan.seen.verdict, "not_weights")


def text(scan: WeightScan, width: int | None = None) -> str:
    """Return the scan for a terminal: verdict, findings, tensors by template, what could not be seen."""
    page = Page(width)
    page.verdict(scan.ok, scan.summary)
    for fact in facts(scan):
        page.prose(f"{fact[0].lower()}: {fact[1]}")
    for note in scan.notes:
        page.prose(note, "  note: ")
    if scan.findings:
        page.heading("Findings")
        for item in scan.findings:
            page.finding(item)
    _templates(page, scan)
    _power(page, scan)
    return str(page)


def facts(scan: WeightScan) -> list[list[str]]:
    """Return what was read, as name and value."""
    seen, state = states(scan)
    matters = int(seen.matters.sum())
    told = [
        ["Server" if scan.kind == "server" else "Checkpoint", scan.source],
        [
            "Seen",
            f"{plural(len(scan.tensors), 'tensor')}, {plural(matters, 'matrix', 'matrices')} that matter",
        ],
    ]
    if scan.bytes_read:
        told.append(["Read", _size(scan.bytes_read)])
    if scan.sampled:
        told.append(["Sample", f"at most {scan.sampled:,} values of a tensor"])
    counts = [(word(v), int((state == v).sum())) for v in VERDICTS]
    told.append(
        ["Verdicts", ", ".join(f"{count:,} {name}" for name, count in counts if count) or "none"]
    )
    return told


def word(verdict: str) -> str:
    """Return a verdict as a reader says it."""
    return WORDS.get(verdict, verdict)


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _templates(page: Page, scan: WeightScan) -> None:
    if not len(scan.tensors):
        return
    _, state = states(scan)
    shapes = scan.tensors.column("shape")
    page.heading("Tensors")
    # One line a verdict and template, the worst verdict first.
    lines = []
    for verdict in VERDICTS:
        at = np.flatnonzero(state == verdict)
        groups: dict[tuple[str, Any], list[int]] = {}
        for i, kind in zip(at.tolist(), _kinds(scan, at), strict=True):
            groups.setdefault((kind, shapes[i]), []).append(i)
        lines += [(verdict, shape, members) for (_, shape), members in groups.items()]
    for verdict, shape, members in lines[:SHOWN]:
        [name, *others] = named([scan.tensors.names[i] for i in members])
        more = f" and {plural(len(others), 'template')} more" if others else ""
        count = f"×{len(members):,}" if len(members) > 1 else ""
        page.group(
            verdict,
            shorten(name) + more,
            count,
            str(list(shape)),
            _std(scan, members),
            word(verdict),
        )
        if verdict in VERDICTS[:4]:
            page.prose(scan.tensors[members[0]].reason, "      ")
    if len(lines) > SHOWN:
        page.prose(f"… and {len(lines) - SHOWN:,} more templates (to_html shows all)", "    ")


def _kinds(scan: WeightScan, at: np.ndarray[Any, Any]) -> list[str]:
    from workbench.weights.names import places

    where = places([scan.tensors.names[i] for i in at])
    return [
        f"{where.stacks[s]} {where.kinds[k]}" for s, k in zip(where.stack, where.kind, strict=True)
    ]


def _std(scan: WeightScan, members: list[int]) -> str:
    values = scan.tensors.column("std")[members]
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    low, high = float(values.min()), float(values.max())
    return f"std {low:.2g}" if high <= low * 1.05 else f"std {low:.2g}–{high:.2g}"


def _power(page: Page, scan: WeightScan) -> None:
    seen, _ = states(scan)
    power = np.where(seen.matters, scan.tensors.column("power"), np.nan)
    if not np.isfinite(power).any():
        return
    shapes = scan.tensors.column("shape")
    rows: dict[Any, tuple[float, int]] = {}
    for i in np.flatnonzero(np.isfinite(power)).tolist():
        largest, count = rows.get(shapes[i], (0.0, 0))
        rows[shapes[i]] = max(largest, float(power[i])), count + 1
    page.heading("What could not be seen")
    page.prose("The smallest relative change that would have been noticed (95 %):")
    ordered = sorted(rows.items(), key=lambda item: -item[1][0])
    page.add(
        table(
            [
                (str(list(shape)), plural(count, "tensor"), f"{value:.2%}")
                for shape, (value, count) in ordered[:6]
            ],
            page.width,
        )
    )
    if len(ordered) > 6:
        page.prose(f"… and {plural(len(ordered) - 6, 'shape')} more, all with less", "    ")


# The interactive view.

_NUMBERS = ("std", "kurtosis")
_COLUMNS = [
    {"key": "std", "label": "Std"},
    {"key": "kurtosis", "label": "Kurtosis"},
]


def payload(scan: WeightScan, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, tensors that look trained lose
        first their details, then their row; ``left_out`` counts both. The map always has all cells.
    """
    seen, state = states(scan)
    numbers = {name: scan.tensors.column(name) for name in _NUMBERS}
    part = Part(
        names=scan.tensors.names,
        states=state,
        order=VERDICTS,
        words={verdict: word(verdict) for verdict in VERDICTS},
        numbers=numbers,
        modes=MODES,
        columns=_COLUMNS,
        shapes=scan.tensors.column("shape"),
        dtypes=scan.tensors.column("dtype"),
        detail=lambda at: _detail(scan.tensors[at]),
        prominent=seen.matters,
    )
    head = {
        "schema": scan.schema,
        "title": scan.title,
        "verdict": {"ok": scan.ok, "line": scan.summary},
        "facts": [*facts(scan), *(["Note", note] for note in scan.notes)],
        "findings": [finding.to_dict() for finding in scan.findings],
        "preview": _preview(scan),
        "noun": "tensor",
        "noise": AT_INIT,
    }
    return assemble(head, part, limit)


def _detail(row: ScannedTensor) -> dict[str, Any]:
    """Return what is shown of one tensor when a reader asks for it."""
    counts = [[name, getattr(row, name)] for name in ("zeros", "nan", "inf", "denormal")]
    facts = [
        ["mean", significant(row.mean)], ["std", significant(row.std)],
        ["least", significant(row.min)], ["greatest", significant(row.max)],
        ["skew", significant(row.skew)], ["kurtosis", significant(row.kurtosis)],
        *[[name, count] for name, count in counts if count],
    ]  # fmt: skip
    seen = "" if row.seen == row.count else f"{row.seen:,} of {row.count:,} values were read"
    return {
        "reason": row.reason,
        "family": row.family,
        "sigma": significant(row.sigma),
        "corroboration": list(row.corroboration),
        "power": row.power_text,
        "seen": seen,
        "layout": row.layout,
        "facts": facts,
        "statistics": [[name, significant(value)] for name, value in row.statistics],
        "mean": significant(row.mean),
        "std": significant(row.std),
        "bins": _bins(row),
    }


def _bins(row: ScannedTensor) -> dict[str, Any] | None:
    if row.bins is None:
        return None
    edges, counts = row.bins
    even = np.allclose(np.diff(edges), (edges[-1] - edges[0]) / len(counts), rtol=1e-3, atol=0)
    ends = [edges[0], edges[-1]] if even else list(edges)
    return {"edges": [significant(edge, 6) for edge in ends], "counts": list(counts)}


def _preview(scan: WeightScan) -> list[dict[str, Any]]:
    """Return what is left of the view where no script runs: the map as a table of signs, or groups."""
    seen, state = states(scan)
    if not len(scan.tensors):
        return []
    rows = []
    for verdict in VERDICTS:
        at = np.flatnonzero(state == verdict)
        for name in named([scan.tensors.names[i] for i in at])[: 12 if verdict != "trained" else 8]:
            rows.append([{"state": verdict, "text": word(verdict)}, name])
    shown = rows[:24]
    blocks = [{"kind": "table", "head": ["Verdict", "Tensors"], "rows": shown}]
    picture = _sign_map(seen, state)
    return [*picture, *blocks]


def _sign_map(seen: Seen, state: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    from workbench.weights.grid import cells, grids

    blocks: list[dict[str, Any]] = []
    for grid in grids(seen.places):
        if not grid.stack or len(grid.labels) > 40 or len(grid.layers) > 128:
            continue
        signs = [["·"] * len(grid.labels) for _ in grid.layers]
        shown = cells(grid, state, VERDICTS, {})
        for row, column, verdict in zip(grid.row, grid.column, shown.state, strict=True):
            signs[int(row)][int(column)] = glyph(verdict)
        wide = max(len(str(layer)) for layer in grid.layers)
        lines = [
            f"{layer:>{wide}}  {' '.join(line)}"
            for layer, line in zip(grid.layers, signs, strict=True)
        ]
        legend = ", ".join(grid.labels)
        blocks += [
            {"kind": "heading", "text": f"{grid.stack}: one line a layer"},
            {"kind": "text", "text": f"Columns: {shorten(legend, 400)}"},
            {"kind": "code", "text": "\n".join(lines)},
        ]
    return blocks
