"""Sizes as expressions of config fields: found from what a class builds at several configs, and evaluated.

An expression is a sum of terms ``[numerator, denominator, [[field, exponent], …]]``; a field may be the whole
part of a quotient, ``image_size//patch_size``. Both the engine's Python and the workbench use this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

_WIDE = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
Point = Mapping[str, int]
Terms = list[list[Any]]


def constant(value: int) -> Terms:
    """Return an expression of no field."""
    return [[value, 1, []]] if value else []


def value_of(terms: Sequence[Sequence[Any]], point: Mapping[str, Any]) -> int | None:
    """Return what an expression is at a config; None where it is no whole number or a field is missing."""
    total = Fraction(0)
    for numerator, denominator, powers in terms:
        term = Fraction(numerator, denominator)
        for field, exponent in powers:
            given = _given(field, point)
            if not isinstance(given, int | float) or isinstance(given, bool):
                return None
            value = Fraction(given)
            if not value and exponent < 0:
                return None
            term *= value**exponent
        total += term
    return int(total) if total.denominator == 1 else None


def _given(field: str, point: Mapping[str, Any]) -> Any:
    """Return a field, or the whole part of a quotient of two."""
    one, quotient, other = field.partition("//")
    if not quotient:
        return point.get(field)
    upper, lower = point.get(one), point.get(other)
    if isinstance(upper, int) and isinstance(lower, int) and lower > 0:
        return upper // lower
    return None


def credible(terms: Sequence[Sequence[Any]]) -> bool:
    """Tell whether an expression can be how a class computes a size.

    A polynomial can be laid through any few values. One with products, fractions and terms of both signs is
    such a curve: ``(image_size / patch_size) ** 2`` taken for one.
    """
    signs = {numerator > 0 for numerator, _, _ in terms}
    products = any(len(powers) > 1 for _, _, powers in terms)
    fractions = any(denominator > 1 for _, denominator, _ in terms)
    return not (len(signs) > 1 and products and fractions)


class Observations:
    """Configs at which a class was built: the first, one for each field changed alone, pairs, and others."""

    def __init__(self, base: Point) -> None:
        self.points: list[Point] = [base]
        self.single: dict[str, int] = {}
        self.pair: dict[frozenset[str], int] = {}

    def add(self, point: Point, *changed: str) -> int:
        """Add a config in which these fields differ from the first one's."""
        self.points.append(point)
        at = len(self.points) - 1
        if len(changed) == 1:
            self.single[changed[0]] = at
        elif len(changed) == 2:
            self.pair[frozenset(changed)] = at
        return at

    def keep(self, indices: Sequence[int], without: str) -> None:
        """Forget all other observations, and that a field was changed."""
        place = {old: new for new, old in enumerate(indices)}
        self.points = [self.points[at] for at in indices]
        self.single = {
            f: place[at] for f, at in self.single.items() if at in place and f != without
        }
        self.pair = {both: place[at] for both, at in self.pair.items() if at in place}

    def sensitive(self, values: Mapping[int, int]) -> list[str]:
        """Return the fields that alone change a value."""
        return [
            field for field, at in self.single.items() if at in values and values[at] != values[0]
        ]

    def pairs_needed(self, values: Mapping[int, int]) -> set[frozenset[str]]:
        """Return the pairs of fields that must be changed together to know a value's expression."""
        fields = self.sensitive(values)
        if len(fields) < 2 or self._monomial(values, fields) is not None:
            return set()
        return {frozenset(pair) for pair in combinations(fields, 2)}

    def fit(self, values: Mapping[int, int]) -> Terms | None:
        """Return the expression that has these values at these observations; None where none was found."""
        if 0 not in values:
            return None
        fields = self.sensitive(values)
        tries = [self._monomial(values, fields)]
        one_less = self._monomial({at: value - 1 for at, value in values.items()}, fields)
        if one_less and fields:  # places of an image, and one for the class
            tries.append([*one_less, *constant(1)])
        tries.append(self._affine(values, fields))
        others = itertools.chain(self._by_heads(values, fields), self._by_patches(values, fields))
        for terms in itertools.chain(tries, others):
            if terms is None or not credible(terms):
                continue
            if all(value_of(terms, self.points[at]) == value for at, value in values.items()):
                return terms
        return None

    def _by_heads(self, values: Mapping[int, int], fields: list[str]) -> Iterator[Terms]:
        """Yield sums whose terms are numbers of heads times the size of a head.

        The size of a head is ``hidden_size / num_attention_heads``; q, k and v in one tensor are such a sum.
        """
        pairs = ((f"{f.rpartition('.')[0]}.".lstrip("."), f) for f in fields if f.endswith(_WIDE))
        for part, wide in pairs:
            heads = next((part + name for name in _HEADS if part + name in fields), None)
            if heads is None or any(not self.points[at].get(heads) for at in values):
                continue
            size = {at: Fraction(self.points[at][wide], self.points[at][heads]) for at in values}
            scaled = {at: value / size[at] for at, value in values.items()}
            sums = self._affine(scaled, [f for f in fields if scaled[self.single[f]] != scaled[0]])
            yield [[n, d, _product(powers, wide, heads)] for n, d, powers in sums or ()]

    def _by_patches(self, values: Mapping[int, int], fields: list[str]) -> Iterator[Terms]:
        """Yield the places of an image that its patches do not fill, with one for the class, or not."""
        for image in fields:
            patch = f"{image.removesuffix('image_size')}patch_size"
            if not image.endswith("image_size") or patch not in fields:
                continue
            side = f"{image}//{patch}"
            counts = {at: _given(side, self.points[at]) for at in values}
            if not all(counts.values()):
                continue
            for inner, outer in ((0, 0), (0, 1), (1, 0)):  # n * n, n * n + 1, (n * n + 1) * more
                scaled = {
                    at: Fraction(value - outer, counts[at] ** 2 + inner)
                    for at, value in values.items()
                }
                rest = [f for f in fields if scaled[self.single[f]] != scaled[0]]
                for n, d, powers in self._monomial(scaled, rest) or ():
                    factor = Fraction(n) / d
                    both = factor.numerator, factor.denominator
                    yield [
                        [*both, [*powers, [side, 2]]],
                        *([[*both, powers]] if inner else []),
                        *constant(outer),
                    ]

    def _monomial(self, values: Mapping[int, Any], fields: list[str]) -> Terms | None:
        base = self.points[0]
        if not fields:
            return constant(values[0])
        if not values[0]:
            return None
        factor, powers = Fraction(values[0]), []
        for field in fields:
            at = self.single[field]
            if not base[field]:
                return None
            step = Fraction(self.points[at][field]) / Fraction(base[field])
            ratio = Fraction(values[at], values[0])
            exponent = next((e for e in (1, -1, 2, -2) if step**e == ratio), None)
            if exponent is None:
                return None
            factor /= Fraction(base[field]) ** exponent
            powers.append([field, exponent])
        return [[factor.numerator, factor.denominator, powers]]

    def _affine(self, values: Mapping[int, Any], fields: list[str]) -> Terms | None:
        """Return a polynomial in which each field occurs at most once in a term, at most two in one."""
        base = {f: Fraction(self.points[0][f]) for f in fields}
        step = {f: Fraction(self.points[self.single[f]][f]) - base[f] for f in fields}
        slope = {f: (values[self.single[f]] - values[0]) / step[f] for f in fields}
        sums: dict[tuple[str, ...], Fraction] = {(): Fraction(values[0])}

        def add(key: tuple[str, ...], value: Fraction) -> None:
            sums[key] = sums.get(key, Fraction(0)) + value

        for field in fields:
            add((field,), slope[field])
            add((), -slope[field] * base[field])
        for one, other in combinations(fields, 2):
            at = self.pair.get(frozenset((one, other)))
            if at is None or at not in values:
                continue
            alone = values[0] + slope[one] * step[one] + slope[other] * step[other]
            both = (values[at] - alone) / (step[one] * step[other])
            if both:
                add((one, other), both)
                add((one,), -both * base[other])
                add((other,), -both * base[one])
                add((), both * base[one] * base[other])
        return [
            [value.numerator, value.denominator, [[field, 1] for field in key]]
            for key, value in sums.items()
            if value
        ]


