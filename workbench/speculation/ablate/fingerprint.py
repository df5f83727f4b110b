"""Faults of an engine, run forwards over its recorded rounds: which of them accepts as many, round by round.

The counts of the rounds are a fingerprint. Each fault is put into the replay, and what it then accepts is
compared with what the engine accepted in the same round of the same text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from workbench.errors import WorkbenchError
from workbench.speculation.ablate.switches import Switch, base, catalogue
from workbench.speculation.judge.texts import describe
from workbench.speculation.judge.thresholds import FAITHFUL, PRINTS_APART, PRINTS_ROUNDS, UNLIKE
from workbench.speculation.judge.trial import Trial
from workbench.speculation.rounds.replayed import Replayed
from workbench.speculation.rounds.rounds import Cache, Rounds, draft_rounds, extend
from workbench.speculation.rounds.run import replay_rounds, verified

_SOME = 16  # requests that every fault is tried on
_ROUNDS = 256  # rounds at a time
_ROWS = {
    "early": "After a round that accepts only a part, the engine goes on from the row one place too early",
    "always early": "After each round the engine goes on from the row one place too early",
    "first": "After each round the engine goes on from the first row of that round, not from its last",
}
_CHUNKS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_PREFIXES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)


@dataclasses.dataclass(frozen=True, slots=True)
class Fingerprint:
    """A fault with which the replay does what the engine did.

    Attributes
    ----------
    kind
        Faults of one kind are variants of the same one.
    words
        What the engine does, as a sentence without its full stop.
    share
        Of the rounds, how many the replay then has as the engine had them.
    plain
        The same as it was launched, without the fault.
    """

    kind: str
    words: str
    share: float
    plain: float

    @property
    def sentence(self) -> str:
        """What the engine does, and how much of its rounds that explains."""
        return f"{self.words}: {self.share:.0%} of its rounds are so, and {self.plain:.0%} without that."


@dataclasses.dataclass(frozen=True)
class _Fault:
    kind: str
    words: str
    run: Callable[[Trial], Replayed]


_FOUND: WeakKeyDictionary[Trial, Fingerprint | None] = WeakKeyDictionary()


def fingerprint(trial: Trial) -> Fingerprint | None:
    """Return the fault that reproduces the engine's rounds; None where none does, or where none is needed."""
    if trial not in _FOUND:
        _FOUND[trial] = _reproducing(trial)
    return _FOUND[trial]


def _reproducing(trial: Trial) -> Fingerprint | None:
    if trial.emitted is None or trial.starts is None or trial.draft.filled:
        return None
    plain = trial.replayed
    if len(plain) < PRINTS_ROUNDS or _share(plain) >= UNLIKE:
        return None
    some = trial.some(range(min(_SOME, len(trial.trace))))
    first: dict[str, tuple[float, _Fault]] = {}
    for fault in _faults(some):
        try:
            share = _share(fault.run(some))
        except WorkbenchError:
            continue
        if fault.kind not in first or share > first[fault.kind][0]:
            first[fault.kind] = (share, fault)
    order = sorted(first.values(), key=lambda pair: -pair[0])[:2]
    found = [(_share(fault.run(trial)), fault) for _, fault in order]
    found.sort(key=lambda pair: -pair[0])
    if not found or found[0][0] < FAITHFUL:
        return None
    if len(found) > 1 and not _fits_better(found[0][0], found[1][0], len(plain)):
        return None
    share, fault = found[0]
    return Fingerprint(fault.kind, fault.words, share, _share(plain))


def _fits_better(share: float, other: float, rounds: int) -> bool:
    """Tell whether a fault explains more rounds than another one, by more than chance."""
    left, more = (1 - share) * rounds, (1 - other) * rounds
    return more - left > PRINTS_APART * math.sqrt(left + more)


def _share(replayed: Replayed) -> float:
    return float(replayed.agrees().mean()) if len(replayed) else 0.0


