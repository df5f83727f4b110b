"""The jobs that apply to what was handed over, in the order of their cost, and the faults that they prove."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.wording import begun, plural
from workbench.errors import WorkbenchError, shorten
from workbench.facts import rows
from workbench.facts.engines import spoken
from workbench.launch import prose
from workbench.preflight.records import LaunchCheck
from workbench.triage.evidence import Served
from workbench.triage.records import Answered, Cause, Job
from workbench.triage.things import Thing

if TYPE_CHECKING:
    from workbench.speculation.result import Replay

NO_DRAFT_ACCEPTED = 1.05
"""A mean acceptance length up to here is one target token a round, within what a log rounds to."""
ACCEPTS = 1.2
# Faults that a server cannot have that became ready: its copy of the model differs from the one at hand.
_STOPS = frozenset({
    "config_refused", "speculators_config", "no_architecture", "shapes_differ", "fc_width",
    "target_hidden_size_null", "model_absent",
})  # fmt: skip
# The most damaging first; whatever is not here comes behind.
_GRAVE = (
    "keys_lost", "tensors_missing", "launched_as_eagle", "base_architecture", "d2t_absolute",
    "no_capture_hooks",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one job answered, the faults that follow, and its result."""

    answer: Answered
    causes: tuple[Cause, ...] = ()
    result: Result | None = None


def _cause(finding: Finding, job: Job, subject: str, certain: bool) -> Cause:
    sure = certain and finding.confidence == "certain"
    return Cause(finding.code, finding.title, finding.next_step, job, subject, sure)


def _serious(result: Result) -> Iterator[Finding]:
    for finding in result.findings:
        if finding.severity == "error":
            yield finding


def acceptance(one: Served) -> Outcome | None:
    """Read the acceptance length in the log."""
    logged = one.logged
    if logged is None:
        return None
    mean = logged.accept_length
    text = f"accept len {mean:.2f} in {plural(logged.lines, 'line')} of the log"
    if mean <= NO_DRAFT_ACCEPTED and logged.lines > 1:
        return Outcome(
            Answered("acceptance", one.thing.name, False, f"{text}: draft tokens are not accepted")
        )
    ok = True if mean >= ACCEPTS else None
    return Outcome(Answered("acceptance", one.thing.name, ok, text))


def check(one: Served) -> Outcome:
    """Check the launch, with the models that were found."""
    from workbench.preflight.check import check as check_launch

    assert one.launch is not None
    target, draft = (
        model.place if model is not None else None for model in (one.target, one.draft)
    )
    found = check_launch(one.launch, target=target, draft=draft)
    stands_in = bool(one.draft and one.draft.stands_in)
    causes = tuple(_of_check(found, one, stands_in))
    ok = found.ok
    if (one.ready or stands_in) and ok is False and not any(cause.certain for cause in causes):
        ok = None
    text = "; ".join(cause.title for cause in causes[:3]) or found.summary
    if not causes and ok is None and found.ok is False:
        text = "the models that were served are not here: those at hand differ from them"
    return Outcome(Answered("check", one.thing.name, ok, text), causes, found)


def _of_check(found: LaunchCheck, one: Served, stands_in: bool) -> Iterator[Cause]:
    """Yield the faults of a launch; those that its own log contradicts are left out."""
    of_launch = {fault.code: fault for fault in found.faults}
    healthy = one.logged is not None and one.logged.accept_length >= ACCEPTS
    for finding in _serious(found):
        fault = of_launch.get(finding.code)
        late = fault is not None and fault.moment in ("serving", "first request", "unknown")
        if (one.ready or stands_in) and finding.code in _STOPS:
            continue
        if finding.code == "model_absent" and prose.has_sentence(one.text):
            continue  # a message comes from another machine
        if not found.version and finding.code.startswith("argument_"):
            continue  # what the newest release refuses another one takes
        if one.ready and fault is not None and not late:
            continue
        if one.draft is not None and one.draft.changed and finding.code != "launched_as_eagle":
            continue  # its keys and weights are those of another copy; its kind is the same
        from_draft = finding.code not in ("launched_as_eagle",) and not finding.code.startswith(
            "argument_"
        )
        of_copy = stands_in and from_draft
        if of_copy and healthy:
            continue
        certain = bool(fault and fault.certain) and not of_copy
        subject = f"{one.draft.place}" if of_copy and one.draft is not None else one.thing.name
        # A config that is refused is flattened first: its keys are lost all the same.
        if of_copy and finding.code == "keys_lost":
            subject = (
                f"{subject}, in the place of {one.launch.draft if one.launch else 'the draft'}"
            )
        cause = _cause(finding, "check", subject, certain)
        counted = _lost_keys(found) if finding.code == "keys_lost" else ""
        yield structs.replace(cause, title=counted) if counted else cause


