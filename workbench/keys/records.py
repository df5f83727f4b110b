"""The result of `diff_keys`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Self

from workbench.engines.outcome import KeyGroup, KeyStatus, Outcome, ParameterGroup, ParameterStatus
from workbench.engines.profile import Basis
from workbench.result import Finding, Result


@dataclasses.dataclass(frozen=True)
class Rename:
    """A rule that brings lost keys to parameters that lack them, with its proof.

    Attributes
    ----------
    steps
        The rule, as regular expression and replacement pairs that are applied in turn.
    example
        One key before and after.
    renamed
        How many keys it renames.
    proved
        Every renamed key lands one-to-one on a tensor that the model lacks, with the same shape and a
        compatible dtype, and nothing is left behind.
    leaves_keys, leaves_parameters
        What a partial proof leaves dropped, and leaves unfilled.
    """

    steps: tuple[tuple[str, str], ...]
    example: tuple[str, str]
    renamed: int
    proved: bool
    proof: str
    leaves_keys: tuple[str, ...] = ()
    leaves_parameters: tuple[str, ...] = ()
    chosen: bool = False


@dataclasses.dataclass(frozen=True)
class KeyDiff(Result):
    """What an engine does with a checkpoint's keys. See `workbench.diff_keys`."""

    schema: ClassVar[str] = "workbench.keydiff/1"

    checkpoint: str
    model: str
    engine: str
    version: str
    model_class: str
    basis: Basis
    outcome: Outcome
    ok: bool | None
    error: str
    keys: tuple[KeyGroup, ...]
    parameters: tuple[ParameterGroup, ...]
    renames: tuple[Rename, ...] = ()
    findings: tuple[Finding, ...] = ()
    versions: tuple[tuple[str, bool | None, str], ...] = ()
    log: tuple[str, ...] = ()

    def _keys(self, status: KeyStatus) -> tuple[str, ...]:
        return tuple(name for group in self.keys if group.status == status for name in group.names)

    def _parameters(self, status: ParameterStatus) -> tuple[str, ...]:
        return tuple(n for group in self.parameters if group.status == status for n in group.names)

    @cached_property
    def loaded(self) -> tuple[str, ...]:
        """Keys that reach a parameter, or that the engine keeps on purpose (``d2t``)."""
        return self._keys("loaded")

    @cached_property
    def dropped(self) -> tuple[str, ...]:
        """Keys that reach no parameter."""
        return self._keys("dropped")

    @cached_property
    def ignored(self) -> tuple[str, ...]:
        """Keys that the engine skips on purpose."""
        return self._keys("ignored")
