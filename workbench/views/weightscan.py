"""A `WeightScan`, laid out, and the data of its interactive view."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from workbench.core.palette import tone
from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.views.parts import (
    Code,
    Document,
    Findings,
    Group,
    Groups,
    Heading,
    Prose,
    Table,
    head,
)
from workbench.views.parts import Part as Shown
from workbench.views.parts import document as lay_out
from workbench.weights.columns import Tensors
from workbench.weights.names import named
from workbench.weights.picture import (
    SCAN_MODES,
    VERDICTS,
    Part,
    assemble,
    rounded,
    significant,
    states,
    word,
)
from workbench.weights.results import WeightScan
from workbench.weights.structure import AT_INIT

FEW_LAYERS = 16  # of which the map shows each


def document(scan: WeightScan) -> Document:
    """Return the scan as a document: findings, the map as signs, tensors by template, its power."""
    body = (
        *([Findings(scan.findings)] if scan.findings else []),
        *_templates(scan),
        *_sign_map(scan),
        *_experts(scan),
        *_power(scan),
    )
    return lay_out(scan, facts(scan), body, notes=scan.notes)


def facts(scan: WeightScan) -> list[tuple[str, str]]:
    """Return what was read, as name and value."""
    seen, state = states(scan)
    matters = plural(int(seen.matters.sum()), "matrix", "matrices")
    rows = [
        ("Server" if scan.kind == "server" else "Checkpoint", scan.source),
        ("Tensors", f"{plural(len(scan.tensors), 'tensor')}, {matters} to judge"),
    ]
    if scan.bytes_read:
        rows.append(("Read", _size(scan.bytes_read)))
    if scan.sampled:
        rows.append(("Sample", f"at most {scan.sampled:,} values of a tensor"))
    counts = [(word(v), int((state == v).sum())) for v in VERDICTS]
    each = ", ".join(f"{count:,} {name}" for name, count in counts if count)
    return [*rows, ("Verdicts", each or "none")]


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _templates(scan: WeightScan) -> Iterator[Shown]:
    """Yield one line a verdict and template, the worst verdict first."""
    if not len(scan.tensors):
        return
    _, state = states(scan)
    shapes = scan.tensors.column("shape")
    rows = []
    for verdict in VERDICTS:
        at = np.flatnonzero(state == verdict)
        groups: dict[tuple[str, Any], list[int]] = {}
        for i, kind in zip(at.tolist(), _kinds(scan, at), strict=True):
            groups.setdefault((kind, shapes[i]), []).append(i)
        rows += [_group(scan, verdict, shape, found) for (_, shape), found in groups.items()]
    yield Heading("Tensors")
    yield Groups(tuple(rows))


def _group(scan: WeightScan, verdict: str, shape: Any, members: list[int]) -> Group:
    [name, *others] = named([scan.tensors.names[i] for i in members])
    more = f" and {plural(len(others), 'template')} more" if others else ""
    count = f"×{len(members):,}" if len(members) > 1 else ""
    facts = (count, str(list(shape)), _std(scan, members), word(verdict))
    reason = (("", scan.tensors[members[0]].reason),) if verdict in VERDICTS[:4] else ()
    return Group(verdict, shorten(name) + more, facts, reason)


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


def _power(scan: WeightScan) -> Iterator[Shown]:
    seen, _ = states(scan)
    power = np.where(seen.matters, scan.tensors.column("power"), np.nan)
    if not np.isfinite(power).any():
        return
    shapes = scan.tensors.column("shape")
    rows: dict[Any, tuple[float, int]] = {}
    for i in np.flatnonzero(np.isfinite(power)).tolist():
        largest, count = rows.get(shapes[i], (0.0, 0))
        rows[shapes[i]] = max(largest, float(power[i])), count + 1
    ordered = sorted(rows.items(), key=lambda item: -item[1][0])
    yield Heading("Smallest change one would notice")
    yield Prose("Relative to the norm of the tensor, with 95 % certainty:")
    yield Table(
        ("Shape", "", "Change"),
        tuple(
            (str(list(shape)), plural(count, "tensor"), f"{value:.2%}")
            for shape, (value, count) in ordered
        ),
        shown=6,
        noun="shape",
    )


# The interactive view.

# The columns of numbers in the table. Narrow pages show the first two of them.
_COLUMNS = [
    {"key": "std", "label": "Std"},
    {"key": "kurtosis", "label": "Kurtosis"},
    {"key": "absmax", "label": "Max |value|"},
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
    numbers = {column["key"]: scan.tensors.column(column["key"]) for column in _COLUMNS}
    part = Part(
        names=scan.tensors.names,
        states=state,
        order=VERDICTS,
        words={verdict: word(verdict) for verdict in VERDICTS},
        numbers=numbers,
        modes=SCAN_MODES,
        columns=_COLUMNS,
        shapes=scan.tensors.column("shape"),
        dtypes=scan.tensors.column("dtype"),
        detail=_details(scan.tensors),
        prominent=seen.matters,
    )
    first = head(document(scan)) | {"noun": "tensor", "noise": AT_INIT}
    return assemble(first, part, limit)


# Two facts are called by the end that they are, and those of `_COUNTS` are shown where there are any.
_FACTS = {"mean": "mean", "std": "std", "min": "least", "max": "greatest", "skew": "skew",
          "kurtosis": "kurtosis"}  # fmt: skip
_COUNTS = ("zeros", "nan", "inf", "denormal")
_TEXTS = ("reason", "family", "corroboration", "power_text", "layout", "seen", "count")


def _details(tensors: Tensors) -> Callable[[int], dict[str, Any]]:
    """Return what gives all that is shown of the tensor at a position: a column at a time is rounded."""
    numbers = {name: rounded(tensors.column(name)) for name in (*_FACTS, "sigma")}
    plain = {name: tensors.column(name).tolist() for name in (*_COUNTS, *_TEXTS)}
    statistics = {name: rounded(tensors.statistic(name)) for name in tensors.statistics}

    def detail(at: int) -> dict[str, Any]:
        seen, count = plain["seen"][at], plain["count"][at]
        counts = [[name, plain[name][at]] for name in _COUNTS if plain[name][at]]
        return {
            "reason": plain["reason"][at],
            "family": plain["family"][at],
            "sigma": numbers["sigma"][at],
            "corroboration": list(plain["corroboration"][at]),
            "power": plain["power_text"][at],
            "seen": "" if seen == count else f"{seen:,} of {count:,} values were read",
            "layout": plain["layout"][at],
            "facts": [*[[shown, numbers[name][at]] for name, shown in _FACTS.items()], *counts],
            "statistics": [
                [name, values[at]] for name, values in statistics.items() if values[at] is not None
            ],
            "mean": numbers["mean"][at],
            "std": numbers["std"][at],
            "bins": _bins(tensors.histogram(at)),
        }

    return detail


def _bins(histogram: tuple[Any, Any] | None) -> dict[str, Any] | None:
    if histogram is None:
        return None
    edges, counts = histogram
    step = (edges[-1] - edges[0]) / len(counts)
    even = bool((np.abs(np.diff(edges) - step) <= 1e-3 * abs(step)).all())
    ends = edges[[0, -1]] if even else edges
    return {"edges": [significant(edge, 6) for edge in ends.tolist()], "counts": counts.tolist()}


_EXPERT = re.compile(r"(.+?)\.(\d+)\.(.*\bexperts)\.(\d+)\.")


def _experts(scan: WeightScan) -> Iterator[Shown]:
    """Yield the map layer by expert as signs, the worst verdict of each expert, where not all are trained."""
    _, state = states(scan)
    stacks: dict[str, dict[int, dict[int, str]]] = {}
    for name, verdict in zip(scan.tensors.names, state, strict=True):
        match = _EXPERT.match(name) if "experts." in name else None
        if match and verdict in VERDICTS:
            layers = stacks.setdefault(f"{match[1]}.{{}}.{match[3]}", {})
            experts = layers.setdefault(int(match[2]), {})
            before = experts.get(int(match[4]), VERDICTS[-1])
            experts[int(match[4])] = min(before, str(verdict), key=VERDICTS.index)
    for stack, layers in stacks.items():
        bad = {
            layer: experts
            for layer, experts in sorted(layers.items())
            if any(verdict != "trained" for verdict in experts.values())
        }
        if not bad:
            continue
        count = 1 + max(max(experts) for experts in layers.values())
        yield Heading(f"{stack}: one sign an expert")
        lines = list(_expert_lines(bad, count))
        few = lines[: 2 * FEW_LAYERS]
        left = [f"… and {plural(len(lines) - len(few), 'line')} more"] * (len(lines) > len(few))
        yield Prose(f"0 to {count - 1}, in order of their numbers", "experts: ")
        yield Code("\n".join([*few, *left]))
        well = len(layers) - len(bad)
        if well:
            yield Prose(f"In {plural(well, 'layer')} more, all experts look trained.")


def _expert_lines(layers: dict[int, dict[int, str]], count: int) -> Iterator[str]:
    """Yield how many experts of a layer are not trained, and a line for each 64."""
    for layer, experts in layers.items():
        signs = [
            tone(experts[i]).glyph if i in experts else "·" for i in range(min(count, 1 << 12))
        ]
        odd = sum(verdict != "trained" for verdict in experts.values())
        yield f"layer {layer}: {odd:,} of {len(experts):,} do not look trained"
        for at in range(0, len(signs), 64):
            yield f"  {''.join(signs[at : at + 64])}"


def _sign_map(scan: WeightScan) -> Iterator[Shown]:
    """Yield the map of each stack of layers as signs, where it fits a page."""
    from workbench.weights.grid import cells, grids

    seen, state = states(scan)
    for grid in grids(seen.places):
        if not grid.stack or len(grid.labels) > 40 or len(grid.layers) > 128:
            continue
        signs = [["·"] * len(grid.labels) for _ in grid.layers]
        shown = cells(grid, state, VERDICTS, {})
        for row, column, verdict in zip(grid.row, grid.column, shown.state, strict=True):
            signs[int(row)][int(column)] = tone(verdict).glyph
        wide = max(len(str(layer)) for layer in grid.layers)
        lines = [
            f"{layer:>{wide}}  {' '.join(line)}"
            for layer, line in zip(grid.layers, signs, strict=True)
        ]
        if len(lines) > FEW_LAYERS:  # of many layers only those that are not plainly well
            well = {tone("trained").glyph, "·"}
            lines = [
                text for text, line in zip(lines, signs, strict=True) if not well.issuperset(line)
            ]
        if not lines:
            continue
        left = len(grid.layers) - len(lines)
        if left:
            lines.append(f"… and {plural(left, 'layer')} that look trained")
        yield Heading(f"{grid.stack}: one line a layer")
        yield Prose(shorten(", ".join(grid.labels), 400), "columns: ")
        yield Code("\n".join(lines))
