"""What a loader did with a checkpoint, or would do: the same record for a real run and a profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from workbench.checkpoint.records import TensorGroup
from workbench.checkpoint.templates import Rows, describe, fill
from workbench.loaders.profile import Basis

KeyStatus = Literal["loaded", "dropped", "ignored", "mismatched"]
ParameterStatus = Literal["written", "partial", "missing", "shared", "mismatched"]
Outcome = Literal["loads", "raises", "refused"]


@dataclasses.dataclass(frozen=True)
class KeyGroup:
    """Checkpoint keys of one template, shape, dtype and fate.

    Attributes
    ----------
    tensors
        The keys: names, indices, positions in the checkpoint, shape and dtype.
    parameter
        Where they land, ``{0}`` standing for the first index; "" where they land nowhere; several
        parameters are joined by " + ".
    """

    status: KeyStatus
    tensors: TensorGroup
    parameter: str = ""
    reason: str = ""
    place: str = ""

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def names(self) -> list[str]:
        """The keys' names, built on access."""
        return self.tensors.names

    @property
    def text(self) -> str:
        """The whole group in one line, ``layers.{0...23}.self_attn.q_proj.weight``."""
        return describe(self.tensors.template, self.tensors.index)

    def parameters(self) -> list[str]:
        """Return the parameter each key lands in, "" for none."""
        return fill(self.parameter, self.tensors.index)


@dataclasses.dataclass(frozen=True)
class Gap:
    """Tensors of one template that the model takes and the checkpoint does not bring.

    ``optional``: nothing is wrong without them (the target fills the parameter, say).
    """

    template: str
    index: Rows
    shape: tuple[int, ...] | None
    optional: bool = False

    @property
    def names(self) -> list[str]:
        """The tensors' names, as the engine spells them."""
        return fill(self.template, self.index)


@dataclasses.dataclass(frozen=True)
class ParameterGroup:
    """Parameters of one template, shape and state.

    Attributes
    ----------
    fraction
        Share of each that was written, 0 to 1.
    lacks
        The tensors that would have filled the rest, all rows together.
    source
        For ``shared``: what fills it.
    unused
        Why no forward pass reads it, "" where it is read.
    """

    status: ParameterStatus
    template: str
    index: Rows
    shape: tuple[int, ...] | None
    fraction: float
    lacks: tuple[Gap, ...] = ()
    source: str = ""
    unused: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(fill(self.template, self.index))

    @property
    def wanted(self) -> tuple[str, ...]:
        """The engine's names of the tensors that it lacks."""
        return tuple(name for gap in self.lacks for name in gap.names)

    @property
    def text(self) -> str:
        """The whole group in one line."""
        return describe(self.template, self.index)


@dataclasses.dataclass(frozen=True)
class LoadOutcome:
    """Where every key went and how every parameter was filled.

    Where the loader stops at a key, `error` says at which and why, and the groups describe the run with the
    offending keys (``mismatched``) taken out: all of them are named, not only the first. `doubled` names
    the tensors that more than one key was written to, the last one winning.
    """

    engine: str
    version: str
    model_class: str
    basis: Basis
    outcome: Outcome
    keys: tuple[KeyGroup, ...]
    parameters: tuple[ParameterGroup, ...]
    error: str = ""
    place: str = ""
    log: tuple[str, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    doubled: tuple[str, ...] = ()
