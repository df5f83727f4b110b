"""A checkpoint's config as a map wants it: sizes to compute with, the variants chosen, or "cannot tell"."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from workbench.loaders.harvest.expressions import named_numbers
from workbench.loaders.maps.records import ClassMap, Variant
from workbench.loaders.profile import NotCovered, Refused

_ABSENT = object()
MOST_LAYERS = 10_000  # a list of layers is not made longer, whatever a config says


@dataclasses.dataclass(frozen=True)
class Values:
    """What a config says.

    Attributes
    ----------
    sizes
        Field -> number.
    lists
        Field -> list.
    variants
        The variants that its values choose.
    """

    sizes: Mapping[str, int | float]
    lists: Mapping[str, list[Any]]
    variants: tuple[Variant, ...]


def read(found: ClassMap, raw: Mapping[str, Any]) -> Values:
    """Return what a config says to a class, quantisation aside.

    Raises
    ------
    NotCovered
        A field that the class reads has a value that was never tried.
    Refused
        A field is absent without which the engine does not build the class.
    """
    if found.flat and "text_config" not in raw:
        raw = {**raw, "text_config": {n: v for n, v in raw.items() if not isinstance(v, Mapping)}}
    for path in found.unknown:
        if _at(raw, path) not in (_ABSENT, None):
            raise NotCovered(f"{path} is set, and what the class does with it was not tried")
    reader = _Reader(found, raw)
    for path, kind in found.fields.items():
        reader.take(path, kind)
    return Values(reader.sizes, reader.lists, tuple(reader.variants))


class _Reader:
    def __init__(self, found: ClassMap, raw: Mapping[str, Any]) -> None:
        self.found, self.raw = found, raw
        self.known_type = bool(found.model_type) and raw.get("model_type") == found.model_type
        self.sizes: dict[str, int | float] = {}
        self.lists: dict[str, list[Any]] = {}
        self.variants: list[Variant] = []
        self.other_names: dict[str, list[str]] = {}
        for other, name in found.aliases.items():
            self.other_names.setdefault(name, []).append(other)
            self.other_names.setdefault(other, []).append(name)
        rules = [r for s in found.slots for r in s.rows or ()]
        self.named = {r[1] for r in rules if r[0] == "named"}
        self.listed = {r[1][1] for r in rules if r[0] == "pick" and r[1]} | self.named

    def take(self, path: str, kind: list[Any]) -> None:
        """Take one field into account, or raise `NotCovered`."""
        sort, seen = kind[0], kind[1:]
        if (
            isinstance(seen[0], list)
            and sort not in ("sized", "counted")
            and path not in self.listed
            and self._listed_alike(path, seen[0], sort)
        ):
            return
        value = self._value(path, sort)
        if sort == "counted":
            if not isinstance(value, list) or not value:
                raise NotCovered(f"{path} is {value!r:.60}, and the number of its entries decides")
            self.sizes[f"{path}#"] = len(value)
            return
        if sort == "free":
            if isinstance(value, str | dict):
                raise NotCovered(f"{path} is of another kind than was tried")
            return
        if sort == "sized" and isinstance(value, list) and self._as_long(path, value, seen[0]):
            return
        if sort == "list" and path in self.named:
            self.lists[path] = self._named(path, value)
            return
        variant = next(
            (v for v in self.found.variants if v.field == path and _equal(v.value, value)), None
        )
        if variant is not None:
            self.variants.append(variant)
            return
        if any(_equal(value, one) for one in seen) and sort != "size":
            if isinstance(value, list):
                self.lists[path] = value
            return
        if (
            sort == "size"
            and isinstance(value, int | float)
            and not isinstance(value, bool)
            and value > 0
        ):
            if value > self.found.bounds.get(path, value):
                raise NotCovered(
                    f"{path} is {value}, and the class was tried up to a smaller number"
                )
            self.sizes[path] = value
        elif sort == "size" and value == 0 and seen[0] == 0:
            self.sizes[path] = 0
        elif sort == "list" and isinstance(value, list) and path in self.listed:
            known = {repr(item) for item in seen[0]}
            if not all(repr(item) in known for item in value):
                raise NotCovered(f"{path} has a kind of layer that was not tried")
            self.lists[path] = value
        elif value is None and len(seen) > 1 and None in seen:
            return
        else:
            raise NotCovered(f"{path} is {value!r:.60}, which was not tried")

    def _named(self, path: str, value: Any) -> list[int]:
        """Return the numbers of a list that names layers."""
        numbers = named_numbers(value)
        if numbers is None:
            raise NotCovered(f"{path} is {value!r:.60}, which is no list of layers")
        return numbers

    def _as_long(self, path: str, value: list[Any], seen: list[Any]) -> bool:
        """Tell whether a list has the right length, where only that counts: one entry a layer, or so many."""
        part = path.rpartition(".")[0]
        layers = f"{part}.num_hidden_layers" if part else "num_hidden_layers"
        kind = self.found.fields.get(layers)
        if kind is None or kind[1] != len(seen):
            return len(value) == len(seen)
        known = {repr(item) for item in seen}
        return len(value) == self._value(layers, kind[0]) and {repr(x) for x in value} <= known

    def _listed_alike(self, path: str, seen: list[Any], sort: str) -> bool:
        """Tell whether a list that picks nothing is absent, or has no other values than were tried."""
        value = _at(self.raw, path)
        numbers = any(isinstance(item, int) and not isinstance(item, bool) for item in seen)
        if value is _ABSENT or value is None:
            return not (numbers and sort == "fixed")
        if numbers:
            return bool(value == seen)  # numbers of layers: fewer of them are another model
        known = {repr(item) for item in seen}
        return isinstance(value, list) and all(repr(item) in known for item in value)

    def _value(self, path: str, sort: str) -> Any:
        for name in (path, *self.other_names.get(path, ())):
            value = _at(self.raw, name)
            if value is not _ABSENT:
                return value
        rule = self.found.defaults.get(path)
        if rule is None or not (self.known_type or rule[0] in ("class", "rule")):
            if sort == "free":
                return None
            raise NotCovered(
                f"config.json does not have {path}, and what it then counts as is not known"
            )
        if rule[0] == "refused":
            raise Refused(f"config.json does not have {path}: {rule[1]}")
        part = path.rpartition(".")[0]
        if part and _at(self.raw, part) is _ABSENT and sort != "free":
            raise NotCovered(
                f"config.json does not have {part}, where {path.rpartition('.')[2]} is looked for"
            )
        if rule[0] == "cycle":
            layers = self._derived(f"{part}.a" if part else "a", "num_hidden_layers")
            return [rule[1][i % len(rule[1])] for i in range(min(layers, MOST_LAYERS))]
        return rule[1] if rule[0] != "rule" else self._derived(path, rule[1])

    def _derived(self, path: str, rule: str) -> Any:
        part = path.rpartition(".")[0]
        prefix = part + "." if part else ""

        def number(name: str) -> int:
            value = _at(self.raw, prefix + name)
            value = (
                self.found.defaults.get(prefix + name, ["", 0])[1] if value is _ABSENT else value
            )
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise NotCovered(f"{path} is computed of {name}, which is not a number")
            return value

        if rule == "hidden_size//num_attention_heads":
            return number("hidden_size") // number("num_attention_heads")
        if rule == "4*hidden_size":
            return 4 * number("hidden_size")
        return number(rule)


def _at(raw: Mapping[str, Any], path: str) -> Any:
    place: Any = raw
    for part in path.split("."):
        if not isinstance(place, Mapping) or part not in place:
            return _ABSENT
        place = place[part]
    return place


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two values are the same, 0 and False apart."""
    return one == other and isinstance(one, bool) is isinstance(other, bool)
