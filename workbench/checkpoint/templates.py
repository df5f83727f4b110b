"""Names in groups: 200,000 tensor names are some thirty templates with numbers in them.

Every comparison of names in the workbench works on these groups, never name against name. A number is
an index only where it is a whole segment between dots and is written the plain way: the ``2`` of
``d2t``, ``w2`` or ``layers.02`` belongs to the text, and so does what follows the eighth index.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# A longer number is text: ids are not indices, and an int64 must hold the product of two.
LONGEST = 9
# No model has more than four indices in a name; further numbers are text, so that a hostile name makes
# no table of 50,000 columns.
MOST_INDICES = 8
_DOT, _LINE, _ZERO, _MARK = 46, 10, 48, 0

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclasses.dataclass(frozen=True)
class NameGroup:
    """The names that share one template.

    Attributes
    ----------
    template
        A name with ``{}`` in place of each index, such as ``layers.{}.mlp.up_proj.weight``.
    at
        Positions of the names in the sequence that was grouped, shape (n,).
    index
        The indices of each name, shape (n, number of ``{}``).
    """

    template: str
    at: Rows
    index: Rows


def group_names(names: Sequence[str], *labels: np.ndarray[Any, Any]) -> list[NameGroup]:
    """Group names by template, and by equal `labels` too where those are given.

    Parameters
    ----------
    names
        The names.
    labels
        Integer columns, one entry a name, none negative (codes of shape and dtype, say).

    Returns
    -------
    list of NameGroup
        In the order in which each group first appears.
    """
    if not names:
        return []
    templates: list[str] = []
    parts = []
    for first in range(0, len(names), _BLOCK):
        block = names[first : first + _BLOCK]
        text, odd = _plain_text(block)
        texts, *numbers_of_block = _split_numbers(text)
        for i in odd:
            texts[i] = block[i].replace("{", "{{").replace("}", "}}")
        templates += texts
        parts.append(numbers_of_block)
    depth, numbers = (np.concatenate(column) for column in zip(*parts, strict=True))
    codes = _Codes()
    key = np.fromiter(map(codes.__getitem__, templates), np.int64, len(names))
    start = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum(depth, out=start[1:])
    for label in labels:
        key = key * (int(label.max()) + 1) + label
    groups = []
    for at in _equal(key):
        one = int(at[0])
        if len(at) == 1:  # as all of 300,000 names without a pattern are
            index = numbers[start[one] : start[one + 1]].reshape(1, -1)
        else:
            index = numbers[start[at][:, None] + np.arange(depth[one])]
        groups.append(NameGroup(templates[one], at, index))
    return groups


def _split_numbers(text: str) -> tuple[list[str], Rows, Rows]:
    """Return the template of each line, the number of indices in it, and all indices in a row."""
    chars = np.frombuffer(text.encode(), dtype=np.uint8)
    digit = (chars >= _ZERO) & (chars < _ZERO + 10)
    edges = np.flatnonzero(np.diff(digit, prepend=False, append=False))
    first, after = edges[::2], edges[1::2]
    bounded = np.ones(len(chars) + 2, dtype=bool)  # the text's ends bound a number, too
    np.logical_or(chars == _DOT, chars == _LINE, out=bounded[1:-1])
    length = after - first
    plain = (length == 1) | ((chars[first] != _ZERO) & (length <= LONGEST))
    index = plain & bounded[first] & bounded[after + 1]
    first, length = first[index], length[index]
    lines = np.flatnonzero(chars == _LINE)
    line_of = np.searchsorted(lines, first)
    depth = np.bincount(line_of, minlength=len(lines) + 1)
    if depth.max() > MOST_INDICES:
        place_in_line = np.arange(len(first)) - (np.cumsum(depth) - depth)[line_of]
        early = place_in_line < MOST_INDICES
        first, length = first[early], length[early]
        depth = np.minimum(depth, MOST_INDICES)
    numbers = np.zeros(len(first), dtype=np.int64)
    keep = np.ones(len(chars), dtype=bool)
    for place in range(int(length.max(initial=0))):
        inside = np.flatnonzero(length > place)
        numbers[inside] = numbers[inside] * 10 + (chars[first[inside] + place] - _ZERO)
        keep[first[inside] + place] = place == 0
    marked = chars.copy()
    marked[first] = _MARK
    templates = marked[keep].tobytes().decode().replace("\0", "{}").split("\n")
    return templates, depth, numbers


# So many names at a time that their text stays in the cache of a core.
_BLOCK = 8192

# What a template says itself, what separates names here, and half characters, which no encoding has.
_ODD = re.compile("[{}\0\n\ud800-\udfff]")
_INDEX = re.compile(rf"(?:^|\.)(?:0|[1-9][0-9]{{0,{LONGEST - 1}}})(?:\.|$)")


def _plain_text(names: Sequence[str]) -> tuple[str, list[int]]:
    """Return the names as lines, and the positions of odd ones, which are left blank.

    An odd name is text throughout: its numbers are no indices. It costs the others nothing.
    """
    text = "\n".join(names)
    lines = text.count("\n") == len(names) - 1 and not any(char in text for char in "{}\0")
    if lines and (text.isascii() or _ODD.search(text.replace("\n", "")) is None):
        return text, []
    odd = [at for at, name in enumerate(names) if _ODD.search(name)]
    plain = list(names)
    for at in odd:
        plain[at] = ""
    return "\n".join(plain), odd


class _Codes(dict[str, int]):
    """Numbers texts in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code


