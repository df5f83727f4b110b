"""The rounds that a result keeps: columns, their requests, and the words of their tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from workbench.speculation.rounds.beside import Beside
from workbench.speculation.rounds.records import Round
from workbench.speculation.rounds.replayed import Array, Replayed
from workbench.speculation.rounds.tops import Tops

MOST_CELLS = (
    60_000  # numbers a column that is saved: 12,000 rounds of a chain of 4, 1,000 trees of 60 nodes
)
_FLOATS = ("probabilities", "margins", "first_probabilities", "own_probabilities")
_WIDE = ("tokens", "parents", "depths", "probabilities", "taken", "ranks")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One request: its text, and where the prompt ends.

    Attributes
    ----------
    name
        What the evidence calls it.
    tokens
        Prompt and answer, as token ids.
    prompt
        How many of them are the prompt's.
    """

    name: str
    tokens: tuple[int, ...]
    prompt: int


@dataclasses.dataclass(frozen=True, eq=False)
class RoundColumns:
    """Rounds in columns, with the target's choices; probabilities to four digits, as they are saved.

    Attributes
    ----------
    columns
        The replayed rounds.
    choices, shares
        The target's best tokens after the root (entry 0) and after each node, and their probabilities,
        [rounds, 1 + nodes, choices]; -1 and NaN where they are not known.
    requests
        The requests by the numbers that `columns.request` holds.
    words
        The text of each token id; empty without a tokenizer.
    beside
        What a changed draft would have said in these rounds; None: none was asked.
    """

    columns: Replayed
    choices: Array
    shares: Array
    requests: tuple[Asked, ...]
    words: Mapping[int, str] = dataclasses.field(default_factory=dict)
    beside: Beside | None = None

    def __post_init__(self) -> None:
        rounded = {name: _rounded(getattr(self.columns, name)) for name in _FLOATS}
        object.__setattr__(self, "columns", dataclasses.replace(self.columns, **rounded))
        object.__setattr__(self, "shares", _rounded(self.shares))

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def saved(self) -> int:
        """How many of the first rounds a saved result holds."""
        wide = max(1, self.columns.tokens.shape[1])
        return min(len(self), max(1, MOST_CELLS // int(wide)))

    def round(self, row: int) -> Round:
        """Return one round, the target's choices with each node."""
        return Tops(self.choices, self.shares).with_target_choices(self.columns.round(row), row)

    def top(self, row: int, place: int) -> tuple[tuple[int, float], ...]:
        """Return the target's best tokens after the root (place 0) or after node `place` - 1."""
        return Tops(self.choices, self.shares).at(row, place)

    def own(self, row: int, place: int) -> tuple[tuple[int, float], ...]:
        """Return the draft's best tokens at the root (place 0) or behind node `place` - 1."""
        c = self.columns
        ids, shares = (c.first[row], c.first_probabilities[row]) if place == 0 else (
            c.own[row, place - 1], c.own_probabilities[row, place - 1]
        )  # fmt: skip
        pairs = zip(ids.tolist(), shares.tolist(), strict=True)
        return tuple((int(token), float(share)) for token, share in pairs if token >= 0)

    def first(self, rounds: int) -> RoundColumns:
        """Return the first rounds, and the requests and words that they need."""
        keep = np.arange(len(self)) < rounds
        columns = self.columns.rows(keep)
        asked = int(columns.request.max(initial=-1)) + 1
        cut = dataclasses.replace(
            self,
            columns=columns,
            choices=self.choices[keep],
            shares=self.shares[keep],
            requests=self.requests[:asked],
            beside=None if self.beside is None else self.beside.first(rounds),
        )
        used = cut.used()
        return dataclasses.replace(cut, words={t: w for t, w in self.words.items() if t in used})

    def used(self) -> set[int]:
        """Return all token ids that are shown."""
        c = self.columns
        parts = [c.tokens, c.bonus, c.wanted, c.first, c.own, self.choices]
        parts += [] if self.beside is None else [self.beside.tokens]
        ids = {int(t) for part in parts for t in np.unique(part)}
        ids |= {t for request in self.requests for t in request.tokens}
        return ids - {-1}

    def bounded(self) -> RoundColumns:
        """Return as many of the first rounds as a saved result holds."""
        return self.first(self.saved)


def fit_together(kept: RoundColumns) -> RoundColumns:
    """Return columns that were read from a file, checked: each round is to be shown, not the first alone.

    Raises
    ------
    ValueError
        They do not belong together.
    """
    if len(kept):
        _check(kept.columns, kept.choices, kept.shares, kept.requests)
    if kept.beside is not None:
        _check_beside(kept.beside, len(kept))
    return kept


def _check_beside(found: Beside, rounds: int) -> None:
    """Raise where a changed draft's chains are not those of these rounds."""
    if found.tokens.shape != found.shares.shape or len(found.tokens) != rounds:
        raise ValueError("the changed draft has other rounds")
    if found.accepted.shape != (rounds,):
        raise ValueError("the changed draft has other counts")
    _check_within("more is accepted than was drafted", found.accepted, 0, found.tokens.shape[1])


def _check(c: Replayed, choices: Array, shares: Array, requests: Sequence[Asked]) -> None:
    """Raise where columns do not belong together."""
    rounds, nodes, deep = len(c), c.tokens.shape[1], c.wanted.shape[1]
    if any(getattr(c, name).shape != (rounds, nodes) for name in _WIDE):
        raise ValueError("the columns of nodes differ in size")
    if any(values.shape != (rounds, deep) for values in (c.wanted, c.choices, c.margins)):
        raise ValueError("the columns of the text differ in size")
    if c.own.shape != c.own_probabilities.shape or c.own.shape[:2] != (rounds, nodes):
        raise ValueError("the draft's own choices differ in size")
    if choices.shape != shares.shape or choices.ndim != 3 or choices.shape[1] != nodes + 1:
        raise ValueError("choices and shares differ in size")
    if not all(0 <= r.prompt <= len(r.tokens) for r in requests):
        raise ValueError("a prompt is longer than its text")
    _check_within("a round belongs to no request", c.request, 0, len(requests) - 1)
    texts = np.array([len(r.tokens) for r in requests], dtype=np.int64)
    for wrong, values, least, most in (
        ("a node comes before its parent", c.parents, -1, np.arange(nodes) - 1),
        ("a node is deeper than the text", c.depths, 1, deep),
        ("more drafts are accepted than there are", c.accepted, 0, nodes),
        ("more tokens were emitted than there are", c.observed, -1, deep),
        ("a round begins behind its text", c.prefix, 0, texts[c.request]),
    ):
        _check_within(wrong, values, least, most)


def _check_within(wrong: str, values: Array, least: int, most: Any) -> None:
    if (values < least).any() or (values > most).any():
        raise ValueError(wrong)


class Rounds(Sequence[Round]):
    """Rounds as records, each made when it is asked for."""

    def __init__(self, kept: RoundColumns | None) -> None:
        self._kept = kept

    def __len__(self) -> int:
        return len(self._kept) if self._kept is not None else 0

    @overload
    def __getitem__(self, at: int) -> Round: ...
    @overload
    def __getitem__(self, at: slice) -> list[Round]: ...
    def __getitem__(self, at: int | slice) -> Round | list[Round]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        row = at + len(self) if at < 0 else at
        if self._kept is None or not 0 <= row < len(self):
            raise IndexError(f"round {at} of {len(self)}")
        return self._kept.round(row)

    def __iter__(self) -> Iterator[Round]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self):,} rounds>"


def _rounded(values: Array) -> Array:
    return np.asarray(np.round(values.astype(float), 4))
