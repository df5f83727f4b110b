"""From a scene to its diagnosis: pure, the same for a live server and for files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from workbench.core.finding import Confidence
from workbench.core.verdict import Verdict
from workbench.facts.engine_phases import order_of
from workbench.hang.judge import (
    conditions,
    coverage,
    evidence,
    other_engines,
    phases,
    physics,
    rows,
    samples,
    waits,
)
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.judge.experiments import BY_PLACE, plan
from workbench.hang.judge.findings import findings
from workbench.hang.judge.gpu_load import load
from workbench.hang.judge.join import rank_groups
from workbench.hang.judge.rank_group import BUSY_GPU, GroupRank, RankGroup
from workbench.hang.judge.rules import Judgement, Rule
from workbench.hang.records import WELL, Phase, Scene, WaitClass

# Of several groups of ranks (replicas) the worst is the verdict.
_WORST = ("dead_rank", "crashed", "hung", "stopped", "cannot_tell", "slow", "serving", "idle")
_SURE: tuple[Confidence, ...] = ("certain", "likely", "possible")
_CACHES = (
    ("triton", "TRITON_CACHE_DIR"),
    ("flashinfer", "FLASHINFER_WORKSPACE_BASE"),
    ("deep_gemm", "DG_JIT_CACHE_DIR"),
)


def diagnose(scene: Scene) -> HangDiagnosis:
    """Judge what was seen of a server.

    Parameters
    ----------
    scene
        Processes, stacks, GPU readings and logs, from `attach` or from files.

    Returns
    -------
    HangDiagnosis
        The verdict of the worst group of ranks (data-parallel replicas do not wait for each other).
    """
    asked = question(scene)
    judgements, groups, worst = asked.judgements, asked.groups, asked.worst
    group, rule = worst.group, worst.rule
    waiting = _waiting(worst)
    experiment = plan(_ladder(worst, scene), group, _words(worst, scene))
    verdict = _verdict(asked)
    return HangDiagnosis(
        source=scene.source,
        verdict=verdict,
        phase=worst.phase,
        experiment=experiment,
        wait_class=_common_wait(worst, waiting),
        rule=rule.code,
        odd_ranks=_numbers(worst.odd),
        waiting_ranks=_numbers(waiting),
        working_ranks=_numbers(r for r in group.alive if r.moving and r.wait != "IDLE"),
        missing_ranks=tuple(sorted(n for one in groups for n in one.missing)),
        not_collected=tuple(sorted(n for one in groups for n in one.not_collected)),
        engine=scene.engine,
        version=scene.version,
        ranks=tuple(row for judged in judgements for row in rows.rows_of(judged)),
        tree=rows.merged_tree(scene, groups),
        timeline=group.story.spans,
        threads=rows.threads_of(scene, groups),
        findings=findings(worst, experiment, verdict.sentence),
        notes=(
            *scene.notes,
            *evidence.notes(scene, judgements, worst),
            *samples.note(groups),
        ),
        times=_times(scene),
        silent_for=_silent(scene, group),
        log_end=group.story.last_at,
    )


def question(scene: Scene) -> coverage.Question:
    """Return the scene with what each of its groups of ranks came to."""
    judgements = tuple(_judge(group, scene) for group in rank_groups(scene))
    worst = min(judgements, key=lambda judged: _WORST.index(judged.rule.state))
    return coverage.Question(scene, judgements, worst)


def _verdict(asked: coverage.Question) -> Verdict:
    """Return the verdict; where an all-clear lacks something, its sentence says what."""
    worst = asked.worst
    sentence = evidence.of_engine(asked.scene, evidence.summary(worst, asked.groups))
    found = coverage.covered(asked)
    if worst.rule.state in WELL and found.ok is not True:
        lacks = next(found.having("open", essential=True))
        sentence = (
            f"cannot tell: {worst.rule.evidence} ({evidence.count_text(asked.groups)}), but not checked: "
            f"{lacks.name} ({lacks.how})"
        )
    return Verdict(
        state=worst.rule.state,
        sentence=sentence,
        confidence=worst.confidence,
        coverage=found,
        overturned_by=evidence.overturning(worst.group, worst.rule, worst.odd),
    )


def _judge(group: RankGroup, scene: Scene) -> Judgement:
    phase = _phase(group)
    rule = physics.checked(other_engines.rule_for(group, phase), scene)
    odd = rule.names(group) if rule.names is not None else ()
    return Judgement(group, phase, rule, odd, _confidence(group, phase, rule, odd))


def _phase(group: RankGroup) -> Phase:
    """Return the phase of the group: where its ranks wait, by their stacks; else by the log."""
    story = group.story
    for_others = group.of(*waits.FOR_OTHERS, *waits.ON_DEVICE)
    for ranks in (for_others, group.alive):
        known = Counter(rank.phase for rank in ranks if rank.phase not in phases.WEAK)
        if known:
            phase = known.most_common(1)[0][0]
            started = story.ready or story.served or group.port_open or not story.reached
            return "init_done" if phase == "ready" and not started else phase
    loose = Counter(
        phases.phase_of(thread.frames, group.version, group.engine)
        for dump in group.loose
        for thread in dump.threads
    )
    known = Counter({phase: n for phase, n in loose.items() if phase not in phases.WEAK})
    if known and not any(rank.has_stack for rank in group.alive):
        return known.most_common(1)[0][0]
    if story.phase != "unknown":
        return _after_the_pools(group) or story.phase
    weak = any(rank.phase == "spawn" for rank in group.alive) or group.unnamed
    return "spawn" if weak else "unknown"


def _after_the_pools(group: RankGroup) -> Phase | None:
    """Return ``init_done`` where the scheduler's constructor goes on after all that runs on the GPU."""
    frames = [waits.telling_frame(rank.frames) for rank in group.alive if rank.frames]
    inside = frames and all(f is not None and f.function.endswith("__init__") for f in frames)
    order = [step.phase for step in order_of(group.engine, group.version)]
    reached = [order.index(p) for p in group.story.reached.values() if p in order]
    past = bool(reached) and min(reached) > order.index("kv_pool")
    return "init_done" if inside and past else None


