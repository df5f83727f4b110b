"""What speaks for a verdict and against it, and what cannot be told: in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.core.finding import Experiment, Finding, Severity
from workbench.errors import shorten
from workbench.hang import waits, words
from workbench.hang.join import BUSY_IO
from workbench.hang.look import Look, RankLook
from workbench.hang.phases import Said
from workbench.hang.records import Phase, Scene
from workbench.hang.rules import Rule, Verdict

PHASES: dict[str, str] = {
    "spawn": "starting its processes", "dist_init": "setting up the process groups",
    "weights": "loading weights", "load_barrier": "the barrier after loading",
    "kv_pool": "allocating the KV pool",
    "draft_embed": "sharing the draft's embedding", "warmup": "warm-up and autotuning",
    "graph_prefill": "capturing prefill graphs", "graph_decode": "capturing decode graphs",
    "graph_draft": "capturing draft graphs", "init_done": "the end of the start-up, not yet ready",
    "ready": "the event loop", "unknown": "an unknown phase",
}  # fmt: skip
MOST = 8
_TELLING = (
    "heartbeat", "collective_timeout", "load_barrier", "rank_died", "child_crashed", "out_of_memory", "xid",
    "nccl_error", "gloo_error", "cuda_error", "capture_failed", "warmup_failed", "exception", "fatal",
)  # fmt: skip
# States in which nothing is wrong with the ranks.
WELL = ("idle", "serving")
_SEVERITY: dict[str, Severity] = {
    "slow": "warning", "cannot_tell": "warning", "idle": "note", "serving": "note"
}  # fmt: skip


def name_of(rank: RankLook) -> str:
    """Return a rank's name as its title has it; its number where several would be called alike."""
    return str(rank.rank)


def names(ranks: Iterable[RankLook]) -> str:
    """Return the names of ranks in one short text: ``TP0-6``."""
    ranks = list(ranks)
    texts = [name_of(rank) for rank in ranks]
    heads = {text.rstrip("0123456789") for text in texts}
    if len(heads) == 1 and all(text[-1:].isdigit() for text in texts):
        head = heads.pop()
        return head + words.spans(int(text[len(head) :]) for text in texts)
    if len(texts) > 3:
        return f"ranks {words.spans(rank.number for rank in ranks)}"
    return shorten(", ".join(texts), 80)


def standing_in(rank: RankLook) -> str:
    """Return what one rank stands in: its telling frame, or why there is none."""
    frame = waits.telling_frame(rank.frames)
    if frame is not None:
        return words.frame_text(frame)
    if rank.stopped:
        return "no stack, state T"
    if rank.dump is not None and rank.dump.refusal:
        return f"no stack: {rank.dump.refusal}"
    return "no stack"


def summary(look: Look, phase: Phase, rule: Rule, odd: Sequence[RankLook]) -> str:
    """Return the verdict in one line."""
    where = f"in {PHASES[phase]}" if phase != "unknown" else "in an unknown phase"
    count = f"{len(look.alive)} of {look.expected} ranks seen"
    state = rule.state.replace("_", " ")
    if rule.code == "RH":
        return f"{state}: {'; '.join(map(str, look.helpers[:3]))}, and its ranks live ({count})"
    if rule.state == "dead_rank":
        return (
            f"dead rank {where}: {_gone(look)}; {words.spans(r.number for r in look.alive)} alive"
        )
    if rule.state == "crashed":
        first = raised(look)
        whose = f"{first.line.rank or 'the server'} raised" if first is not None else ""
        said = f"{whose} {first.ended}" if first is not None and first.ended else rule.evidence
        return f"crashed {where}: {shorten(said, 160)}"
    if rule.state in ("idle", "serving"):
        return f"{state}: {rule.evidence} ({count})"
    if rule.state == "slow":
        working = [rank for rank in look.alive if rank.moving and rank.wait != "IDLE"]
        who = f"{names(working)} gets on" if working else rule.evidence
        return f"slow, not hung, {where}: {who}"
    if rule.state == "cannot_tell":
        before = "; it had been ready" if look.over and look.story.ready else ""
        return f"cannot tell: {where}; {rule.evidence}{before}"
    if odd:
        others = [rank for rank in look.alive if rank not in odd and rank.seen]
        unseen = [rank for rank in look.alive if rank not in odd and not rank.seen]
        theirs = f"; {names(others)} wait{'s' if len(others) == 1 else ''}" if others else ""
        theirs += f"; {names(unseen)} not seen" if unseen else ""
        stopped = " (stopped, state T)" if all(rank.stopped for rank in odd) else ""
        stand = "stands" if len(odd) == 1 else "stand"
        return f"{state} {where}: {names(odd)} {stand} apart{stopped}{theirs}"
    return f"{state} {where}: {rule.evidence}; no rank stands apart"


