"""The data of a map with a table below it, for a scan and for a comparison; bounded where it must be."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.templates import group_names
from workbench.core.palette import RAMP
from workbench.core.saving import strict
from workbench.weights.grid import Grid, cells, grids, scale, span
from workbench.weights.names import places

if TYPE_CHECKING:
    from workbench.weights.results import WeightScan
    from workbench.weights.seen import Seen

Column = np.ndarray[Any, np.dtype[Any]]

VERDICTS = ("invalid", "at_init", "constant", "undecided", "trained", "not_weights")
"""In the order in which they are looked at; tables of integers are ``not_weights``."""

WORDS = {
    "at_init": "at init",
    "not_weights": "not weights",
}
SCAN_MODES = (
    {"key": "state", "label": "Verdict", "kind": "state"},
    {"key": "std", "label": "Standard deviation", "kind": "log"},
    {"key": "kurtosis", "label": "Excess kurtosis", "kind": "symlog"},
)

COMPARE_MODES = (
    {
        "key": "change",
        "label": "Relative change",
        "kind": "log",
        "low": -4.0,  # always from 0.01 % to 100 %: two comparisons can be compared
        "high": 0.0,
        "note": "The norm of the difference over that of the first; several tensors in a cell: their median.",
    },
    {"key": "state", "label": "State", "kind": "state"},
)


def states(scan: WeightScan) -> tuple[Seen, np.ndarray[Any, Any]]:
    """Return the scan as it was seen, and the state of each tensor in the view."""
    return scan.seen, np.where(scan.seen.counts, scan.seen.verdict, "not_weights")


def word(verdict: str) -> str:
    """Return a verdict as a reader says it."""
    return WORDS.get(verdict, verdict)


@dataclasses.dataclass(frozen=True)
class Part:
    """What a view shows of each tensor.

    Attributes
    ----------
    states, order, words
        The state of each, all states with the worst first, and how a reader says them.
    numbers
        Columns of numbers by name.
    modes
        What the map can be coloured by: key, label, and ``state``, ``log`` or ``symlog``.
    columns
        The numbers that the table shows.
    detail
        Returns what is shown of the tensor at a position when a reader asks for it.
    prominent
        Which tensors come first among those of one state, and give the map's colours their range.
    """

    names: Sequence[str]
    states: Column
    order: Sequence[str]
    words: Mapping[str, str]
    numbers: Mapping[str, Column]
    modes: Sequence[Mapping[str, Any]]
    columns: Sequence[Mapping[str, str]]
    shapes: Column
    dtypes: Column
    detail: Callable[[int], dict[str, Any]]
    prominent: Column


def significant(value: float | None, digits: int = 4) -> float | None:
    """Return a number with few digits, None where there is none: a view needs no more, and packs better."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def rounded(values: Column, digits: int = 4) -> list[float | None]:
    """Return a column as `significant` does each of its numbers."""
    values = np.asarray(values, dtype=np.float64)
    usual = np.isfinite(values) & (np.abs(values) > 1e-15) & (np.abs(values) < 1e15)
    with np.errstate(divide="ignore", invalid="ignore"):
        place = digits - 1 - np.floor(np.log10(np.abs(np.where(usual, values, 1)))).astype(np.int64)
    # Whole numbers over powers of ten, both exact, divide to the nearest float, as text is read.
    up, down = 10.0 ** np.maximum(place, 0), 10.0 ** np.maximum(-place, 0)
    few = np.rint(np.where(usual, values, 0) * up / down) * down / up
    return [
        number if known else significant(value, digits)
        for number, known, value in zip(few.tolist(), usual.tolist(), values.tolist(), strict=True)
    ]