def _confidence(group: RankGroup, phase: Phase, rule: Rule, odd: Sequence[GroupRank]) -> Confidence:
    """Return how sure the verdict is: physical evidence is certain, each weakness takes a step."""
    if rule.state == "cannot_tell":
        return "unknown"
    if rule.at_most is not None:
        return rule.at_most  # NCCL's numbers and the engine's clock, without stacks at two times
    weaknesses = 0
    if rule.state in ("hung", "idle", "serving"):
        known = {rank.phase for rank in group.alive} - phases.WEAK or phase not in phases.WEAK
        weaknesses += not group.twice
        weaknesses += group.twice and group.interval < 5.0
        weaknesses += not group.sure and len(group.alive) > 1
        weaknesses += not group.complete
        weaknesses += not known
    if rule.state == "hung":
        weaknesses += not conditions.by_signal(group)
        weaknesses += (
            len(group.alive) == 2 and bool(odd) and all(r.wait in waits.ON_DEVICE for r in odd)
        )
    if rule.doubt is not None:
        weaknesses += rule.doubt(group)
    if rule.state in ("idle", "serving"):
        weaknesses += not (group.story.ready or group.port_open)
        weaknesses += group.port_open is False or group.mute
        # An end or an exception from before the snapshots does not fit a healthy server.
        fatal = [error for error in group.story.errors if error.fatal and error.zoned]
        weaknesses += any(not group.later(error) for error in fatal)
    if rule.state == "serving":
        moved = any(rank.same_stack is False for rank in group.alive)
        weaknesses += not (moved or group.progressed)
    if rule.state == "slow":
        weaknesses += 1 + (not any(rank.compilers for rank in group.alive) and not group.complete)
    if rule.state == "dead_rank":
        weaknesses += not group.dead or not group.sure
    if rule.state == "crashed":
        ended = any(one.state in ("Z", "X") for one in group.helpers)
        weaknesses += not group.exits and not group.dead and not ended
    return _SURE[min(weaknesses, len(_SURE) - 1)]


def _waiting(judged: Judgement) -> tuple[GroupRank, ...]:
    if judged.rule.state in ("idle", "serving"):
        return ()
    held = judged.group.of(*waits.FOR_OTHERS, *waits.ON_DEVICE)
    return tuple(r for r in held if r not in judged.odd and not (r.moving and r.wait != "IDLE"))


def _common_wait(judged: Judgement, waiting: Sequence[GroupRank]) -> WaitClass:
    ranks = waiting or [r for r in judged.group.alive if r not in judged.odd] or judged.group.alive
    known = Counter(rank.wait for rank in ranks if rank.wait != "UNKNOWN")
    return known.most_common(1)[0][0] if known else "UNKNOWN"


