"""An engine that accepts less than its files do: the sentence that says so, and when it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.speculation.judge.thresholds import ENGINE_LOSS, ENOUGH, SURE

if TYPE_CHECKING:
    from workbench.speculation.judge.expected import Expected
    from workbench.speculation.rounds.replayed import Replayed

ENGINE_NEXT = (
    "Serve the same files with another release, one request at a time and without the prefix cache and CUDA "
    "graphs, and compare the acceptance lengths."
)


def look_at_engine(files: float, engine: str | float, does: str = "") -> str:
    """Return the sentence: how much the files accept, and how much the engine did."""
    said = engine if isinstance(engine, str) else f"{engine:.2f}"
    cause = f" {does}" if does else " The cause is not in these files, or it is not in this replay."
    return (
        f"Look at the engine: on the same texts these files accept {files:.2f} tokens a round, and the "
        f"engine accepted {said}.{cause}"
    )


def engine_loses(replayed: Replayed, expected: Expected | None) -> bool:
    """Tell whether the replay of recorded rounds accepts more than the engine did, and as much as it should.

    Parameters
    ----------
    replayed
        With what the engine emitted in each round.
    """
    known = replayed.observed >= 0
    if known.sum() < 2:
        return False
    more = (replayed.emitted - replayed.observed)[known].astype(float)
    error = float(more.std(ddof=1)) / float(np.sqrt(len(more)))
    if more.mean() - 2 * SURE * error <= ENGINE_LOSS:
        return False
    return expected is None or replayed.accept_length - 1 >= ENOUGH * (expected.accept_length - 1)
