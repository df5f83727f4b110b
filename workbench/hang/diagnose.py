"""From a scene to its diagnosis: pure, the same for a live server and for files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from workbench.core.finding import Confidence
from workbench.engines.startup import phase_order
from workbench.hang import evidence, phases, rows, waits
from workbench.hang.diagnosis import HangDiagnosis
from workbench.hang.experiments import plan
from workbench.hang.join import look_at
from workbench.hang.look import Look, RankLook
from workbench.hang.records import Phase, Scene, WaitClass
from workbench.hang.rules import Rule, Verdict, apart, rule_for

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
    verdicts = [_judge(look) for look in look_at(scene)]
    worst = min(verdicts, key=lambda verdict: _WORST.index(verdict.rule.state))
    look, rule = worst.look, worst.rule
    waiting = _waiting(worst)
    experiment = plan(_ladder(worst), look, _words(worst, scene))
    looks = [verdict.look for verdict in verdicts]
    ranks = tuple(seen for verdict in verdicts for seen in rows.rows_of(verdict))
    return HangDiagnosis(
        source=scene.source,
        state=rule.state,
        phase=worst.phase,
        summary=evidence.summary(look, worst.phase, rule, worst.odd),
        confidence=worst.confidence,
        experiment=experiment,
        wait_class=_common_wait(worst, waiting),
        rule=rule.code,
        odd_ranks=_numbers(worst.odd),
        waiting_ranks=_numbers(waiting),
        working_ranks=_numbers(r for r in look.alive if r.moving and r.wait != "IDLE"),
        missing_ranks=tuple(sorted(n for one in looks for n in one.missing)),
        not_collected=tuple(sorted(n for one in looks for n in one.not_collected)),
        engine=scene.engine,
        version=scene.version,
        ranks=ranks,
        tree=rows.merged_tree(scene, looks),
        timeline=look.story.spans,
        threads=rows.threads_of(scene, looks),
        findings=evidence.findings(worst, experiment),
        overturns=evidence.overturning(look, rule, worst.odd),
        unknowns=evidence.open_questions(look, rule),
        notes=(*scene.notes, *evidence.notes(scene, verdicts, worst)),
        times=_times(scene),
        silent_for=_silent(scene, look),
        log_end=look.story.last_at,
    )


def _judge(look: Look) -> Verdict:
    phase = _phase(look)
    rule = rule_for(look, phase)
    odd: tuple[RankLook, ...] = ()
    if rule.accuses:
        odd = apart(look)
        if rule.state == "stopped":
            stopped = tuple(rank for rank in look.alive if rank.stopped)
            alone = look.expected == 1
            odd = stopped if len(stopped) < look.expected or alone else ()
    return Verdict(look, phase, rule, odd, _confidence(look, phase, rule, odd))


def _phase(look: Look) -> Phase:
    """Return the phase of the group: where its ranks wait, by their stacks; else by the log."""
    story = look.story
    for_others = look.of(*waits.FOR_OTHERS, *waits.ON_DEVICE)
    for ranks in (for_others, look.alive):
        told = Counter(rank.phase for rank in ranks if rank.phase not in phases.WEAK)
        if told:
            phase = told.most_common(1)[0][0]
            started = story.ready or story.served or look.port_open or not story.reached
            return "init_done" if phase == "ready" and not started else phase
    loose = Counter(
        phases.phase_of(thread.frames, look.version)
        for dump in look.loose
        for thread in dump.threads
    )
    told = Counter({phase: n for phase, n in loose.items() if phase not in phases.WEAK})
    if told and not any(rank.seen for rank in look.alive):
        return told.most_common(1)[0][0]
    if story.phase != "unknown":
        return _after_the_pools(look) or story.phase
    weak = any(rank.phase == "spawn" for rank in look.alive) or look.unnamed
    return "spawn" if weak else "unknown"


def _after_the_pools(look: Look) -> Phase | None:
    """Return ``init_done`` where the scheduler's constructor goes on after all that runs on the GPU."""
    frames = [waits.telling_frame(rank.frames) for rank in look.alive if rank.frames]
    inside = frames and all(f is not None and f.function.endswith("__init__") for f in frames)
    order = [step.phase for step in phase_order(look.version) or phase_order("0.5.14") or ()]
    reached = [order.index(p) for p in look.story.reached.values() if p in order]
    past = bool(reached) and min(reached) > order.index("kv_pool")
    return "init_done" if inside and past else None


