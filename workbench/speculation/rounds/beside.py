"""What a changed draft would have said in the same rounds, beside what the draft said."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import WorkbenchError
from workbench.speculation.rounds.replayed import Array, Replayed
from workbench.speculation.rounds.run import replay_rounds

if TYPE_CHECKING:
    from workbench.speculation.evidence.driving import Driving
    from workbench.speculation.model.eagle3 import Draft
    from workbench.speculation.model.features import TargetTrace


@dataclasses.dataclass(frozen=True, eq=False)
class Beside:
    """The chains of a changed draft, its best tokens one behind the other, from the same places.

    Attributes
    ----------
    change
        Name of the change, or names with `` + `` between them.
    words
        What it changes, as a sentence would say it.
    tokens, shares
        Its drafts and their probabilities, [rounds, steps].
    accepted
        How many of them the text goes on with. [rounds]
    """

    change: str
    words: str
    tokens: Array
    shares: Array
    accepted: Array

    def first(self, rounds: int) -> Beside:
        """Return the first rounds."""
        return dataclasses.replace(
            self, **{n: getattr(self, n)[:rounds] for n in ("tokens", "shares", "accepted")}
        )

    def drafts(self, row: int) -> list[tuple[int, float]]:
        """Return the tokens of one round with their probabilities."""
        return list(zip(self.tokens[row].tolist(), self.shares[row].tolist(), strict=True))


def beside_of(
    names: tuple[str, ...], words: str, draft: Draft, driving: Driving, trace: TargetTrace, rounds: Replayed
) -> Beside:  # fmt: skip
    """Draft the same rounds with a changed draft.

    Parameters
    ----------
    draft, driving, trace
        As the change makes them; of a tree its best chain is drafted.
    rounds
        Those to stand beside.

    Raises
    ------
    WorkbenchError
        The change makes other texts, and so other rounds.
    """
    starts = [
        rounds.prefix[rounds.request == row].tolist() for row in range(int(trace.lengths.shape[0]))
    ]
    steps = int(rounds.depths.max(initial=1))
    driving = driving.replaced(topk=1, steps=steps, draft_tokens=steps + 1)
    found = replay_rounds(draft, driving, trace, starts)
    if not np.array_equal(found.wanted[:, :1], rounds.wanted[:, :1]):
        raise WorkbenchError(
            f"{' + '.join(names)} has other texts, and so no round in common",
            why="what a changed draft says is shown for the same places of the same texts",
            next_step="Replay along those texts, with prompts in the place of evidence.",
        )
    shares = np.round(found.probabilities, 4)
    return Beside(" + ".join(names), words, found.tokens, shares, found.accepted)
