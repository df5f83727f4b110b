"""What an engine's loader does with a checkpoint, as data: records only, no engine is imported.

A `Profile` describes one model class of one engine over a range of versions. It has two halves: `build`
says which tensors the class wants for a config (`Model`, a tuple of `Slot`), and `route` says where one
checkpoint key goes. `workbench.loaders.simulate` runs both on a whole checkpoint.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from packaging.version import Version

from workbench.checkpoint.templates import Rows

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

Basis = Literal["traced", "profile_verified", "harvested", "profile_source_read"]
Reaction = Literal["silent", "warning", "raises"]


class Refused(Exception):
    """The engine does not accept this config; `place` says where in its source that is decided."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.place = place


class NotCovered(Exception):
    """The engine may well take this config, but the profile does not describe it: cannot tell."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.place = place


@dataclasses.dataclass(frozen=True)
class Slot:
    """One template of tensors that a model takes from a checkpoint, each for one share of a parameter.

    Attributes
    ----------
    template
        The engine's own name of the tensor before fusing, ``{}`` for each index:
        ``model.layers.{}.self_attn.q_proj.weight``.
    parameter
        Where it lands: ``model.layers.{0}.self_attn.qkv_proj.weight``; ``{0}`` is the first index.
    index
        One row of indices a tensor, shape (n, number of ``{}``).
    shape
        Shape of one tensor as stored in the checkpoint; None where any shape is taken.
    fraction
        The share of the parameter that one tensor fills, 0 to 1.
    shard
        Which part of a fused parameter this is (``q``, ``gate``, ``expert``), for messages.
    joint
        Name of a set of slots that the loader only writes together: while one of them is absent for an
        index row, the others of that row are lost.
    alternative
        Another way to fill a parameter that has proper slots too (a ready-fused ``qkv_proj.weight``): taken
        when present, never called missing.
    optional
        The engine does without it (a default is right): never called missing.
    demanded
        The loader stops where nothing fills it, although it passes over others (`Profile.missing`).
    cut
        The dimension along which the loader cuts out its share, -1 for none: a tensor that is too long there
        is shortened silently.
    pad
        Whether one that is too short there is filled up with zeros silently.
    single
        Where any shape is taken: of one number only.
    dtypes
        The dtypes that were tried, as safetensors call them; empty where the dtype does not matter.
    """

    template: str
    parameter: str
    index: Rows = dataclasses.field(default_factory=lambda: np.zeros((1, 0), np.int64))
    shape: tuple[int, ...] | None = None
    fraction: float = 1.0
    shard: str = ""
    joint: str = ""
    alternative: bool = False
    optional: bool = False
    demanded: bool = False
    cut: int = -1
    pad: bool = False
    single: bool = False
    dtypes: frozenset[str] = frozenset()

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor of this shape is what the slot wants."""
        if self.shape is None:
            return not self.single or math.prod(shape) == 1
        return shape == self.shape

    def untried(self, shape: tuple[int, ...], dtype: str) -> str:
        """Return why nothing is known of a tensor: its dtype, or how it is laid out; "" otherwise."""
        if self.dtypes and dtype not in self.dtypes:
            return f"dtype {dtype}, where {' or '.join(sorted(self.dtypes))} was tried"
        size = 1 if self.shape is None else math.prod(self.shape)
        alike = bool(self.dtypes) and not self.fits(shape) and math.prod(shape) == size
        if alike or (self.single and not self.fits(shape)):
            return f"shape {list(shape)}, and others of this kind were tried"
        return ""

    def tolerates(self, shape: tuple[int, ...]) -> bool:
        """Return whether the loader takes a tensor of a shape other than `shape` says silently."""
        if self.shape is None:
            return True
        if not 0 <= self.cut < len(self.shape) or len(shape) != len(self.shape):
            return False
        have, want = shape[self.cut], self.shape[self.cut]
        rest = all(
            a == b for i, (a, b) in enumerate(zip(shape, self.shape, strict=True)) if i != self.cut
        )
        return rest and (have > want or (have < want and self.pad))


