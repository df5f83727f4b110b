"""Tensors in columns: 200,000 of them are a few dozen arrays, and a row is built when asked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from workbench.errors import WorkbenchError, shorten, shown
from workbench.weights.records import Family, JudgedPart, Judgement, Measure, Verdict

Column = np.ndarray[Any, np.dtype[Any]]

# How the fields of `Measure` and `Judgement` are kept.
_INTS = ("count", "seen", "zeros", "nan", "inf", "denormal", "stage")
_FLOATS = (
    "mean", "std", "min", "max", "absmax", "skew", "kurtosis", "rank_error", "top_exponent_share",
    "empty_rows", "empty_columns", "copied_rows",
)  # fmt: skip
_OPTIONAL = ("row_dispersion", "column_dispersion", "exact_in_fp16", "sigma", "power")
_CODED = ("shape", "dtype", "layout", "verdict", "family")
_OBJECTS = ("reason", "power_text", "digest", "corroboration", "parts")

# Histograms are for drawing. A checkpoint of 200,000 tensors keeps them of so many: first of those that are
# not plainly trained, then in order.
MOST_HISTOGRAMS = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class ScannedTensor(Measure):
    """One tensor of a scan: what was measured (`Measure`) and what is concluded (`Judgement`)."""

    verdict: Verdict = "undecided"
    reason: str = ""
    family: Family = ""
    sigma: float | None = None
    corroboration: tuple[str, ...] = ()
    power: float | None = None
    power_text: str = ""
    statistics: tuple[tuple[str, float], ...] = ()
    stage: int = 1
    parts: tuple[JudgedPart, ...] = ()

    @property
    def is_matrix(self) -> bool:
        """Whether it has two dimensions or more that are longer than one."""
        return sum(size > 1 for size in self.shape) > 1


Pair = tuple[Measure, Judgement]
_MEASURED, _CONCLUDED = dataclasses.fields(Measure), dataclasses.fields(Judgement)
_JUDGED = tuple(field.name for field in _CONCLUDED)


class Tensors(Sequence[ScannedTensor]):
    """The tensors of a scan, by number or by name: ``scan.tensors[0]``, ``scan.tensors["lm_head.weight"]``.

    Attributes
    ----------
    names
        Their names, in the order of the scan.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        pairs = list(pairs)
        measures = [measure for measure, _ in pairs]
        judged = [judgement for _, judgement in pairs]
        self.names: tuple[str, ...] = tuple(measure.name for measure in measures)
        self._columns: dict[str, Column] = {}
        self._objects: dict[str, list[Any]] = {}
        self._codes: dict[str, tuple[Any, ...]] = {}
        for name in (*_INTS, *_FLOATS, *_OPTIONAL, *_CODED, *_OBJECTS):
            rows = judged if name in _JUDGED else measures
            self._keep(name, [getattr(row, name) for row in rows])
        levels = max((len(measure.quantiles) for measure in measures), default=0)
        self._quantiles = np.full((len(pairs), levels), np.nan)
        self._ks = np.full((len(pairs), 3), np.nan)
        self._has_ks = np.zeros(len(pairs), dtype=bool)
        for at, measure in enumerate(measures):
            self._quantiles[at, : len(measure.quantiles)] = measure.quantiles
            if measure.ks is not None:
                self._ks[at], self._has_ks[at] = measure.ks, True
        self._statistics = _statistics(judged)
        self._bins = self._histograms(measures)

    def _keep(self, name: str, values: list[Any]) -> None:
        if name in _INTS:
            self._columns[name] = np.array(values, dtype=np.int64)
        elif name in _CODED:
            codes: dict[Any, int] = {}
            at = [codes.setdefault(value, len(codes)) for value in values]
            self._columns[name], self._codes[name] = np.array(at, dtype=np.int32), tuple(codes)
        elif name in _OBJECTS:
            self._objects[name] = values
        else:
            numbers = [np.nan if value is None else value for value in values]
            self._columns[name] = np.array(numbers, dtype=np.float64)

    def _histograms(self, measures: list[Measure]) -> dict[int, tuple[Column, Column]]:
        having = [at for at, measure in enumerate(measures) if measure.bins is not None]
        if len(having) > MOST_HISTOGRAMS:
            verdicts = self.column("verdict")
            having.sort(key=lambda at: (verdicts[at] == "trained", at))
        kept = {}
        for at in having[:MOST_HISTOGRAMS]:
            edges, counts = measures[at].bins or ((), ())
            kept[at] = np.array(edges, dtype=np.float64), np.array(counts, dtype=np.int64)
        return kept

    def column(self, name: str) -> Column:
        """Return one field of all tensors: numbers as they are (None as NaN), texts as objects."""
        if name == "name":
            return np.array(self.names, dtype=object)
        if name in self._objects:
            return _objects(self._objects[name])
        if name in self._codes:
            return _objects(self._codes[name])[self._columns[name]]
        return self._columns[name]

    def statistic(self, name: str) -> Column:
        """Return one statistic of all tensors, NaN where a tensor has none."""
        found = self._statistics.get(name)
        return np.full(len(self.names), np.nan) if found is None else found

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the statistics that any tensor has."""
        return tuple(self._statistics)

    def histogram(self, at: int) -> tuple[Column, Column] | None:
        """Return edges and counts of a tensor's histogram; None where it has none, or too many had one."""
        return self._bins.get(at)

    @property
    def quantiles(self) -> Column:
        """The quantiles of all tensors at `QUANTILES`, one row a tensor."""
        return self._quantiles

    @cached_property
    def is_matrix(self) -> Column:
        """Which tensors have two dimensions or more that are longer than one."""
        flags = [sum(size > 1 for size in shape) > 1 for shape in self._codes["shape"]]
        return np.array(flags, dtype=bool)[self._columns["shape"]]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    def position(self, name: str) -> int:
        """Return the number of the tensor of that name.

        Raises
        ------
        WorkbenchError
            There is none; the message names the ones that are nearest.
        """
        at = self._position.get(name)
        if at is not None:
            return at
        from difflib import get_close_matches

        tail = str(name).rsplit(".", 2)[-1]
        near = [known for known in self.names if known.endswith(tail)][:2000]
        close = get_close_matches(str(name), near or list(self.names[:2000]), n=3)
        step = f"Did you mean {', '.join(shorten(known, 140) for known in close)}?"
        raise WorkbenchError(
            f"the scan has no tensor {shown(name)}",
            next_step=step if close else "See .tensors.names for what there is.",
        )

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._position if isinstance(name, str) else super().__contains__(name)

    @overload
    def __getitem__(self, at: int | str) -> ScannedTensor: ...
    @overload
    def __getitem__(self, at: slice) -> list[ScannedTensor]: ...
    def __getitem__(self, at: int | str | slice) -> ScannedTensor | list[ScannedTensor]:
        if isinstance(at, slice):
            return [self._row(i) for i in range(len(self))[at]]
        if isinstance(at, str):
            return self._row(self.position(at))
        return self._row(range(len(self))[at])

    def __iter__(self) -> Iterator[ScannedTensor]:
        return (self._row(at) for at in range(len(self)))

    def pairs(self) -> Iterator[Pair]:
        """Yield each tensor as what was measured and what was concluded."""
        for row in self:
            yield (
                Measure(**{field.name: getattr(row, field.name) for field in _MEASURED}),
                Judgement(**{field.name: getattr(row, field.name) for field in _CONCLUDED}),
            )

    def __repr__(self) -> str:
        return f"<{len(self):,} scanned tensors>"

    def _row(self, at: int) -> ScannedTensor:
        values: dict[str, Any] = {"name": self.names[at]}
        for name in _INTS:
            values[name] = int(self._columns[name][at])
        for name in _FLOATS:
            values[name] = float(self._columns[name][at])
        for name in _OPTIONAL:
            number = float(self._columns[name][at])
            values[name] = None if math.isnan(number) else number
        for name in _CODED:
            values[name] = self._codes[name][self._columns[name][at]]
        for name in _OBJECTS:
            values[name] = self._objects[name][at]
        values["quantiles"] = tuple(self._quantiles[at].tolist())
        values["ks"] = tuple(self._ks[at].tolist()) if self._has_ks[at] else None
        values["statistics"] = tuple(
            (name, float(column[at]))
            for name, column in self._statistics.items()
            if not math.isnan(column[at])
        )
        bins = self._bins.get(at)
        values["bins"] = None if bins is None else tuple(tuple(part.tolist()) for part in bins)
        return ScannedTensor(**values)


def _objects(values: Sequence[Any]) -> Column:
    """Return values as one column of objects, also where they are sequences themselves."""
    column = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        column[at] = value
    return column


def _statistics(judged: list[Judgement]) -> dict[str, Column]:
    """Return one column a statistic, NaN where a tensor has none."""
    columns: dict[str, Column] = {}
    for at, judgement in enumerate(judged):
        for name, value in judgement.statistics:
            if name not in columns:
                columns[name] = np.full(len(judged), np.nan)
            columns[name][at] = value
    return columns
