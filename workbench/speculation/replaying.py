"""`workbench.replay`: from target, draft and prompts or evidence to a `Replay`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation.ablate.static_checks import Hint, check, refusal, sufficient, unchecked
from workbench.speculation.arguments import (
    TRAINER,
    check_arguments,
    check_draft,
    check_launch,
    check_sizes,
    check_texts,
    dtype_of,
    folder_of,
    is_evidence,
    name_of,
    read_expected,
    read_sampling,
    verifies_greedily,
)
from workbench.speculation.building import build
from workbench.speculation.evidence import reading
from workbench.speculation.evidence.facts import Facts
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.evidence.prompts import Words, prompts_of
from workbench.speculation.judge import unmodelled
from workbench.speculation.judge.comparable import fitting
from workbench.speculation.judge.counts import Counts, contradicting
from workbench.speculation.judge.coverage import Proof, ReplayEvidence
from workbench.speculation.judge.expected import Expected
from workbench.speculation.judge.judging import judge
from workbench.speculation.judge.texts import good_of
from workbench.speculation.judge.thresholds import HARDLY
from workbench.speculation.judge.trial import Trial, checkpoint_of, target_of
from workbench.speculation.model import recorded
from workbench.speculation.model.draft_kinds import replayed_as
from workbench.speculation.result import Replay
from workbench.speculation.rounds.sampled import Rule, Sampling, sample_freely
from workbench.speculation.rounds.setup import as_launched, numerics_of

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.speculation.model.features import Target

_NEW_TOKENS = 64


def replay(
    target: Any,
    draft: Any,
    prompts: Any = None,
    *,
    evidence: str | os.PathLike[str] | None = None,
    steps: int = 3,
    topk: int = 1,
    draft_tokens: int | None = None,
    engine: str | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    hardware: str = "cuda",
    expected: float | str | os.PathLike[str] | Expected | None = None,
    requests: int | None = None,
    new_tokens: int = _NEW_TOKENS,
) -> Replay:
    """Draft and verify again, round by round, and say what is accepted and why the rest falls.

    Parameters
    ----------
    target
        A path, URL or Hub id of a checkpoint, a model of transformers, or a folder of evidence with hidden
        states: then the draft is replayed on those, and of the target's checkpoint, which the launch or
        the draft names, only embedding and head are read.
    draft
        The draft's checkpoint.
    prompts
        Texts or lists of token ids, or a file (.jsonl with ``text``, ``prompt`` or ``input_ids``; .txt, one
        a line). The target answers them. Not needed with evidence.
    evidence
        What a real engine did: a recorded run, answers with hidden states, a tensor dump, speculators' or
        SpecForge's hidden states, per-request metrics, a log. Each recorded round is replayed from its own
        beginning.
    steps, topk, draft_tokens
        Depth of the tree, its width, and its nodes with the root. With evidence, those of its launch count.
    engine
        ``"sglang==0.5.11"``: as that version loads and drives this draft. None: with evidence as it was
        launched, without as the trainer means it. ``"trainer"``: that on the evidence's texts, too.
    temperature
        Of the answers to `prompts`. The text of evidence is taken as it is, however it was sampled.
    top_k, top_p
        Cuts of the target's distribution before a draft is verified; 0 and 1 cut nothing.
    threshold_single, threshold_acc
        SGLang's ``--speculative-accept-threshold-single`` and ``-acc``, for sampled answers.
    hardware
        ``cuda``, ``rocm`` or ``npu``: on the last two SGLang verifies greedily, whatever the temperature.
    expected
        The accept length that this draft should reach: a number, the trainer's metrics (a JSON file), or the
        folder of a healthy recorded run.
    requests
        Only the first so many.
    new_tokens
        Length of the answers to `prompts`.

    Returns
    -------
    Replay
        ``ok`` is True, False, or None where it cannot be told.

    Raises
    ------
    WorkbenchError
        Something cannot be read, does not fit, or cannot be run here.
    """
    check_arguments(target, prompts, evidence, temperature, engine)
    check_sizes(steps, topk, draft_tokens, requests, new_tokens)
    sampling = read_sampling(temperature, top_k, top_p, threshold_single, threshold_acc, hardware)
    steps, topk, temperature = int(steps), int(topk), float(temperature)  # numpy's are no JSON
    draft_tokens = None if draft_tokens is None else int(draft_tokens)
    facts = reading.read_facts(evidence) if evidence is not None else None
    given = target
    if facts is None and prompts is None and is_evidence(target):
        facts, target = reading.read_facts(target), None
    check_launch(facts.launch if facts is not None else None)
    checkpoint = checkpoint_of(draft)
    check_draft(checkpoint)
    algorithm = "EAGLE3" if replayed_as(checkpoint).joining == "eagle3" else "EAGLE"
    launch, notes = _launch(facts, engine, algorithm, steps, topk, draft_tokens, target)
    aim, changed = fitting(read_expected(expected, launch.steps), launch.steps, launch.topk)
    notes += changed
    facts = _without_loops(_some(facts, requests))
    if facts is not None and facts.kind == "counts":
        return _counted(facts, launch, aim, checkpoint, given, notes, engine)
    if facts is None:
        words = Words(folder_of(target))
        asked = prompts_of(prompts, words)[:requests]
        runs = target_of(target, numerics_of(launch))
        check_texts(asked, runs, new_tokens)
        if temperature > 0 and verifies_greedily(launch.engine, hardware):
            notes.append(
                f"SGLang on {hardware} verifies greedily whatever the temperature: replayed greedily"
            )
            temperature = 0.0
        if temperature > 0:
            trial, note = _sampled(runs, checkpoint, asked, launch, aim, sampling, new_tokens)
            notes.append(note)
        else:
            trial = Trial.of_prompts(
                runs, checkpoint, asked, launch=launch, new_tokens=new_tokens, expected=aim
            )
        trial, more = _answered(trial)
        notes += more
    else:
        trial, words, more = _of_facts(facts, target, checkpoint, launch, aim)
        notes += more
    named = launch.engine if engine != TRAINER else ""
    return build(
        trial,
        target=name_of(given),
        draft=name_of(draft),
        facts=facts,
        engine=named,
        words=words,
        hints=check(trial),
        refused=refusal(trial) if facts is None else None,
        notes=notes,
        temperature=temperature,
    )


def _sampled(
    target: Target,
    draft: Checkpoint,
    prompts: Sequence[Sequence[int]],
    launch: DraftLaunch,
    expected: Expected | None,
    sampling: Sampling,
    new_tokens: int,
) -> tuple[Trial, str]:
    """Answer prompts by sampling, as the engine verifies; the rounds are then replayed on that text."""
    rule: Rule = "vllm" if launch.engine.startswith("vllm") else "sglang"
    loaded, driving = as_launched(launch, draft, target)
    sampling = dataclasses.replace(sampling, rule=rule)
    found = sample_freely(target, loaded, driving, prompts, new_tokens, sampling)
    lengths = found.trace.lengths.tolist()
    texts = [row[:n] for row, n in zip(found.trace.tokens.tolist(), lengths, strict=True)]
    trace = target.trace(texts, [len(p) for p in prompts], None, found.starts)
    trial = Trial(
        target, trace, draft, launch, loaded, driving, found.starts, None, expected=expected
    )
    cuts = [
        f"{name} {value:g}"
        for name, value, none in (
            ("top-k", sampling.top_k, 0),
            ("top-p", sampling.top_p, 1.0),
            ("threshold-single", sampling.threshold_single, 1.0),
            ("threshold-acc", sampling.threshold_acc, 1.0),
        )
        if value != none
    ]
    said = ", ".join([f"temperature {sampling.temperature:g}", *cuts])
    return trial, f"answers sampled at {said}, verified by the rule of {rule}"


def _of_facts(
    facts: Facts, target: Any, draft: Checkpoint, launch: DraftLaunch, expected: Expected | None
) -> tuple[Trial, Words, list[str]]:
    """Return the trial of evidence: with the target run over its text, or on its recorded features."""
    folder = folder_of(target)
    if target is not None:
        try:
            runs = target_of(target, numerics_of(launch))
        except WorkbenchError:
            if not facts.recorded:
                raise
        else:
            texts = facts.run
            check_texts(texts.texts if texts else [r.tokens for r in facts.recorded], runs)
            if texts is None and facts.recorded:
                return _on_text(facts, runs, draft, launch, expected), Words(folder), []
            assert texts is not None
            run = dataclasses.replace(texts, launch=launch, notes=facts.notes)
            trial = Trial.of_run(run, runs, draft, memory=facts.memory, expected=expected)
            return trial, Words(folder), []
    if not facts.recorded:
        raise WorkbenchError(
            f"{facts.source} holds no hidden states to replay on",
            why=f"it is {facts.form}, and the target is not given",
            next_step="Give the target's checkpoint, or record with return_hidden_states.",
        )
    if target is None:
        folder = _find_target(facts, launch, draft)
    checkpoint = checkpoint_of(folder if target is None else target)
    return _on_features(facts, checkpoint, draft, launch, expected, folder)


def _on_text(
    facts: Facts, target: Any, draft: Checkpoint, launch: DraftLaunch, expected: Expected | None
) -> Trial:
    """Run the target over texts that came with features, as if they were a run's."""
    loaded, driving = as_launched(launch, draft, target, memory=facts.memory)
    records = facts.recorded
    known = all(r.starts for r in records)
    starts = [r.starts or () for r in records] if known else None
    trace = target.trace([r.tokens for r in records], [r.prompt for r in records], None, starts)
    emitted = [r.emitted or () for r in records] if known else None
    return Trial(
        target, trace, draft, launch, loaded, driving, starts, emitted, facts.memory, expected,
        notes=facts.notes,
    )  # fmt: skip


