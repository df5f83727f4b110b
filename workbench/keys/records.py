"""The result of `diff_keys`: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar, Self

import numpy as np

from workbench.checkpoint.records import TensorGroup
from workbench.checkpoint.templates import group_names
from workbench.engines.outcome import (
    Gap,
    KeyGroup,
    KeyStatus,
    Outcome,
    ParameterGroup,
    ParameterStatus,
)
from workbench.engines.profile import Basis
from workbench.result import Finding, Result


@dataclasses.dataclass(frozen=True)
class Rename:
    """A rule that brings lost keys to parameters that lack them, with its proof.

    Attributes
    ----------
    steps
        The rule: pairs of regular expression and replacement, applied in turn to every key.
    fuses
        Keys that are joined along their first dimension afterwards, as (parts, whole) text.
    example
        One key before and after.
    renamed
        How many keys it renames.
    proved
        Every renamed key lands one-to-one on a tensor that the model lacks, of the same shape and a
        compatible dtype, every key that loads without the rule still does, and nothing is left behind.
    proof
        What was checked, in words.
    leaves_keys, leaves_parameters
        What a partial proof leaves lost, and leaves unfilled.
    by_name
        False where some renamed key has so little of its name in common with the new one that only the
        shape speaks for it: such a rule is shown, and never chosen.
    pairs
        By template: what is lost, its new name, and the parameter where that lands.
    chosen
        True for the one rule to apply: proved, and the only proved one.
    """

    steps: tuple[tuple[str, str], ...]
    example: tuple[str, str]
    renamed: int
    proved: bool
    proof: str
    fuses: tuple[tuple[str, str], ...] = ()
    leaves_keys: tuple[str, ...] = ()
    leaves_parameters: tuple[str, ...] = ()
    by_name: bool = True
    pairs: tuple[tuple[str, str, str], ...] = ()
    chosen: bool = False

    @property
    def text(self) -> str:
        """The rule in one line: each pattern with its replacement."""
        steps = [f"{pattern} -> {new or '(nothing)'}" for pattern, new in self.steps]
        return ", then ".join(
            steps + [f"{parts} fused into {whole}" for parts, whole in self.fuses]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        return {
            "rule": [list(step) for step in self.steps],
            "fuses": [list(fuse) for fuse in self.fuses],
            "example": list(self.example),
            "renamed": self.renamed,
            "proved": self.proved,
            "proof": self.proof,
            "leaves_keys": list(self.leaves_keys),
            "leaves_parameters": list(self.leaves_parameters),
            "by_name": self.by_name,
            "pairs": [list(pair) for pair in self.pairs],
            "chosen": self.chosen,
            "text": self.text,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the rule from `to_dict`."""
        return cls(
            steps=tuple((a, b) for a, b in data["rule"]),
            fuses=tuple((a, b) for a, b in data["fuses"]),
            example=(data["example"][0], data["example"][1]),
            renamed=data["renamed"],
            proved=data["proved"],
            proof=data["proof"],
            leaves_keys=tuple(data["leaves_keys"]),
            leaves_parameters=tuple(data["leaves_parameters"]),
            by_name=data["by_name"],
            pairs=tuple((a, b, c) for a, b, c in data["pairs"]),
            chosen=data["chosen"],
        )


