"""`diff_keys`: what an engine, or a model, does with a checkpoint's keys."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.records import TensorTable
from workbench.engines import inspect, registry
from workbench.engines.outcome import LoadOutcome
from workbench.engines.profile import Model, NotCovered, Profile, Refused
from workbench.engines.simulate import simulate
from workbench.errors import WorkbenchError
from workbench.keys.records import KeyDiff, Rename, VersionAnswer
from workbench.keys.rename import propose
from workbench.keys.verdict import judge, summary_line
from workbench.result import Finding

if TYPE_CHECKING:
    from workbench.checkpoint.open import Checkpoint


def diff_keys(
    ckpt: Any,
    model: Any,
    *,
    target: Any = None,
    python: str | os.PathLike[str] | None = None,
    launch: str | Sequence[str] | None = None,
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
        The server's launch command or arguments, to check them against the draft.

    Returns
    -------
    KeyDiff
        ``ok`` is True, False, or None where it cannot be told.

    Raises
    ------
    WorkbenchError
        The checkpoint cannot be read, or the engine, version or class is not known.
    """
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
        answers = [_profiled(checkpoint, p, version) for version, p in choice.profiles]
        certain, why = choice.certain, choice.why
    return _combine(checkpoint, model, answers, certain, why, aim, launch)


@dataclasses.dataclass(frozen=True)
class _Answer:
    """What one version does, with the means to ask what it would do with other names."""

    outcome: LoadOutcome
    resolve: Callable[[TensorTable], LoadOutcome] | None
    uncovered: str = ""


def _open(ckpt: Any) -> Checkpoint:
    from workbench.checkpoint.open import Checkpoint, open_checkpoint

    return ckpt if isinstance(ckpt, Checkpoint) else open_checkpoint(ckpt)


def _is_path(text: str) -> bool:
    """Tell a checkpoint's path, URL or Hub id from an engine: engines have no slash and are no file."""
    return "/" in text or Path(text).exists()


def _against_model(checkpoint: Checkpoint, model: Any) -> KeyDiff:
    """Compare with a module, a state dict, or another checkpoint."""
    if isinstance(model, str | os.PathLike):
        model = _open(model)
    if inspect.has_own_loader(model):
        from workbench.engines.traced import trace_module

        answer = _Answer(trace_module(model, checkpoint), None)
        return _combine(checkpoint, type(model).__name__, [answer], True, "", None, None)
    name = type(model).__name__ if inspect.is_module(model) else "state dict"
    name = str(getattr(model, "source", name))
    wants = inspect.model_of(inspect.table_of(model))
    profile = inspect.strict_profile(name)

    def resolve(table: TensorTable) -> LoadOutcome:
        return simulate(profile, wants, table, "")

    answer = _Answer(resolve(checkpoint.table), resolve)
    return _combine(checkpoint, name, [answer], True, "", None, None)


def _profiled(checkpoint: Checkpoint, profile: Profile, version: str) -> _Answer:
    """Run a version's profile; where it refuses the config, show what the flattened one would do."""
    try:
        return _simulated(checkpoint.table, profile, profile.build(checkpoint.config), version)
    except NotCovered as error:
        return _nothing(checkpoint.table, profile, version, error, uncovered=True)
    except Refused as error:
        try:
            flat = checkpoint.config.flat()
            model = profile.build(flat)
        except (Refused, NotCovered, WorkbenchError):
            return _nothing(checkpoint.table, profile, version, error)
        answer = _simulated(checkpoint.table, profile, model, version)
        refused = dataclasses.replace(
            answer.outcome, outcome="refused", error=error.text, place=error.place or profile.place
        )
        return dataclasses.replace(answer, outcome=refused)


def _simulated(table: TensorTable, profile: Profile, model: Model, version: str) -> _Answer:
    def resolve(renamed: TensorTable) -> LoadOutcome:
        return simulate(profile, model, renamed, version)

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
    from workbench.engines.traced import trace_engine

    outcome, resolve = trace_engine(checkpoint, engine, python, target)
    return _Answer(outcome, resolve)


def _combine(
    checkpoint: Checkpoint,
    model: str,
    answers: list[_Answer],
    certain: bool,
    why: str,
    target: Checkpoint | None,
    launch: str | Sequence[str] | None,
) -> KeyDiff:
    """Make one result of the answers of all versions tried; the last one's sets are shown."""
    diffs = [_result(checkpoint, model, a, certain, why, target, launch) for a in answers]
    last = diffs[-1]
    if len(diffs) == 1:
        return last
    agree = all(diff.fate() == last.fate() for diff in diffs)
    versions = tuple(VersionAnswer(d.version, d.ok, d.summary) for d in diffs)
    if agree:
        said = f"{last.summary} All {len(diffs)} known ranges agree."
        return dataclasses.replace(last, versions=versions, notes=(why,), summary=said)
    failing = [d.version for d in diffs if d.ok is not True]
    passing = [d.version for d in diffs if d.ok is True]
    said = f"Cannot tell: it depends on the version of {last.engine}."
    if passing and failing:
        said += f" Wrong or unsure for {_few(failing)}; loads for {_few(passing)}."
    said += f' Name the version, as in "{last.engine}=={last.version}".'
    return dataclasses.replace(last, ok=None, versions=versions, notes=(why,), summary=said)


def _few(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} … {versions[-1]}"


def _result(
    checkpoint: Checkpoint,
    model: str,
    answer: _Answer,
    certain: bool,
    why: str,
    target: Checkpoint | None,
    launch: str | Sequence[str] | None,
) -> KeyDiff:
    """Make the result of one version's answer."""
    outcome = answer.outcome
    renames = _proposals(checkpoint.table, answer)
    findings = _findings(checkpoint, outcome, renames, target, launch, answer.uncovered)
    ok = judge(outcome, findings, certain, answer.uncovered)
    return KeyDiff(
        checkpoint=str(checkpoint.source),
        model=model,
        engine=outcome.engine,
        version=outcome.version,
        model_class=outcome.model_class,
        basis=outcome.basis,
        outcome=outcome.outcome,
        ok=ok,
        summary=summary_line(outcome, ok, findings, why if not certain else "", answer.uncovered),
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


def _findings(
    checkpoint: Checkpoint,
    outcome: LoadOutcome,
    renames: tuple[Rename, ...],
    target: Checkpoint | None,
    launch: str | Sequence[str] | None,
    uncovered: str,
) -> tuple[Finding, ...]:
    from workbench.engines import contracts
    from workbench.keys import verdict

    found = verdict.findings(outcome, renames, str(checkpoint.source), uncovered)
    if outcome.engine != "torch" and not uncovered:
        found += contracts.check(checkpoint, outcome, target=target, launch=launch)
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda finding: rank[finding.severity]))
