"""The one record that rules every job: what was asked, what was checked, and what follows.

An all-clear is a proof. The items that a question covers are listed first, by code that does not check
them; checks then settle them one by one. What no check settled stays open, and an open item that is
essential keeps the answer at "cannot tell".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from workbench.core.finding import Confidence

State = Literal["ok", "wrong", "open"]
WORST: tuple[State, ...] = ("wrong", "open", "ok")
"""The states of an item, the worst first."""

OLD = "saved by version 0.1, which recorded no coverage"
"""Why an item of a result that version 0.1 saved is all that is known of its coverage."""


class Item(Struct, frozen=True):
    """One thing that a question covers, settled or not.

    Attributes
    ----------
    kind
        What it is: ``parameter``, ``key``, ``contract``, ``rank``, ``argument``, ``fault``, …
    name
        Which one, in words that need no kind before them; for several at once a template such as
        ``layers.{0...23}.mlp.up_proj.weight``.
    state
        ``ok``: a check found it healthy. ``wrong``: a check proved a fault. ``open``: nobody knows.
    how
        Which check settled it, and by what; where it is open, what is missing.
    count
        How many it stands for.
    essential
        False where the answer does not depend on it: it is listed, and decides nothing.
    """

    kind: str
    name: str
    state: State = "open"
    how: str = "not checked"
    count: Annotated[int, Meta(ge=1)] = 1
    essential: bool = True


class Settled(Struct, frozen=True):
    """What one check found out about one item."""

    kind: str
    name: str
    state: State
    how: str


class Coverage(Struct, frozen=True):
    """Every item that a question covers."""

    items: tuple[Item, ...] = ()

    @property
    def ok(self) -> bool | None:
        """Derive the answer.

        False where a fault is proved. True where there are essential items and each was found healthy.
        None otherwise.
        """
        if any(item.state == "wrong" and item.essential for item in self.items):
            return False
        essential = [item for item in self.items if item.essential]
        return True if essential and all(item.state == "ok" for item in essential) else None

    def having(self, state: State, *, essential: bool | None = None) -> Iterator[Item]:
        """Yield the items in a state; of those, only the essential ones or only the others."""
        for item in self.items:
            if item.state == state and essential in (None, item.essential):
                yield item

    def count(self, state: State) -> int:
        """Return for how many things the essential items in a state stand."""
        return sum(item.count for item in self.having(state, essential=True))


def cover(items: Iterable[Item], settled: Iterable[Settled]) -> Coverage:
    """Settle listed items by what the checks found.

    An item takes the worst that any check found: wrong before open before ok. Without any it stays open.
    What a check found about an item that nobody listed is added: a fault counts, wherever it is.
    """
    found: dict[tuple[str, str], Settled] = {}
    for one in settled:
        before = found.get((one.kind, one.name))
        if before is None or WORST.index(one.state) < WORST.index(before.state):
            found[one.kind, one.name] = one
    covered = []
    for item in items:
        by = found.pop((item.kind, item.name), None)
        covered.append(item if by is None else structs.replace(item, state=by.state, how=by.how))
    covered += [Item(one.kind, one.name, one.state, one.how) for one in found.values()]
    return Coverage(tuple(covered))


class Verdict(Struct, frozen=True):
    """What an analysis answers, and why one may believe it.

    Attributes
    ----------
    state
        The answer in one word of the job: ``loads``, ``hung``, ``trained``, …
    sentence
        The answer in one or two sentences.
    confidence
        How sure it is.
    coverage
        What the question covers, settled or not.
    overturned_by
        What would show that the answer is wrong.
    """

    state: str
    sentence: str
    confidence: Confidence = "certain"
    coverage: Coverage = Coverage()
    overturned_by: tuple[str, ...] = ()

    @property
    def ok(self) -> bool | None:
        """True: proved healthy. False: a fault is proved. None: cannot tell. It is never stored."""
        return self.coverage.ok

    @property
    def missing(self) -> tuple[str, ...]:
        """What keeps the answer open, in words, the essential items first.

        Empty where nothing is open.
        """
        items = sorted(self.coverage.having("open"), key=lambda item: not item.essential)
        return tuple(f"{item.name}: {item.how}" for item in items)


def unrecorded(ok: bool | None, what: str) -> Coverage:
    """Return the coverage of a result that version 0.1 saved: its answer, and that nothing else is known."""
    state: State = "open" if ok is None else "ok" if ok else "wrong"
    aside = Item("coverage", "what was checked", "open", OLD, essential=False)
    return Coverage((Item("result", what, state, OLD), *([] if ok is None else [aside])))


def worst(answers: Iterable[object]) -> bool | None:
    """Return the worst of several answers: False before None before True; None where there is none.

    Whatever is neither True nor False counts as None.
    """
    given = list(answers)
    if any(ok is False for ok in given):
        return False
    return True if given and all(ok is True for ok in given) else None
