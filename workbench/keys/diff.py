"""`diff_keys`: what an engine, or a model, does with a checkpoint's keys."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec import structs

from workbench.checkpoint.config import Config
from workbench.checkpoint.records import TensorTable
from workbench.core.finding import GRAVITY, Finding
from workbench.core.verdict import Coverage, Item, State, Verdict
from workbench.drafts import contracts
from workbench.errors import WorkbenchError, shown
from workbench.facts.flat_config import flattened
from workbench.keys import coverage, verdict
from workbench.keys.launch_line import doubt, of_launch, with_rules
from workbench.keys.records import KeyDiff, Rename, VersionAnswer
from workbench.keys.rename import propose
from workbench.launch.read import read_launch
from workbench.launch.records import Launch, Unread
from workbench.loaders import inspect, registry
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import Model, NotCovered, Profile, Refused
from workbench.loaders.simulate import Resolve, Tensors, simulate

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint


def diff_keys(
    ckpt: Any,
    model: Any,
    *,
    target: Any = None,
    python: str | os.PathLike[str] | None = None,
    launch: Any = None,
) -> KeyDiff:
    """Compare a checkpoint's keys with what a model takes, as its loader will see them.

    Only headers are read, and the few numbers of ``d2t`` and ``t2d``: no weights, no GPU.

    Parameters
    ----------
    ckpt
        A path, URL or Hub id as `open_checkpoint` takes it, or a `Checkpoint`.
    model
        An engine as text, ``"sglang==0.5.11"``, ``"vllm==0.32.0"``, ``"transformers"``, with an optional
        model class behind a colon; a torch module, a state dict, or another checkpoint. Without a version,
        that of the engine installed here is taken, else every known range is tried and the answer is ok
        only if all agree. A module with its own ``load_weights`` is observed while it loads a meta copy.
    target
        The target's checkpoint, for a draft: shapes and vocabulary are checked against it.
    python
        The engine's own Python interpreter. Its real loader then runs there, and the answer is traced
        truth rather than a profile.
    launch
        The server's launch, to check it against the draft: a command line, a script, a list of arguments, a
        log, a configuration file, a manifest (as text or as a path), or a PID.

    Returns
    -------
    KeyDiff
        ``ok`` is True, False, or None where it cannot be told.

    Raises
    ------
    WorkbenchError
        The checkpoint cannot be read, or the engine, version or class is not known.
    """
    _check_arguments(python, launch)
    checkpoint = _open(ckpt)
    aim = None if target is None else _open(target)
    if not isinstance(model, str) or _is_path(model):
        return _against_model(checkpoint, model)
    engine = registry.parse(model)
    if python is not None:
        answers = [_traced(checkpoint, engine, python, aim)]
        certain, why = True, ""
    else:
        choice = registry.select(engine, checkpoint.config)
        answers = [
            dataclasses.replace(_profiled(checkpoint, p, version), span=_span(p))
            for version, p in choice.profiles
        ]
        certain, why = choice.certain, choice.why
    return _combine(checkpoint, model, answers, certain, why, aim, launch)


def _check_arguments(python: object, launch: object) -> None:
    """Raise where an argument is of no use, before anything is read."""
    if python is not None and not isinstance(python, str | os.PathLike):
        raise WorkbenchError(
            f"python={shown(python)} is not an interpreter",
            why="it is neither text nor a path",
            next_step="Give the path of the Python that the engine is installed in.",
        )
    if launch is not None:  # a file that is not there is no doubt about the checkpoint
        _launch(launch, "", "")


def _launch(thing: Any, engine: str, version: str) -> Launch:
    """Return a launch, read with the options of a release."""
    if isinstance(thing, Launch):
        return thing
    if isinstance(thing, str | list | tuple) and not thing:
        return Launch("", "command line", not_read=(Unread("the launch", "it is empty"),))
    return read_launch(thing, engine=engine, version=version)


@dataclasses.dataclass(frozen=True)
class _Answer:
    """What one version does, with the means to ask what it would do with other names.

    ``span`` is the range of versions that it stands for.
    """

    outcome: LoadOutcome
    resolve: Resolve | None
    uncovered: str = ""
    span: str = ""


def _open(ckpt: Any) -> Checkpoint:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint

    return ckpt if isinstance(ckpt, Checkpoint) else open_checkpoint(ckpt)


def _is_path(text: str) -> bool:
    """Tell a checkpoint's path, URL or Hub id from an engine, which has no slash in its name.

    An engine's name wins over a file or folder that is called so: ``sglang`` is a folder wherever its
    source is checked out (``./sglang`` is the folder).
    """
    if "/" in text:
        return True
    return not registry.is_engine(text) and os.path.exists(text)


def _against_model(checkpoint: Checkpoint, model: Any) -> KeyDiff:
    """Compare with a module, a state dict, or another checkpoint."""
    if isinstance(model, str | os.PathLike):
        model = _open(model)
    if inspect.has_own_loader(model):
        from workbench.loaders.traced import trace_module

        answer = _Answer(trace_module(model, checkpoint), None)
        return _combine(checkpoint, type(model).__name__, [answer], True, "", None, None)
    name = type(model).__name__ if inspect.is_module(model) else "state dict"
    name = str(getattr(model, "source", name))
    wants = inspect.model_of(inspect.table_of(model))
    profile = inspect.strict_profile(name)

    def resolve(tensors: Tensors) -> LoadOutcome:
        return simulate(profile, wants, tensors, "")

    answer = _Answer(resolve(checkpoint.table), resolve)
    return _combine(checkpoint, name, [answer], True, "", None, None)


def _profiled(checkpoint: Checkpoint, profile: Profile, version: str) -> _Answer:
    """Run a version's profile; where it refuses the config, show what the flattened one would do."""
    try:
        return _simulated(checkpoint.table, profile, profile.build(checkpoint.config), version)
    except NotCovered as error:
        return _nothing(checkpoint.table, profile, version, error, uncovered=True)
    except Refused as error:
        if checkpoint.config.layout != "speculators":
            return _nothing(checkpoint.table, profile, version, error)
        try:
            flat = dict(flattened(checkpoint.config, version))
            model = profile.build(Config(flat, checkpoint.config.source))
        except (Refused, NotCovered):
            return _nothing(checkpoint.table, profile, version, error)
        answer = _simulated(checkpoint.table, profile, model, version)
        refused = dataclasses.replace(
            answer.outcome, outcome="refused", error=error.text, place=error.place or profile.place
        )
        return dataclasses.replace(answer, outcome=refused)


