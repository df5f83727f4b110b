"""What supports a verdict, what speaks against it, and what stays open: in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.errors import shorten
from workbench.facts import engines, vllm_startup
from workbench.hang.judge import halts, waits, wording
from workbench.hang.judge.phases import MarkedLine
from workbench.hang.judge.rank_group import GroupRank, RankGroup
from workbench.hang.judge.rules import Judgement, Rule
from workbench.hang.judge.tracked_rank import BUSY_IO
from workbench.hang.records import FAULTS, WELL, Phase, Scene

PHASES: dict[str, str] = {
    "spawn": "while starting its processes", "dist_init": "while setting up the process groups",
    "weights": "while loading weights", "load_barrier": "in the barrier after loading",
    "kv_pool": "while allocating the KV pool",
    "draft_embed": "while sharing the draft's embedding", "warmup": "in warm-up and autotuning",
    "graph_prefill": "while capturing prefill graphs", "graph_decode": "while capturing decode graphs",
    "graph_draft": "while capturing draft graphs", "init_done": "at the end of the start-up, not yet ready",
    "ready": "in the event loop", "unknown": "in an unknown phase",
}  # fmt: skip
MOST = 8
_TELLING = (
    "heartbeat", "collective_timeout", "load_barrier", "rank_died", "child_crashed", "out_of_memory", "xid",
    "nccl_error", "gloo_error", "cuda_error", "capture_failed", "warmup_failed", "exception", "fatal",
)  # fmt: skip
_PROCESSES = {
    "DetokenizerManager": "the detokenizer", "TokenizerManager": "the tokenizer manager",
    "DataParallelController": "the data parallel controller",
}  # fmt: skip


def name_of(rank: GroupRank) -> str:
    """Return a rank's name as its title has it; its number where several would be called alike."""
    return str(rank.rank)


def names(ranks: Iterable[GroupRank]) -> str:
    """Return the names of ranks in one short text: ``TP0-6``."""
    ranks = list(ranks)
    texts = [name_of(rank) for rank in ranks]
    heads = {text.rstrip("0123456789") for text in texts}
    if len(heads) == 1 and all(text[-1:].isdigit() for text in texts):
        head = heads.pop()
        return head + wording.spans(int(text[len(head) :]) for text in texts)
    if len(texts) > 3:
        return f"ranks {wording.spans(rank.number for rank in ranks)}"
    return shorten(", ".join(texts), 80)


def place_of(rank: GroupRank) -> str:
    """Return where one rank is: its telling frame, or why there is none."""
    frame = waits.telling_frame(rank.frames)
    if frame is not None:
        return wording.frame_text(frame)
    if rank.stopped:
        return f"no stack, {halts.words(rank.process)}"
    if rank.dump is not None and rank.dump.refusal:
        return f"no stack: {rank.dump.refusal}"
    return "no stack"


def count_text(groups: Sequence[RankGroup]) -> str:
    """Return how many ranks of all groups are alive, of how many that there should be."""
    alive = sum(len(group.alive) for group in groups)
    expected = sum(group.expected for group in groups)
    if all(group.sure for group in groups) or expected == 1:
        return f"{alive} of {words_of(expected, 'rank')}"
    return f"{words_of(alive, 'rank')}; the launch's size is not known"


def of_engine(scene: Scene, sentence: str) -> str:
    """Return a verdict's sentence with the engine named, where it is another one than SGLang."""
    if scene.engine in ("", "sglang"):
        return sentence
    return f"{engines.spoken(scene.engine, scene.version)}: {sentence}"


def where_of(group: RankGroup, phase: Phase) -> str:
    """Return a phase in words, as the group's engine calls it."""
    own = vllm_startup.WORDS if group.engine == "vllm" else {}
    return own.get(phase, PHASES[phase])


