"""What was found, as findings: the verdict first, then what else the evidence shows."""

from __future__ import annotations

from workbench.core.finding import Experiment, Finding, Severity
from workbench.hang.judge import gpu_load, wording
from workbench.hang.judge.conditions import GRAPHS, REGISTRATION
from workbench.hang.judge.evidence import (
    MOST,
    name_of,
    names,
    place_of,
    quoted,
    speaking_against,
    speaking_for,
)
from workbench.hang.judge.rank_group import BUSY_GPU, RankGroup
from workbench.hang.judge.rules import Judgement

_SEVERITY: dict[str, Severity] = {
    "slow": "warning", "cannot_tell": "warning", "idle": "note", "serving": "note"
}  # fmt: skip
_LEFT = (
    "Its capture is over, or an exception ended it, which is not in the log before the registration ends. "
    "Without the custom all-reduce, an exception ends the server at once, and the log has it."
)


def findings(judged: Judgement, experiment: Experiment, sentence: str) -> tuple[Finding, ...]:
    """Return the verdict as a finding, and what else was found."""
    group, rule = judged.group, judged.rule
    first = Finding(
        code=f"hang.{rule.code}",
        severity=_SEVERITY.get(rule.state, "error"),
        title=sentence,
        detail=rule.cause,
        evidence_for=speaking_for(group, judged.phase, rule),
        evidence_against=speaking_against(group, judged.phase, rule, judged.odd),
        confidence=judged.confidence,
        next_step=experiment.change,
        experiment=experiment,
    )
    return (first, *_further(judged))


def _further(judged: Judgement) -> list[Finding]:
    group, rule = judged.group, judged.rule
    found: list[Finding] = []

    def note(code: str, title: str, detail: str) -> None:
        found.append(Finding(code, "note", title, detail, confidence="likely"))

    if group.alive and group.story.errors_of("heartbeat"):
        note(
            "later_aborted",
            "the log ends with NCCL's heartbeat abort",
            "The abort is the end of a hang, not its cause.",
        )
    if group.alive and not group.complete and not judged.odd and rule.state == "hung":
        note(
            "nobody_accused",
            "a culprit is not named",
            "The stack of a rank is missing, and the others may be waiting for that rank.",
        )
    alike = len({(rank.wait, rank.place) for rank in group.alive}) == 1
    if rule.state == "hung" and group.complete and not judged.odd and len(group.alive) > 1:
        places = "; ".join(f"{name_of(r)} in {place_of(r)}" for r in group.alive[:4])
        if alike:
            note(
                "all_alike",
                "all ranks are at the same place",
                "Their stacks do not point at one rank.",
            )
        elif left := _left_the_capture(group):
            note("left_the_capture", left, _LEFT)
        else:
            note(
                "no_culprit",
                "the ranks are at different places, and by the rules none of them is behind",
                places,
            )
    for one in group.story.errors_of("xid")[:MOST]:
        note(
            "xid",
            f"the kernel reports Xid {one.event.facts['xid']} of the GPU {one.event.facts['device']}",
            quoted(one),
        )
    if resting := _resting(group):
        note(
            "gpu_at_rest",
            resting,
            "It runs no kernel of the collective: that rank has not launched it, or is through with it.",
        )
    counts = group.story.addresses
    if len(set(counts.values())) > 1:
        parts = ", ".join(f"rank {rank}: {n}" for rank, n in counts.items())
        note("addresses_differ", "the ranks registered different numbers of graph addresses", parts)
    if group.behind:
        title = (
            f"by NCCL's own counts ranks {wording.spans(group.behind)} launched fewer collectives "
            f"({group.counts})"
        )
        note("ras_behind", title, "NCCL RAS sees its own communicators, not gloo's.")
    return found


def _left_the_capture(group: RankGroup) -> str:
    """Return which ranks register the buffers of their capture while others are still in it."""
    registers = [
        rank
        for rank in group.alive
        if any(word in name for name in rank.place for word in REGISTRATION)
    ]
    rest = [rank for rank in group.alive if rank not in registers and rank.phase in GRAPHS]
    if not registers or len(registers) + len(rest) < len(group.alive) or not rest:
        return ""
    return f"{names(registers)} registers the buffers of its capture, {names(rest)} is still in the capture"


def _resting(group: RankGroup) -> str:
    """Return whose GPU rests while all others are busy: theirs has no kernel of the collective."""
    read = [(rank, rank.gpu) for rank in group.alive if rank.gpu is not None]
    rests = [(rank, gpu) for rank, gpu in read if gpu_load.load(gpu) == "rests"]
    busy = [rank for rank, gpu in read if (gpu.utilisation or 0.0) >= BUSY_GPU]
    if not rests or len(rests) > len(busy) or len(rests) + len(busy) < len(read):
        return ""
    used = max(gpu.utilisation or 0.0 for _, gpu in rests)
    return f"the GPU of {names(rank for rank, _ in rests)} is at {used:.0f} %, those of all others are busy"