def _gone(look: Look) -> str:
    told = [f"{name_of(rank)} {rank.gone}" for rank in look.dead[:3]]
    if look.absent:
        plural = "ranks" if len(look.absent) > 1 else "rank"
        told.append(f"{plural} {words.spans(look.absent)} not there")
    return ", ".join(told)


def speaking_for(look: Look, phase: Phase, rule: Rule) -> tuple[str, ...]:
    """Return what speaks for the verdict, the most telling first."""
    said = [rule.evidence]
    if look.missing:
        said.append(_gone(look))
    said += [str(one) for one in look.helpers]
    said += _standing(look)
    said += _devices(look)
    if look.behind:
        said.append(
            f"NCCL's own counts (RAS): ranks {words.spans(look.behind)} launched fewer collectives"
        )
    said += _log(look, phase, rule)
    if look.port_open is not None and (look.port_open or rule.state not in WELL):
        said.append("the port answers" if look.port_open else "the port is closed")
    if not any(rank.compilers for rank in look.alive) and rule.state == "hung":
        said.append("no compiler runs below any rank")
    return tuple(shorten(text, 300) for text in said)


def _standing(look: Look) -> list[str]:
    groups: dict[tuple[str, str], list[RankLook]] = {}
    for rank in look.alive:
        groups.setdefault((standing_in(rank), rank.wait), []).append(rank)
    said = []
    for (frame, wait), ranks in sorted(groups.items(), key=lambda item: len(item[1]))[:MOST]:
        life = []
        if look.snapshots > 1 and all(rank.same_stack for rank in ranks):
            life.append(f"the same in two snapshots, {words.duration(look.interval)} apart")
        elif any(rank.same_stack is False for rank in ranks):
            life.append("the stack differs between the snapshots")
        used = [rank.cpu for rank in ranks if rank.cpu is not None]
        if used:
            ends = sorted({f"{min(used):.2f}", f"{max(used):.2f}"}, key=float)
            life.append(f"{'–'.join(ends)} CPU-s a second")
        compilers = sorted({name for rank in ranks for name in rank.compilers})
        if compilers:
            life.append(f"runs {', '.join(compilers[:3])}")
        state = "state T, " if all(rank.stopped for rank in ranks) else ""
        said.append(
            f"{names(ranks)}: {state}{wait} in {frame}{'; ' if life else ''}{', '.join(life)}"
        )
    return said


def _devices(look: Look) -> list[str]:
    gpus = [rank.gpu for rank in look.alive if rank.gpu is not None] or list(look.gpus)
    said = []
    for label, unit, values in (
        ("utilisation", "%", [gpu.utilisation for gpu in gpus]),
        ("memory", "MiB", [gpu.memory_used_mib for gpu in gpus]),
        ("power", "W", [gpu.power_watts for gpu in gpus]),
    ):
        known = [value for value in values if value is not None]
        if known:
            low, high = min(known), max(known)
            between = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}–{high:.0f}"
            said.append(f"{label} {between} {unit}")
    return [f"{words_of(len(gpus), 'GPU')}: {', '.join(said)}"] if said else []