def summary(judged: Judgement, groups: Sequence[RankGroup]) -> str:
    """Return the verdict in one line; `groups` are all groups of ranks, not only the judged one."""
    group, rule, odd = judged.group, judged.rule, judged.odd
    where = where_of(group, judged.phase)
    count = count_text(groups)
    state = rule.state.replace("_", " ")
    if rule.of == "helpers":
        return (
            f"{state}: {'; '.join(map(str, group.helpers[:3]))}, and its ranks are alive ({count})"
        )
    if rule.state == "dead_rank":
        return f"dead rank {where}: {_gone(group)}; {names(group.alive)} {_is(group.alive)} alive"
    if rule.state == "crashed":
        first = raised(group)
        whose = f"{_raiser(first)} raised" if first is not None else ""
        texts = f"{whose} {first.ended}" if first is not None and first.ended else rule.evidence
        if rule.code == "server_died" and not whose and (group.dead or odd):
            texts = _gone(group) if group.dead else f"{names(odd)} died, by the log"
        return f"crashed {where}: {shorten(texts, 160)}"
    if rule.state in ("idle", "serving"):
        return f"healthy and {state}: {rule.evidence} ({count})"
    if rule.state == "slow":
        working = [rank for rank in group.alive if rank.moving and rank.wait != "IDLE"]
        who = f"{names(working)} makes progress" if working else rule.evidence
        return f"slow, not hung, {where}: {who}"
    if rule.state == "cannot_tell":
        before = "; it had been ready" if group.over and group.story.ready else ""
        return f"cannot tell: {rule.evidence} ({where}{before})"
    if odd:
        others = [rank for rank in group.alive if rank not in odd and rank.has_stack]
        unseen = [rank for rank in group.alive if rank not in odd and not rank.has_stack]
        them = "it" if len(odd) == 1 else "them"
        waits_too = others and state == "hung"
        theirs = f"; {names(others)} {_is(others)} waiting for {them}" if waits_too else ""
        theirs += f"; {names(unseen)}: no stack" if unseen else ""
        halted = {halts.words(rank.process) if rank.stopped else "" for rank in odd}
        how = " or ".join(sorted(halted)) if "" not in halted else "apart from the others"
        return f"{state} {where}: {names(odd)} {_is(odd)} {how}{theirs}"
    alike = len({(rank.wait, rank.place) for rank in group.alive}) <= 1
    whose = "there is no odd rank" if alike else "which rank is at fault is not known"
    return f"{state} {where}: {rule.evidence}; {whose}"


def _raiser(error: MarkedLine) -> str:
    """Return whose exception it is: a rank's, or that of a process next to the ranks."""
    who = error.event.facts.get("who", "")
    return error.line.rank or _PROCESSES.get(who, "the server")


def _is(ranks: Sequence[GroupRank]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _gone(group: RankGroup) -> str:
    parts = [f"{name_of(rank)} {rank.gone}" for rank in group.dead[:3]]
    if group.absent:
        plural = "ranks" if len(group.absent) > 1 else "rank"
        parts.append(f"{plural} {wording.spans(group.absent)} missing")
    return ", ".join(parts)


def speaking_for(group: RankGroup, phase: Phase, rule: Rule) -> tuple[str, ...]:
    """Return what supports the verdict, the most telling first."""
    texts = [rule.evidence]
    if group.missing:
        texts.append(_gone(group))
    texts += [str(one) for one in group.helpers]
    texts += _standing(group)
    texts += _devices(group)
    if group.behind:
        texts.append(
            f"NCCL's own counts (RAS): ranks {wording.spans(group.behind)} launched fewer collectives"
            f" ({group.counts})"
        )
    texts += _log(group, phase, rule)
    if group.port_open is not None and (group.port_open or rule.state not in WELL):
        texts.append("the port answers" if group.port_open else "the port is closed")
    if not any(rank.compilers for rank in group.alive) and rule.state == "hung":
        texts.append("there is no compiler below any rank")
    return tuple(shorten(text, 300) for text in texts)


def _standing(group: RankGroup) -> list[str]:
    groups: dict[tuple[str, str], list[GroupRank]] = {}
    for rank in group.alive:
        groups.setdefault((place_of(rank), rank.wait), []).append(rank)
    texts = []
    for (frame, wait), ranks in sorted(groups.items(), key=lambda item: len(item[1]))[:MOST]:
        life = []
        if group.snapshots > 1 and all(rank.same_stack for rank in ranks):
            life.append(f"the same in two snapshots, {wording.duration(group.interval)} apart")
        elif any(rank.same_stack is False for rank in ranks):
            life.append("the stack differs between the snapshots")
        used = [rank.cpu for rank in ranks if rank.cpu is not None]
        if used:
            ends = sorted({f"{min(used):.2f}", f"{max(used):.2f}"}, key=float)
            life.append(f"{'–'.join(ends)} CPU-s a second")
        compilers = sorted({name for rank in ranks for name in rank.compilers})
        if compilers:
            life.append(f"runs {', '.join(compilers[:3])}")
        state = ""
        if all(rank.halted for rank in ranks):
            halted = sorted({halts.words(rank.process) for rank in ranks})
            state = f"{' or '.join(halted)}, "
        texts.append(
            f"{names(ranks)}: {state}{wait} in {frame}{'; ' if life else ''}{', '.join(life)}"
        )
    return texts


def _devices(group: RankGroup) -> list[str]:
    # Ranks may share one.
    read = {(gpu.host, gpu.index): gpu for rank in group.alive if (gpu := rank.gpu) is not None}
    gpus = list(read.values()) or list(group.gpus)
    texts = []
    for label, unit, values in (
        ("utilisation", "%", [gpu.utilisation for gpu in gpus]),
        ("memory", "MiB", [gpu.memory_used_mib for gpu in gpus]),
        ("power", "W", [gpu.power_watts for gpu in gpus]),
    ):
        known = [value for value in values if value is not None]
        if known:
            low, high = min(known), max(known)
            between = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}–{high:.0f}"
            texts.append(f"{label} {between} {unit}")
    return [f"{words_of(len(gpus), 'GPU')}: {', '.join(texts)}"] if texts else []


