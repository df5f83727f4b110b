"""What the draft would have said in the rounds of a replay, with one thing changed."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors import WorkbenchError
from workbench.speculation.ablate.single_changes import changes, known_names
from workbench.speculation.ablate.switches import base, same
from workbench.speculation.judge.trial import Trial
from workbench.speculation.rounds.beside import Beside, beside_of
from workbench.speculation.rounds.replayed import Replayed


def beside(trial: Trial, rounds: Replayed, names: Sequence[str]) -> Beside:
    """Draft the same rounds with some changes.

    Raises
    ------
    WorkbenchError
        A change is not known for this pair, changes nothing, or makes other texts.
    """
    chosen = known_names(trial, names)
    switches = {switch.name: switch for switch in changes(trial)}
    start = state = base(trial)
    for name in chosen:
        state = switches[name].apply(state)
    if same(state, start):
        raise WorkbenchError(
            f"{' + '.join(chosen)} changes nothing of this draft",
            why="it is served so already",
            next_step="Name another change: ablate() lists those that have an effect.",
        )
    words = " and ".join(switches[name].words for name in chosen)
    return beside_of(tuple(chosen), words, state.draft, state.driving, state.trace, rounds)
