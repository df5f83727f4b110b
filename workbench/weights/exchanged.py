"""Tensors that hold what another name held: exchanged, shifted by a layer, or overwritten by a copy."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from workbench.checkpoint.dequantize import matrix_shape
from workbench.core.wording import plural
from workbench.errors import WorkbenchError, shorten
from workbench.weights.equality import blocks, equal
from workbench.weights.names import is_weight

if TYPE_CHECKING:
    from workbench.weights.changes import Change
    from workbench.weights.compare import Values

ELSEWHERE = "the values that another tensor had in the first"
"""How the second holds them: its tensor has what the first has under another name."""

_SMALLEST = 256  # elements; smaller tensors are equal by chance or by convention
_MOST_CANDIDATES = 64
_EMBEDDING = re.compile(r"(^|[._])(\w*embed\w*|wte|shared)\.weight$")
_HEAD = re.compile(r"(^|[._])(lm_head|embed_out|output|output_layer|head)\.weight$")


def exchanged(
    left: Mapping[str, Values], right: Mapping[str, Values], changes: Iterable[Change]
) -> list[tuple[str, str, str]]:
    """Return names of the first and of the second, where the second holds what the other name held.

    Only what changed can be one: tensors that were equal before, and stay so, are not exchanged.
    """
    rows = [row for row in changes if row.state == "changed" and _counts(right[row.name])]
    changed = {row.name for row in rows}
    held = _by_start(left, {row.shape for row in rows})
    found = []
    for row in rows:
        donor = _donor(right[row.name], held, changed)
        if donor:
            found.append((donor, row.name, ELSEWHERE))
    return found


def _counts(one: Values) -> bool:
    is_matrix = sum(size > 1 for size in one.shape) > 1
    is_large = prod(one.shape) >= _SMALLEST
    return is_large and not one.flaw and is_weight(one.name, one.dtype, "", is_matrix)


Start = tuple[tuple[int, ...], bytes]


def _by_start(
    left: Mapping[str, Values], shapes: set[tuple[int, ...]]
) -> dict[Start, list[Values]]:
    """Return the tensors of some shapes by their first values."""
    held: dict[Start, list[Values]] = defaultdict(list)
    for one in left.values():
        if one.shape in shapes and _counts(one) and (start := _start(one)):
            held[start].append(one)
    return held


def _start(one: Values) -> Start | None:
    """Return shape and first values, both zeros as one; None of what cannot be read."""
    _, columns = matrix_shape(one.shape)
    try:
        values = one.rows(0, max(4, _SMALLEST // columns))
    except WorkbenchError:
        return None
    return one.shape, (values + np.float32(0)).tobytes()


def _donor(one: Values, held: Mapping[Start, Sequence[Values]], changed: set[str]) -> str:
    """Return the name under which the first holds the values of a tensor of the second; "" without one."""
    start = _start(one)
    for other in held.get(start, ())[:_MOST_CANDIDATES] if start else ():
        # A head that became the embedding, or the reverse, was tied: that is a choice.
        if other.name == one.name or (other.name not in changed and _ties(other.name, one.name)):
            continue
        try:
            if equal(other, one) and not _is_plain(other):
                return other.name
        except WorkbenchError:
            continue
    return ""


def _ties(a: str, b: str) -> bool:
    return any(_EMBEDDING.search(x) and _HEAD.search(y) for x, y in ((a, b), (b, a)))


def _is_plain(one: Values) -> bool:
    """Say whether all rows are alike, as of a constant or of Mamba's `A_log`: equal by convention."""
    first = one.rows(0, 1)
    if matrix_shape(one.shape)[0] == 1:
        return bool((first == first.ravel()[0]).all())
    return all(bool((rows == first).all()) for rows, _ in blocks(one, one))


def exchange_lines(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return lines on tensors of the second that hold what others of the first held.

    Tensors of one module that are held by one other module are a single line.
    """
    groups: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for donor, taker in pairs:
        groups[_modules(donor, taker)].append((donor, taker))
    lines: dict[tuple[str, str], str] = {}
    for key, members in groups.items():
        back = key[::-1]
        if back in lines and len(groups[back]) == len(members):
            lines[back] = _line(groups[back], back, mutual=True)
        else:
            lines[key] = _line(members, key)
    return list(lines.values())


def _modules(a: str, b: str) -> tuple[str, str]:
    """Return two names without the segments that both end with."""
    first, second = a.split("."), b.split(".")
    while len(first) > 1 and len(second) > 1 and first[-1] == second[-1]:
        first.pop()
        second.pop()
    return ".".join(first), ".".join(second)


def _line(
    members: Sequence[tuple[str, str]], modules: tuple[str, str], mutual: bool = False
) -> str:
    donor, taker = members[0] if len(members) == 1 else modules
    many = f" ({plural(len(members), 'tensor')}{' each' * mutual})" if len(members) > 1 else ""
    if mutual:
        return f"{shorten(donor, 90)} and {shorten(taker, 90)} hold each other's values{many}"
    return f"{shorten(taker, 90)} holds what {shorten(donor, 90)} held{many}"
