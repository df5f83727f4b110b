"""Layers down, kinds of tensor across: the picture in which a layer that differs jumps to the eye.

A cell may stand for many tensors, such as the 384 experts of one layer: it shows the worst of them, and
how many there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.errors import shorten
from workbench.weights.names import Places, rank, short

LONGEST_LABEL = 32

At = np.ndarray[Any, np.dtype[np.int64]]
Column = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class Grid:
    """One stack of layers.

    Attributes
    ----------
    stack
        Its name, ``model.layers``; "" for what lies outside of layers, which is one row.
    layers
        The number of each row.
    kinds, labels
        Whole and short name of each column, in the order of the forward pass.
    row, column
        Of each cell that holds a tensor.
    members
        Positions of the tensors of each cell.
    """

    stack: str
    layers: tuple[int, ...]
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    row: At
    column: At
    members: tuple[At, ...]


def grids(places: Places) -> list[Grid]:
    """Return one grid a stack of layers, the largest first, and last what lies outside of layers."""
    if not len(places.layer):
        return []
    made = [_grid(places, code) for code in np.unique(places.stack).tolist()]
    return sorted(made, key=lambda grid: (not grid.stack, -len(grid.members), grid.stack))


def _grid(places: Places, stack: int) -> Grid:
    at = np.flatnonzero(places.stack == stack)
    layers, row = np.unique(places.layer[at], return_inverse=True)
    codes = np.unique(places.kind[at]).tolist()
    codes.sort(key=lambda code: rank(places.kinds[code]))
    place = np.zeros(len(places.kinds), dtype=np.int64)
    place[codes] = np.arange(len(codes))
    key = row.reshape(-1) * len(codes) + place[places.kind[at]]
    order = np.argsort(key, kind="stable")
    cells, first = np.unique(key[order], return_index=True)
    kinds = [places.kinds[code] for code in codes]
    return Grid(
        stack=places.stacks[stack],
        layers=tuple(layers.tolist()),
        kinds=tuple(kinds),
        labels=tuple(shorten(label, LONGEST_LABEL) for label in short(kinds)),
        row=cells // len(codes),
        column=cells % len(codes),
        members=tuple(np.split(at[order], first[1:])),
    )


@dataclasses.dataclass(frozen=True)
class Cells:
    """What each cell of a grid shows: the worst state, how many tensors are in it, and numbers.

    `numbers` has for each name the value of the cell's tensor, the median of several.
    """

    state: tuple[str, ...]
    odd: tuple[int, ...]
    count: tuple[int, ...]
    numbers: Mapping[str, Column]


def cells(grid: Grid, states: Column, order: Sequence[str], numbers: Mapping[str, Column]) -> Cells:
    """Summarise the tensors of each cell; `order` has the worst state first."""
    ranks = {state: at for at, state in enumerate(order)}
    code = np.fromiter((ranks.get(state, len(order)) for state in states), np.int64, len(states))
    worst = np.array([code[members].min() for members in grid.members], dtype=np.int64)
    odd = [int((code[m] == w).sum()) for m, w in zip(grid.members, worst, strict=True)]
    return Cells(
        state=tuple(order[w] if w < len(order) else "" for w in worst.tolist()),
        odd=tuple(odd),
        count=tuple(len(members) for members in grid.members),
        numbers={
            name: np.array([_median(column[members]) for members in grid.members])
            for name, column in numbers.items()
        },
    )


def _median(values: Column) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")


def scale(values: Column, kind: str) -> Column:
    """Return numbers on the scale they are coloured by: ``log``, or ``symlog`` around zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "log":
            return np.where(values > 0, np.log10(np.abs(values)), np.nan)
        return np.sign(values) * np.log10(1 + np.abs(values) / 0.1)


def span(values: Column) -> tuple[float, float]:
    """Return the ends of the colours of scaled numbers, without the farthest 1 % at each end."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low, high = np.quantile(finite, (0.01, 0.99)).tolist()
    if high - low < 0.2:  # all alike: no colours for noise
        middle = (low + high) / 2
        return middle - 0.5, middle + 0.5
    return low, high