def assemble(head: Mapping[str, Any], part: Part, limit: int | None) -> dict[str, Any]:
    """Return a whole payload: `head`, the maps, and as much of the table as `limit` allows."""
    where = places(part.names)
    ranks = {state: at for at, state in enumerate(part.order)}
    code = np.fromiter((ranks[state] for state in part.states), np.int64, len(part.names))
    order = np.argsort(2 * code + np.where(part.prominent, 0, 1), kind="stable")
    cell = np.full(len(part.names), -1, dtype=np.int64)
    maps, first = [], 0
    for grid in grids(where):
        for at, members in enumerate(grid.members):
            cell[members] = first + at
        maps.append(_map(grid, part) | {"first": first})
        first += len(grid.members)
    data = {
        **strict(dict(head)),
        "ramp": list(RAMP),
        "states": list(part.order),
        "words": dict(part.words),
        "modes": [_mode(mode, part) for mode in part.modes],
        "maps": maps,
    }
    return _bounded(data, part, order, cell, limit)


def _mode(mode: Mapping[str, Any], part: Part) -> dict[str, Any]:
    if mode["kind"] == "state" or "low" in mode:
        return dict(mode)
    low, high = span(scale(part.numbers[mode["key"]][part.prominent], mode["kind"]))
    return {**mode, "low": significant(low), "high": significant(high)}


def _map(grid: Grid, part: Part) -> dict[str, Any]:
    shown = cells(grid, part.states, part.order, part.numbers)
    codes = {state: at for at, state in enumerate(part.order)}
    return {
        "stack": grid.stack,
        "layers": list(grid.layers),
        "labels": list(grid.labels),
        "kinds": list(grid.kinds),
        "row": grid.row.tolist(),
        "column": grid.column.tolist(),
        "state": [codes[state] for state in shown.state],
        "odd": list(shown.odd),
        "count": list(shown.count),
        "numbers": {name: rounded(column, 3) for name, column in shown.numbers.items()},
    }


def _bounded(
    data: dict[str, Any], part: Part, order: Column, cell: Column, limit: int | None
) -> dict[str, Any]:
    """Add the table: all of it, or as much as fits; details go first, then rows, from the end."""
    rows = details = len(order)
    if limit is not None:
        rows, details = min(rows, 60_000), min(details, 6_000)
    while True:
        # Every number was made finite or None where it came in: no walk through all of it again.
        whole = data | {"tensors": _table(part, order, cell, rows, details)}
        if limit is None or rows == 0 or _packed(whole) <= limit:
            return whole
        if details > 60:
            details //= 2
        else:
            rows //= 2
            details = min(details, rows)


def _packed(data: Any) -> int:
    return len(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 6))


def _table(part: Part, order: Column, cell: Column, rows: int, details: int) -> dict[str, Any]:
    at = order[:rows]
    names = [part.names[i] for i in at]
    codes = {state: code for code, state in enumerate(part.order)}
    template = np.zeros(len(at), dtype=np.int64)
    index: list[Any] = [[]] * len(at)
    templates = []
    for number, group in enumerate(group_names(names)):
        templates.append(group.template if group.index.shape[1] else names[group.at[0]])
        template[group.at] = number
        for position, row in zip(group.at.tolist(), group.index.tolist(), strict=True):
            index[position] = row
    shapes: dict[Any, int] = {}
    kinds: dict[Any, int] = {}
    return {
        "templates": templates,
        "template": template.tolist(),
        "index": index,
        "state": [codes[part.states[i]] for i in at],
        "cell": cell[at].tolist(),
        "shape": [shapes.setdefault(part.shapes[i], len(shapes)) for i in at],
        "dtype": [kinds.setdefault(part.dtypes[i], len(kinds)) for i in at],
        "shapes": [list(shape) for shape in shapes],
        "dtypes": list(kinds),
        "numbers": {
            column["key"]: rounded(part.numbers[column["key"]][at], 3) for column in part.columns
        },
        "columns": [dict(column) for column in part.columns],
        "details": [part.detail(int(i)) for i in at[:details]],
        "rows": len(order),
        "left_out": len(order) - len(at),
        "details_left_out": max(len(at) - details, 0),
    }