def words_of(count: int, noun: str) -> str:
    """Return ``1 GPU``, ``8 GPUs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _log(look: Look, phase: Phase, rule: Rule) -> list[str]:
    story = look.story
    said = []
    if story.after and phase != "ready":
        by_line: dict[str, list[int]] = {}
        for rank, text in story.after.items():
            by_line.setdefault(text, []).append(rank)
        told = [
            f"{text!r} (ranks {words.spans(ranks)})" for text, ranks in list(by_line.items())[:3]
        ]
        said.append(f"last start-up line of each rank in the log: {'; '.join(told)}")
    if story.ready and not _contradicted(look, phase):
        said.append("the log says that the server was ready")
    if look.progressed:
        said.append("the log has a batch from between the looks, or later")
    if rule.state not in WELL:
        said += [_quoted(error) for error in _errors(look) if not look.later(error)]
    return said[:MOST]


def _contradicted(look: Look, phase: Phase) -> bool:
    """Whether the log says ready while stacks stand in the start-up."""
    starting = phase not in ("ready", "init_done", "unknown")
    return look.story.ready and starting and any(rank.seen for rank in look.alive)


def _errors(look: Look) -> list[Said]:
    """Return the first error line of each kind, apart for those from after the last look."""
    found: dict[tuple[str, bool], Said] = {}
    for error in look.story.errors:
        if error.event.code in _TELLING:
            found.setdefault((error.event.code, look.later(error)), error)
    return list(found.values())


def raised(look: Look) -> Said | None:
    """Return the first exception in the log that was raised before the last look."""
    return next((one for one in look.story.said("exception") if not look.later(one)), None)


def _quoted(error: Said) -> str:
    ended = f" … {shorten(error.ended, 120)}" if error.ended else ""
    return f"log line {error.line.number}: {shorten(error.line.text, 160)}{ended}"


def speaking_against(
    look: Look, phase: Phase, rule: Rule, odd: Sequence[RankLook]
) -> tuple[str, ...]:
    """Return what speaks against the verdict, or weakens it."""
    said = []
    if rule.state in WELL:
        said += [_quoted(error) for error in _errors(look) if not look.later(error)][:MOST]
        if look.port_open is False:
            said.append("the port is closed: whoever asks gets no answer, whatever the ranks do")
    if rule.state in WELL and look.mute:
        said.append(
            "no detokenizer was seen beside the server's main process: nobody sends answers"
        )
    if _contradicted(look, phase):
        said.append(
            "the log says ready, and the stacks stand in the start-up: it may be of another run"
        )
    if rule.state == "hung" and look.interval < 5.0:
        said.append(f"the snapshots are only {words.duration(look.interval)} apart")
    if not look.sure and len(look.alive) > 1:
        said.append(
            f"how many ranks there should be is not known: {look.expected} are told by their titles"
        )
    spinning = [rank for rank in look.alive if rank.moving is False and (rank.cpu or 0.0) > 0.1]
    if rule.state == "hung" and spinning:
        said.append(
            f"{names(spinning)} uses CPU time: it spins in its wait, or works where no stack shows it"
        )
    working = [rank for rank in look.alive if rank.moving and rank.wait != "IDLE"]
    if rule.state == "slow" and working and all(_only_cpu(rank) for rank in working):
        said.append(
            f"{names(working)}: only CPU time moves, at one place in both looks: other threads may burn it"
        )
    if odd and len(look.alive) == 2 and not odd[0].stopped:
        said.append(
            "with two ranks there is no majority: the one behind in program order is the suspect"
        )
    return tuple(said)


def _only_cpu(rank: RankLook) -> bool:
    """Whether nothing but CPU time says that a rank gets on."""
    return bool(rank.same_stack) and not rank.compilers and (rank.io or 0.0) < BUSY_IO


def overturning(look: Look, rule: Rule, odd: Sequence[RankLook]) -> tuple[str, ...]:
    """Return what would overturn the verdict."""
    if rule.state == "hung":
        said = ["a third snapshot in which a stack, CPU time or I/O moves"]
        if odd:
            said.append(f"a stack of {names(odd)} inside the collective in which the others wait")
        return tuple(said)
    if rule.state == "slow":
        return ("a later snapshot in which the working rank stands where it stands now",)
    if rule.state == "idle":
        return ("a request that is accepted and never answered",)
    if rule.state == "dead_rank" and look.absent:
        return (
            f"a process of rank {words.spans(look.absent)} that lives where it was not looked for",
        )
    return ()


def open_questions(look: Look, rule: Rule) -> tuple[str, ...]:
    """Return what cannot be told, the most telling datum first."""
    said = [rule.unknown] if rule.unknown else []
    said += _bracketed(look, rule)
    unseen = [rank for rank in look.alive if not rank.seen]
    if unseen:
        said.append(f"what {names(unseen)} does: {standing_in(unseen[0])}")
    if look.not_collected:
        said.append(f"ranks {words.spans(look.not_collected)}: their hosts were not collected")
    if look.unnamed:
        said.append(
            f"{words_of(look.unnamed, 'scheduler')} without a title: no rank is called missing for that"
        )
    if rule.state == "hung":
        said.append(
            "whether NCCL or the network below it is at fault: two frozen looks do not exclude it"
        )
    if not look.gpus and not any(rank.gpu for rank in look.alive):
        said.append("what the GPUs do: no reading")
    return tuple(shorten(text, 300) for text in said)


def _bracketed(look: Look, rule: Rule) -> list[str]:
    """Return how far a phase is known that only the log tells, and what does not follow from it."""
    if (
        look.story.ready
        or any(rank.seen for rank in look.alive)
        or look.loose
        or not look.story.after
    ):
        return []
    last = sorted(set(look.story.after.values()))
    said = [
        f"more of the phase than that it lies between {' / '.join(map(repr, last[:3]))} and the next line "
        "that SGLang would have written: what runs in between writes nothing"
    ]
    captured = any(span.phase.startswith("graph_") for span in look.story.spans)
    if not captured and look.arguments.get("cuda-graph-backend-decode") != "disabled":
        said.append(
            "whether CUDA graphs are involved: the log has no line of a capture, so nothing says so"
        )
    if any(gpu.utilisation == 0.0 for gpu in look.gpus) and rule.state in (
        "crashed",
        "cannot_tell",
        "hung",
    ):
        said.append("which side failed: full memory at 0 % says that the weights are there and that all wait "
                    "on the host, not for whom")  # fmt: skip
    return said


def findings(verdict: Verdict, experiment: Experiment) -> tuple[Finding, ...]:
    """Return the verdict as a finding, and what else was found."""
    look, rule = verdict.look, verdict.rule
    first = Finding(
        code=f"hang-{rule.code.lower()}",
        severity=_SEVERITY.get(rule.state, "error"),
        title=summary(look, verdict.phase, rule, verdict.odd),
        detail=rule.cause,
        evidence_for=speaking_for(look, verdict.phase, rule),
        evidence_against=speaking_against(look, verdict.phase, rule, verdict.odd),
        confidence=verdict.confidence,
        next_step=experiment.change,
        experiment=experiment,
    )
    return (first, *_further(verdict))


def _further(verdict: Verdict) -> list[Finding]:
    look, rule = verdict.look, verdict.rule
    found: list[Finding] = []

    def note(code: str, title: str, detail: str) -> None:
        found.append(Finding(code, "note", title, detail, confidence="likely"))

    if look.alive and look.story.said("heartbeat"):
        note(
            "later-aborted",
            "the log ends with NCCL's heartbeat abort",
            "It ends a hang; it is no cause.",
        )
    if look.alive and not look.complete and not verdict.odd and rule.state == "hung":
        note(
            "nobody-accused",
            "no rank is accused",
            "A stack of the group was not seen, and the rank all wait for may be that one.",
        )
    alike = len({(rank.wait, rank.place) for rank in look.alive}) == 1
    if rule.state == "hung" and look.complete and not verdict.odd and len(look.alive) > 1:
        places = "; ".join(f"{name_of(r)} in {standing_in(r)}" for r in look.alive[:4])
        if alike:
            note(
                "all-alike", "all ranks stand in the same place", "Nobody is at fault by his stack."
            )
        else:
            note(
                "no-culprit",
                "the ranks stand in different places, and none is behind by the rules",
                places,
            )
    counts = look.story.addresses
    if len(set(counts.values())) > 1:
        told = ", ".join(f"rank {rank}: {n}" for rank, n in counts.items())
        note("addresses-differ", "the ranks registered different numbers of graph addresses", told)
    if look.behind:
        title = f"by NCCL's own counts ranks {words.spans(look.behind)} launched fewer collectives"
        note("ras-behind", title, "NCCL RAS sees its own communicators, not gloo's.")
    return found


def notes(scene: Scene, verdicts: Sequence[Verdict], worst: Verdict) -> list[str]:
    """Return what has to be known to read the verdict."""
    said = []
    if len(verdicts) > 1:
        others = [v for v in verdicts if v is not worst]
        told = ", ".join(
            f"ranks {words.spans(_span(v))} {v.rule.state.replace('_', ' ')}" for v in others
        )
        said.append(f"the verdict is on ranks {words.spans(_span(worst))}; {told}")
    if not worst.look.sure and worst.look.alive:
        said.append(
            f"the size of the group is not known; {worst.look.expected} is taken from the titles"
        )
    for rank in worst.look.alive:
        if worst.look.snapshots > rank.looks and rank.looks == 1 and not rank.gone:
            said.append(
                f"{name_of(rank)} (pid {rank.pid}) is not known to be the process of the snapshot before"
            )
    look = worst.look
    said += [
        shorten(
            f"after the last look{'' if error.zoned else ' (if its clock is UTC)'} the log tells: "
            + _quoted(error),
            300,
        )
        for error in _errors(look)
        if look.alive and look.later(error)
    ][:MOST]
    ended = [r.number for r in look.alive if r.number in look.exits or -(r.pid or 0) in look.exits]
    if ended:
        said.append(
            f"the log tells that ranks {words.spans(ended)} ended, which lived at the last look: it was "
            "later, or another run"
        )
    skew = {host: value for host, value in scene.clock_skew.items() if abs(value) >= 1.0}
    said += [f"the clock of {host} is off by {value:+.0f} s" for host, value in skew.items()]
    return said


def _span(verdict: Verdict) -> list[int]:
    look = verdict.look
    return [*(rank.number for rank in look.ranks), *look.absent, *look.not_collected]