@dataclasses.dataclass(frozen=True)
class Model:
    """What a model class builds from a config.

    Attributes
    ----------
    slots
        All tensors it takes.
    shapes
        Shape of each parameter template (keys as in `Slot.parameter`), fused.
    shared
        Parameter template -> from where the engine fills it after loading ("the target's embed_tokens"),
        whether or not the checkpoint has it.
    fallback
        The same, where the engine does so only for a parameter that nothing in the checkpoint fills.
    unused
        Parameter name or template with literal indices -> why no forward pass reads it.
    special
        Index values that `Profile.route` or the class treats apart from all others (layer 0, the NextN
        layer's number): keys with such an index are routed on their own.
    facts
        What the class read from the config, for contracts and messages (number of auxiliary layers,
        draft vocabulary size, norm flags as the engine sees them).
    """

    slots: tuple[Slot, ...]
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fallback: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    special: frozenset[int] = frozenset()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """What the loader does with one key.

    ``load``: it looks for the slot `name` (the key after renames, before fusing); where there is none, the
    profile's reaction to unknown keys holds, or `unknown` where this name has its own. ``attribute``: kept
    outside the parameters (``d2t``), which counts as loaded. ``ignore``: skipped on purpose. ``drop``: lost.
    ``raise``: the loader stops. An attribute may demand a number of dimensions, `rank`; of another
    shape it is of no use, and the loader stops at those shapes that `stops` tells.
    """

    fate: Literal["load", "attribute", "ignore", "drop", "raise"]
    name: str = ""
    reason: str = ""
    place: str = ""
    unknown: Reaction | None = None
    rank: int | None = None
    stops: Callable[[tuple[int, ...]], bool] | None = None


@dataclasses.dataclass(frozen=True)
class Profile:
    """One model class of one engine, over a range of versions.

    Attributes
    ----------
    engine, model_class
        ``"sglang"``, ``"LlamaForCausalLMEagle3"``.
    first, last
        First and last release that behave so, both included.
    verified
        Releases of the range whose real loader was run and agreed (``make tables``).
    place
        Where in the engine's source the loader stands.
    build
        Config -> `Model`; raises `Refused`.
    route
        (key, model) -> `Route`. An ordinary function of one name; numbers that are not in `Model.special`
        may be symbolic, so it must treat them all alike and copy them unchanged.
    unknown, missing, mismatch
        The reaction to a key without a slot, to a slot without a key, and to a wrong shape (silent all the
        same where `Slot.tolerates` it).
    notes
        Which place of the source says so, by topic: ``{"unknown": "…:210", …}``.
    cite
        Makes the same profile with the lines of another release of its range.
    harvested
        Whether it is a map of what the real class did with synthetic keys.
    """

    engine: str
    model_class: str
    first: str
    last: str
    place: str
    build: Callable[[Config], Model]
    route: Callable[[str, Model], Route]
    verified: tuple[str, ...] = ()
    unknown: Reaction = "silent"
    missing: Reaction = "silent"
    mismatch: Reaction = "raises"
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cite: Callable[[str], Profile] | None = None
    harvested: bool = False

    def cited(self, version: str) -> Profile:
        """Return the profile with the lines of a release, if that is one of its range."""
        within = Version(self.first) <= Version(Version(version).public) <= Version(self.last)
        return self.cite(version) if self.cite is not None and within else self

    def basis(self, version: str) -> Basis:
        """Return how well this profile is known to hold for a version."""
        if self.harvested:
            return "harvested"
        return "profile_verified" if version in self.verified else "profile_source_read"


# A model with more tensors of one template does not exist; Kimi K2 has 60 x 384 experts.
MOST_TENSORS = 5_000_000


def indices(*columns: Iterable[int]) -> Rows:
    """Return all combinations of the columns' values, shape (n, number of columns).

    Raises
    ------
    NotCovered
        There would be more than `MOST_TENSORS`: the config is not credible.
    """
    counts = [len(c) for c in columns if isinstance(c, Sized)]
    if math.prod(counts) > MOST_TENSORS:
        sizes = " x ".join(f"{n:,}" for n in counts)
        raise NotCovered(f"the config asks for {sizes} tensors of one kind: not credible")
    grids = np.meshgrid(*(np.fromiter(c, np.int64) for c in columns), indexing="ij")
    return (
        np.stack([grid.ravel() for grid in grids], axis=1) if grids else np.zeros((1, 0), np.int64)
    )
