"""How a `Replay` is written: the schema ``workbench.replay/1``, with its types."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from workbench.core.saving import Saved
from workbench.speculation.evidence.ranges import Count, Number
from workbench.speculation.evidence.tally import MOST_DRAFTS, Agreement, Logged
from workbench.speculation.judge.expected import Expected
from workbench.speculation.rounds.beside import Beside
from workbench.speculation.rounds.replayed import Array, Replayed
from workbench.speculation.rounds.round_columns import MOST_CELLS, Asked, RoundColumns, fit_together

_MOST_NODES = 1 << 20  # of a tree; the widest and deepest that is run here has a quarter
_OWN = ("own", "own_probabilities")
_BESIDE = ("tokens", "shares", "accepted")
Histogram = Annotated[tuple[Count, ...], Meta(max_length=MOST_DRAFTS + 1)]
Depth = Annotated[int, Meta(ge=0, le=MOST_DRAFTS)]
Row = list[int]
Grid = list[list[int]]
Shares = list[float | None]


class SavedRequest(Struct, frozen=True):
    """One `Asked`, written."""

    name: str
    tokens: tuple[int, ...]
    prompt: int


class SavedColumns(Struct, frozen=True, omit_defaults=True):
    """The columns of `Replayed`, written as lists; a number that is not known is null.

    What version 0.1 did not save is left out where there is nothing of it.
    """

    request: Row
    index: Row
    prefix: Row
    tokens: Grid
    parents: Grid
    depths: Grid
    probabilities: list[Shares]
    taken: list[list[bool]]
    ranks: Grid
    accepted: Row
    bonus: Row
    wanted: Grid
    choices: Grid
    margins: list[Shares]
    observed: Row
    left: Row
    first: Grid
    first_probabilities: list[Shares]
    own: list[Grid] = []
    own_probabilities: list[list[Shares]] = []


class SavedBeside(Struct, frozen=True):
    """A `Beside`, written."""

    change: str
    words: str
    tokens: Grid
    shares: list[Shares]
    accepted: Row


class SavedRounds(Struct, frozen=True, omit_defaults=True):
    """`RoundColumns`, written."""

    rounds: Annotated[int, Meta(ge=0, le=MOST_CELLS)]
    columns: SavedColumns
    choices: list[Grid]
    shares: list[list[Shares]]
    requests: tuple[SavedRequest, ...]
    words: dict[str, str]
    beside: SavedBeside | None = None

    @classmethod
    def of(cls, kept: RoundColumns) -> SavedRounds:
        """Return rounds as they are written."""
        columns = {
            field.name: getattr(kept.columns, field.name).tolist()
            for field in dataclasses.fields(Replayed)
            if kept.columns.own.size or field.name not in _OWN
        }
        return cls(
            rounds=len(kept),
            columns=SavedColumns(**columns),
            choices=kept.choices.tolist(),
            shares=kept.shares.tolist(),
            requests=tuple(SavedRequest(r.name, r.tokens, r.prompt) for r in kept.requests),
            words={str(token): word for token, word in kept.words.items()},
            beside=None if kept.beside is None else _written(kept.beside),
        )

    def restored(self) -> RoundColumns:
        """Return the rounds, checked.

        Raises
        ------
        ValueError
            The columns do not belong together.
        """
        columns = {
            field.name: _array(field.name, getattr(self.columns, field.name), self.rounds)
            for field in dataclasses.fields(Replayed)
            if self.columns.own or field.name not in _OWN
        }
        if "own" not in columns:
            shape = (*columns["tokens"].shape, 0)
            columns |= {"own": np.zeros(shape, np.int64), "own_probabilities": np.zeros(shape)}
        kept = RoundColumns(
            Replayed(**columns),
            _array("choices of the target", self.choices, self.rounds, dimensions=3),
            _array("shares", self.shares, self.rounds, dimensions=3),
            tuple(Asked(r.name, r.tokens, r.prompt) for r in self.requests),
            {int(token): word for token, word in self.words.items()},
            None if self.beside is None else self._beside(self.beside),
        )
        return fit_together(kept)

    def _beside(self, saved: SavedBeside) -> Beside:
        arrays = {n: _array(n, getattr(saved, n), self.rounds) for n in _BESIDE}
        return Beside(saved.change, saved.words, **arrays)


def _written(found: Beside) -> SavedBeside:
    columns = {name: getattr(found, name).tolist() for name in _BESIDE}
    return SavedBeside(found.change, found.words, **columns)


class SavedReplay(Saved, frozen=True, kw_only=True):
    """The schema of a `Replay`."""

    target: str
    draft: str
    evidence: str
    engine: str
    algorithm: str
    steps: Depth
    topk: Depth
    draft_tokens: Annotated[int, Meta(ge=0, le=_MOST_NODES)]
    temperature: Number
    total: Count
    replayed: Histogram | None
    observed: Histogram | None
    logged: Logged | None
    expected: Expected | None
    agreement: Agreement | None
    fills: dict[str, Number | None]
    course: tuple[tuple[Number, Number | None], ...]
    kept: SavedRounds | None
    # These follow from the rest, whatever a file says.
    accept_length: float | None = None
    per_position: tuple[float, ...] = ()


_DIMENSIONS = dict.fromkeys(
    ("request", "index", "prefix", "accepted", "bonus", "observed", "left"), 1
)
_DIMENSIONS |= dict.fromkeys(_OWN, 3)
_FLOATS = frozenset(
    ("probabilities", "margins", "first_probabilities", "own_probabilities", "shares")
)


def _array(name: str, values: Any, rounds: int, *, dimensions: int = 0) -> Array:
    """Return a saved column as an array; null in a column of numbers is NaN."""
    dimensions = dimensions or _DIMENSIONS.get(name, 2)
    if len(values) != rounds:
        raise ValueError(f"{name} does not have {rounds} rounds")
    kind = float if name in _FLOATS else bool if name == "taken" else np.int64
    array = np.array(values, dtype=kind)
    if rounds == 0:
        return array.reshape((0,) * dimensions)
    if array.ndim != dimensions:
        raise ValueError(f"{name} has {array.ndim} dimensions, not {dimensions}")
    return array