def _confidence(look: Look, phase: Phase, rule: Rule, odd: Sequence[RankLook]) -> Confidence:
    """Return how sure the verdict is: physical evidence is certain, each weakness takes a step."""
    if rule.state == "cannot_tell":
        return "unknown"
    weaknesses = 0
    if rule.state in ("hung", "idle", "serving"):
        known = {rank.phase for rank in look.alive} - phases.WEAK or phase not in phases.WEAK
        weaknesses += not look.twice
        weaknesses += look.twice and look.interval < 5.0
        weaknesses += not look.sure and len(look.alive) > 1
        weaknesses += not look.complete
        weaknesses += not known
    if rule.state == "hung":
        weaknesses += not _by_signal(look)
        weaknesses += (
            len(look.alive) == 2 and bool(odd) and all(r.wait in waits.ON_DEVICE for r in odd)
        )
    if rule.code == "RT" and rule.state == "stopped":
        weaknesses += not _by_signal(look)
    if rule.state in ("idle", "serving"):
        weaknesses += not (look.story.ready or look.port_open)
        weaknesses += look.port_open is False or look.mute
        # An end or an exception from before the looks does not go with a server that is well.
        fatal = [error for error in look.story.errors if error.fatal and error.zoned]
        weaknesses += any(not look.later(error) for error in fatal)
    if rule.state == "serving":
        moved = any(rank.same_stack is False for rank in look.alive)
        weaknesses += not (moved or look.progressed)
    if rule.state == "slow":
        weaknesses += 1 + (not any(rank.compilers for rank in look.alive) and not look.complete)
    if rule.state == "dead_rank":
        weaknesses += not look.dead or not look.sure
    if rule.state == "crashed":
        ended = any(one.state in ("Z", "X") for one in look.helpers)
        weaknesses += not look.exits and not look.dead and not ended
    return _SURE[min(weaknesses, len(_SURE) - 1)]


def _by_signal(look: Look) -> bool:
    """Whether a rank is stopped for good: a tracer, another py-spy among them, may hold it for a moment."""
    return any(rank.process is not None and rank.process.state == "T" for rank in look.alive)


def _waiting(verdict: Verdict) -> tuple[RankLook, ...]:
    if verdict.rule.state in ("idle", "serving"):
        return ()
    held = verdict.look.of(*waits.FOR_OTHERS, *waits.ON_DEVICE)
    return tuple(r for r in held if r not in verdict.odd and not (r.moving and r.wait != "IDLE"))


def _common_wait(verdict: Verdict, waiting: Sequence[RankLook]) -> WaitClass:
    ranks = waiting or [r for r in verdict.look.alive if r not in verdict.odd] or verdict.look.alive
    told = Counter(rank.wait for rank in ranks if rank.wait != "UNKNOWN")
    return told.most_common(1)[0][0] if told else "UNKNOWN"


def _numbers(ranks: Iterable[RankLook]) -> tuple[int, ...]:
    return tuple(sorted(rank.number for rank in ranks))


def _ladder(verdict: Verdict) -> tuple[str, ...]:
    """Return the steps of a verdict: what an exception in the log says is read before anything is changed."""
    rule = verdict.rule
    raised = rule.state in ("hung", "dead_rank", "crashed") and rule.code not in ("RT", "RF")
    return ("read_exception", *rule.ladder) if raised else rule.ladder


def _words(verdict: Verdict, scene: Scene) -> dict[str, str]:
    """Return what the experiments' texts name."""
    look, odd = verdict.look, verdict.odd
    named = {"main_pid": _main_pid(scene), "host": "the host"}
    about = odd or look.dead
    if about and about[0].host:
        named["host"] = about[0].host
    if odd:
        named["odd"] = evidence.names(odd)
    stopped = [rank for rank in look.alive if rank.stopped]
    if stopped:
        named["odd"] = evidence.names(stopped)
        by_signal = [
            str(rank.pid) for rank in stopped if rank.process and rank.process.state == "T"
        ]
        if by_signal:
            named["pids"] = " ".join(by_signal)
        else:
            named["traced"] = str(stopped[0].pid)
    helpers = [one for one in look.helpers if one.stopped]
    if helpers and not stopped:
        named["odd"] = helpers[0].role
        named["pids"] = " ".join(str(one.pid) for one in helpers)
    if look.expected > 1 and look.expected % 2 == 0:
        named["half"] = str(look.expected // 2)
    if len(odd) == 1:
        named |= _permuted(look, odd[0])
    raised = evidence.raised(look)
    if raised is not None:
        named["exception"] = str(raised.line.number)
        named["raised"] = f"rank {raised.rank}" if raised.rank is not None else "the server"
    stuck = [name for name in look.environment if name.startswith("SGLANG_TEST_STUCK_")]
    if stuck:
        named["stuck"] = stuck[0]
    locked = look.of("LOCK")
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


def _permuted(look: Look, odd: RankLook) -> dict[str, str]:
    """Return the visible GPUs with the odd rank's changed for its neighbour's."""
    same_host = [rank for rank in look.alive if rank.host == odd.host]
    given = look.environment.get("CUDA_VISIBLE_DEVICES", "")
    devices = given.split(",") if given else [str(i) for i in range(len(same_host))]
    at = same_host.index(odd)
    if len(devices) != len(same_host) or len(devices) < 2:
        return {}
    other = (at + 1) % len(devices)
    devices[at], devices[other] = devices[other], devices[at]
    return {"permuted": ",".join(devices)}


def _times(scene: Scene) -> tuple[float, ...]:
    return tuple(sorted({snapshot.at for snapshot in scene.snapshots}))


def _silent(scene: Scene, look: Look) -> float | None:
    """Return how long the log was silent at the last snapshot, where both clocks are of one time zone."""
    last, end = max(_times(scene), default=None), look.story.last_at
    if last is None or end is None:
        return None
    silence = last - end
    return silence if 0.0 <= silence < 86400.0 else None