def _lost_keys(found: LaunchCheck) -> str:
    """Return how many of the draft's keys are lost, "" where they are not the draft's."""
    keys = [
        item for item in found.verdict.coverage.items
        if item.kind == "key" and item.name.endswith(" of the draft")
    ]  # fmt: skip
    lost = sum(item.count for item in keys if item.state == "wrong")
    total = sum(item.count for item in keys)
    return (
        f"{found.engine_text} silently ignores {lost} of {total} keys of the draft" if lost else ""
    )


def traceback(one: Served, before: list[Cause]) -> Outcome | None:
    """Read where it stopped from the frames of its traceback, and name the known cause."""
    from workbench.triage import tracebacks

    if not one.text:
        return None
    version = one.launch.version if one.launch is not None else ""
    trace = tracebacks.first(tracebacks.read(one.text, version))
    speculative = None if one.launch is None else bool(one.launch.draft)
    found = tracebacks.known(one.text, trace, speculative)
    if trace is None and not found:
        return None
    proved = {cause.code for cause in before if cause.certain}
    model = one.draft or one.target
    checkpoint = model.place if model is not None else "DRAFT"
    causes = tuple(
        Cause(
            row.code, row.title, row.next_step.replace("{checkpoint}", checkpoint),
            "traceback", one.thing.name, certain=False,
        )
        for row in found[:_MOST_KNOWN]
        if row.code not in proved
    )  # fmt: skip
    if trace is None:
        text = (
            "; ".join(cause.title for cause in causes)
            or "its words are explained by what was proved"
        )
        return Outcome(Answered("traceback", one.thing.name, None, text), causes)
    when = f" while {trace.when}" if trace.when else ""
    # A single line may be of an error that the engine went on after.
    stops = bool(trace.frames) and (one.logged is None or bool(one.asserted))
    text = f"{'it stops' if stops else 'it reports'}{when}: {shorten(trace.said, 120)}"
    return Outcome(Answered("traceback", one.thing.name, False if stops else None, text), causes)


