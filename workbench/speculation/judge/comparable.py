"""What an expectation says of this tree, and what of a trial may be held against it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.speculation.judge.expected import Expected

if TYPE_CHECKING:
    from workbench.speculation.judge.trial import Trial


def fitting(
    expected: Expected | None, steps: int, topk: int
) -> tuple[Expected | None, tuple[str, ...]]:
    """Return what an expectation says of a tree, and what was changed for it.

    A chain's first positions are those of a shorter chain; nothing follows from one tree for another.

    Raises
    ------
    WorkbenchError
        It cannot be reached: a round has at most ``steps + 1`` tokens.
    """
    if expected is None:
        return None, ()
    known = len(expected.per_position)
    if expected.topk > 1 and (expected.topk != topk or known != steps):
        said = f"{expected.source} is of trees of width {expected.topk} and {known} steps"
        return None, (f"{said}: not comparable, so left out",)
    if known > steps:
        first = expected.per_position[:steps]
        said = f"{expected.source}, its first {steps} of {known} positions"
        return dataclasses.replace(
            expected, accept_length=1.0 + sum(first), per_position=first, source=said
        ), (f"only the first {steps} of {known} expected positions count: a round has no more",)
    if expected.accept_length > steps + 1 + 1e-6:
        raise WorkbenchError(
            f"an acceptance length of {expected.accept_length:.2f} cannot be expected",
            why=f"a round of {steps} steps emits at most {steps + 1} tokens",
            next_step="Give the number of steps that it was measured with (steps=), or another expectation.",
        )
    return expected, ()


def comparable(trial: Trial) -> tuple[Trial, list[str]]:
    """Return a trial whose acceptance can be held against what is expected, and what was changed for it.

    Trainers count chains, of as many drafts as their metrics have; a tree accepts more of the same draft.
    """
    driving = trial.driving
    expected, said = fitting(trial.expected, driving.steps, driving.topk)
    notes = list(said)
    if expected is not None and expected.topk == 1 < driving.topk:
        notes.append("replayed as a chain, because the expectation is of a chain")
        driving = driving.replaced(topk=1, draft_tokens=driving.steps + 1)
    known = len(expected.per_position) if expected is not None else 0
    if expected is not None and expected.topk == 1 and 0 < known < driving.steps:
        notes.append(f"replayed with {known} drafts a round: the expectation has no more")
        driving = driving.replaced(steps=known, draft_tokens=known + 1)
    return (trial.replaced(driving=driving, expected=expected) if notes else trial), notes
