"""Known faults undone together, and put back one by one: what each of them adds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from workbench.speculation.ablate.cause_records import Tried
from workbench.speculation.ablate.static_checks import Hint
from workbench.speculation.ablate.switches import Switch

OnAll = Callable[[Sequence[Switch]], Tried]
"""Switches turned together, measured on all requests and from all places."""


def undoing(hints: Sequence[Hint], singles: Sequence[Tried]) -> list[Switch]:
    """Return for each fault that is known for certain the switch that undoes it best."""
    found: dict[str, Tried] = {}
    sure = [hint.fact for hint in hints if hint.sure and hint.fact]
    for one in singles:
        (switch,) = one.switches
        held = found.get(switch.fact)
        if switch.fact not in sure or not one.confirmed:
            continue
        if held is None or one.measured.accept_length > held.measured.accept_length:
            found[switch.fact] = one
    return [one.switches[0] for one in found.values()]


def untried(hints: Sequence[Hint], facts: frozenset[str]) -> tuple[str, ...]:
    """Return the titles of the certain faults that no change is about; `facts` are those of all changes."""
    wrong = (h for h in hints if h.sure and h.finding.severity == "error")
    return tuple(h.finding.title for h in wrong if h.fact not in facts)


def chain_of(switches: Sequence[Switch], on_all: OnAll) -> tuple[Tried, ...]:
    """Return one set of switches after the other, each with one more, the one that adds most first.

    From all of them the switch that is missed least is taken away, and so on: faults that hide each other are
    all undone while each of them is weighed.
    """
    held: dict[frozenset[str], Tried] = {}

    def measured(chosen: Sequence[Switch]) -> Tried:
        names = frozenset(switch.name for switch in chosen)
        if names not in held:
            held[names] = on_all(chosen)
        return held[names]

    left, order = list(switches), list[Switch]()
    while len(left) > 1:
        without = [[other for other in left if other is not one] for one in left]
        lengths = [measured(rest).finest.accept_length for rest in without]
        order.insert(0, left.pop(lengths.index(max(lengths))))
    order = left + order
    # A set was measured in whatever order it came up; here the last is the one that is added.
    return tuple(
        dataclasses.replace(measured(order[: n + 1]), switches=tuple(order[: n + 1]))
        for n in range(len(order))
    )
