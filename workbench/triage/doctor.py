"""`doctor`: everything that lies around one server, the first cause first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from workbench.core.finding import Finding
from workbench.errors import WorkbenchError, shown
from workbench.facts.engines import spoken
from workbench.triage import answer, evidence, jobs
from workbench.triage.evidence import Served
from workbench.triage.records import Answered, Case, Cause, Recognised
from workbench.triage.things import Thing, recognise

Say = Callable[[Answered], None]
_MOST_THINGS = 24
_OF_LAUNCH = ("run", "log", "case", "launch", "process")


def doctor(*anything: Any, say: Say | None = None) -> Case:
    """Look at everything that was handed over, and say what is wrong, the most damaging cause first.

    Each thing is recognised; release, launch, target and draft are read from the evidence; then the jobs that
    apply run in the order of their cost: the log's acceptance, the launch, the state of the server, the keys,
    the weights. Nothing is attached to but a process that was named, and the network is not asked.

    Parameters
    ----------
    *anything
        Logs, folders, cases, checkpoints, launch lines and PIDs, in any mix.
    say
        Called with each answer as soon as it is there.

    Returns
    -------
    Case
        ``ok`` is False where a fault, or a loss of acceptance, is certain.

    Raises
    ------
    WorkbenchError
        Nothing was handed over, or one of the things is not there.
    """
    if say is not None and not callable(say):
        raise WorkbenchError(f"say={shown(say, 60)} cannot be called", next_step="Give a function.")
    things = [found for one in anything for found in recognise(one)][:_MOST_THINGS]
    if not things:
        raise WorkbenchError(
            "nothing was handed over",
            next_step="Give a log, a folder, a checkpoint, a launch line or a PID: `workbench doctor THING`.",
        )
    asked = _Asked(say)
    checkpoints = [thing for thing in things if thing.kind == "checkpoint"]
    target, draft = evidence.roles(checkpoints)
    launches = [evidence.served(t, target, draft) for t in things if t.kind in _OF_LAUNCH]
    for one in _merged(launches):
        _examine(one, asked)
    for thing in checkpoints:
        _examine_checkpoint(thing, target if thing.place != target else "", launches, asked)
    for thing in things:
        if thing.kind == "result":
            _open_result(thing, asked)
    return asked.case(things, launches)


class _Asked:
    """What was answered so far."""

    def __init__(self, say: Say | None) -> None:
        self._say = say
        self._scanned: set[str] = set()
        self.answers: list[Answered] = []
        self.causes: list[Cause] = []
        self.findings: list[Finding] = []
        self.not_read: list[tuple[str, str]] = []
        self.corrected = ""

    def add(self, outcome: jobs.Outcome | None) -> None:
        """Keep what a job answered."""
        if outcome is None:
            return
        self.answers.append(outcome.answer)
        # A traceback says when and why it stopped; that it crashed follows.
        stopped = any(one.job == "traceback" and one.ok is False for one in self.answers)
        self.causes += [one for one in outcome.causes if one.code != "hang_crashed" or not stopped]
        if outcome.result is not None:
            codes = {cause.code for cause in outcome.causes}
            self.findings += [f for f in outcome.result.findings if f.code in codes]
            self.corrected = self.corrected or getattr(outcome.result, "corrected", "")
        if self._say is not None:
            self._say(outcome.answer)

    def scan(self, place: str, target: str) -> None:
        """Scan a sample of a checkpoint's weights, once."""
        if place not in self._scanned:
            self._scanned.add(place)
            self.add(jobs.weights(place, target))

    def case(self, things: Sequence[Thing], launches: Sequence[Served]) -> Case:
        """Return the result."""
        causes = jobs.first(self.causes)
        covered = answer.coverage(self.answers, self.not_read)
        kept = {(f.code, f.title): f for f in self.findings}
        order = {cause.code: at for at, cause in enumerate(causes)}
        findings = sorted(kept.values(), key=lambda f: order.get(f.code, len(order)))
        return Case(
            verdict=answer.verdict(covered, self.answers, causes),
            things=tuple(_recognised(thing, launches) for thing in things),
            answers=tuple(self.answers),
            causes=causes,
            corrected=self.corrected if causes else "",
            findings=tuple(findings),
            notes=tuple(_stand_ins(launches)),
        )


