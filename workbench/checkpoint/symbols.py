"""One name that stands for thousands: a rule applied to it is applied to all of them.

A group of tensors shares a template. Filled with symbolic numbers it is an ordinary name, on which an
engine's rule, or a regular expression, can be tried once; what comes out is turned back into a template
with the indices of each tensor. Numbers that a rule treats apart from others are kept as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from workbench.checkpoint.records import TensorGroup
from workbench.checkpoint.templates import Rows, parse

SYMBOL = 900_000_000
_LARGE = 1 << 20


def symbolic(
    groups: Iterable[TensorGroup], special: Iterable[int] = ()
) -> Iterator[tuple[TensorGroup, str]]:
    """Yield the tensors by group and special indices, each part with one name that stands for it.

    In that name a number that is not special is symbolic: ``layers.900000000.mlp.up_proj.weight``.
    """
    special = tuple(special)
    for group in groups:
        width = group.index.shape[1]
        if not width or not special:
            yield group, group.template.format(*range(SYMBOL, SYMBOL + width))
            continue
        # Which special value, if any, stands in each column: one small number a tensor.
        code = np.zeros(len(group), dtype=np.int64)
        for column in group.index.T:
            if code.max(initial=0) > _LARGE:  # renumbered, lest it outgrow the table of counts
                code = np.unique(code, return_inverse=True)[1]
            code *= len(special) + 1
            for n, value in enumerate(special):
                code += (n + 1) * (column == value)
        if code.max(initial=0) > _LARGE:
            code = np.unique(code, return_inverse=True)[1]
        for value in np.flatnonzero(np.bincount(code)).tolist():
            rows = np.flatnonzero(code == value)
            first = group.index[rows[0]].tolist()
            numbers = (n if n in special else SYMBOL + c for c, n in enumerate(first))
            yield group.take(rows), group.template.format(*numbers)


def concrete(name: str, group: TensorGroup) -> tuple[str, Rows]:
    """Return the template of a symbolic name, and its indices for each tensor of the group."""
    template, numbers = parse(name)
    if not numbers:
        return template, np.zeros((len(group), 0), dtype=np.int64)
    width = group.index.shape[1]
    columns = [
        group.index[:, number - SYMBOL]
        if SYMBOL <= number < SYMBOL + width
        else np.full(len(group), number)
        for number in numbers
    ]
    return template, np.stack(columns, axis=1)


def encode(index: Rows) -> Rows:
    """Return one int64 a row, equal for equal rows.

    Two columns of numbers below 10^9 are packed exactly. With more the code is a hash of 64 bits, which
    for a million rows makes a clash less likely than a memory error.
    """
    if not index.shape[1]:
        return np.zeros(len(index), dtype=np.int64)
    code = index[:, 0].astype(np.uint64)
    for column in index.T[1:]:
        code = code * np.uint64(1_000_000_007) + column.astype(np.uint64)
    return code.astype(np.int64)
