"""A harvested map as a profile: what the class wants for a config, and where each key goes."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from packaging.version import Version

from workbench.checkpoint.symbols import SYMBOL
from workbench.facts import rows as facts
from workbench.loaders.harvest.expressions import column_values, value_of
from workbench.loaders.maps import fields, quantised
from workbench.loaders.maps import records as maps
from workbench.loaders.maps.names import Names, names_of, template_of
from workbench.loaders.maps.records import ClassMap
from workbench.loaders.profile import MOST_TENSORS, Model, NotCovered, Profile, Route, Slot
from workbench.loaders.registered import kind_of

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

_FIELD = re.compile(r"\{(\d)\}")
_PREDICTION = re.compile(r"(^|\.)mtp\.|\.(eh_proj|enorm|hnorm|shared_head)\.")
_TABLE = "a table that the engine computes itself"
_SKIPPED = "the target's other tensors, which this class passes over"
_QUANTISATION = ("quantization_config", "compression_config")
_RECIPE = "quantised"  # a fact of a model: how its layers are stored, and the plain slots
_MTP = "the multi-token prediction layer, which another class loads"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A slot of the map at one config: its columns' numbers and its shape."""

    slot: maps.Slot
    columns: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]

    @property
    def parameter(self) -> str:
        """Where it lands; of several parameters, that of its own name."""
        found = _own_parameter(self.slot)
        assert found is not None
        return found

    @property
    def used(self) -> tuple[int, ...]:
        """Return the columns that the parameter's name has."""
        return tuple(int(c) for c in _FIELD.findall(self.parameter))

    def per_parameter(self) -> int:
        """Return how many elements one parameter gets by this slot."""
        others = (len(c) for n, c in enumerate(self.columns) if n not in self.used)
        return math.prod(self.shape) * math.prod(others)

    def meets(self, other: Wanted) -> bool:
        """Tell whether another slot of the same parameter fills some of the same instances."""
        return all(
            set(self.columns[a]) & set(other.columns[b])
            for a, b in zip(self.used, other.used, strict=False)
        )


@dataclasses.dataclass(frozen=True)
class Mapped:
    """One class of one release, as it was harvested."""

    engine: str
    release: str
    model_class: str

    @property
    def found(self) -> ClassMap:
        """The map."""
        return maps.maps_of(self.engine, self.release).classes[self.model_class]

    @property
    def names(self) -> Names:
        """The names that it knows."""
        return names_of(self.engine, self.release, self.model_class)

    @property
    def place(self) -> str:
        """Where the class is."""
        row = facts.row_in(self.engine, "class", self.model_class, self.release)
        file = row.file if row is not None else self.found.module
        return f"{file} ({self.release}, harvested)"

    def build(self, config: Config) -> Model:
        """Return what the class builds, quantised as the config says."""
        recipe = self._recipe(config)
        model = self.plain(config)
        if recipe is None:
            return model
        plain: dict[str, list[Slot]] = {}
        for slot in model.slots:
            plain.setdefault(slot.template, []).append(slot)
        coded = tuple(quantised.slots(model.slots, recipe))
        return dataclasses.replace(model, slots=coded, facts={_RECIPE: (recipe, plain)})

    def plain(self, config: Config) -> Model:
        """Return what the class builds without regard to quantisation."""
        found = self.found
        if not found.complete:
            kind = kind_of(self.model_class)
            is_a = f"{self.model_class} is {kind}" if kind else self.model_class
            said = (
                f"{is_a}, and its map for {self.engine} {self.release} is not complete: {found.why}"
            )
            raise NotCovered(said, self.place)
        raw = {n: v for n, v in config.raw.items() if n not in _QUANTISATION}
        values = fields.read(found, raw)
        wanted = [self._wanted(slot, values) for slot in _slots(found, values.variants)]
        slots = [self._slot(one, wanted) for one in wanted if all(one.columns) or not one.columns]
        lent = dict.fromkeys(found.shared, "the target's embedding or head")
        lent |= dict.fromkeys(found.unread, "a table that the engine never reads")
        special = {
            int(n) for near in self.names.literal for n in re.findall(r"\d+", near.pattern.pattern)
        }
        return Model(tuple(slots), fallback=lent, special=frozenset(special))

    def _recipe(self, config: Config) -> quantised.Recipe | None:
        """Return what the class does under the config's quantisation, None where there is none."""
        if not config.quantization or not self.found.complete:
            return None
        return quantised.recipe(self.engine, self.release, self.model_class, config.quantization)

    def _wanted(self, slot: maps.Slot, values: fields.Values) -> Wanted:
        if _own_parameter(slot) is None or slot.shape is None or slot.rows is None:
            raise NotCovered(f"where {slot.template} goes is not regular", self.place)
        shape = [value_of(terms, values.sizes) for terms in slot.shape]
        columns = [column_values(rule, values.sizes, values.lists) for rule in slot.rows]
        if any(n is None for n in shape) or any(c is None for c in columns):
            raise NotCovered(
                f"how many or how large {slot.template} are does not follow from config.json",
                self.place,
            )
        sizes = [n for n in shape if n is not None]
        numbers = tuple(tuple(c) for c in columns if c is not None)
        if any(n <= 0 for n in sizes) or math.prod(map(len, numbers)) > MOST_TENSORS:
            raise NotCovered(
                f"config.json asks for {slot.template} of a size that is not credible", self.place
            )
        return Wanted(slot, numbers, tuple(sizes))

    def _slot(self, one: Wanted, every: Sequence[Wanted]) -> Slot:
        alike = [
            w for w in every if w.slot.wanted and w.parameter == one.parameter and w.meets(one)
        ]
        total = sum(w.per_parameter() for w in alike) or one.per_parameter()
        grids = np.meshgrid(*(np.asarray(c, np.int64) for c in one.columns), indexing="ij")
        index = (
            np.stack([g.ravel() for g in grids], axis=1) if grids else np.zeros((1, 0), np.int64)
        )
        return Slot(
            one.slot.template,
            one.parameter,
            index,
            one.shape,
            min(1.0, math.prod(one.shape) / total),
            alternative=not one.slot.wanted,
        )

    def route(self, key: str, model: Model) -> Route:
        """Return where a key goes; a name that no probe has met makes the whole answer "cannot tell"."""
        text = template_of(key)
        here = [slot for slot in model.slots if slot.template == text]
        if _RECIPE in model.facts:
            recipe, plain = model.facts[_RECIPE]
            if here and text not in plain:
                base = f"{text.rpartition('.')[0]}.weight"
                unknown = quantised.reaction(recipe, plain[base], self._beyond(base))
                return Route("load", key, place=self.place, unknown=unknown)
            other = None if here else quantised.foreign(recipe, key, plain, template_of)
            if other is not None:
                return dataclasses.replace(other, place=self.place)
        if here:
            return self._own(key, text)
        known = self.names.find(key)
        if known is None or known.reaction == "elsewhere":
            raise NotCovered(
                f"the map of {self.model_class} has not met the name {_shown(key)}", self.place
            )
        if known.reaction == "loads":
            return Route("load", known.name, place=self.place)
        if known.reaction == "kept":
            return Route("attribute", place=self.place)
        if "rotary_emb" in key and known.reaction != "raises":
            return Route("ignore", reason=_TABLE, place=self.place)
        if key.endswith("t2d") and known.reaction != "raises":
            return Route("ignore", reason="only d2t is read", place=self.place)
        if _PREDICTION.search(key) and known.reaction != "raises":
            return Route("ignore", reason=_MTP, place=self.place)
        return _lost(known.reaction, self.place)

    def _own(self, key: str, text: str) -> Route:
        """Return the route of a key of a known template; rows that no slot has get the reaction behind it."""
        reaction = self._beyond(text)
        unknown = {"dropped": "silent", "warned": "warning", "raises": "raises"}.get(
            reaction, "silent"
        )
        return Route("load", key, place=self.place, unknown=unknown)  # type: ignore[arg-type]

    def _beyond(self, text: str) -> str:
        """Return the reaction to rows that a template does not have."""
        name = next(s.name for s in _all_slots(self.found) if s.template == text)
        return self.names.beyond(name)

    def profile(self, version: str) -> Profile:
        """Return the profile, for a version that it answers for."""
        return Profile(
            self.engine,
            self.model_class,
            version,
            version,
            self.place,
            self.build,
            self.route,
            harvested=True,
        )