def _numbers(ranks: Iterable[GroupRank]) -> tuple[int, ...]:
    return tuple(sorted(rank.number for rank in ranks))


def _ladder(judged: Judgement, scene: Scene) -> tuple[str, ...]:
    """Return the steps of a verdict.

    What an exception in the log says is read before anything is changed; and evidence that the disk did not
    give is read before a question is left open.
    """
    rule = judged.rule
    if rule.state == "cannot_tell" and scene.unread:
        return ("read_again", *rule.ladder)
    raised = rule.state in ("hung", "dead_rank", "crashed") and not rule.explained
    return ("read_exception", *BY_PLACE, *rule.ladder) if raised else rule.ladder


def _words(judged: Judgement, scene: Scene) -> dict[str, str]:
    """Return what the experiments' texts name."""
    group, odd = judged.group, judged.odd
    named = {"main_pid": _main_pid(scene), "host": "the host"}
    about = odd or group.dead
    if about and about[0].host:
        named["host"] = about[0].host
    if odd:
        named["odd"] = evidence.names(odd)
    by_signal = [rank for rank in group.alive if rank.by_signal]
    traced = [rank for rank in group.alive if rank.held or rank.paused]
    stopped = by_signal or traced
    if stopped:
        named["odd"] = evidence.names(stopped)
    if by_signal:
        named["pids"] = " ".join(str(rank.pid) for rank in by_signal)
    elif traced:
        named["traced"] = str(traced[0].pid)
    helpers = [one for one in group.helpers if one.stopped]
    if helpers and not stopped:
        named["odd"] = helpers[0].role
        named["pids"] = " ".join(str(one.pid) for one in helpers)
    if len(odd) == 1:
        named |= _permuted(group, odd[0])
    raised = evidence.raised(group)
    if raised is not None:
        named["exception"] = str(raised.line.number)
        named["raised"] = f"rank {raised.rank}" if raised.rank is not None else "the server"
    stuck = [name for name in group.environment if name.startswith("SGLANG_TEST_STUCK_")]
    if stuck:
        named["stuck"] = stuck[0]
    locked = group.of("LOCK")
    if locked:
        files = " ".join(frame.file for frame in locked[0].frames)
        found = (name for word, name in _CACHES if word in files)
        named["cache"] = next(found, "TORCH_EXTENSIONS_DIR")
    return named


def _main_pid(scene: Scene) -> str:
    for snapshot in reversed(scene.snapshots):
        for process in snapshot.processes:
            if process.role == "parent":
                return f"{process.pid}, "
    return ""


def _permuted(group: RankGroup, odd: GroupRank) -> dict[str, str]:
    """Return the visible GPUs with the odd rank's changed for its neighbour's.

    Not where its GPU computes, where all GPUs are busy, or where ranks share one: then it is not the GPU that
    sets the rank apart.
    """
    used = [rank.gpu.utilisation or 0.0 for rank in group.alive if rank.gpu is not None]
    if odd not in group.alive:
        return {}
    if odd.gpu is not None and load(odd.gpu) == "computes":
        return {}
    if used and len(used) == len(group.alive) and min(used) >= BUSY_GPU:
        return {}
    same_host = [rank for rank in group.alive if rank.host == odd.host]
    read = [rank.gpu.index for rank in same_host if rank.gpu is not None]
    if len(set(read)) < len(read):  # ranks share one
        return {}
    given = group.environment.get("CUDA_VISIBLE_DEVICES", "")
    devices = given.split(",") if given else [str(i) for i in range(len(same_host))]
    at = same_host.index(odd)
    if len(devices) != len(same_host) or len(devices) < 2:
        return {}
    other = (at + 1) % len(devices)
    devices[at], devices[other] = devices[other], devices[at]
    return {"permuted": ",".join(devices)}


def _times(scene: Scene) -> tuple[float, ...]:
    return tuple(sorted({snapshot.at for snapshot in scene.snapshots}))


def _silent(scene: Scene, group: RankGroup) -> float | None:
    """Return how long the log was silent at the last snapshot, where both clocks are of one time zone."""
    last, end = max(_times(scene), default=None), group.story.last_at
    if last is None or end is None:
        return None
    silence = last - end
    return silence if 0.0 <= silence < 86400.0 else None