def _on_features(
    facts: Facts,
    checkpoint: Checkpoint,
    draft: Checkpoint,
    launch: DraftLaunch,
    expected: Expected | None,
    folder: Path | None,
) -> tuple[Trial, Words, list[str]]:
    """Replay on recorded features, with the target's embedding and head alone."""
    target: Any = recorded.RecordedTarget(checkpoint, numerics_of(launch))
    loaded, driving = as_launched(launch, draft, target, memory=facts.memory)
    check_texts([r.tokens for r in facts.recorded], target, layers=len(driving.aux or ()))
    notes = ["the target was not run: the draft is replayed on the features that were recorded"]
    if driving.extend == "block":
        driving = driving.replaced(extend="accepted")
        notes.append(
            "features of rejected drafts are not recorded: what this version lets a round see of them "
            "is left out"
        )
    trace, starts, emitted, more = recorded.trace_of(facts.recorded, target, driving.aux)
    trial = Trial(
        target, trace, draft, launch, loaded, driving, starts, emitted, facts.memory, expected,
        notes=facts.notes,
    )  # fmt: skip
    return trial, Words(folder), [*notes, *more]


def _find_target(facts: Facts, launch: DraftLaunch, draft: Checkpoint) -> Path:
    """Return the target's folder as the launch or the draft's config names it."""
    said = draft.config.get("speculators_config")
    verifier = said.get("verifier") if isinstance(said, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    for named in (launch.target, name):
        found = recorded.find_checkpoint(facts, named) if isinstance(named, str) else None
        if found is not None:
            return found
    raise WorkbenchError(
        "the target's checkpoint is not found",
        why=f"the launch names {shown(launch.target)}, the draft {shown(name)}",
        next_step="Give it: replay(target, draft, evidence=folder). Its embedding and head are read.",
    )


def _launch(
    facts: Facts | None,
    engine: str | None,
    algorithm: str,
    steps: int,
    topk: int,
    draft_tokens: int | None,
    target: Any,
) -> tuple[DraftLaunch, list[str]]:
    """Return how the draft is loaded and driven, and what a reader should know of that choice."""
    own = facts.launch if facts else None
    if own is not None:
        own = dataclasses.replace(own, dtype=_dtype(own, target))
        if engine is None:
            named = own.engine or "an unknown version"
            note = f"loaded and driven as the evidence was launched: {named}, {own.algorithm or algorithm}"
        elif engine == TRAINER:
            own = dataclasses.replace(own, engine="", algorithm=algorithm, unread=(), further=())
            note = "as the trainer means the draft, on the texts of the evidence"
        else:
            ran = own.engine or "another version"
            own = dataclasses.replace(own, engine=engine)
            note = f"loaded and driven as {engine}, though the evidence ran {ran}"
        return own, [note, *own.notes]
    made = DraftLaunch(
        engine="" if engine in (None, TRAINER) else str(engine),
        algorithm=algorithm,
        steps=steps,
        topk=topk,
        draft_tokens=draft_tokens if draft_tokens is not None else steps + 1,
        dtype=dtype_of(target),
    )
    notes = []
    if made.engine.startswith("sglang"):
        notes.append("the attention backend is not given: what Triton's does to drafts is left out")
    return made, notes


def _dtype(launch: DraftLaunch, target: Any) -> str:
    """Return the dtype that a launch names; where it leaves that to the target's config, what that says."""
    return dtype_of(target) if launch.dtype in ("", "auto") else launch.dtype


def _counted(
    facts: Facts,
    launch: DraftLaunch,
    expected: Expected | None,
    draft: Checkpoint,
    target: Any,
    notes: list[str],
    engine: str | None,
) -> Replay:
    """Return what counts alone say: a rate, a histogram, the static checks."""
    hints, why = _static_alone(draft, launch, target)
    counts = Counts(
        None,
        facts.tally,
        facts.logged,
        expected,
        launch.steps,
        topk=launch.topk,
        deepest=launch.steps if facts.launch is not None else None,
        contradictions=contradicting(facts.tally, facts.logged),
    )
    fields = (*unmodelled.of_launch(launch), *unmodelled.items(draft.config.text, essential=False))
    judged = judge(
        ReplayEvidence(
            counts,
            engine=launch.engine,
            launch=launch,
            static=(*(hint.finding for hint in hints), *unmodelled.findings(fields)),
            unchecked=why,
            fields=fields,
            proof=_proof_of(hints, facts),
        )
    )
    deep = len(facts.tally.histogram) - 1 if facts.tally else 0
    return Replay(
        target=name_of(target),
        draft=draft.source,
        evidence=facts.source,
        engine=launch.engine if engine != TRAINER else "",
        algorithm=launch.algorithm,
        steps=max(launch.steps, deep),
        topk=launch.topk,
        draft_tokens=max(launch.draft_tokens, deep + 1),
        verdict=judged.verdict,
        total=0,
        observed=facts.tally,
        logged=facts.logged,
        expected=expected,
        findings=judged.findings,
        notes=(
            *notes,
            f"{facts.form}: counts without texts, nothing can be replayed",
            *facts.notes,
        ),
    )


def _proof_of(hints: Sequence[Hint], facts: Facts) -> Proof | None:
    """Return the proof that counts alone can give: next to nothing is accepted, and a whole part is lost."""
    counts = facts.tally or facts.logged
    length = counts.accept_length if counts is not None else None
    whole = sufficient(hints)
    hardly = length is not None and length - 1 < HARDLY
    return Proof(True, whole, confidence="certain") if whole and hardly else None


def _static_alone(
    draft: Checkpoint, launch: DraftLaunch, target: Any
) -> tuple[tuple[Hint, ...], str]:
    """Return what is known of a draft for a target whose sizes and embedding alone are read; else why not."""
    try:
        aim: Any = recorded.RecordedTarget(checkpoint_of(target), numerics_of(launch))
        loaded, driving = as_launched(launch, draft, aim)
    except WorkbenchError as error:
        return (
            (),
            error.what,
        )  # without a target that lends its embedding there is no draft to check
    nothing: Any = None  # the checks compute nothing, and so need no trace
    trial = Trial(aim, nothing, draft, launch, loaded, driving)
    return check(trial), unchecked(trial)


def _some(facts: Facts | None, requests: int | None) -> Facts | None:
    if facts is None or requests is None:
        return facts
    run = facts.run.some(requests) if facts.run else None
    return dataclasses.replace(facts, run=run, recorded=facts.recorded[:requests])


def _without_loops(facts: Facts | None) -> Facts | None:
    """Leave out a run's answers that repeat themselves where most do, and enough others remain."""
    run = facts.run if facts is not None else None
    good = good_of([request.answer for request in run.requests]) if run is not None else None
    if facts is None or run is None or good is None:
        return facts
    left = len(run.requests) - len(good)
    note = f"{left} answers that repeat themselves are left out"
    some = dataclasses.replace(run, requests=tuple(run.requests[row] for row in good))
    return dataclasses.replace(facts, run=some, notes=(*facts.notes, note))


def _answered(trial: Trial) -> tuple[Trial, list[str]]:
    """Leave out answers to prompts that repeat themselves, in the same way."""
    spans = zip(trial.trace.prompts.tolist(), trial.trace.lengths.tolist(), strict=True)
    rows = trial.trace.tokens.tolist()
    good = good_of([row[begin:end] for row, (begin, end) in zip(rows, spans, strict=True)])
    if good is None:
        return trial, []
    left = len(rows) - len(good)
    return trial.some(good), [f"{left} answers that repeat themselves are left out"]