def _simulated(table: TensorTable, profile: Profile, model: Model, version: str) -> _Answer:
    def resolve(tensors: Tensors) -> LoadOutcome:
        return simulate(profile, model, tensors, version)

    return _Answer(resolve(table), resolve)


def _nothing(
    table: TensorTable,
    profile: Profile,
    version: str,
    error: Refused | NotCovered,
    uncovered: bool = False,
) -> _Answer:
    """Return the outcome of a config that no model can be built from: not a key is loaded."""
    nobody = dataclasses.replace(
        profile, unknown="silent", missing="silent", route=inspect.strict_profile("").route
    )
    outcome = simulate(nobody, Model(()), table, version)
    reason = "not covered by the profile" if uncovered else "the engine refuses the config"
    outcome = dataclasses.replace(
        outcome,
        outcome="loads" if uncovered else "refused",
        error=error.text,
        place=error.place or profile.place,
        keys=tuple(dataclasses.replace(group, reason=reason) for group in outcome.keys),
    )
    return _Answer(outcome, None, uncovered=error.text if uncovered else "")


def _traced(
    checkpoint: Checkpoint,
    engine: registry.Engine,
    python: str | os.PathLike[str],
    target: Checkpoint | None,
) -> _Answer:
    from workbench.loaders.traced import trace_engine

    outcome, resolve = trace_engine(checkpoint, engine, python, target)
    return _Answer(outcome, resolve)


def _combine(
    checkpoint: Checkpoint,
    model: str,
    answers: list[_Answer],
    certain: bool,
    why: str,
    target: Checkpoint | None,
    launch: Any,
) -> KeyDiff:
    """Make one result of the answers of all versions tried; the last one's sets are shown."""
    *others, shown = answers
    last = _result(checkpoint, model, shown, certain, why, target, launch)
    if not others:
        return last
    # Of the others only the verdict is told: no renames are searched for them.
    verdicts = [dataclasses.replace(answer, resolve=None) for answer in others]
    diffs = [_result(checkpoint, model, a, certain, why, target, launch) for a in verdicts]
    diffs.append(last)
    versions = tuple(
        VersionAnswer(d.version, d.ok, d.summary, a.span)
        for d, a in zip(diffs, answers, strict=True)
    )
    many = dataclasses.replace(last, versions=versions)
    return dataclasses.replace(many, verdict=_of_all(diffs, versions))


