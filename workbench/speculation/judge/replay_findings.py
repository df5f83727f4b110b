"""What a replay concludes of its evidence, apart from the verdict: each finding with what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.core.finding import Finding
from workbench.speculation.judge.engine_loss import ENGINE_NEXT
from workbench.speculation.judge.thresholds import FAITHFUL, NEAR

if TYPE_CHECKING:
    from workbench.speculation.judge.coverage import ReplayEvidence


def unwritten_memory(evidence: ReplayEvidence) -> Iterator[Finding]:
    """Yield that weights hold what memory happened to hold, with the acceptance for several contents."""
    if not evidence.filled:
        return
    lengths = [value for value in evidence.fills.values() if not math.isnan(value)]
    spread = ", ".join(f"{value:.2f} ({name})" for name, value in evidence.fills.items())
    names = ", ".join(f"`{name}`" for name in evidence.filled[:3])
    names += " …" if len(evidence.filled) > 3 else ""
    yield Finding(
        code="unwritten_memory",
        severity="error",
        title=f"{len(evidence.filled)} weights of the draft are uninitialised memory",
        detail=f"{evidence.engine or 'This engine'} never writes {names}. What they hold there is not "
        f"known; replayed with several contents the acceptance length is {spread}.",
        evidence_for=(
            (f"with each of them it is between {min(lengths):.2f} and {max(lengths):.2f}",)
            if lengths
            else ()
        ),
        changes_output=True,
        next_step="`workbench diff` names the keys that this version drops, and the rename that repairs it.",
    )


def texts(evidence: ReplayEvidence) -> Iterator[Finding]:
    """Yield what is wrong with the texts as evidence."""
    given = evidence.texts
    if given is None:
        return
    if given.refused:
        yield Finding(
            code="repetitive_text",
            severity="warning",
            title="The texts repeat themselves and cannot be evidence",
            detail=f"{given.refused}. In a loop a draft is right without the target's features, so a lost "
            "layer or a shifted one is not visible.",
            evidence_for=(f"distinct pairs of tokens: {given.distinct[1]:.0%}",),
            next_step="Record other prompts, or forbid the repetition.",
        )
    elif given.looping:
        yield Finding(
            code="some_repetitive_text",
            severity="note",
            title=f"{len(given.looping)} of {given.requests} answers end in a loop",
            detail="Acceptance in them says little about the draft.",
        )
    if given.sampled and evidence.counts.real:
        yield Finding(
            code="sampled_text",
            severity="note",
            title=f"{given.other:.0%} of the text is not what this target chooses",
            detail="It was sampled, or written by another target. Drafts are compared with the text as "
            "it is, so acceptance is lower than that of a greedy server.",
            confidence="likely",
        )


def fidelity(evidence: ReplayEvidence) -> Iterator[Finding]:
    """Yield how often the replay does what the engine did."""
    same = evidence.counts.agreement
    if same is None or not same.rounds or same.share is None:
        return
    left = same.rounds - same.same_count
    detail = (
        f"{same.same_count:,} of {same.rounds:,} rounds accept as many drafts as the engine did, "
        f"{same.same_tokens:,} emit the same tokens."
    )
    if left:
        detail += f" Of the {left:,} others the target decided {same.near_ties:,} by less than {NEAR} logits."
    if same.share >= FAITHFUL:
        yield Finding(
            code="faithful",
            severity="note",
            title=f"The replay does what the engine did in {same.share:.1%} of the rounds",
            detail=detail,
        )
        return
    differ = f"Replay and engine differ in {1 - same.share:.0%} of the rounds"
    if evidence.filled:
        yield Finding(
            code="unwritten_memory_differs",
            severity="note",
            title=differ,
            detail=f"{detail} The engine computes with uninitialised memory of unknown content, the "
            "replay with zeros in its place.",
        )
        return
    yield Finding(
        code="unfaithful",
        severity="warning",
        title=differ,
        detail=f"{detail} What was replayed is not what ran: another draft or target, another version or "
        "launch, or memory of unknown content.",
        next_step="Check that target, draft and launch are those of the evidence.",
    )


def doubts(evidence: ReplayEvidence) -> Iterator[Finding]:
    """Yield that the counts contradict each other."""
    doubtful = evidence.counts.doubtful
    if doubtful:
        yield Finding(
            code="evidence_contradicts",
            severity="warning",
            title="The evidence cannot be of one run",
            detail=f"{doubtful[:1].upper()}{doubtful[1:]}.",
            next_step="Record launch, log and answers of one server together, with --stream-interval 1.",
        )


def losses(evidence: ReplayEvidence) -> Iterator[Finding]:
    """Yield a certain loss that no known fault explains: of the engine, or of unknown cause."""
    if evidence.proved:
        return
    counts = evidence.counts
    if evidence.engine_loses and evidence.files is not None:
        yield Finding(
            code="engine_accepts_less",
            severity="error",
            title=f"the engine accepts {counts.length:.2f} tokens a round, its files {evidence.files:.2f}",
            detail=evidence.does
            or "No fault of an engine that is known here reproduces its rounds.",
            evidence_for=(f"the same rounds of the same texts, {counts.rounds:,} of them",),
            confidence="likely",
            changes_output=True,
            next_step=ENGINE_NEXT,
        )
    elif evidence.lost and counts.expected is not None:
        yield Finding(
            code="acceptance_lost",
            severity="error",
            title=f"{counts.length:.2f} tokens are accepted a round, and {counts.expected.accept_length:.2f} "
            "are expected: more is missing than chance explains",
            detail="What loses it is not known.",
            evidence_for=(f"counted over {counts.rounds:,} rounds",)
            if counts.tally is not None
            else ("the mean of a log",),
            confidence="likely",
            changes_output=True,
            next_step="Run ablate(): it changes one thing at a time (--ablate)."
            if counts.replayed is not None
            else "Record texts and rounds, and replay them.",
        )
