"""Sizes and rows of what a class loads, as expressions of fields of its config."""

from __future__ import annotations

import random
import re
import time
from typing import Any

from . import fields, groups, names
from .configs import LAYERS
from .expressions import Observations, Terms, named_numbers
from .groups import Group
from .study import Json, Study

# Fields that pick every so many layers, which cannot be seen from 1, and numbers of layers that predict.
_STEP = re.compile(r"(freq|step|interval|period)$|nextn|mtp")


class Fits:
    """Sizes and rows of the groups of a study, as expressions of config fields."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.raws: list[Json] = [study.raw]
        self.agreed: set[str] | None = None
        self.loads: list[tuple[Json, Any]] = []
        self.first: dict[str, Group] = {}
        self.seen: list[dict[str, Group]] = [self.groups(study.raw)]
        self.observations = Observations(fields.sizes(study.raw))
        self.kinds: dict[str, list[Any]] = {}
        self.switches: list[tuple[str, Any]] = []

    def groups(self, raw: Json) -> dict[str, Group]:
        """Return the groups of all names that load at the first config, as they are at this one."""
        inverted, saved, found = self.study.keys(raw)
        if self.agreed is None:
            both = saved.keys() & inverted.keys()
            other = {names.template(k) for k in both if saved[k] != inverted[k]}
            self.agreed = {names.template(k) for k in both} - other
        # Where both agreed at first, what the engine asks for is true: transformers may not follow a field.
        engine = {k: v for k, v in inverted.items() if names.template(k) in self.agreed}
        made = groups.grouped({**inverted, **saved, **engine, **found}, self.first)
        self.first = self.first or made
        return made

    def look(self, raw: Json, *changed: str) -> dict[str, Group] | None:
        """Build at another config and keep what was seen; None where the class cannot be built."""
        if time.process_time() > self.study.until:
            raise TimeoutError("out of time")
        try:
            seen = self.groups(raw)
        except TimeoutError:
            raise
        except Exception:
            return None
        self.raws.append(raw)
        self.seen.append(seen)
        self.observations.add(fields.sizes(raw), *changed)
        return seen

    def try_fields(self) -> None:
        """Change each field that the class reads, alone, and the others together."""
        study, read = self.study, self.study.builder.reads.names
        others = []
        for path, value in list(fields.leaves(study.raw)):
            name = path.rpartition(".")[2]
            if fields.is_idle(path) or name == "model_type":
                continue
            if name in fields.CONSTANT:
                self.kinds[path] = ["fixed", value]
                continue
            if fields.is_read(path, read):
                self._try(path, value)
            else:
                others.append(path)
        self._sift(others)
        few = [p for p, kind in self.kinds.items() if kind[0] == "free" and _counts(kind[1])]
        self._lower(few)

    def _lower(self, paths: list[str]) -> None:
        """Find by halves which numbers do count when they are small: bounds that were beyond the layers."""
        raw = self.study.raw
        for path in paths:
            raw = fields.changed(raw, path, 1)
        if not paths or self._builds_the_same(raw):
            return
        if len(paths) > 1:
            self._lower(paths[: len(paths) // 2])
            self._lower(paths[len(paths) // 2 :])
        elif self._can_build(raw):
            self.kinds[paths[0]][0] = "fixed"

    def _can_build(self, raw: Json) -> bool:
        try:
            self.groups(raw)
        except Exception:
            return False
        return True

    def _sift(self, paths: list[str]) -> None:
        """Find by halves which fields change something though the class was not seen to ask for them.

        A config class may compute others of them.
        """
        raw = self.study.raw
        for path in paths:
            value = fields.at(raw, path)
            other = fields.different(path, value)
            if other != value:
                raw = fields.changed(raw, path, other)
        if raw is self.study.raw or self._builds_the_same(raw):
            return
        if len(paths) == 1:
            self._try(paths[0], fields.at(self.study.raw, paths[0]))
            return
        middle = len(paths) // 2
        self._sift(paths[:middle])
        self._sift(paths[middle:])

    def _builds_the_same(self, raw: Json) -> bool:
        if time.process_time() > self.study.until:
            raise TimeoutError("out of time")
        try:
            return _same(self.groups(raw), self.seen[0])
        except Exception:
            return False

    def alike(self, one: Json, other: Json) -> bool:
        """Tell whether another config builds the same as one, and loads the same of what is wanted."""
        if time.process_time() > self.study.until:
            return False
        try:
            here = self.seen[self.raws.index(one)] if one in self.raws else self.groups(one)
            return _same(here, self.groups(other)) and self._written(one) == self._written(other)
        except Exception:
            return False

    def _written(self, raw: Json) -> Any:
        """Return where the keys that are wanted at the first config land at this one."""
        if raw not in [known for known, _ in self.loads]:
            report = self.study.loader(raw).whole(self.study.wanted)
            self.loads = [*self.loads[-3:], (raw, report["writes"])]
        return next(writes for known, writes in self.loads if known == raw)

    def _try(self, path: str, value: Any) -> None:
        kind: list[Any] = ["fixed", value]
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            taken = frozenset(fields.sizes(self.study.raw).values() if _counts(value) else ())
            for other in self._larger(path, value, taken):
                before = len(self.seen)
                seen = self.look(fields.changed(self.study.raw, path, other), path)
                if seen is not None:
                    same = _same(seen, self.seen[0])
                    # More layers repeat the lists of one entry a layer, which the rules of rows explain.
                    layers = path.rpartition(".")[2] in LAYERS
                    odd = not layers and _irregular(seen, self.seen[0])
                    odd = odd or bool(value == 1 and _STEP.search(path))
                    odd = odd or bool(
                        seen.keys() - self.seen[0].keys()
                    )  # names of which it says nothing
                    if same or odd or value is None:  # nothing to fit: forget it
                        del (
                            self.seen[before:],
                            self.raws[before:],
                            self.observations.points[before:],
                        )
                        del self.observations.single[path]
                    sized = value is not None and not odd
                    kind = ["free" if same else "size" if sized else "fixed", value]
                    break
        elif fields.is_counted(path, value):
            kind = self._counted(path, value)
        elif isinstance(value, list) or fields.names_layers(path, value):
            kind = self._list(path, value)
        alternatives = fields.others(path, value)
        if isinstance(value, (bool, str)) and alternatives:
            kind = ["among", value]
        for other in alternatives:
            self._alternative(path, other, kind)
        self.kinds[path] = kind

    def _larger(self, path: str, value: Any, taken: frozenset[Any]) -> list[Any]:
        """Return larger values; last those with which heads no longer divide their width."""
        raw, tries = self.study.raw, fields.larger(path, value, taken)
        if value is None or not fields.splits(raw):
            return tries
        return sorted(tries, key=lambda one: not fields.splits(fields.changed(raw, path, one)))

    def _counted(self, path: str, value: list[int]) -> list[Any]:
        """Change how many entries a list has that numbers layers of another model."""
        others = [fields.changed(self.study.raw, path, o) for o in fields.other_lists(value)]
        if not all(map(self._builds_the_same, others)):
            return ["fixed", value]
        before, name = len(self.seen), f"{path}#"
        seen = self.look(fields.lengthened(self.study.raw, path, 2 * len(value)), name)
        if seen is None:
            return ["fixed", value]
        if _same(seen, self.seen[0]):
            del self.seen[before:], self.raws[before:], self.observations.points[before:]
            del self.observations.single[name]
            return ["free", value]
        return ["counted", value]

    def _list(self, path: str, value: list[Any] | str) -> list[Any]:
        """Change a list: free where that changes nothing, else what the rules of columns must explain.

        ``sized`` where its values change nothing, but their number does.
        """
        tried = 0
        if not value:
            tries = [fields.changed(self.study.raw, path, o) for o in fields.other_lists(value)]
            return ["free" if all(map(self._builds_the_same, tries)) else "fixed", value]
        others = fields.other_lists(value)
        for other in others:
            tried += 1
            seen = self.look(fields.changed(self.study.raw, path, other))
            if seen is None and named_numbers(value) and other is not others[-1]:
                continue
            if seen is not None and _resized(seen, self.seen[0]):
                del self.seen[-1], self.raws[-1], self.observations.points[-1]
                return ["fixed", value]  # its values are sizes, which no expression has
            if seen is None or not _same(seen, self.seen[0]):
                return ["list", value]
            del self.seen[-1], self.raws[-1], self.observations.points[-1]
        longer = fields.changed(self.study.raw, path, fields.longer_list(value))
        if len(value) == self.study.last(self.study.raw):  # one entry a layer
            if self._can_build(longer) and not self._builds_the_same(longer):
                return ["fixed", value]  # or not: its length counts by itself
            return ["free" if tried else "fixed", value]
        free = "free" if self._builds_the_same(longer) else "sized"
        return [free if tried else "fixed", value]

    def _alternative(self, path: str, other: Any, kind: list[Any]) -> None:
        try:
            seen = self.groups(fields.changed(self.study.raw, path, other))
        except Exception:
            return
        if _same(seen, self.seen[0]):
            kind.append(other)
        else:
            self.switches.append((path, other))

    def try_pairs(self) -> None:
        """Change those fields together that no sum of one-field terms explains."""
        wanted: set[frozenset[str]] = set()
        for name, group in self.seen[0].items():
            for values in self._values(name, group):
                wanted |= self.observations.pairs_needed(values)
        for pair in sorted(wanted, key=sorted)[:24]:
            one, other = sorted(pair)
            raw = self._double(self._double(self.study.raw, one), other)
            self.look(raw, one, other)

    def fix(self, path: str) -> None:
        """Take a field as fixed, and forget what was seen with other values of it."""
        place = path.removesuffix("#")
        base = fields.at(self.study.raw, place)
        left = [at for at, raw in enumerate(self.raws) if fields.at(raw, place) == base]
        self.raws = [self.raws[at] for at in left]
        self.seen = [self.seen[at] for at in left]
        self.observations.keep(left, path)
        self.kinds[place] = ["fixed", base]

    def _double(self, raw: Json, path: str) -> Json:
        if path.endswith("#"):
            return fields.lengthened(raw, path[:-1], 2 * self.observations.points[0][path])
        at = self.observations.single[path]
        return fields.changed(raw, path, fields.at(self.raws[at], path))

    def joint(self, seed: int) -> Json | None:
        """Return a config in which several sizes differ at once and that the class can be built of.

        The second has other sizes than any before: curves through few values do not hold there.
        """
        rng = random.Random(f"{self.study.name} {seed}")
        chosen = list(self.observations.single)
        for share, new in (
            (1.0, True),
            (0.7, True),
            (0.4, True),
            (1.0, False),
            (0.5, False),
            (0.35, False),
        ):
            if new and seed == 1:
                continue
            raw = self.study.raw
            for path in chosen:
                if rng.random() <= share:
                    more = self._triple(raw, path) if new else self._double(raw, path)
                    raw = more if fields.splits(more) or not fields.splits(raw) else raw
            if raw is not self.study.raw and self.look(raw) is not None:
                return raw
        return None

    def _triple(self, raw: Json, path: str) -> Json:
        if path.endswith("#"):
            return fields.lengthened(raw, path[:-1], 3 * self.observations.points[0][path])
        base = fields.at(self.study.raw, path)
        seen = fields.at(self.raws[self.observations.single[path]], path)
        return fields.changed(raw, path, 3 * base if base and seen == 2 * base else seen)

    def _values(self, name: str, group: Group) -> list[dict[int, int]]:
        """Return each size of a group at every observation that has it: dimensions, then column bounds."""
        out: list[dict[int, int]] = [{} for _ in group.shape]
        for _ in group.rows[0]:
            out += [{}, {}]
        for at, seen in enumerate(self.seen):
            here = seen.get(name)
            if here is None or len(here.shape) != len(group.shape):
                continue
            for n, size in enumerate(here.shape):
                out[n][at] = size
            for c, column in enumerate(groups.columns(here.rows) or ()):
                out[len(group.shape) + 2 * c][at] = column[0]
                out[len(group.shape) + 2 * c + 1][at] = column[-1] + 1
        return out

    def shape(self, name: str) -> list[Terms] | None:
        """Return the expressions of a group's dimensions."""
        group = self.seen[0][name]
        fits = [self.observations.fit(v) for v in self._values(name, group)[: len(group.shape)]]
        return None if any(f is None for f in fits) else [f for f in fits if f is not None]

    def rows(self, name: str) -> list[list[Any]] | None:
        """Return the rule of each column of a group: a range, or a choice by a list or a step."""
        group = self.seen[0][name]
        rules: list[list[Any]] = []
        for c in range(len(group.rows[0])):
            rule = self._column(name, c, len(group.shape))
            if rule is None:
                return None
            rules.append(rule)
        return rules

    def _column(self, name: str, c: int, dimensions: int) -> list[Any] | None:
        seen: dict[int, tuple[int, ...]] = {}
        for at, found in enumerate(self.seen):
            here = found.get(name)
            if here is not None:
                values = groups.columns(here.rows)
                if values is None:
                    return None
                seen[at] = values[c]
        if all(map(groups.contiguous, seen.values())):
            low = self.observations.fit({at: v[0] for at, v in seen.items()})
            high = self.observations.fit({at: v[-1] + 1 for at, v in seen.items()})
            if low is not None and high is not None:
                return ["range", low, high]
        if len(set(seen.values())) == 1:
            return ["rows", list(next(iter(seen.values())))]  # parts of a sequence, say
        lists = [fields.lists(raw) for raw in self.raws]
        layers = {at: self.study.last(raw) for at, raw in enumerate(self.raws)}
        by_list = groups.chosen_by_list(seen, lists, layers)
        named = None if by_list else groups.chosen_by_number(seen, layers, lists)
        end = self.observations.fit(layers)
        if named is not None and end is not None:
            return ["named", *named, end]
        by_step = groups.chosen_by_step(seen, layers, self.observations.points)
        if by_list is None and by_step is None:
            return None
        return ["pick", by_list, by_step, end]


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _same(one: dict[str, Group], other: dict[str, Group]) -> bool:
    return one.keys() == other.keys() and all(
        one[k].shape == other[k].shape and one[k].rows == other[k].rows for k in one
    )


def _resized(seen: dict[str, Group], base: dict[str, Group]) -> bool:
    """Tell whether the same rows of the same names have other shapes."""
    both = seen.keys() & base.keys()
    return (
        any(seen[n].shape != base[n].shape and seen[n].rows == base[n].rows for n in both)
        and seen.keys() == base.keys()
    )


def _irregular(seen: dict[str, Group], base: dict[str, Group]) -> bool:
    """Tell whether rows that were a plain range are one no more: the field picks layers."""
    return any(
        name in base and _ranges(base[name]) and not _ranges(group) for name, group in seen.items()
    )


def _ranges(group: Group) -> bool:
    columns = groups.columns(group.rows)
    return columns is not None and all(map(groups.contiguous, columns))
