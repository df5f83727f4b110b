"""Replayed rounds in columns, and one of them as a record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from workbench.speculation.rounds.records import Node, Round

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Replayed:
    """Rounds that were drafted again, in columns; `round` makes one of them a record.

    Attributes
    ----------
    request, index, prefix
        Which request, the how-manyth round of it, tokens known before it. [rounds]
    tokens, parents, depths, probabilities
        The tree, [rounds, nodes].
    taken, ranks
        Whether verification took a node; the rank of the target's choice in the draft's distribution at the
        node's place, 1 the best, 0 unknown, -1 outside of the draft's vocabulary. [rounds, nodes]
    accepted, bonus
        Drafts accepted, and the token after them (-1 unknown). [rounds]
    wanted
        The text at each depth, what the engine's target chose, [rounds, depth + 1]; -1 past its end.
    choices, margins
        What the target chooses here at the same places, -1 unknown, and by how much its logit leads, NaN
        unknown.
    observed, left
        How many tokens the engine emitted, -1 unknown; how many the text has after `prefix`. [rounds]
    first, first_probabilities
        The draft's five best tokens at the root, [rounds, 5].
    own, own_probabilities
        The same behind each node, [rounds, nodes, 5]; -1 and NaN where nothing was drafted, or nobody asked.
    """

    request: Array
    index: Array
    prefix: Array
    tokens: Array
    parents: Array
    depths: Array
    probabilities: Array
    taken: Array
    ranks: Array
    accepted: Array
    bonus: Array
    wanted: Array
    choices: Array
    margins: Array
    observed: Array
    left: Array
    first: Array
    first_probabilities: Array
    own: Array
    own_probabilities: Array

    def __len__(self) -> int:
        return len(self.request)

    @property
    def accept_length(self) -> float:
        """Tokens a round, the target's own included."""
        return 1.0 + float(self.accepted.mean()) if len(self) else math.nan

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of rounds in which at least k drafts were accepted, from k = 1 on."""
        deepest = int(self.depths.max(initial=0))
        return tuple(float((self.accepted >= k).mean()) for k in range(1, deepest + 1))

    @property
    def emitted(self) -> Array:
        """Tokens that each round adds to the text, cut where the text ends."""
        whole = self.accepted + 1
        return np.asarray(np.minimum(whole, np.where(self.left > 0, self.left, whole)))

    def agrees(self) -> Array:
        """Tell for each round whether it emits as many tokens as the engine did."""
        return np.asarray(self.emitted == self.observed)

    def same_tokens(self) -> Array:
        """Tell for each round whether it emits the engine's very tokens, the target's choices included."""
        at = np.arange(self.wanted.shape[1])[None, :]
        within = (at < self.emitted[:, None]) & (self.choices >= 0)
        return np.asarray(self.agrees() & ~((self.choices != self.wanted) & within).any(1))

    def rows(self, keep: Array) -> Replayed:
        """Return some of the rounds."""
        names = [field.name for field in dataclasses.fields(self)]
        return Replayed(**{name: getattr(self, name)[keep] for name in names})

    def round(self, row: int) -> Round:
        """Return one round as a record; `Tops.with_target_choices` adds what the target says at its nodes."""
        path = tuple(int(t) for t, on in zip(self.tokens[row], self.taken[row], strict=True) if on)
        bonus = int(self.bonus[row])
        deepest = int(self.depths[row].max(initial=0))
        stop = "unknown" if bonus < 0 else "leaf" if len(path) == deepest else "rejected"
        if bonus < 0 and len(path) >= self.left[row] >= 0:
            stop = "length"
        margins = self.margins[row][: len(path) + 1]
        margins = margins[~np.isnan(margins)]
        prefix, seen = int(self.prefix[row]), int(self.observed[row])
        return Round(
            request=int(self.request[row]),
            index=int(self.index[row]),
            prefix=prefix,
            nodes=tuple(self._nodes(row)),
            accepted=path,
            bonus=bonus if bonus >= 0 else None,
            stop=stop,
            observed=tuple(self.wanted[row, :seen].tolist()) if seen >= 0 else None,
            margin=float(margins.min()) if len(margins) else None,
        )

    def rounds(self) -> Iterator[Round]:
        """Yield all rounds as records."""
        return (self.round(row) for row in range(len(self)))

    def _nodes(self, row: int) -> Iterator[Node]:
        taken = self.taken[row]
        for n, parent in enumerate(self.parents[row].tolist()):
            on_path = parent < 0 or bool(taken[parent])
            wanted = int(self.wanted[row, int(self.depths[row, n]) - 1])
            if taken[n]:
                reason = ""
            elif not on_path:
                reason = "parent rejected"
            else:
                reason = f"target chose {wanted}" if wanted >= 0 else "unknown"
            rank = int(self.ranks[row, n]) if on_path else 0
            yield Node(
                token=int(self.tokens[row, n]),
                parent=int(parent),
                depth=int(self.depths[row, n]),
                probability=float(self.probabilities[row, n]),
                accepted=bool(taken[n]),
                target_rank=rank if rank > 0 else None,
                outside=rank < 0,
                reason=reason,
            )