def _own_parameter(slot: maps.Slot) -> str | None:
    """Return the parameter that a slot fills; of several, that of its name: the others are copies of it."""
    parts = (slot.parameter or "").split(" + ")
    if len(parts) == 1:
        return slot.parameter
    own = [part for part in parts if part.split(".")[-2:] == slot.template.split(".")[-2:]]
    return own[0] if len(own) == 1 else None


def _lost(reaction: str, place: str) -> Route:
    if reaction == "raises":
        return Route("raise", reason="no parameter of that name", place=place)
    said = "dropped with a warning" if reaction == "warned" else "silently dropped"
    return Route("drop", reason=f"no parameter of that name, {said}", place=place)


def _shown(key: str) -> str:
    """Return a key whose symbolic numbers are written as a range of them would be."""
    return re.sub(r"\d+", lambda m: "{}" if int(m[0]) >= SYMBOL else m[0], key)


def _all_slots(found: ClassMap) -> list[maps.Slot]:
    return [*found.slots, *(slot for variant in found.variants for slot in variant.come)]


def _slots(found: ClassMap, variants: tuple[maps.Variant, ...]) -> list[maps.Slot]:
    """Return the slots under variants, if they do not touch the same names."""
    gone: set[str] = set()
    come: list[maps.Slot] = []
    touched: set[str] = set()
    for variant in variants:
        names = {*variant.gone, *(slot.name for slot in variant.come)}
        modules = {name.rpartition(".")[0] for name in names}
        if modules & touched:
            both = " and ".join(v.field for v in variants)
            raise NotCovered(f"{both} are set together, which was not tried")
        touched |= modules
        gone |= set(variant.gone)
        come += variant.come
    return [slot for slot in found.slots if slot.name not in gone] + come


def find(engine: str, model_class: str, version: str) -> tuple[Profile, bool, str] | None:
    """Return the profile of the map that answers for a version, whether that is certain, and why not.

    None where no map has the class.
    """
    have: list[Any] = [
        r for r in maps.harvested(engine) if model_class in maps.maps_of(engine, r).classes
    ]
    if not have:
        return None
    if version in have:
        return Mapped(engine, version, model_class).profile(version), True, ""
    release = Version(facts.nearest(engine, version)) if version else None
    older = [r for r in have if release is None or Version(r) <= release]
    nearest = (older or have)[-1] if version else have[-1]
    why = f"the loaders of {engine} {version} were not harvested: this is the answer of {nearest}"
    if not version:
        why = (
            f"the {engine} version was not given, and none is installed here: answered as {nearest}"
        )
    return Mapped(engine, nearest, model_class).profile(version or nearest), False, why
