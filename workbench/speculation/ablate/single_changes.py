"""Turn every switch alone on the same evidence, the best on all of it, and pairs where none is enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

from workbench.core.bars import bar as progress_bar
from workbench.errors import WorkbenchError, shown
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.ablate.as_trained import as_trained
from workbench.speculation.ablate.cause_records import (
    Cause,
    CauseFacts,
    Tried,
    lost,
    restores,
)
from workbench.speculation.ablate.causes import judge, judge_part, needs_pairs
from workbench.speculation.ablate.causes_coverage import AblationQuestion, answered
from workbench.speculation.ablate.chains import OnAll, chain_of, undoing, untried
from workbench.speculation.ablate.fingerprint import fingerprint
from workbench.speculation.ablate.lifts import Lift, Reference, clear
from workbench.speculation.ablate.static_checks import Hint, check, unchecked
from workbench.speculation.ablate.switches import Switch, base, catalogue, turned
from workbench.speculation.ablate.switches_weights import by_names
from workbench.speculation.judge import unmodelled
from workbench.speculation.judge.comparable import comparable
from workbench.speculation.judge.engine_loss import engine_loses
from workbench.speculation.judge.measuring import Measured, State, entropy, measure
from workbench.speculation.judge.texts import describe
from workbench.speculation.judge.thresholds import RESTORED
from workbench.speculation.judge.trial import Trial

FIRST_PASS = 32  # requests that every switch is tried on
_PAIR_PASS = 8  # requests that pairs are tried on
_CLOSER = 5  # switches of different facts that are then tried on all requests
_UNDONE_PASS = 24  # requests that known faults are undone on
_FIRSTS = 5  # switches that a second one is tried with


def ablate(
    trial: Trial,
    *,
    pairs: bool = True,
    requests: int = FIRST_PASS,
    only: Sequence[str] | None = None,
    replayed_ok: bool | None = None,
) -> Ablations:
    """Change one thing at a time, and see how much of the lost acceptance each change restores.

    The target is not run again: every change reads the one trace of the trial.

    Parameters
    ----------
    trial
        Draft, target's trace and launch; ``expected`` says what acceptance should be.
    pairs
        Whether to try two changes together where none alone is enough.
    requests
        How many requests the first pass over every switch takes; the best are then replayed on all.
    only
        Names of the changes to try (`changes` lists them), None for all. Then no cause is named: another
        change may restore as much.
    replayed_ok
        The answer of the replay that this trial is of; where the two contradict each other, neither counts.

    Returns
    -------
    Ablations
        All changes with what they restore, and the verdict. Interrupted, it holds what was done.

    Raises
    ------
    WorkbenchError
        `only` names a change that is not known for this pair.
    """
    chosen = _chosen(trial, only)
    return _Bench(trial, requests, check(trial), only=chosen, replayed_ok=replayed_ok).run(pairs)


def changes(trial: Trial) -> tuple[Switch, ...]:
    """Return every change that `ablate` can try on a pair, also those that turn out to change nothing."""
    return tuple(catalogue(trial, describe(trial.trace)))


def _chosen(trial: Trial, only: Sequence[str] | None) -> frozenset[str] | None:
    return None if only is None else frozenset(known_names(trial, only))


def known_names(trial: Trial, asked: Sequence[str]) -> list[str]:
    """Return the names of changes that were asked for.

    Raises
    ------
    WorkbenchError
        One is not known for this pair.
    """
    known = [switch.name for switch in changes(trial)]
    names = [asked] if isinstance(asked, str) else list(asked)
    wrong = [name for name in names if name not in known]
    if not names or wrong:
        close = get_close_matches(str(wrong[0]), known, n=3) if wrong else known[:3]
        raise WorkbenchError(
            f"{shown(wrong[0])} is not a change that can be tried here"
            if wrong
            else "the list of changes is empty",
            why=f"{len(known)} changes are known for this draft and target",
            next_step=f"Name some of them, such as {', '.join(map(shown, close or known[:3]))}, "
            "or leave them out to try all.",
        )
    return names


def undone(trial: Trial, hints: Sequence[Hint]) -> tuple[Cause, tuple[Lift, ...]]:
    """Undo only what static checks suspect, on a few requests, and return whether that is the cause.

    What is broken for certain need not be what costs the acceptance: only undoing it shows that.
    """
    some = trial.some(_spread(len(trial.trace), _UNDONE_PASS))
    facts = frozenset(hint.fact for hint in hints if hint.fact)
    bench = _Bench(some, _UNDONE_PASS, tuple(hints), facts)
    found = bench.run(pairs=True)
    return bench.cause, (*found.lifts, *found.pairs)


class _Bench:
    """One run of all ablations, or of those of some facts."""

    def __init__(
        self,
        trial: Trial,
        requests: int,
        hints: tuple[Hint, ...],
        facts: frozenset[str] | None = None,
        only: frozenset[str] | None = None,
        replayed_ok: bool | None = None,
    ) -> None:
        self.facts = facts
        self.only = only
        self.replayed_ok = replayed_ok
        self.texts = describe(trial.trace)
        kept = self.texts.kept
        whole = not self.texts.looping or self.texts.refused or not kept
        trial = trial if whole else trial.some(kept)
        self.served = trial  # as it was served; what is compared may be a chain of its tree
        self.trial, self.notes = comparable(trial)
        self.counted = self.trial.expected.counted if self.trial.expected else "rounds"
        self.few = self.trial.some(_spread(len(self.trial.trace), requests))
        self.hints = hints
        self.singles: list[Tried] = []
        self.pairs: list[Tried] = []
        self.idle: list[str] = []
        self.chain: tuple[Tried, ...] = ()
        self.trained: Measured | None = None
        self.skipped: dict[str, str] = {}  # switches that cannot be run here, and why
        self.left = ""  # why not every switch was tried
        self._switches: dict[int, list[Switch]] = {}

    def run(self, pairs: bool) -> Ablations:
        trial = self.trial
        if self.texts.refused:
            nothing = measure(base(self.few), self.counted)
            self.left = "the texts are no evidence"
            return self._result(Reference(nothing, trial.expected), base(self.few))
        served = self._measure(base(trial))
        reference = Reference(served, trial.expected)
        try:
            self._try_each(reference)
            self._confirm(reference)
            self._undo_known(reference)
            if pairs and needs_pairs(self._scene(reference)):
                self._search(reference)
            if judge(self._scene(reference)).state == "lost":
                state = as_trained(trial)
                self.trained = None if state is None else self._measure(state)
        except KeyboardInterrupt:
            self.left = "interrupted"
            self.notes.append("interrupted: not every change was tried")
        return self._result(reference, base(trial))

    def _measure(self, state: State) -> Measured:
        return measure(state, self.counted)

    def _of(self, trial: Trial) -> list[Switch]:
        """Return the switches to try on a trial."""
        return [s for s in self._known(trial) if self.only is None or s.name in self.only]

    def _known(self, trial: Trial) -> list[Switch]:
        """Return the switches for a trial; those of other targets and texts hold traces of its requests."""
        if id(trial) not in self._switches:
            found = catalogue(trial, self.texts)
            if self.facts is not None:
                found = [switch for switch in found if switch.fact in self.facts]
            self._switches[id(trial)] = found
        return self._switches[id(trial)]

    def _try_each(self, whole: Reference) -> None:
        """Try every switch on some requests."""
        start = base(self.few)
        kept, self.idle = turned(self._of(self.few), start, skipped=self.skipped)
        confirmed = len(self.few.trace) == len(self.trial.trace)
        served = whole.served if confirmed else self._measure(start)
        reference = Reference(served, self.trial.expected)
        for switch, state in _shown(kept, "ablations"):
            found = self._measure(state)
            self.singles.append(Tried((switch,), found, reference, confirmed))

    def _confirm(self, reference: Reference) -> None:
        """Try the best switch of the best facts on all requests, and those that something speaks for."""
        suspected = {hint.fact for hint in self.hints}
        order = sorted(self.singles, key=lambda t: -t.measured.accept_length)
        chosen: list[Tried] = []
        for one in order:
            known = sum(one.facts == other.facts for other in chosen)
            lift = one.lift
            promising = lift.restored_interval is not None and lift.restored_interval[1] >= RESTORED
            first = not known and (len(chosen) < _CLOSER or one.facts & suspected)
            if first or (promising and known < 3):
                chosen.append(one)
        for one in _shown(chosen, "closer"):
            if not one.confirmed:
                at = self.singles.index(one)
                self.singles[at] = self._on_all(one.switches, reference)

    def _everywhere(self, switches: Sequence[Switch], reference: Reference) -> Tried:
        """Try switches together on all requests, and from every place of their answers too."""
        tried = self._on_all(switches, reference)
        if self.counted == "places":
            return tried
        return dataclasses.replace(tried, places=measure(self._turned(switches), "places"))

    def _turned(self, switches: Sequence[Switch]) -> State:
        state = base(self.trial)
        named = {switch.name: switch for switch in self._of(self.trial)}
        for switch in switches:
            state = named[switch.name].apply(state)
        return state

    def _on_all(self, switches: Sequence[Switch], reference: Reference) -> Tried:
        return Tried(tuple(switches), self._measure(self._turned(switches)), reference, True)

    def _undo_known(self, reference: Reference) -> None:
        """Undo every fault that is known for certain, alone and together, and on top of what restores."""
        if self.trial.expected is not None and not lost(reference):
            return
        switches = undoing(self.hints, self.singles)
        if not switches:
            return
        on_all = partial(self._everywhere, reference=reference)
        self.chain = chain_of(switches, on_all)
        if self.trial.expected is None or restores(self.chain[-1]):
            return
        facts = frozenset(switch.fact for switch in switches)
        cause = judge(self._scene(reference))
        if cause.state == "found":
            (best,) = (t for t in self.singles if t.lift.switches == cause.switches)
            self.chain = chain_of([*best.switches, *switches], on_all)
        elif len(switches) > 1:
            self._on_top(switches, facts, on_all)

    def _on_top(self, switches: Sequence[Switch], facts: frozenset[str], on_all: OnAll) -> None:
        """Look for one more change on top of several known faults that do not explain the loss."""
        some = self.trial.some(_spread(len(self.trial.trace), _PAIR_PASS))
        start, found = base(some), list[tuple[float, Switch]]()
        named = {switch.name: switch for switch in self._of(some)}
        middle = start
        for switch in switches:
            middle = named[switch.name].apply(middle)
        others = [switch for switch in named.values() if switch.fact not in facts]
        for switch, state in _shown(
            turned(others, middle, start, skipped=self.skipped)[0], "on top"
        ):
            found.append((measure(state, "places").accept_length, switch))
        best: dict[str, Switch] = {}
        for _, switch in sorted(found, key=lambda pair: -pair[0]):
            best.setdefault(switch.fact, switch)
        tried = [on_all([*switches, switch]) for switch in list(best.values())[:2]]
        tried.sort(key=lambda one: -one.measured.accept_length)
        # Two that do as much on top cannot be distinguished.
        if tried and (len(tried) == 1 or clear(tried[0].measured, tried[1].measured)):
            self.chain = chain_of(tried[0].switches, on_all)

    def _search(self, reference: Reference) -> None:
        """Add a second switch to the best first ones; the best pairs are then tried on all requests."""
        trial = self.trial.some(_spread(len(self.trial.trace), _PAIR_PASS))
        start = base(trial)
        served = Reference(measure(start, "places"), self.trial.expected)
        switches = self._of(trial)
        named = {switch.name: switch for switch in switches}
        found: dict[frozenset[str], Tried] = {}
        for first in _shown(self._firsts(), "pairs"):
            one = named[first.name]
            middle = one.apply(start)
            others = [s for s in switches if s.fact != one.fact]
            for second, state in turned(others, middle, start, skipped=self.skipped)[0]:
                names = frozenset((one.name, second.name))
                if names not in found:
                    tried = Tried((one, second), measure(state, "places"), served, False)
                    found[names] = tried
            if any(self._enough(t, served) for t in found.values()):
                break
        best = sorted(found.values(), key=lambda t: -t.measured.accept_length)
        chosen: dict[frozenset[str], Tried] = {}
        for pair in best:
            chosen.setdefault(pair.facts, pair)
        closer = list(chosen.values())[:3]
        self.pairs = [self._on_all(t.switches, reference) for t in _shown(closer, "closer")]
        self._singles_of(self.pairs[:1], reference)

    def _singles_of(self, pairs: Iterable[Tried], reference: Reference) -> None:
        """Try on all requests what the best pair is made of."""
        for switch in (s for pair in pairs for s in pair.switches):
            for at, one in enumerate(self.singles):
                if one.switches[0].name == switch.name and not one.confirmed:
                    self.singles[at] = self._on_all(one.switches, reference)

    def _enough(self, one: Tried, served: Reference) -> bool:
        expected = self.trial.expected
        assert expected is not None
        lost = expected.accept_length - served.served.accept_length
        gained = one.measured.accept_length - served.served.accept_length
        return gained >= RESTORED * lost

    def _firsts(self) -> list[Switch]:
        """Return switches to begin with: those that something speaks for, then the best by two signs."""
        suspected = {hint.fact for hint in self.hints if hint.fact}
        by_length = sorted(self.singles, key=lambda t: -t.measured.accept_length)
        by_rank = sorted(self.singles, key=lambda t: -t.measured.reciprocal)
        hinted = [t for t in by_length if t.facts & suspected]
        best: dict[frozenset[str], Switch] = {}
        ranked = [t for pair in zip(by_length, by_rank, strict=True) for t in pair]
        for one in [*hinted, *ranked]:
            best.setdefault(one.facts, one.switches[0])
        return list(best.values())[:_FIRSTS]

    def _scene(self, reference: Reference) -> CauseFacts:
        trial = self.served
        agreement = replayed = None
        if trial.emitted is not None:
            agreement = float(trial.replayed.agrees().mean())
            replayed = trial.replayed.accept_length
        held = set(by_names(trial))
        unknown = trial.draft.filled
        shape = fingerprint(trial)
        beyond = unmodelled.named(unmodelled.of_trial(trial))
        return CauseFacts(
            reference, self.singles, self.pairs, self.hints, self.texts,
            absent=tuple(name for name in unknown if name not in held), unknown=unknown,
            unmodelled=beyond,
            chain=self.chain, untried=untried(self.hints, self._facts()), trained=self.trained,
            engine_loses=trial.emitted is not None
            and not beyond
            and engine_loses(trial.replayed, trial.expected),
            engine_does=shape.sentence if shape is not None else "",
            observed=trial.observed, agreement=agreement, replayed=replayed,
        )  # fmt: skip

    def _result(self, reference: Reference, start: State) -> Ablations:
        scene = self._scene(reference)
        notes = [*self.trial.notes, *self.trial.draft.notes, *self.notes]
        if self.texts.looping and not self.texts.refused:
            notes.append(f"{len(self.texts.looping)} answers that repeat themselves are left out")
        if self.counted == "places":
            notes.append(
                "counted from every place of the answers, as the trainer's metrics are; an engine's own "
                "rounds begin at the harder places and accept less"
            )  # fmt: skip
        notes += [f"left out, {name}: {why}" for name, why in self.skipped.items()]
        untried = self._untried()
        self.left = self.left or ("not asked for" if untried else "")
        self.cause = judge_part(scene, untried)
        cause, verdict = answered(self._question(scene))
        return Ablations.build(
            scene, cause, verdict, entropy(start), counted=self.counted, idle=tuple(self.idle),
            source=self.trial.checkpoint.source, engine=self.trial.launch.engine, notes=tuple(notes),
        )  # fmt: skip

    def _facts(self) -> frozenset[str]:
        """Return what the changes of this pair are about, those without effect too."""
        return frozenset(switch.fact for switch in self._known(self.few))

    def _untried(self) -> list[str]:
        """Return the changes that were not asked for, or that an interruption kept from being tried."""
        if self.texts.refused or (self.only is None and self.left != "interrupted"):
            return []
        tried = {switch.name for one in self.singles for switch in one.switches}
        tried |= {*self.idle, *self.skipped}
        return [switch.name for switch in self._known(self.few) if switch.name not in tried]

    def _question(self, scene: CauseFacts) -> AblationQuestion:
        trial = self.served
        catalogue: dict[str, tuple[str, ...]] = {}
        for switch in () if self.texts.refused else self._known(self.few):
            catalogue[switch.fact] = (*catalogue.get(switch.fact, ()), switch.name)
        beyond = {}
        if len(trial.trace.inputs) <= trial.draft.settings.aux:
            beyond["auxiliary layers"] = "the features of the target's other layers are not known"
        for fact, names in catalogue.items():
            why = [self.skipped[name] for name in names if name in self.skipped]
            if len(why) == len(names):
                beyond.setdefault(fact, why[0])
        return AblationQuestion(
            scene, self.cause, catalogue, tuple(self.idle), self.left, beyond, unchecked(trial),
            unmodelled.of_trial(trial),
            self.replayed_ok,
        )  # fmt: skip


def _spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` of `count` rows, evenly spread."""
    if count <= wanted:
        return list(range(count))
    return sorted({round(k * (count - 1) / (wanted - 1)) for k in range(wanted)})


def _shown(items: Sequence[Any], what: str) -> Iterator[Any]:
    """Yield items with a progress bar where somebody watches."""
    yield from progress_bar(items, desc=what)
