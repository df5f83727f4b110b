"""The result of `diff_keys`: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar, Self

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.keys.saved import (
    SETS,
    Details,
    Keys,
    Parameters,
    Rename,
    SavedKeyDiff,
    VersionAnswer,
)
from workbench.loaders.outcome import KeyGroup, KeyStatus, Outcome, ParameterGroup, ParameterStatus
from workbench.loaders.profile import Basis

__all__ = ["KeyDiff", "Rename", "VersionAnswer"]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class KeyDiff(Result):
    """What an engine does with a checkpoint's keys, as `workbench.diff_keys` found it.

    Every key is in exactly one of `loaded`, `dropped`, `ignored` and `mismatched`; every parameter in
    exactly one of `written`, `partial`, `missing`, `shared` and `mismatched_parameters`.

    Attributes
    ----------
    verdict
        The answer, with every key, parameter and contract that it covers. ``ok``: True: all is loaded as it
        should be. False: something is wrong. None: cannot tell.
    outcome
        ``loads``, ``raises``, or ``refused``: the engine does not accept the config (the sets are then
        those of the flattened config).
    basis
        ``traced``: the real loader ran. ``profile_verified``: this version's profile was checked
        against its real loader. ``harvested``: this class's real loader ran on synthetic keys in this
        release. ``profile_source_read``: it was read from the source.
    keys, parameters
        All keys and parameters in groups of one template and state: the columns behind the lists.
    versions
        Where no version was named: the answer of each version tried.
    """

    schema: ClassVar[str] = "workbench.keydiff/1"
    Saved: ClassVar[type[Saved]] = SavedKeyDiff

    checkpoint: str
    model: str
    engine: str
    version: str
    model_class: str
    basis: Basis
    outcome: Outcome
    verdict: Verdict
    keys: tuple[KeyGroup, ...]
    parameters: tuple[ParameterGroup, ...]
    error: str = ""
    place: str = ""
    renames: tuple[Rename, ...] = ()
    findings: tuple[Finding, ...] = ()
    versions: tuple[VersionAnswer, ...] = ()
    log: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"{self.checkpoint} in {self.engine_text}"

    @property
    def engine_text(self) -> str:
        """The engine with its version and model class: ``sglang 0.5.11, LlamaForCausalLMEagle3``."""
        engine = f"{self.engine} {self.version}".strip()
        return f"{engine}, {self.model_class}" if self.model_class else engine

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
        """Keys that the engine skips on purpose, such as ``t2d``."""
        return self._keys("ignored")

    @cached_property
    def mismatched(self) -> tuple[str, ...]:
        """Keys whose shape or dtype is not what the parameter wants."""
        return self._keys("mismatched")

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Parameters that nothing writes."""
        return self._parameters("missing")

    @cached_property
    def partial(self) -> tuple[str, ...]:
        """Fused parameters that are written in part; `wanted` names what they lack."""
        return self._parameters("partial")

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Parameters that the engine fills from the target."""
        return self._parameters("shared")

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Parameters that are written whole."""
        return self._parameters("written")

    @cached_property
    def mismatched_parameters(self) -> tuple[str, ...]:
        """Parameters that only a tensor of a wrong shape came for."""
        return self._parameters("mismatched")

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """Parameters that are loaded and then read by no forward pass."""
        return tuple(name for group in self.parameters if group.unused for name in group.names)

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The engine's names of the tensors that missing and partial parameters lack."""
        return tuple(
            name
            for group in self.parameters
            if group.status in ("missing", "partial")
            for name in group.wanted
        )

    def _keys(self, status: KeyStatus) -> tuple[str, ...]:
        return tuple(name for group in self.keys if group.status == status for name in group.names)

    def _parameters(self, status: ParameterStatus) -> tuple[str, ...]:
        return tuple(n for group in self.parameters if group.status == status for n in group.names)

    def counts(self) -> dict[str, int]:
        """Return how many keys and parameters are in each state."""
        found: dict[str, int] = {}
        for group in self.keys:
            found[group.status] = found.get(group.status, 0) + len(group)
        for at in self.parameters:
            state = "mismatched_parameters" if at.status == "mismatched" else at.status
            found[state] = found.get(state, 0) + len(at.index)
        return found

    def fate(self) -> tuple[object, ...]:
        """Return what makes two versions' answers the same: the verdict and where the keys go."""
        return self.ok, set(self.dropped), set(self.ignored), set(self.mismatched)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a key, then one a parameter that is not simply written."""
        for key in self.keys:
            lands = key.parameters() if key.parameter else []
            for name, parameter in zip_longest(key.names, lands, fillvalue=""):
                yield {
                    "name": name,
                    "status": key.status,
                    "shape": key.tensors.shape,
                    "dtype": key.tensors.dtype,
                    "parameter": parameter,
                    "reason": key.reason,
                    "place": key.place,
                }
        for at in self.parameters:
            if at.status == "written":
                continue
            for name in at.names:
                yield {
                    "name": "",
                    "status": at.status,
                    "shape": at.shape,
                    "dtype": "",
                    "parameter": name,
                    "reason": at.source or at.unused,
                    "place": "",
                }

    def saved(self) -> SavedKeyDiff:
        """Return the diff as it is written; each set is a list of names, ``details`` holds the rest."""
        return SavedKeyDiff(
            **fields_of(self),
            **{name: getattr(self, name) for name in (*_PLAIN, *SETS)},
            details=Details(
                tuple(map(Keys.of, self.keys)), tuple(map(Parameters.of, self.parameters))
            ),
        )

    @classmethod
    def restored(cls, saved: SavedKeyDiff, verdict: Verdict) -> Self:
        """Rebuild the diff; its lists of names follow from ``details`` and must be those in the file."""
        made = cls(
            **{name: getattr(saved, name) for name in _PLAIN},
            verdict=verdict,
            keys=tuple(group.group() for group in saved.details.keys),
            parameters=tuple(group.group() for group in saved.details.parameters),
            findings=saved.findings,
            notes=saved.notes,
        )
        for name in SETS:
            if getattr(made, name) != getattr(saved, name):
                raise ValueError(f"`{name}` lists other names than `details`")
        return made

    def contradiction(self) -> str:
        """Return which list contradicts an all-clear."""
        if self.ok is not True:
            return ""
        for name in ("dropped", "missing", "partial", "mismatched", "mismatched_parameters"):
            if getattr(self, name):
                return f"{len(getattr(self, name))} are {name.partition('_')[0]}"
        if self.outcome != "loads":
            return f"the outcome is {self.outcome}"
        for answer in self.versions:
            if answer.ok is not True:
                return f"it is not true in {answer.span or answer.version}"
        counted = {item.kind: 0 for item in self.verdict.coverage.items}
        for item in self.verdict.coverage.items:
            counted[item.kind] += item.count
        keys = sum(map(len, self.keys))
        if "key" in counted and counted["key"] != keys:
            return f"the coverage has {counted['key']} of {keys} keys"
        if "result" not in counted and "key" not in counted and keys:
            return f"the coverage has none of {keys} keys"
        broken = [f for f in self.findings if f.changes_output and f.severity != "note"]
        return f"a finding changes the output: {broken[0].title}" if broken else ""


_PLAIN = (
    "checkpoint", "model", "engine", "version", "model_class", "basis", "outcome", "error", "place",
    "renames", "versions", "log",
)  # fmt: skip