@dataclasses.dataclass(frozen=True, slots=True)
class VersionAnswer:
    """What one of several tried versions does, where none was named.

    ``span`` is the range of releases that it stands for.
    """

    version: str
    ok: bool | None
    text: str
    span: str = ""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class KeyDiff(Result):
    """What an engine does with a checkpoint's keys, as `workbench.diff_keys` found it.

    Every key is in exactly one of `loaded`, `dropped`, `ignored` and `mismatched`; every parameter in
    exactly one of `written`, `partial`, `missing`, `shared` and `mismatched_parameters`.

    Attributes
    ----------
    ok
        True: all is loaded as it should be. False: something is wrong. None: cannot tell.
    outcome
        ``loads``, ``raises``, or ``refused``: the engine does not accept the config (the sets are then
        those of the flattened config).
    basis
        ``traced``: the real loader ran. ``profile_verified``: this version's profile was checked
        against its real loader. ``profile_source_read``: it was read from the source.
    summary
        The verdict in one line.
    keys, parameters
        All keys and parameters in groups of one template and state: the columns behind the lists.
    versions
        Where no version was named: the answer of each version tried.
    """

    schema: ClassVar[str] = "workbench.keydiff/1"

    checkpoint: str
    model: str
    engine: str
    version: str
    model_class: str
    basis: Basis
    outcome: Outcome
    ok: bool | None
    summary: str
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyDiff) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.checkpoint, self.model, self.engine_text, self.summary))

    def __bool__(self) -> bool:
        """Return True only where `ok` is: ``if diff_keys(...)`` may not let a broken draft through."""
        return self.ok is True

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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; each set is a list of names, ``details`` holds the rest."""
        return {
            "schema": self.schema,
            "checkpoint": self.checkpoint,
            "model": self.model,
            "engine": self.engine,
            "version": self.version,
            "model_class": self.model_class,
            "basis": self.basis,
            "outcome": self.outcome,
            "ok": self.ok,
            "summary": self.summary,
            "error": self.error,
            "place": self.place,
            **{name: list(getattr(self, name)) for name in SETS},
            "renames": [rename.to_dict() for rename in self.renames],
            "findings": [finding.to_dict() for finding in self.findings],
            "versions": [dataclasses.asdict(answer) for answer in self.versions],
            "log": list(self.log),
            "notes": list(self.notes),
            "details": {
                "keys": [_key_to_dict(group) for group in self.keys],
                "parameters": [_parameter_to_dict(group) for group in self.parameters],
            },
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the result from `to_dict`; the lists of names follow from ``details``."""
        plain = ("checkpoint", "model", "engine", "version", "model_class", "basis", "outcome")
        return cls(
            **{name: data[name] for name in (*plain, "ok", "summary", "error", "place")},
            keys=tuple(_key_from_dict(group) for group in data["details"]["keys"]),
            parameters=tuple(_parameter_from_dict(g) for g in data["details"]["parameters"]),
            renames=tuple(Rename.from_dict(rename) for rename in data["renames"]),
            findings=tuple(Finding.from_dict(finding) for finding in data["findings"]),
            versions=tuple(VersionAnswer(**answer) for answer in data["versions"]),
            log=tuple(data["log"]),
            notes=tuple(data["notes"]),
        )

    def to_text(self, width: int | None = None) -> str:
        """Return the diff as text: the verdict, the findings, then keys and parameters by template."""
        from workbench.keys.view import text

        return text(self, width)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.keys.view import payload

        return payload(self, limit)


# The lists of names in `KeyDiff.to_dict`.
SETS = (
    "loaded", "dropped", "ignored", "mismatched", "missing", "partial", "shared", "unused",
    "written", "mismatched_parameters", "wanted",
)  # fmt: skip


def _key_to_dict(group: KeyGroup) -> dict[str, Any]:
    tensors = group.tensors
    return {
        "status": group.status,
        "template": tensors.template,
        "at": tensors.at.tolist(),
        "index": tensors.index.tolist(),
        "shape": list(tensors.shape),
        "dtype": tensors.dtype,
        "parameter": group.parameter,
        "reason": group.reason,
        "place": group.place,
    }


def _key_from_dict(data: dict[str, Any]) -> KeyGroup:
    tensors = TensorGroup(
        template=data["template"],
        at=np.array(data["at"], dtype=np.int64),
        index=np.array(data["index"], dtype=np.int64).reshape(len(data["at"]), -1),
        shape=tuple(data["shape"]),
        dtype=data["dtype"],
    )
    return KeyGroup(data["status"], tensors, data["parameter"], data["reason"], data["place"])


def _parameter_to_dict(group: ParameterGroup) -> dict[str, Any]:
    return {
        "status": group.status,
        "template": group.template,
        "index": group.index.tolist(),
        "shape": None if group.shape is None else list(group.shape),
        "fraction": group.fraction,
        "wanted": list(group.wanted),
        "source": group.source,
        "unused": group.unused,
    }


def _parameter_from_dict(data: dict[str, Any]) -> ParameterGroup:
    shape = data["shape"]
    lacks = tuple(Gap(g.template, g.index, None) for g in group_names(data["wanted"]))
    plain = {name: value for name, value in data.items() if name != "wanted"}
    return ParameterGroup(
        **plain
        | {
            "lacks": lacks,
            "index": np.array(data["index"], dtype=np.int64),
            "shape": None if shape is None else tuple(shape),
        }
    )