def _faults(trial: Trial) -> Iterator[_Fault]:
    for depth in range(1, trial.driving.steps):
        words = (
            f"The engine accepts nothing from position {depth + 1} on, whatever is drafted there"
        )
        yield _Fault("depth", words, partial(_cut, depth=depth))
    for which, words in _ROWS.items():
        yield _Fault("row", words, partial(_other_row, which=which))
    longest = int(trial.trace.prompts.max())
    for size in _PREFIXES:
        if size <= longest:
            words = (
                f"From the second request on, about the first {size} places of the draft's cache are empty: "
                "a prefix hit that the draft's cache does not have"
            )
            yield _Fault("prefix", words, partial(_empty_prefix, size=size))
    for size in _CHUNKS if trial.trace.choices is not None else ():
        if size < longest:
            words = (
                f"At the end of each chunk of {size} tokens of a prompt the draft is given the token that "
                "the target would have chosen there, not the prompt's own"
            )
            yield _Fault("chunk", words, partial(_chunk_ends, size=size))
    for switch in catalogue(trial, describe(trial.trace)):
        # What changes text or target needs another pass over the texts, and no engine does it.
        if switch.fact not in ("sampling", "target"):
            words = f"The engine runs with {switch.words}"
            yield _Fault(switch.fact, words, partial(_switched, switch=switch))


def _switched(trial: Trial, switch: Switch) -> Replayed:
    """Turn a switch of the same pair, whatever requests the trial has."""
    state = switch.apply(base(trial))
    assert trial.starts is not None
    return replay_rounds(state.draft, state.driving, state.trace, trial.starts, trial.emitted)


def _cut(trial: Trial, depth: int) -> Replayed:
    """Return rounds that accept no more than `depth` drafts."""
    replayed = trial.replayed
    return dataclasses.replace(replayed, accepted=np.minimum(replayed.accepted, depth))


def _other_row(trial: Trial, which: str) -> Replayed:
    """Give each round the outputs of another slot than its root's."""
    import torch

    assert trial.starts is not None
    rounds = Rounds.of(trial.starts, trial.emitted, trial.trace)
    accepted, later = rounds.known - rounds.before - 1, rounds.before > 0
    if which == "early":
        later = later & (accepted < trial.driving.steps)
    request, root = rounds.request[later], (rounds.known - 2)[later]
    other = (rounds.before - 1)[later] if which == "first" else root - 1
    with torch.no_grad():
        cache = extend(trial.draft, trial.driving, trial.trace)
        normed, fed = cache.normed.clone(), cache.fed.clone()
        normed[request, root] = cache.normed[request, other]
        fed[request, root] = cache.fed[request, other]
        return _drafted(trial, rounds, dataclasses.replace(cache, normed=normed, fed=fed))


def _drafted(trial: Trial, rounds: Rounds, cache: Cache) -> Replayed:
    import torch

    driving = trial.driving.replaced(extend="prefix", refreshed=True)
    rows = torch.split(torch.arange(len(rounds), device=rounds.known.device), _ROUNDS)
    parts = [draft_rounds(trial.draft, driving, trial.trace, rounds.rows(at), cache) for at in rows]
    return verified(driving, trial.trace, rounds, parts)


def _chunk_ends(trial: Trial, size: int) -> Replayed:
    """Give the last slot of each whole chunk but a prompt's last the target's guess for its token."""
    import torch

    trace = trial.trace
    assert trial.starts is not None
    assert trace.choices is not None
    places = torch.arange(trace.tokens.shape[1], device=trace.tokens.device)[None, :]
    ends = (places % size == size - 1) & (places < trace.prompts[:, None] - 1)
    tokens = torch.where(ends, trace.choices.best, trace.tokens.roll(-1, dims=1))
    rounds = Rounds.of(trial.starts, trial.emitted, trace)
    with torch.no_grad():
        return _drafted(trial, rounds, extend(trial.draft, trial.driving, trace, tokens))


def _empty_prefix(trial: Trial, size: int) -> Replayed:
    import torch

    tokens = trial.trace.tokens
    places = torch.arange(tokens.shape[1], device=tokens.device)[None, :]
    requests = torch.arange(len(tokens), device=tokens.device)[:, None]
    assert trial.starts is not None
    rounds = Rounds.of(trial.starts, trial.emitted, trial.trace)
    with torch.no_grad():
        empty = (places < size) & (requests > 0)
        return _drafted(
            trial, rounds, extend(trial.draft, trial.driving, trial.trace, unwritten=empty)
        )
