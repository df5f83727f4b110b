"""The counterfactuals: each changes one thing of a draft, of how it is driven or of what it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.errors import WorkbenchError
from workbench.speculation.ablate import switches_config as settings
from workbench.speculation.ablate import switches_weights as weights
from workbench.speculation.judge.measuring import State
from workbench.speculation.judge.texts import Texts
from workbench.speculation.judge.trial import Trial

if TYPE_CHECKING:
    from torch import Tensor

Apply = Callable[[State], State]


@dataclasses.dataclass(frozen=True)
class Switch:
    """One counterfactual.

    Attributes
    ----------
    name
        Its short name.
    fact
        What it is about: two switches of the same fact are two ways to undo the same thing.
    words
        What is changed, as a sentence would say it.
    apply
        Returns the state with this one thing changed; the same object where it changes nothing.
    remedy
        What a user does where this is the cause.
    same
        Other switches that come to the very same state.
    """

    name: str
    fact: str
    words: str
    apply: Apply
    remedy: str = ""
    same: tuple[str, ...] = ()


def base(trial: Trial) -> State:
    """Return the state as served."""
    return State(trial.draft, trial.driving, trial.trace)


def catalogue(trial: Trial, texts: Texts) -> list[Switch]:
    """Return every switch for a pair, also those that change nothing of it.

    Parameters
    ----------
    texts
        What the answers are like: a text that was sampled gets the greedy one beside it.
    """
    found = []
    for source in (weights.switches, settings.switches):
        found += [Switch(*entry) for entry in source(trial, texts)]
    return found


def turned(
    switches: Sequence[Switch], start: State, *others: State, skipped: dict[str, str] | None = None
) -> tuple[list[tuple[Switch, State]], list[str]]:
    """Turn each switch alone.

    Parameters
    ----------
    start
        What is changed.
    others
        States that are known already: coming back to one of them is no change.
    skipped
        Is given the names of the switches that cannot be run here, and why; None: that is an error.

    Returns
    -------
    tuple
        Switches with their states, those that come to the same state joined into the first of them; and
        the names of those that change nothing.
    """
    kept: list[tuple[Switch, State]] = []
    idle: list[str] = []
    for switch in switches:
        try:
            state = switch.apply(start)
        except WorkbenchError as error:
            if skipped is None:
                raise
            skipped[switch.name] = error.what
            continue
        if any(same(state, known) for known in (start, *others)):
            idle.append(switch.name)
            continue
        for number, (other, there) in enumerate(kept):
            if same(state, there):
                kept[number] = dataclasses.replace(other, same=(*other.same, switch.name)), there
                break
        else:
            kept.append((switch, state))
    return kept, idle


def same(one: State, other: State) -> bool:
    """Tell whether two states compute the same."""
    import torch

    if one is other:
        return True
    if one.driving != other.driving or one.trace is not other.trace:
        return False
    a, b = one.draft, other.draft
    if a.settings != b.settings or not torch.equal(a.to_target, b.to_target):
        return False
    return alike(a.tensors, b.tensors)


def alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Tell whether two sets of tensors have the same names and values; NaN equals NaN."""
    return one.keys() == other.keys() and all(
        one[name] is other[name] or weights.equal(one[name], other[name]) for name in one
    )
