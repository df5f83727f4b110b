"""Keys in groups of one template and shape, and the rules for which rows of numbers a group has."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from .expressions import named_numbers
from .names import Keys, Shape, numbers, template

LAST = -1  # the last of each step
Rows = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """Keys of one template and one shape at one config."""

    template: str
    shape: Shape
    dtype: str
    rows: Rows
    names: tuple[str, ...]


def grouped(keys: Keys, like: Mapping[str, Group] | None = None) -> dict[str, Group]:
    """Return the groups of keys, by template; further shapes of one template get a number behind ``#``.

    Parameters
    ----------
    keys
        The keys.
    like
        Groups at another config: the same shape, or the same rows, get the same number.
    """
    found: dict[str, dict[tuple[Shape, str], list[str]]] = defaultdict(dict)
    for name, (shape, dtype) in keys.items():
        found[template(name)].setdefault((shape, dtype), []).append(name)
    groups: dict[str, Group] = {}
    for text, by_shape in found.items():
        parts = sorted(by_shape.items(), key=lambda part: min(map(numbers, part[1])))
        for number, ((shape, dtype), found_names) in enumerate(parts):
            names = sorted(found_names, key=numbers)
            rows = tuple(map(numbers, names))
            group = Group(text, shape, dtype, rows, tuple(names))
            groups[text if not number else f"{text}#{number}"] = group
    return _numbered_alike(groups, like) if like else groups


def _numbered_alike(made: dict[str, Group], like: Mapping[str, Group]) -> dict[str, Group]:
    """Return groups with the numbers that those of another config have."""
    several = {name.partition("#")[0] for name in like if "#" in name}
    out = {name: group for name, group in made.items() if group.template not in several}
    for text in several:
        there = {name: group for name, group in like.items() if group.template == text}
        here = [group for group in made.values() if group.template == text]
        shapes = [sorted((g.shape, g.dtype) for g in side) for side in (here, there.values())]
        for name, old in there.items():
            if shapes[0] == shapes[1]:
                alike = [g for g in here if (g.shape, g.dtype) == (old.shape, old.dtype)]
            else:
                alike = [g for g in here if set(g.rows) >= set(old.rows)]
            if len(here) == len(there) and len(alike) == 1:
                out[name] = alike[0]
    return out


def columns(rows: Rows) -> list[tuple[int, ...]] | None:
    """Return the values of each column if the rows are all their combinations, None otherwise."""
    if not rows or not rows[0]:
        return []
    values = [tuple(sorted(set(column))) for column in zip(*rows, strict=True)]
    count = 1
    for column in values:
        count *= len(column)
    return values if count == len(set(rows)) == len(rows) else None


def contiguous(values: Sequence[int]) -> bool:
    """Tell whether values are all whole numbers from the first to the last."""
    return values[-1] - values[0] + 1 == len(values)


def chosen_by_list(
    seen: Mapping[int, tuple[int, ...]],
    lists: Sequence[Mapping[str, Any]],
    bounds: Mapping[int, int],
) -> list[Any] | None:
    """Return the list of a config, and its values, that pick a column's numbers at every observation.

    The last item tells whether the list may have more entries than there are layers.
    """
    for path in lists[0]:
        items: dict[int, Any] = {at: lists[at].get(path) for at in seen}
        if not all(isinstance(x, list) and x for x in items.values()):
            continue
        more = all(len(items[at]) > bounds.get(at, 0) > 0 for at in seen)
        if more:
            items = {at: items[at][: bounds[at]] for at in seen}
        chosen = _picked(seen, items)
        if chosen is not None:
            return ["list", path, chosen, *([True] if more else [])]
    return None


def _picked(
    seen: Mapping[int, tuple[int, ...]], items: Mapping[int, Sequence[Any]]
) -> list[Any] | None:
    """Return the values that a list has at the numbers seen, and only there."""
    picked: set[str] = set()
    for at, values in seen.items():
        if max(values) >= len(items[at]):
            return None
        picked |= {repr(items[at][i]) for i in values}
    if any(
        tuple(i for i, x in enumerate(items[at]) if repr(x) in picked) != values
        for at, values in seen.items()
    ):
        return None
    chosen = {repr(x): x for at in seen for x in items[at]}
    return [chosen[text] for text in sorted(picked)]


def chosen_by_number(
    seen: Mapping[int, tuple[int, ...]],
    bounds: Mapping[int, int],
    lists: Sequence[Mapping[str, Any]],
) -> list[Any] | None:
    """Return the list of layer numbers, from 0 or 1, that names a column's numbers, or all others."""
    for path in lists[0]:
        if len({repr(lists[at].get(path)) for at in seen}) == 1:
            continue  # it was never changed: any list may seem to be it
        for first in (0, 1):
            for negated in (False, True):
                if all(
                    _named(lists[at].get(path), first, bounds.get(at, 0), negated) == values
                    for at, values in seen.items()
                ):
                    return [path, first, negated]
    return None


def _named(items: Any, first: int, bound: int, negated: bool) -> tuple[int, ...] | None:
    numbers = named_numbers(items)
    if numbers is None:
        return None
    named = {number - first for number in numbers}
    return tuple(i for i in range(bound) if (i in named) is not negated)


def chosen_by_step(
    seen: Mapping[int, tuple[int, ...]],
    bounds: Mapping[int, int],
    points: Sequence[Mapping[str, Any]],
) -> list[Any] | None:
    """Return the field whose multiples pick a column's numbers: ``i % step == rest``, or all others."""
    for field in points[0]:
        for negated in (False, True):
            for rest in (*range(8), LAST):
                if all(
                    _stepped(points[at].get(field), rest, bounds.get(at, 0), negated) == values
                    for at, values in seen.items()
                ):
                    return ["step", field, rest, negated]
    return None


def _stepped(step: Any, rest: int, bound: int, negated: bool) -> tuple[int, ...] | None:
    if not isinstance(step, int) or step < 2 or rest >= step:
        return None
    rest = rest % step
    return tuple(i for i in range(bound) if (i % step == rest) is not negated)


def target(group: Group, writes: Mapping[str, Sequence[str]]) -> str | None:
    """Return where a group's keys land, ``{0}`` for its first number; None where that is not regular."""
    first = sorted(writes.get(group.names[0]) or [])
    if not first:
        return None
    texts = []
    for n, name in enumerate(first):
        text, values = template(name), numbers(name)
        fields: list[str] = []
        for place, value in enumerate(values):
            column = next(
                (
                    c
                    for c in range(len(group.rows[0]))
                    if all(
                        _number(writes, key, n, place) == row[c]
                        for key, row in zip(group.names, group.rows, strict=True)
                    )
                ),
                None,
            )
            fields.append(str(value) if column is None else f"{{{column}}}")
        made = text.format(*fields)
        for key, row in zip(group.names, group.rows, strict=True):
            if made.format(*row) not in (writes.get(key) or ()):
                return None
        texts.append(made)
    return " + ".join(texts)


def _number(writes: Mapping[str, Sequence[str]], key: str, n: int, place: int) -> int | None:
    names = sorted(writes.get(key) or [])
    values = numbers(names[n]) if n < len(names) else ()
    return values[place] if place < len(values) else None