def _product(powers: Sequence[Sequence[Any]], wide: str, heads: str) -> list[list[Any]]:
    """Return the powers of a term times the size of a head."""
    total = {wide: 1, heads: -1}
    for field, exponent in powers:
        total[field] = total.get(field, 0) + exponent
    return [[field, exponent] for field, exponent in total.items() if exponent]


def named_numbers(value: Any) -> list[int] | None:
    """Return the whole numbers of a list, which may be written ``"3,4,5"``; None where it is no such list."""
    if isinstance(value, str):
        parts = value.split(",")
        return [int(part) for part in parts] if all(p.strip().isdigit() for p in parts) else None
    whole = isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
    return value if whole else None


def column_values(
    rule: Sequence[Any], point: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]
) -> list[int] | None:
    """Return the numbers of one column of a group at a config; None where the rule does not say."""
    if rule[0] == "range":
        low, high = value_of(rule[1], point), value_of(rule[2], point)
        return None if low is None or high is None else list(range(low, max(low, high)))
    if rule[0] == "rows":
        return list(rule[1])
    if rule[0] == "named":
        _, path, first, negated, end = rule
        count = value_of(end, point)
        if count is None or path not in lists:
            return None
        named = {number - first for number in lists[path]}
        return [i for i in range(count) if (i in named) is not negated]
    _, by_list, by_step, last = rule
    count = value_of(last, point) if last is not None else None
    if by_list is not None and by_list[1] in lists:
        items = lists[by_list[1]]
        if count is not None and len(items) != count:
            if len(items) < count or len(by_list) < 4:  # it has one entry a layer, or more
                return None
            items = items[:count]
        return [i for i, item in enumerate(items) if item in by_list[2]]
    step = point.get(by_step[1]) if by_step is not None else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 1 or count is None:
        return None
    rest = by_step[2] % step  # -1 is the last of each step
    return [i for i in range(count) if (i % step == rest) is not by_step[3]]