def _stand_ins(launches: Sequence[Served]) -> list[str]:
    return [
        f"{one.launch.draft} is not here; {one.draft.place} takes its place, and what differs in the served "
        "copy is not known"
        for one in launches
        if one.launch is not None and one.draft is not None and one.draft.stands_in
    ]


def _merged(launches: Sequence[Served]) -> list[Served]:
    """Return the launches, a line or a script joined with the log of the same launch.

    One launch line and one log without a launch of its own belong together.
    """
    lines = [one for one in launches if one.thing.kind == "launch" and one.launch is not None]
    without = [one for one in launches if one.launch is None]
    if len(lines) == 1 and len(without) == 1:
        both = dataclasses.replace(
            without[0], launch=lines[0].launch, why="", target=lines[0].target, draft=lines[0].draft
        )
        return [*(one for one in launches if one not in (lines[0], without[0])), both]
    return list(launches)


def _examine(one: Served, asked: _Asked) -> None:
    """Run what applies to one launch, the cheapest first."""
    asked.add(jobs.acceptance(one))
    if one.launch is not None:
        asked.add(jobs.check(one))
    elif one.thing.kind in ("launch", "log"):
        asked.not_read.append((f"launch of {one.thing.name}", one.why))
    stopped = jobs.refused(one, asked.causes) or jobs.traceback(one, asked.causes)
    asked.add(stopped)
    if one.asserted and (stopped is None or stopped.answer.ok is not False):
        asked.add(_asserted(one, asked))
    unsettled = one.logged is None or one.asserted or not one.ready
    if unsettled and one.thing.kind in ("run", "log", "case", "process"):
        asked.add(jobs.hang(one.thing))
    lost = one.logged is not None and one.logged.accept_length <= jobs.NO_DRAFT_ACCEPTED
    unproved = not any(cause.certain for cause in asked.causes)
    if lost and not asked.causes and one.draft is not None:
        asked.scan(one.draft.place, one.target.place if one.target else "")
    if lost and unproved:
        asked.add(jobs.replay(one))
    if not asked.causes and not lost and one.text:
        asked.add(jobs.symptom(one))


def _asserted(one: Served, asked: _Asked) -> jobs.Outcome:
    """Answer a failed assertion on the device: the draft's vocabulary is the first suspect."""
    suspects = [c for c in asked.causes if "d2t" in c.code or "vocab" in c.code]
    text = f"the log has: {one.asserted}"
    if suspects:
        return jobs.Outcome(Answered("launch", one.thing.name, False, text))
    cause = Cause(
        "device_assert",
        "an index left its range on the GPU: of a draft, d2t or the draft vocabulary is the first suspect",
        "Compare d2t and the vocabulary: `workbench diff DRAFT ENGINE==VERSION --target TARGET`.",
        "launch",
        one.thing.name,
        certain=False,
    )
    return jobs.Outcome(Answered("launch", one.thing.name, False, text), (cause,))


def _examine_checkpoint(
    thing: Thing, target: str, launches: Sequence[Served], asked: _Asked
) -> None:
    """Compare the keys of a checkpoint that no launch was checked with, then scan a sample of its weights."""
    known = next((one.launch for one in launches if one.launch is not None), None)
    if known is None:
        asked.add(jobs.diff(thing.place, target, ""))
    asked.scan(thing.place, target)


def _open_result(thing: Thing, asked: _Asked) -> None:
    """Repeat what a saved result says; its rules are not run again."""
    from workbench.core.saving import load

    found = load(thing.place)
    asked.add(jobs.Outcome(Answered("launch", thing.name, found.ok, found.summary)))


def _recognised(thing: Thing, launches: Sequence[Served]) -> Recognised:
    one = next((one for one in launches if one.thing == thing), None)
    if one is None or one.launch is None:
        return Recognised(thing.name, thing.kind, one.why if one is not None else "")
    release = one.launch.version or "of unknown release"
    text = f"{spoken(one.launch.engine)} {release}, target {one.launch.target or 'not named'}"
    return Recognised(thing.name, thing.kind, f"{text}, draft {one.launch.draft or 'none'}")