def _of_all(diffs: Sequence[KeyDiff], versions: tuple[VersionAnswer, ...]) -> Verdict:
    """Return the verdict on several ranges of versions: sure only where all agree."""
    last = diffs[-1]
    ranges = f"{len(diffs)} known ranges of {last.engine}"
    named = f'Name the version, as in "{last.engine}=={last.version}"'
    if all(diff.fate() == last.fate() for diff in diffs):
        sentence = f"{last.summary} The same is true in all {ranges}."
    elif all(diff.ok is last.ok for diff in diffs) and last.ok is not None:
        state = "loads" if last.ok else "is wrong"
        sentence = f"It {state} in all {ranges}, in each in its own way. {named}."
    else:
        good, rest = _spans(versions, True), _spans(versions, False)
        sentence = f"Cannot tell: it depends on the version of {last.engine}."
        sentence += f" It loads in {good}; not, or not surely, in {rest}. {named}."
    agree = all(diff.ok is last.ok for diff in diffs)
    state_of: dict[bool | None, State] = {True: "ok", False: "wrong", None: "open"}
    which = Item(
        "release",
        f"the version of {last.engine} that serves it",
        state_of[last.ok] if agree else "open",
        f"the same answer in all {ranges}" if agree else "it was not named, and the answers differ",
    )
    answers = (
        Item("release", v.span or v.version, state_of[v.ok], v.text, essential=False)
        for v in versions
    )
    shown = (structs.replace(item, essential=False) for item in last.verdict.coverage.items)
    # The result shows one release, with its own basis; the verdict on all is as sure as the weakest.
    weakest = max((diff.basis for diff in diffs), key=verdict.SURENESS.index)
    return verdict.of(last.outcome, weakest, Coverage((which, *answers, *shown)), sentence)


def _spans(versions: tuple[VersionAnswer, ...], good: bool) -> str:
    """Return the ranges with a good answer, or without one, neighbours joined."""
    texts = []
    for passes, run in groupby(versions, key=lambda answer: answer.ok is True):
        ends = [end for answer in run for end in answer.span.split(" to ")]
        if passes is good:
            texts.append(ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}")
    return ", ".join(texts) or "none"


def _span(profile: Profile) -> str:
    return profile.first if profile.first == profile.last else f"{profile.first} to {profile.last}"


def _result(
    checkpoint: Checkpoint,
    model: str,
    answer: _Answer,
    certain: bool,
    why: str,
    target: Checkpoint | None,
    launch: Any,
) -> KeyDiff:
    """Make the result of one version's answer."""
    outcome = answer.outcome
    renames = _proposals(checkpoint.table, answer)
    read = None if launch is None else _launch(launch, outcome.engine, outcome.version)
    kept = _contracts(checkpoint, outcome, target, read, answer.uncovered)
    unsure = "" if certain else why or "this release is not known"
    draft = any(name in kept for name in ("vocabulary", "auxiliary_layers"))
    models = (checkpoint, target) if draft else (None, checkpoint)
    ruled = of_launch(read, outcome, *models) if certain else ()
    findings = _findings(checkpoint, outcome, renames, kept, answer.uncovered)
    findings = with_rules(findings, ruled)
    question = coverage.Question(
        table=checkpoint.table,
        outcome=outcome,
        contracts=kept,
        unsure=unsure,
        uncovered=answer.uncovered,
        target=target is not None,
        launch=None if read is None else doubt(read, outcome.engine, outcome.version, draft),
        launched=read,
        ruled=ruled,
        draft=draft,
    )
    covered = coverage.covered(question)
    if covered.ok is None and question.launch and not unsure:  # a proved fault is said as such
        unsure = f"of the launch {question.launch}"
    sentence = verdict.summary_line(outcome, findings, unsure, answer.uncovered)
    return KeyDiff(
        checkpoint=str(checkpoint.source),
        model=model,
        engine=outcome.engine,
        version=outcome.version,
        model_class=outcome.model_class,
        basis=outcome.basis,
        outcome=outcome.outcome,
        verdict=verdict.of(outcome.outcome, outcome.basis, covered, sentence),
        keys=outcome.keys,
        parameters=outcome.parameters,
        error=outcome.error,
        place=outcome.place,
        renames=renames,
        findings=findings,
        log=outcome.log,
        notes=tuple(filter(None, (why, *checkpoint.warnings))),
    )


def _proposals(table: TensorTable, answer: _Answer) -> tuple[Rename, ...]:
    if answer.resolve is None:
        return ()
    return propose(table, answer.outcome, answer.resolve)


def _contracts(
    checkpoint: Checkpoint,
    outcome: LoadOutcome,
    target: Checkpoint | None,
    launch: Launch | None,
    uncovered: str,
) -> dict[str, list[Finding]]:
    """Return what each contract that applies finds; none applies to a plain module."""
    if outcome.engine == "torch" or uncovered:
        return {}
    return contracts.check_each(checkpoint, outcome, target=target, launch=launch)


def _findings(
    checkpoint: Checkpoint,
    outcome: LoadOutcome,
    renames: tuple[Rename, ...],
    kept: Mapping[str, Sequence[Finding]],
    uncovered: str,
) -> tuple[Finding, ...]:
    found = verdict.findings(outcome, renames, str(checkpoint.source), uncovered)
    broken = (f for each in kept.values() for f in each)
    return tuple(sorted([*found, *broken], key=lambda finding: GRAVITY[finding.severity]))