def _equal(key: Rows) -> list[Rows]:
    """Positions with equal keys, ordered by first appearance."""
    order = np.argsort(key, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(key[order])) + 1])
    rank = np.argsort(order[starts])
    ends = np.append(starts[1:], len(order))
    return [order[a:b] for a, b in zip(starts[rank].tolist(), ends[rank].tolist(), strict=True)]


def fill(template: str, index: Rows) -> list[str]:
    """Return the names that a template stands for, one a row of `index`.

    ``{}`` takes the columns in turn; ``{0}`` and ``{1}`` take the column they name.
    """
    form = template.format
    return [form(*row) for row in index.tolist()]


def field(column: int) -> str:
    """Return the field that stands for an index column: ``{0}``."""
    return f"{{{column}}}"


def numbered(template: str) -> str:
    """Return a template with each ``{}`` numbered: ``layers.{0}.experts.{1}.w1``."""
    parts = template.split("{}")
    return "".join(
        part + (field(column) if column < len(parts) - 1 else "")
        for column, part in enumerate(parts)
    )


def parse(name: str) -> tuple[str, list[int]]:
    """Return the template of one name and the indices in it, as `group_names` would."""
    if _ODD.search(name):
        return name.replace("{", "{{").replace("}", "}}"), []
    if not _INDEX.search(name):
        return name, []
    segments, numbers = name.split("."), list[int]()
    for at, text in enumerate(segments):
        if len(numbers) == MOST_INDICES:
            break
        plain = text.isascii() and text.isdigit() and len(text) <= LONGEST
        if plain and (text[0] != "0" or len(text) == 1):
            numbers.append(int(text))
            segments[at] = "{}"
    return ".".join(segments), numbers


def spans(values: Iterable[int]) -> str:
    """Return whole numbers as text: ``0...23``, ``0, 2, 5...7``."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}...{b}" for a, b in runs)


def describe(template: str, index: Rows) -> str:
    """Return one line for a whole group: ``layers.{0...23}.self_attn.q_proj.weight``.

    Where the group is not the full product of its columns, the text shows the values that occur in
    each column; the count beside it tells the difference.
    """
    columns = [np.unique(column).tolist() for column in index.T]
    texts = [str(c[0]) if len(c) == 1 else "{" + spans(c) + "}" for c in columns]
    return template.format(*texts)
