"""Keys in groups of one template and shape, and the rules for which rows of numbers a group has."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

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


def grouped(keys: Keys) -> dict[str, Group]:
    """Return the groups of keys, by template; further shapes of one template get a number behind ``#``."""
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
    return groups


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
    seen: Mapping[int, tuple[int, ...]], lists: Sequence[Mapping[str, Any]]
) -> list[Any] | None:
    """Return the list of a config, and its values, that pick a column's numbers at every observation."""
    for path in lists[0]:
        picked: set[str] | None = None
        for at, values in seen.items():
            items = lists[at].get(path)
            if not isinstance(items, list) or not items or max(values) >= len(items):
                break
            inside = {repr(items[i]) for i in values}
            outside = {repr(x) for i, x in enumerate(items) if i not in values}
            if inside & outside:
                break
            picked = inside if picked is None else picked | inside
        else:
            if picked is not None and all(
                tuple(i for i, x in enumerate(lists[at][path]) if repr(x) in picked) == values
                for at, values in seen.items()
            ):
                chosen = {repr(x): x for at in seen for x in lists[at][path]}
                return ["list", path, [chosen[text] for text in sorted(picked)]]
    return None


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
