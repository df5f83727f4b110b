"""How a `KeyDiff` is written: the schema ``workbench.keydiff/1``, with its types."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct

from workbench.checkpoint.records import TensorGroup
from workbench.checkpoint.templates import Rows, group_names
from workbench.core.saving import Saved
from workbench.loaders.outcome import (
    Gap,
    KeyGroup,
    KeyStatus,
    Outcome,
    ParameterGroup,
    ParameterStatus,
)
from workbench.loaders.profile import Basis

Count = Annotated[int, Meta(ge=0)]


class Rename(Struct, frozen=True, omit_defaults=False):
    """A rule that brings lost keys to parameters that lack them, with its proof.

    Attributes
    ----------
    steps
        The rule: pairs of regular expression and replacement, applied in turn to every key.
    example
        One key before and after.
    renamed
        How many keys it renames.
    proved
        Every renamed key lands one-to-one on a tensor that the model lacks, of the same shape and a
        compatible dtype, every key that loads without the rule still does, and nothing is left behind.
    proof
        What was checked, in words.
    fuses
        Keys that are joined along their first dimension afterwards, as (parts, whole) text.
    leaves_keys, leaves_parameters
        What a partial proof leaves lost, and leaves unfilled.
    by_name
        False where some renamed key has so little of its name in common with the new one that only the
        shape supports it: such a rule is shown, and never chosen.
    pairs
        By template: what is lost, its new name, and the parameter where that lands.
    chosen
        True for the one rule to apply: proved, and the only proved one.
    text
        The rule in one line; it follows from the rule, whatever a file says.
    """

    steps: tuple[tuple[str, str], ...] = msgspec.field(name="rule")
    example: tuple[str, str]
    renamed: Count
    proved: bool
    proof: str
    fuses: tuple[tuple[str, str], ...] = ()
    leaves_keys: tuple[str, ...] = ()
    leaves_parameters: tuple[str, ...] = ()
    by_name: bool = True
    pairs: tuple[tuple[str, str, str], ...] = ()
    chosen: bool = False
    text: str = ""

    def __post_init__(self) -> None:
        steps = [f"{pattern} -> {new or '(nothing)'}" for pattern, new in self.steps]
        fused = [f"{parts} fused into {whole}" for parts, whole in self.fuses]
        msgspec.structs.force_setattr(self, "text", ", then ".join(steps + fused))


class VersionAnswer(Struct, frozen=True):
    """What one of several tried versions does, where none was named.

    ``span`` is the range of releases that it stands for.
    """

    version: str
    ok: bool | None
    text: str
    span: str = ""


def _rows(index: list[list[int]]) -> Rows:
    """Return one row of indices a name."""
    return np.array(index, dtype=np.int64).reshape(len(index), len(index[0]) if index else 0)


class Keys(Struct, frozen=True):
    """One `KeyGroup`, written."""

    status: KeyStatus
    template: str
    at: list[Count]
    index: list[list[Count]]
    shape: tuple[Count, ...]
    dtype: str
    parameter: str
    reason: str
    place: str

    @classmethod
    def of(cls, group: KeyGroup) -> Keys:
        """Return a group of keys as it is written."""
        tensors = group.tensors
        return cls(
            status=group.status,
            template=tensors.template,
            at=tensors.at.tolist(),
            index=tensors.index.tolist(),
            shape=tensors.shape,
            dtype=tensors.dtype,
            parameter=group.parameter,
            reason=group.reason,
            place=group.place,
        )

    def group(self) -> KeyGroup:
        """Return the group of keys."""
        at = np.array(self.at, dtype=np.int64)
        if len(at) != len(self.index):
            raise ValueError(f"{self.template} has {len(at)} positions and {len(self.index)} names")
        tensors = TensorGroup(self.template, at, _rows(self.index), self.shape, self.dtype)
        return KeyGroup(self.status, tensors, self.parameter, self.reason, self.place)


class Parameters(Struct, frozen=True):
    """One `ParameterGroup`, written."""

    status: ParameterStatus
    template: str
    index: list[list[Count]]
    shape: tuple[Count, ...] | None
    fraction: Annotated[float, Meta(ge=0, le=1)]
    wanted: tuple[str, ...]
    source: str
    unused: str

    @classmethod
    def of(cls, group: ParameterGroup) -> Parameters:
        """Return a group of parameters as it is written."""
        return cls(
            status=group.status,
            template=group.template,
            index=group.index.tolist(),
            shape=group.shape,
            fraction=group.fraction,
            wanted=group.wanted,
            source=group.source,
            unused=group.unused,
        )

    def group(self) -> ParameterGroup:
        """Return the group of parameters."""
        return ParameterGroup(
            status=self.status,
            template=self.template,
            index=_rows(self.index),
            shape=self.shape,
            fraction=self.fraction,
            lacks=tuple(Gap(g.template, g.index, None) for g in group_names(self.wanted)),
            source=self.source,
            unused=self.unused,
        )


class Details(Struct, frozen=True):
    """All keys and parameters, in groups; the lists of names follow from them."""

    keys: tuple[Keys, ...]
    parameters: tuple[Parameters, ...]


class SavedKeyDiff(Saved, frozen=True, kw_only=True):
    """The schema of a `KeyDiff`."""

    checkpoint: str
    model: str
    engine: str
    version: str
    model_class: str
    basis: Basis
    outcome: Outcome
    error: str
    place: str
    loaded: tuple[str, ...]
    dropped: tuple[str, ...]
    ignored: tuple[str, ...]
    mismatched: tuple[str, ...]
    missing: tuple[str, ...]
    partial: tuple[str, ...]
    shared: tuple[str, ...]
    unused: tuple[str, ...]
    written: tuple[str, ...]
    mismatched_parameters: tuple[str, ...]
    wanted: tuple[str, ...]
    renames: tuple[Rename, ...]
    versions: tuple[VersionAnswer, ...]
    log: tuple[str, ...]
    details: Details


# The lists of names among those fields.
SETS = (
    "loaded", "dropped", "ignored", "mismatched", "missing", "partial", "shared", "unused",
    "written", "mismatched_parameters", "wanted",
)  # fmt: skip
