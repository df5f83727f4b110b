"""How a `WeightScan` and a `WeightComparison` are written, with their types; NaN is null."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

from msgspec import Meta, Struct

from workbench.core.saving import Saved
from workbench.weights.changes import Change
from workbench.weights.columns import Pair, ScannedTensor
from workbench.weights.records import Family, JudgedPart, Judgement, Kind, Measure, Verdict

Count = Annotated[int, Meta(ge=0)]
Number = float | None


class SavedTensor(Struct, frozen=True, omit_defaults=True):
    """One `ScannedTensor`, written."""

    name: str
    shape: tuple[Count, ...]
    dtype: str
    layout: str
    count: Count
    seen: Count
    mean: Number
    std: Number
    min: Number
    max: Number
    absmax: Number
    zeros: Count
    nan: Count
    inf: Count
    denormal: Count
    skew: Number
    kurtosis: Number
    quantiles: tuple[Number, ...]
    rank_error: Number
    row_dispersion: Number
    column_dispersion: Number
    empty_rows: Number
    empty_columns: Number
    ks: tuple[Number, Number, Number] | None
    exact_in_fp16: Number
    top_exponent_share: Number
    digest: str
    bins: tuple[tuple[float, ...], tuple[int, ...]] | None
    verdict: Verdict
    reason: str
    family: Family
    sigma: Number
    corroboration: tuple[str, ...]
    power: Number
    power_text: str
    statistics: dict[str, Number]
    stage: int
    parts: tuple[JudgedPart, ...] = ()
    copied_rows: Number = 0.0

    @classmethod
    def of(cls, row: ScannedTensor) -> SavedTensor:
        """Return a tensor as it is written."""
        plain = {name: getattr(row, name) for name in cls.__struct_fields__}
        return cls(**plain | {"statistics": dict(row.statistics)})

    def pair(self) -> Pair:
        """Return what was measured, and what was concluded.

        Raises
        ------
        ValueError
            The histogram does not have one edge more than bins.
        """
        if self.bins is not None and len(self.bins[0]) != len(self.bins[1]) + 1:
            raise ValueError(f"{len(self.bins[0])} edges of {len(self.bins[1])} bins")
        ks = None if self.ks is None else (_nan(self.ks[0]), _nan(self.ks[1]), _nan(self.ks[2]))
        measured = {name: getattr(self, name) for name in _MEASURED}
        measured |= {name: _nan(measured[name]) for name in _FLOATS}
        measured |= {"quantiles": tuple(map(_nan, self.quantiles)), "ks": ks}
        judged = {name: getattr(self, name) for name in _JUDGED}
        known = ((name, value) for name, value in self.statistics.items() if value is not None)
        return Measure(**measured), Judgement(**judged | {"statistics": tuple(known)})


_MEASURED = tuple(field.name for field in dataclasses.fields(Measure))
_JUDGED = tuple(field.name for field in dataclasses.fields(Judgement))
_FLOATS = (
    "mean", "std", "min", "max", "absmax", "skew", "kurtosis", "rank_error", "top_exponent_share",
    "empty_rows", "empty_columns", "copied_rows",
)  # fmt: skip


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


class SavedScan(Saved, frozen=True, kw_only=True):
    """The schema of a `WeightScan`."""

    source: str
    kind: Kind
    bytes_read: Count
    sampled: Count | None
    interrupted: bool
    tensors: tuple[SavedTensor, ...]


class SavedComparison(Saved, frozen=True, kw_only=True):
    """The schema of a `WeightComparison`."""

    before: str
    after: str
    same_bytes: tuple[tuple[str, str], ...]
    changes: tuple[Change, ...]
