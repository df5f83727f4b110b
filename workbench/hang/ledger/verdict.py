"""The verdict on a ledger: whether the hang is understood, and the last launch serves.

`items` lists the last launch, the cause, and every launch before; the checks of `CHECKS` settle them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.core.finding import Confidence
from workbench.core.verdict import Coverage, Item, Settled, Verdict, cover
from workbench.core.wording import plural
from workbench.hang.judge import wording

if TYPE_CHECKING:
    from workbench.hang.ledger.ledger import LaunchLedger

CAUSE = "cause of the hang"
LINES = "lines of the ledger"
_NAMED = 3  # launches that one item names
BAD = ("hung", "crashed")


def verdict(ledger: LaunchLedger) -> Verdict:
    """Return the verdict on a ledger."""
    found = covered(ledger)
    sure: Confidence = "unknown"
    state = "empty" if not ledger.launches else "open"
    if found.ok is False:
        sure, state = "certain", ledger.launches[-1].outcome
    elif found.ok:
        sure, state = "likely", "understood"
    overturned = ("a hang or a crash with the change",) if found.ok else ()
    return Verdict(state, _sentence(ledger), sure, found, overturned)


def _sentence(ledger: LaunchLedger) -> str:
    """Return the story in one or two sentences."""
    known = ledger.launches
    lost = "".join(f" {wording.sentence(one)}." for one in ledger.unread)
    if not known:
        return f"No launch could be read.{lost}" if lost else "There are no launches yet."
    tally = ", ".join(
        f"{len(list(group))} {outcome}"
        for outcome, group in itertools.groupby(sorted(one.outcome for one in known))
    )
    kinds = len(set(ledger.configurations))
    launches = f"{plural(len(known), 'launch', 'launches')} of {plural(kinds, 'configuration')}"
    loudest = next((f for f in ledger.findings if f.severity != "note"), None)
    loudest = loudest or next(iter(ledger.findings), None)
    before = f"{loudest.title}. " if loudest else ""
    return f"{before}{launches}: {tally}.{lost}"


def covered(ledger: LaunchLedger, checks: Sequence[Check] | None = None) -> Coverage:
    """Return the coverage; `checks` are all of `CHECKS` unless a test leaves some out."""
    chosen = CHECKS if checks is None else checks
    whole = cover(items(ledger), (one for check in chosen for one in check(ledger)))
    return Coverage(tuple(_grouped(whole.items)))


def items(ledger: LaunchLedger) -> Iterator[Item]:
    """Yield everything that the question covers; earlier launches do not decide it by themselves."""
    last = len(ledger.launches)
    if last:
        yield Item("last launch", _name(ledger, last), how="outcome not recorded")
    yield Item("cause", CAUSE, how="there are no launches" if not last else "not checked")
    for one in ledger.unread:
        yield Item("ledger", LINES, how=f"{one}: the last launch may be missing")
    for number in range(1, last):
        yield Item("launch", _name(ledger, number), how="not checked", essential=False)


def _name(ledger: LaunchLedger, number: int) -> str:
    """Return the name of a launch, with its number from 1: several may have one name."""
    return f"launch {number} ({ledger.launches[number - 1].name})"


def outcomes(ledger: LaunchLedger) -> Iterator[Settled]:
    """Settle what came of each launch."""
    for number, launch in enumerate(ledger.launches, start=1):
        name = _name(ledger, number)
        if number < len(ledger.launches):
            known = launch.outcome != "unknown"
            how = launch.outcome if known else "outcome not recorded"
            yield Settled("launch", name, "ok" if known else "open", how)
        elif launch.outcome in BAD:
            yield Settled("last launch", name, "wrong", launch.outcome)
        elif launch.outcome == "served":
            yield Settled("last launch", name, "ok", "served")
        else:
            how = "stopped" if launch.outcome == "stopped" else "outcome not recorded"
            yield Settled("last launch", name, "open", how)


def causes(ledger: LaunchLedger) -> Iterator[Settled]:
    """Settle the cause: one change has to be flipped and flipped back, with enough starts."""
    found = next((f for f in ledger.findings if f.code == "launches.supported"), None)
    if found is not None:
        yield Settled("cause", CAUSE, "ok", found.title)
    elif ledger.launches:
        how = "not one change was flipped and flipped back with enough starts"
        yield Settled("cause", CAUSE, "open", how)


Check = Callable[["LaunchLedger"], Iterator[Settled]]
CHECKS: tuple[Check, ...] = (outcomes, causes)


def _grouped(whole: Sequence[Item]) -> Iterator[Item]:
    """Yield the items, earlier launches that came to the same as one."""
    alike: dict[tuple[str, str], list[Item]] = {}
    for item in whole:
        if item.kind != "launch":
            yield item
        else:
            alike.setdefault((item.state, item.how), []).append(item)
    for some in alike.values():
        more = len(some) - _NAMED
        names = ", ".join(item.name for item in some[:_NAMED])
        name = f"{names} and {more} more" if more > 0 else names
        first = some[0]
        yield Item("launch", name, first.state, first.how, len(some), essential=False)
