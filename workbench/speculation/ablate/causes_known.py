"""Faults that static checks know for certain: what undoing them brings back, one after the other.

Each known fault that a change undoes is undone, with all the others; then those without effect are put back,
the smallest first. What is left is the cause, as an account: each fault with what it adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from workbench.core.finding import Confidence
from workbench.speculation.ablate.cause_records import (
    Cause,
    CauseFacts,
    State,
    Tried,
    evidence_of,
    percent,
    restores,
    statically,
)
from workbench.speculation.ablate.lifts import clear
from workbench.speculation.judge.thresholds import FEW_REQUESTS, HARDLY, RESTORED, SMALL

_COUNTS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def adds(more: Tried, less: Tried) -> bool:
    """Tell whether the last change of `more` accepts more than `less` does, beyond chance and a little."""
    expected = more.reference.expected
    length = expected.accept_length if expected else more.measured.accept_length
    gained = more.finest.accept_length - less.finest.accept_length
    return gained >= SMALL * length and clear(more.finest, less.finest)


def needed(chain: Sequence[Tried]) -> tuple[Tried, ...]:
    """Return a chain without the changes at its end that add nothing."""
    kept = list(chain)
    while len(kept) > 1 and not adds(kept[-1], kept[-2]):
        kept.pop()
    return tuple(kept)


def known(scene: CauseFacts) -> Cause | None:
    """Return the known faults as the cause, where undoing them brings back what was lost."""
    if scene.texts.sampled and scene.reference.expected is not None:
        greedy = any(one.facts == {"sampling"} for one in scene.singles)
        return None if greedy else unexpected(scene)
    chain = needed(scene.chain)
    if not chain or not restores(chain[-1]) or _beaten(chain[-1], scene.singles):
        return None
    return _cause(scene, chain)


def unexpected(scene: CauseFacts) -> Cause | None:
    """Return the known faults as the cause where no acceptance is expected: undoing them accepts far more."""
    chain = needed(scene.chain)
    if (
        not chain
        or len(scene.reference.served.rounds) < FEW_REQUESTS
        or _beaten(chain[-1], scene.singles)
    ):
        return None
    if chain[-1].lift.lift_interval[0] <= HARDLY:
        return None
    return _cause(scene, chain)


def account(scene: CauseFacts, chain: Sequence[Tried]) -> str:
    """Return what each fault adds: ``decoder layer +1.30, norm_before_fc +0.10, unexplained 0.00``."""
    lengths = [scene.reference.served.accept_length, *(t.measured.accept_length for t in chain)]
    parts = [
        f"{_last(one)} {after - before:+.2f}"
        for one, (before, after) in zip(chain, pairwise(lengths), strict=True)
    ]
    expected = scene.reference.expected
    if expected is not None:
        parts.append(f"unexplained {max(expected.accept_length - lengths[-1], 0.0):.2f}")
    return ", ".join(parts)


def _last(one: Tried) -> str:
    return one.switches[-1].fact


def _beaten(whole: Tried, singles: Sequence[Tried]) -> bool:
    """Tell whether a change about something else, of which nothing is known, accepts clearly more."""
    others = (one for one in singles if one.confirmed and not one.facts & whole.facts)
    return any(clear(one.measured, whole.measured) for one in others)


def _cause(scene: CauseFacts, chain: Sequence[Tried]) -> Cause:
    whole, facts = chain[-1], tuple(_last(one) for one in chain)
    lift, served = whole.lift, scene.reference.served.accept_length
    share = (
        f" ({percent(lift)} of what was lost)"
        if lift.restored is not None and not scene.texts.sampled
        else ""
    )
    back = (
        f"with {lift.words} acceptance comes back from {served:.2f} to {lift.accept_length:.2f} tokens a "
        f"round{share}"
    )
    sums = account(scene, chain)
    if len(chain) == 1:
        # One more fault is certain, and was not tried: then this is not known to be all.
        sentence = f"{'A' if scene.untried else 'The'} cause is the {facts[0]}: {back}."
    else:
        count = _COUNTS.get(len(chain), str(len(chain)))
        names = f"{', '.join(facts[:-1])} and {facts[-1]}"
        sentence = f"{count} causes: {names}. {back[:1].upper()}{back[1:]}: {sums}."
    if scene.texts.sampled and scene.reference.expected is not None:
        sentence += " The text was sampled, so how much of it should be accepted is not known."
    elif scene.reference.expected is None:
        sentence += " What to expect is not known; that these faults lose acceptance is."
    states: dict[int, State] = {1: "found", 2: "pair"}
    return Cause(
        states.get(len(chain), "several"),
        sentence,
        facts=facts, switches=lift.switches, alike=lift.same,
        confidence=_confidence(scene, whole),
        evidence_for=(evidence_of(lift), sums, *statically(scene, frozenset(facts))),
        evidence_against=_against(scene, whole),
        next_step=lift.remedy,
    )  # fmt: skip


def _confidence(scene: CauseFacts, whole: Tried) -> Confidence:
    sure = all(any(h.fact == fact and h.sure for h in scene.hints) for fact in whole.facts)
    low = whole.lift.restored_interval[0] if whole.lift.restored_interval else 0.0
    enough = low >= RESTORED / 2 and whole.lift.profile is not False
    return "certain" if sure and enough and not scene.untried else "likely"


def _against(scene: CauseFacts, whole: Tried) -> tuple[str, ...]:
    """Return what else restores as much, and what is known and has no effect, or was not tried."""
    said = [f"not tried: {title}" for title in scene.untried]
    others = [
        one
        for one in scene.singles
        if one.confirmed and not one.facts & whole.facts and one.lift.lift_interval[0] > 0
    ]
    best = max(others, key=lambda one: one.measured.accept_length, default=None)
    if best is not None:
        said.append(
            f"next best: {best.lift.words}, {percent(best.lift)}; no static check speaks for it"
        )
    said += [
        f"undone, it adds nothing: {hint.finding.title}"
        for hint in scene.hints
        if hint.sure
        and hint.fact
        and hint.fact not in whole.facts
        and hint.finding.title not in scene.untried
    ]
    if scene.unknown:
        said.append(f"what the engine's memory held for {scene.unknown[0]} is not known")
    return tuple(said[:5])