def words_of(count: int, noun: str) -> str:
    """Return ``1 GPU``, ``8 GPUs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _log(group: RankGroup, phase: Phase, rule: Rule) -> list[str]:
    story = group.story
    texts = []
    if story.after and phase != "ready":
        by_line: dict[str, list[int]] = {}
        for rank, text in story.after.items():
            by_line.setdefault(text, []).append(rank)
        parts = [
            f"{text!r} (ranks {wording.spans(ranks)})" for text, ranks in list(by_line.items())[:3]
        ]
        texts.append(f"last start-up line of each rank in the log: {'; '.join(parts)}")
    if story.ready and not _contradicted(group, phase):
        texts.append("the log says that the server was ready")
    if group.progressed:
        texts.append("the log has a batch from between the snapshots, or later")
    if rule.state not in WELL:
        texts += [quoted(error) for error in _errors(group) if not group.later(error)]
    return texts[:MOST]


def _contradicted(group: RankGroup, phase: Phase) -> bool:
    """Whether the log says ready while stacks are in the start-up."""
    starting = phase not in ("ready", "init_done", "unknown")
    return group.story.ready and starting and any(rank.has_stack for rank in group.alive)


def _errors(group: RankGroup) -> list[MarkedLine]:
    """Return the first error line of each kind, apart for those from after the last snapshot."""
    found: dict[tuple[str, bool], MarkedLine] = {}
    for error in group.story.errors:
        if error.event.code in _TELLING:
            found.setdefault((error.event.code, group.later(error)), error)
    return list(found.values())


def raised(group: RankGroup) -> MarkedLine | None:
    """Return the first exception in the log that was raised before the last snapshot."""
    return next((one for one in group.story.errors_of("exception") if not group.later(one)), None)


def quoted(error: MarkedLine) -> str:
    """Return a line of the log with its number, and how its traceback ends."""
    ended = f" … {shorten(error.ended, 120)}" if error.ended else ""
    return f"log line {error.line.number}: {shorten(error.line.text, 160)}{ended}"


def speaking_against(
    group: RankGroup, phase: Phase, rule: Rule, odd: Sequence[GroupRank]
) -> tuple[str, ...]:
    """Return what speaks against the verdict, or weakens it."""
    texts = []
    if rule.state in WELL:
        texts += [quoted(error) for error in _errors(group) if not group.later(error)][:MOST]
        if group.port_open is False:
            texts.append(
                "the port is closed: requests get no answer, even if the ranks are healthy"
            )
    if rule.state in WELL and group.mute:
        texts.append(
            "the main process or the detokenizer is not in the evidence: without both, nothing answers"
        )
    if _contradicted(group, phase):
        texts.append(
            "the log says ready, but the stacks are in the start-up: it may be of another run"
        )
    if rule.state == "hung" and group.snapshots > 1 and group.interval < 5.0:
        texts.append(f"the snapshots are only {wording.duration(group.interval)} apart")
    if not group.sure and len(group.alive) > 1:
        texts.append(
            f"how many ranks there should be is not known: the titles have {group.expected}"
        )
    spinning = [rank for rank in group.alive if rank.moving is False and (rank.cpu or 0.0) > 0.1]
    if rule.state == "hung" and spinning:
        texts.append(
            f"{names(spinning)} uses CPU time: it spins in its wait, or works where no stack shows it"
        )
    working = [rank for rank in group.alive if rank.moving and rank.wait != "IDLE"]
    if rule.state == "slow" and working and all(_only_cpu(rank) for rank in working):
        texts.append(
            f"{names(working)}: only CPU time moves, the stack is the same in both snapshots: other threads "
            "may use it"
        )
    if odd and len(group.alive) == 2 and not odd[0].stopped:
        texts.append(
            "with two ranks there is no majority: the one behind in program order is the suspect"
        )
    return tuple(texts)


def _only_cpu(rank: GroupRank) -> bool:
    """Whether nothing but CPU time shows progress of a rank."""
    return bool(rank.same_stack) and not rank.compilers and (rank.io or 0.0) < BUSY_IO


def overturning(group: RankGroup, rule: Rule, odd: Sequence[GroupRank]) -> tuple[str, ...]:
    """Return what would overturn the verdict."""
    if rule.state == "hung":
        texts = ["a third snapshot in which a stack, CPU time or I/O moves"]
        if odd:
            texts.append(f"a stack of {names(odd)} inside the collective in which the others wait")
        return tuple(texts)
    if rule.state == "slow":
        return ("a later snapshot in which the working rank is still at the same place",)
    if rule.state == "idle":
        return ("a request that is accepted and never answered",)
    if rule.state == "dead_rank" and group.absent:
        return (
            f"a live process of rank {wording.spans(group.absent)} on a host that was not read",
        )
    return ()


def open_questions(group: RankGroup, rule: Rule) -> tuple[str, ...]:
    """Return what a verdict leaves open, the most telling first: ``name: what is missing``."""
    texts = [rule.unknown] if rule.unknown and rule.state in FAULTS else []
    texts += _bracketed(group, rule)
    if rule.state == "hung":
        texts.append(
            "whether NCCL or the network below it is at fault: equal stacks do not exclude it"
        )
    return tuple(shorten(text, 300) for text in texts)


def _bracketed(group: RankGroup, rule: Rule) -> list[str]:
    """Return how far a phase is known that only the log shows, and what does not follow from it."""
    if (
        group.story.ready
        or any(rank.has_stack for rank in group.alive)
        or group.loose
        or not group.story.after
    ):
        return []
    last = sorted(set(group.story.after.values()))
    texts = [
        f"the exact phase: it is between {' / '.join(map(repr, last[:3]))} and the next line that "
        f"{engines.spoken(group.engine) or 'the engine'} would write, and what runs in between writes no line"
    ]
    captured = any(span.phase.startswith("graph_") for span in group.story.spans)
    if not captured and group.arguments.get("cuda-graph-backend-decode") != "disabled":
        texts.append("whether CUDA graphs are involved: the log has no line of a capture")
    if any(gpu.utilisation == 0.0 for gpu in group.gpus) and rule.state in (
        "crashed",
        "cannot_tell",
        "hung",
    ):
        texts.append(
            "which side failed: full memory at 0 % shows that the weights are loaded and that all ranks wait "
            "on the host, not for which rank"
        )
    return texts


def notes(scene: Scene, judgements: Sequence[Judgement], worst: Judgement) -> list[str]:
    """Return what has to be known to read the verdict."""
    texts = []
    if len(judgements) > 1:
        others = [v for v in judgements if v is not worst]
        parts = ", ".join(
            f"ranks {wording.spans(_span(v))} {v.rule.state.replace('_', ' ')}" for v in others
        )
        texts.append(f"the verdict is on ranks {wording.spans(_span(worst))}; {parts}")
    for rank in worst.group.alive:
        if worst.group.snapshots > rank.snapshots and rank.snapshots == 1 and not rank.gone:
            texts.append(
                f"{name_of(rank)} (pid {rank.pid}) is not known to be the same process as in the earlier "
                "snapshot"
            )
    group = worst.group
    texts += [
        shorten(
            f"after the last snapshot{'' if error.zoned else ' (if its clock is UTC)'} the log reports: "
            + quoted(error),
            300,
        )
        for error in _errors(group)
        if group.alive and group.later(error)
    ][:MOST]
    ended = [
        r.number for r in group.alive if r.number in group.exits or -(r.pid or 0) in group.exits
    ]
    if ended:
        texts.append(
            f"the log reports that ranks {wording.spans(ended)} ended, and they are alive in the last "
            "snapshot: they ended later, or the log is of another run"
        )
    skew = {host: value for host, value in scene.clock_skew.items() if abs(value) >= 1.0}
    texts += [f"the clock of {host} is off by {value:+.0f} s" for host, value in skew.items()]
    return texts


def _span(judged: Judgement) -> list[int]:
    group = judged.group
    return [*(rank.number for rank in group.ranks), *group.absent, *group.not_collected]
