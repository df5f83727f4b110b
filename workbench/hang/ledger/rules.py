"""What launches allow to conclude: one change at a time, what one success means, when to flip back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from workbench.core.finding import GRAVITY, Experiment, Finding
from workbench.core.wording import plural

if TYPE_CHECKING:
    from workbench.evidence.launches import Launch
    from workbench.hang.ledger.differences import Differences
    from workbench.hang.ledger.ledger import LaunchLedger

# By luck alone so many clean starts would be seen in fewer than so many cases.
_LUCK = 0.03
_BAD = ("hung", "crashed")


def passes_needed(hung: int, starts: int) -> int:
    """Return how many clean starts in a row would seldom be luck, by how often it hung so far.

    With a rate p a change that does nothing shows n clean starts with the chance (1 - p)^n; n is the
    first for which that is under 3 %. A hang seen at every start counts as if the next had served, since
    a rate of one would make a single success a proof: 3 of 10 → 10, 1 of 2 → 6, 1 of 1 → 6.
    """
    rate = hung / (starts + 1 if hung >= starts else starts)
    return math.ceil(math.log(_LUCK) / math.log1p(-rate))


def conclude(ledger: LaunchLedger) -> list[Finding]:
    """Return the findings of a ledger, the gravest first."""
    found = [*_several(ledger), *_intermittent(ledger)]
    for at, step in enumerate(ledger.steps):
        if step is not None and len(step.changed) == 1 and not step.unsure:
            found += _tested(ledger, at, step)
    return sorted(found, key=lambda finding: GRAVITY[finding.severity])


def _several(ledger: LaunchLedger) -> Iterator[Finding]:
    for launch, step in zip(ledger.launches, ledger.steps, strict=True):
        if step is None or not step.warning:
            continue
        many = len(step.changed) > 1
        yield Finding(
            "launches.several" if many else "launches.unsure",
            "warning",
            f"{step.first} → {step.second}: {step.warning}",
            evidence_for=tuple(change.text for change in (*step.changed, *step.unsure)),
            next_step="Relaunch with one of them changed, the others as before."
            if many
            else f"Record {launch.name} with its log: the log has what the engine chose.",
        )


def _intermittent(ledger: LaunchLedger) -> Iterator[Finding]:
    for number in dict.fromkeys(ledger.configurations):
        hung, starts = ledger.counts(number)
        if not 0 < hung < starts:
            continue
        same = [one for one, kind in _numbered(ledger) if kind == number]
        need, word = passes_needed(hung, starts), _word(same)
        noun = "hang" if word == "hung" else "failure"
        yield Finding(
            "launches.intermittent",
            "warning",
            f"The same launch {word} {hung} of {starts} times: the {noun} is intermittent",
            detail=f"One start does not judge a change. At this rate a change that does nothing shows "
            f"{need} clean starts in a row in under 3 % of cases; {plural(starts, 'start')} say little about "
            "the rate: if it is one in ten, it takes 34.",
            evidence_for=tuple(f"{one.name}: {_outcome(one)}" for one in same),
            confidence="certain",
            next_step=f"Flip and flip back (A-B-A): {need} starts with the change, then without it again.",
            experiment=Experiment(
                change=f"A-B-A: {need} starts with the one change, then the old launch again until it hangs",
                if_right=f"{need} clean starts, and the old launch hangs again: the change is what matters",
                if_wrong="a hang with the change: it is not the cause. No hang without it any more: "
                "the cause has gone by itself",
                cost=f"{need} start-ups and more",
                undo="the old launch",
            ),
        )


def _tested(ledger: LaunchLedger, at: int, step: Differences) -> Iterator[Finding]:
    """Judge one change that was made alone after a hang."""
    launch, [change] = ledger.launches[at], step.changed
    before = _index(ledger, at, step.first)
    old, new = ledger.configurations[before], ledger.configurations[at]
    hung, starts = ledger.counts(old)
    later_hung, later = ledger.counts(new)
    first = [number for number in ledger.configurations[: at + 1] if number == new]
    if not hung or launch.outcome == "unknown" or len(first) > 1:
        return  # nothing to explain, nothing known, or judged at its first launch
    if later_hung:
        word = _word(one for one, kind in _numbered(ledger) if kind == new)
        yield Finding(
            "launches.refuted",
            "warning",
            f"It {word} with {change.text} too: that alone is not the cause",
            evidence_for=(f"{launch.name} and its repetitions: {later_hung} of {later} {word}",),
            next_step="Undo it, and try the next one change.",
        )
        return
    need = passes_needed(hung, starts)
    back = any(number == old and one.outcome in _BAD for one, number in _numbered(ledger)[at + 1 :])
    word = _word(one for one, number in _numbered(ledger) if number == old)
    counts = (
        f"{step.first}: {hung} of {starts} {word}",
        f"with {change.text}: {later} of {later} served",
    )
    if later >= need and back:
        yield Finding(
            "launches.supported",
            "note",
            f"{change.text} is what matters: it {word} without it, and not with it",
            evidence_for=(*counts, f"flipped back, it {word} again"),
            evidence_against=("this shows which setting matters, not why",),
            confidence="likely",
        )
        return
    yield Finding(
        "launches.consistent",
        "note",
        f"{plural(later, 'success', 'successes')} with {change.text}: consistent with the hypothesis, "
        "never its proof",
        detail=(f"Hypothesis: {launch.hypothesis}. " if launch.hypothesis else "")
        + f"A change without any effect would show {need} clean starts in a row in under 3 % of cases "
        f"at the rate seen so far ({hung} of {starts}); there {'is' if later == 1 else 'are'} {later}.",
        evidence_for=counts,
        evidence_against=(
            f"by luck alone {_chance(hung, starts, later)} of such a series would look the same",
            *_earlier_success(ledger, old),
        ),
        confidence="possible",
        next_step=f"{plural(max(need - later, 1), 'more start')} with it, then flip it back once.",
    )


def _numbered(ledger: LaunchLedger) -> list[tuple[Launch, int]]:
    """Return each launch with the number of its configuration."""
    return list(zip(ledger.launches, ledger.configurations, strict=True))


def _word(launches: Iterable[Launch]) -> str:
    """Return what bad launches did: a crash is not called a hang."""
    return "failed" if any(one.outcome == "crashed" for one in launches) else "hung"


def _index(ledger: LaunchLedger, at: int, name: str) -> int:
    """Return the last launch of a name before another."""
    return next(n for n in reversed(range(at)) if ledger.launches[n].name == name)


def _earlier_success(ledger: LaunchLedger, old: int) -> Iterator[str]:
    for launch, number in _numbered(ledger):
        if number == old and launch.outcome == "served":
            yield f"{launch.name} served without the change"
            return


def _chance(hung: int, starts: int, clean: int) -> str:
    rate = hung / (starts + 1 if hung >= starts else starts)
    return f"{(1 - rate) ** clean:.0%}"


def _outcome(launch: Launch) -> str:
    after = f" after {launch.ready_after:.0f} s" if launch.ready_after is not None else ""
    return launch.outcome + after