def refused(one: Served, before: Sequence[Cause]) -> Outcome | None:
    """Read what the engine's own parser refused, and say what the releases on file know of it."""
    found = tuple(_REFUSED.finditer(one.text))
    if not found or any(cause.code.startswith("argument_") and cause.certain for cause in before):
        return None
    says = found[-1]["says"].strip()
    engine = one.launch.engine if one.launch is not None else ""
    options = dict.fromkeys(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", says))
    steps = {f"the parser refuses {option}": _instead(option, engine) for option in options}
    causes = tuple(
        Cause("argument_refused", title, step, "traceback", one.thing.name)
        for title, step in (steps or {"the parser refuses the line": _CHECK}).items()
    )
    text = f"the parser refused the line: {shorten(says, 120)}"
    return Outcome(Answered("traceback", one.thing.name, False, text), causes[:_MOST_KNOWN])


_REFUSED = re.compile(
    r"error: (?P<says>(?:unrecognized arguments: |argument -|ambiguous option: |No such option: ?|"
    r"the following arguments are required: )[^\n]{1,400})"
)
_CHECK = "Check the line: `workbench check LAUNCH --engine ENGINE==VERSION`."


def _instead(option: str, engine: str) -> str:
    """Return what to write instead of an option that was refused."""
    from workbench.launch.rules.parser import meant, other_releases

    if engine not in ("", "sglang"):
        return _instead_elsewhere(option, engine)
    newest = rows.releases("sglang")[-1]
    near = meant(option, newest)
    first, last = other_releases(option)
    if near and near != option:
        return f"Write {near} instead."
    if not first:
        return f"Remove it: no release of SGLang from {rows.releases('sglang')[0]} on has it."
    return f"SGLang {first} to {last} have it: this is another release, or its value is wrong. {_CHECK}"


def _instead_elsewhere(option: str, engine: str) -> str:
    """Return the same for an option of vLLM or TensorRT-LLM."""
    read = rows.releases(engine)
    typed = option.lstrip("-").replace("_", "-")
    having = [
        release
        for release in read
        if typed in {name.replace("_", "-") for name in rows.names(engine, "option", release)}
    ]
    who = spoken(engine)
    if having:
        return f"{who} {having[0]} to {having[-1]} have it: this is another release, or its value is wrong."
    return f"Remove it: {who} {read[0]} to {read[-1]} do not have it." if read else _CHECK


def symptom(one: Served) -> Outcome | None:
    """Name the next step for what a person says, where nothing else was found."""
    from workbench.triage import tracebacks

    found = tracebacks.symptom(one.text)
    if found is None:
        return None
    return Outcome(Answered("words", one.thing.name, None, f"{found.title}. {found.next_step}"))


_MOST_KNOWN = 2
_MOST_BYTES = 256 << 20


def replay(one: Served) -> Outcome:
    """Replay recorded rounds, where models and evidence are here and small enough."""
    subject = one.draft.place if one.draft is not None else one.thing.name
    if one.draft is None or one.target is None or one.thing.kind != "run":
        return Outcome(
            Answered("replay", subject, None, "not run: it needs target, draft and a recorded run")
        )
    places = (Path(one.target.place), Path(one.draft.place))
    size = sum(
        file.stat().st_size
        for place in places
        if place.is_dir()
        for file in place.iterdir()
        if file.is_file()
    )
    line = f"workbench replay --target {places[0]} --draft {places[1]} --evidence {one.thing.place} --ablate"
    if one.draft.stands_in or size > _MOST_BYTES:
        why = "the served copy is not here" if one.draft.stands_in else "the models are large"
        return Outcome(Answered("replay", subject, None, f"not run: {why}; run `{line}`"))
    from workbench.speculation.replaying import replay as run

    try:
        found = run(places[0], places[1], evidence=one.thing.place, requests=_REQUESTS)
    except WorkbenchError as error:
        return Outcome(Answered("replay", subject, None, error.brief))
    text = f"{found.summary} Next: `{line}`." if found.ok is not True else found.summary
    return Outcome(
        Answered("replay", subject, found.ok, text), tuple(_of_replay(found, one, line)), found
    )


def _of_replay(found: Replay, one: Served, line: str) -> Iterator[Cause]:
    """Yield what the replay adds: whether the draft at hand is to blame, or what was served."""
    assert one.draft is not None
    length = found.accept_length
    if one.logged is None or found.ok is True or length is None:
        return
    served = one.logged.accept_length
    if length >= ACCEPTS:
        yield Cause(
            "other_copy_served",
            "replayed with the draft that is here, the recorded requests accept "
            f"{length:.2f} tokens a round, not {served:.2f}: another copy was served, or another launch",
            "Compare what was served with what is here: "
            f"`workbench weights {one.draft.place} --compare SERVED`.",
            "replay", one.draft.place, certain=False,
        )  # fmt: skip
    elif length <= NO_DRAFT_ACCEPTED:
        yield Cause(
            "draft_accepts_nothing",
            f"replayed here, the draft accepts nothing either ({length:.2f} tokens a round): the cause is "
            "in the draft or in how it is driven, not in the server",
            f"Change one thing at a time: `{line}`.",
            "replay", one.draft.place, certain=False,
        )  # fmt: skip


_REQUESTS = 1  # of a pair of 29 MB it takes 40 CPU-seconds


def hang(thing: Thing) -> Outcome:
    """Diagnose a process, a case, a folder of dumps or a log."""
    try:
        if thing.kind == "process":
            from workbench.hang.attach import attach

            found = attach(thing.pid, interval=10.0)
        else:
            from workbench.hang.open_evidence import open_evidence

            found = open_evidence(thing.place)
    except WorkbenchError as error:
        return Outcome(Answered("hang", thing.name, None, error.brief))
    causes: tuple[Cause, ...] = ()
    if found.ok is False:
        change = found.experiment.change
        told = change.removeprefix("change nothing; ")
        step = f"Change one thing: {change}." if told == change else f"{begun(told)}."
        step = step if change else ""
        causes = (
            Cause(
                f"hang_{found.state}", found.summary, step.replace("..", "."), "hang", thing.name
            ),
        )
    return Outcome(Answered("hang", thing.name, found.ok, found.summary), causes, found)


def diff(place: str, target: str, engine: str) -> Outcome:
    """Compare a checkpoint's keys with what a release takes, or every known release."""
    from workbench.keys.diff import diff_keys

    try:
        found = diff_keys(place, engine or "sglang", target=target or None)
    except WorkbenchError as error:
        return Outcome(Answered("diff", place, None, error.brief))
    causes = tuple(
        _cause(finding, "diff", place, found.ok is False)
        for finding in _serious(found)
        if finding.changes_output and found.ok is not None
    )
    return Outcome(Answered("diff", place, found.ok, found.summary), causes, found)


def weights(place: str, target: str) -> Outcome:
    """Scan a sample of a checkpoint's weights."""
    from workbench.weights.scan import scan_weights

    try:
        found = scan_weights(place, sample=64, target=target or None)
    except WorkbenchError as error:
        return Outcome(Answered("weights", place, None, error.brief))
    faults = _serious(found) if found.ok is False else ()
    causes = tuple(_cause(one, "weights", place, True) for one in faults)
    return Outcome(Answered("weights", place, found.ok, found.summary), causes, found)


def first(causes: list[Cause]) -> tuple[Cause, ...]:
    """Return the causes, each once, the certain and the most damaging first."""
    kept: dict[tuple[str, str], Cause] = {}
    for cause in causes:
        before = kept.get((cause.code, cause.title))
        if before is None or (cause.certain and not before.certain):
            kept[cause.code, cause.title] = cause
    order = {code: at for at, code in enumerate(_GRAVE)}

    def grave(cause: Cause) -> tuple[Any, ...]:
        # A crash follows from what the other jobs find; a hang is what hurts now.
        crash = cause.job == "hang" and cause.code != "hang_hung"
        hung = cause.code != "hang_hung"
        return (hung, crash, order.get(cause.code, len(order)), not cause.certain)

    return tuple(sorted(kept.values(), key=grave))
