"""The verdict: which one change brings the lost acceptance back, and when nobody can tell.

A cause is found when one fact, and only one, restores at least `RESTORED` of what was lost, clear of the best
switch about anything else on the same bootstrap samples, and each position has most of its loss back. Where
none does, two facts together may, each of them needed. Everything else is "cannot tell", with the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.core.finding import Confidence
from workbench.speculation.ablate.cause_records import (
    Cause,
    CauseFacts,
    State,
    Tried,
    certainly_lost,
    evidence_of,
    lost,
    percent,
    restores,
    statically,
)
from workbench.speculation.ablate.causes_known import known, unexpected
from workbench.speculation.ablate.lifts import clear
from workbench.speculation.judge.engine_loss import ENGINE_NEXT, look_at_engine
from workbench.speculation.judge.thresholds import (
    FEW_REQUESTS,
    NEAREST,
    NEEDED,
    RESTORED,
    UNLIKE,
    UNSURE,
)


def judge(scene: CauseFacts) -> Cause:
    """Return the verdict."""
    early = _without_search(scene)
    if early is not None:
        return early
    found = known(scene) or _single(scene) or _pair(scene) or _named(scene)
    return found or _cannot_tell(scene, "")


def judge_part(scene: CauseFacts, left: Sequence[str]) -> Cause:
    """Return what is concluded where the changes `left` were not tried.

    What they would restore is not known: then no cause is found, and none is ruled out.
    """
    cause = judge(scene)
    if not left or _without_search(scene) is not None:
        return cause
    count = len(left)
    others = f"{count} other change{'s were' if count > 1 else ' was'} not tried"
    tried = [*scene.singles, *scene.pairs]
    best = max(tried, key=lambda t: t.measured.accept_length, default=None)
    near = ""
    if best is not None:
        lift = best.lift
        near = f" With {lift.words} the accept length is {lift.accept_length:.2f}."
    expected = scene.reference.expected
    served = scene.reference.served.accept_length
    return Cause(
        "cannot_tell",
        f"Cannot tell: {served:.2f} tokens a round instead of "
        f"{expected.accept_length if expected else 0:.2f}, and {others}.{near}",
        nearest=best.lift.name if best is not None else "",
        evidence_for=cause.evidence_for,
        evidence_against=(*cause.evidence_against, f"not tried: {', '.join(left[:8])}"),
        missing=f"what the other {count} would restore" if count > 1 else "what it would restore",
        next_step="Run .ablate() without only=, to its end: it tries all of them.",
    )


def needs_pairs(scene: CauseFacts) -> bool:
    """Tell whether single changes leave the loss unexplained, so that pairs are worth trying."""
    if _without_search(scene) is not None or known(scene) is not None:
        return False
    return _single(scene) is None


def _without_search(scene: CauseFacts) -> Cause | None:
    """Return the verdict where no ablation can decide anything."""
    if scene.texts.refused:
        return Cause(
            "refused",
            f"Cannot tell: these texts cannot be evidence: {scene.texts.refused}. In a loop a broken "
            "draft is right as often as a good one.",
            missing="answers that do not repeat themselves",
            next_step="Record other prompts, or longer ones, at temperature 0.",
        )  # fmt: skip
    differs = scene.agreement is not None and scene.agreement < UNLIKE
    # Memory of unknown content may differ; a replay of it that loses nothing is not what ran.
    sure = not scene.unknown or (scene.reference.expected is not None and not lost(scene.reference))
    if differs and sure and scene.observed is not None:
        return _not_reproduced(scene)
    served = scene.reference.served.accept_length
    if scene.reference.expected is None:
        faults = unexpected(scene)
        if faults is not None:
            return faults
        best = max(scene.singles, key=lambda t: t.measured.accept_length, default=None)
        nearest = best.lift.name if best else ""
        most = (
            f" The best change is {best.lift.words}: {best.lift.accept_length:.2f}." if best else ""
        )
        return Cause(
            "no_expectation",
            f"Cannot tell: as served {served:.2f} tokens are accepted a round, and what to expect is not "
            f"known.{most}",
            nearest=nearest,
            missing="the expected acceptance: the trainer's metrics, or a healthy run",
            next_step="Give expected= (the trainer's full_acc_k, a healthy run, or a number).",
        )  # fmt: skip
    few = len(scene.reference.served.rounds)
    if few < FEW_REQUESTS:
        return Cause(
            "cannot_tell",
            f"Cannot tell: {few} requests are too few to tell a loss from chance.",
            missing=f"{FEW_REQUESTS} requests or more",
            next_step="Replay more prompts.",
        )
    if not lost(scene.reference):
        wanted = scene.reference.expected.accept_length
        missing = (wanted - served) / wanted
        if missing >= UNSURE:
            return Cause(
                "cannot_tell",
                f"Cannot tell: {served:.2f} tokens a round are {missing:.0%} less than the {wanted:.2f} that "
                f"are expected, and with {few} requests that may be chance.",
                missing="more requests",
                next_step="Replay more prompts.",
            )  # fmt: skip
        return Cause(
            "healthy",
            f"Nothing is lost: {served:.2f} tokens are accepted a round, {wanted:.2f} are expected.",
            confidence="likely",
        )  # fmt: skip
    return None


def _not_reproduced(scene: CauseFacts) -> Cause:
    """Return that the replay does not do what the engine did: the engine loses it, or nothing is known."""
    files, engine = scene.replayed or 0.0, scene.observed or 0.0
    agree = f"only {scene.agreement:.0%} of the rounds agree"
    expected = scene.reference.expected
    if scene.engine_loses and (expected is not None or scene.engine_does):
        return Cause(
            "engine",
            look_at_engine(files, engine, scene.engine_does),
            confidence="likely",
            evidence_for=(f"replayed as launched, {agree}",),
            missing="" if scene.engine_does else "what the engine does otherwise than its release",
            next_step=ENGINE_NEXT,
        )  # fmt: skip
    replayed = f"{scene.unmodelled}. Replayed" if scene.unmodelled else "replayed"
    return Cause(
        "not_reproduced",
        f"Cannot tell: {replayed} as launched, the files accept {files:.2f} tokens a round, and the engine "
        f"accepted {engine:.2f}; {agree}. The cause of the loss is not in these files, or not in this "
        "replay.",
        missing="the draft as the engine had it in memory, or the target that really served",
        next_step="Capture the draft's tensors in the running server, and check which files it reads.",
    )  # fmt: skip


def _single(scene: CauseFacts) -> Cause | None:
    """Return the one fact that explains the loss, or that two facts cannot be told apart."""
    best = _best_by_fact(scene.singles)
    if not best:
        return None
    first, *others = best
    if not restores(first):
        return None
    lift = first.lift
    runner = others[0] if others else None
    if runner is not None and _rivals(first, runner):
        return _cannot_tell(
            scene,
            f"{lift.words} restores {percent(lift)}, and {runner.lift.words} "
            f"{percent(runner.lift)}: these texts cannot distinguish the two",
            (first, runner),
        )
    if first.facts == {"sampling"}:
        return Cause(
            "sampling",
            "Cannot tell: the text is not what this target chooses greedily: it was sampled, or another "
            f"target wrote it. Along this target's greedy answers {lift.accept_length:.2f} tokens are "
            "accepted a round.",
            switches=lift.switches, facts=lift.facts,
            evidence_for=(evidence_of(lift),),
            missing="the temperature of the recorded requests, and which target answered them",
            next_step="Record the same prompts at temperature 0, and replay that.",
        )  # fmt: skip
    if scene.untried and not any(h.sure and h.fact in first.facts for h in scene.hints):
        return _cannot_tell(
            scene,
            f"{lift.words} restores {percent(lift)}, but nothing else speaks for that; what is certain could "
            f"not be undone: {scene.untried[0]}",
            (first,),
        )
    alike = [t.lift for t in scene.singles if t.facts == first.facts and t is not first]
    equal = tuple(a.name for a in alike if a.restored is not None and a.restored >= RESTORED)
    against = _against(scene, first.facts, runner)
    return Cause(
        "found",
        f"{'A' if scene.untried else 'The'} cause is the {lift.facts[0]}: with {lift.words} acceptance "
        f"comes back from {scene.reference.served.accept_length:.2f} to {lift.accept_length:.2f} tokens a "
        f"round ({percent(lift)} of what was lost).",
        facts=lift.facts, switches=lift.switches, alike=(*lift.same, *equal),
        confidence=_confidence(scene, first),
        evidence_for=(evidence_of(lift), *statically(scene, first.facts)), evidence_against=against,
        next_step=lift.remedy,
    )  # fmt: skip


def _pair(scene: CauseFacts) -> Cause | None:
    """Return the two facts that explain the loss together and not alone."""
    best = _best_by_fact(scene.pairs)
    if not best or not restores(best[0]):
        return None
    first, *others = best
    lift, loss = first.lift, scene.reference.loss or 1.0
    for fact in first.facts:
        alone = [t for t in scene.singles if t.facts == {fact}]
        for single in alone:
            added = first.measured.accept_length - single.measured.accept_length
            same = len(single.measured.rounds) == len(first.measured.rounds)
            if same and (added < NEEDED * loss or not clear(first.measured, single.measured)):
                return _cannot_tell(
                    scene, "a second change adds too little to be distinguished from chance"
                )
    if others and _rivals(first, others[0]):
        return _cannot_tell(
            scene,
            f"{lift.words} restore {percent(lift)} together, and {others[0].lift.words} "
            f"{percent(others[0].lift)}: these texts cannot distinguish them",
            (first, others[0]),
        )
    certain = all(any(h.fact == f and h.sure for h in scene.hints) for f in first.facts)
    return Cause(
        "pair",
        f"Two causes, one behind the other: {' and '.join(lift.facts)}. With {lift.words} acceptance comes "
        f"back from {scene.reference.served.accept_length:.2f} to {lift.accept_length:.2f} tokens a round "
        f"({percent(lift)} of what was lost); neither alone is enough.",
        facts=lift.facts, switches=lift.switches, alike=lift.same,
        confidence="certain" if certain else "likely",
        evidence_for=(evidence_of(lift), *statically(scene, first.facts)),
        evidence_against=_against(scene, first.facts, others[0] if others else None),
        next_step=lift.remedy,
    )  # fmt: skip


def _named(scene: CauseFacts) -> Cause | None:
    """Return a tensor that is nowhere: what it lost cannot be brought back from these files."""
    absent = [h for h in scene.hints if h.finding.code == "tensor_absent"]
    if not absent or not scene.absent:
        return None
    facts = tuple(dict.fromkeys(h.fact for h in absent))
    if len(facts) > 1:
        return None
    served = scene.reference.served
    if served.accept_length - 1 > 0.1 * ((scene.reference.loss or 0) + served.accept_length - 1):
        return None  # a draft that works in part does not lack a whole tensor
    return Cause(
        "named",
        f"The cause is the {facts[0]}: {', '.join(scene.absent[:3])} is in none of the files, and the engine "
        "computes with uninitialised memory. Nothing here can restore it, so what may hide behind it is "
        "not known.",
        facts=facts, confidence="likely",
        evidence_for=(
            *statically(scene, frozenset(facts)),
            f"{served.accept_length:.2f} tokens a round; the target's token has rank {served.rank:.0f}",
        ),
        missing=f"the trained {facts[0]}",
        next_step=absent[0].finding.next_step,
    )  # fmt: skip


def _cannot_tell(scene: CauseFacts, why: str, rivals: tuple[Tried, ...] = ()) -> Cause:
    """Return that the cause is not known; `rivals` are changes that restore enough, each of them.

    Whether something is lost may be certain all the same.
    """
    reference = scene.reference
    expected = reference.expected
    said = why or "neither one change nor a pair restores what was lost"
    hints = [h.finding.title for h in scene.hints if h.sure]
    lengths = (
        f"{reference.served.accept_length:.2f} tokens a round instead of "
        f"{expected.accept_length if expected else 0:.2f}"
    )
    state: State = "lost" if certainly_lost(scene) else "cannot_tell"
    sure: Confidence = "likely" if state == "lost" else "unknown"
    sentence = f"Cannot tell: {lengths}, and {said}."
    if state == "lost":
        sentence = f"Acceptance is lost: {lengths}. Cannot tell why: {said}."
    against = tuple(f"known without a replay: {title}" for title in hints)
    if rivals:
        names = " or ".join(one.lift.name for one in rivals)
        return Cause(
            state, sentence, nearest=names, evidence_against=against, confidence=sure,
            missing=f"what distinguishes {names}: the training's own code or config, or other texts",
            next_step="Check in the training which of the two is true; undoing that one is enough.",
        )  # fmt: skip
    best = _best_by_fact([*scene.singles, *scene.pairs])
    nearest = best[0].lift if best else None
    near = ""
    far = nearest is None or (nearest.restored or 0.0) < NEAREST
    if nearest is not None and not far and nearest.lift_interval[0] > 0:
        near = f" Nearest is {nearest.words}: {percent(nearest)}."
    itself = _draft_itself(scene) if state == "lost" and not near else ""
    return Cause(
        "draft_itself" if itself else state,
        itself or f"{sentence}{near}",
        nearest=nearest.name if near and nearest else "",
        evidence_against=against,
        confidence=sure,
        missing="the draft's acceptance on this kind of text, measured where it was trained: a draft that "
        "is undertrained or off its domain has the same symptoms",
        next_step="Measure the draft on these prompts with the trainer, or give texts of its training.",
    )  # fmt: skip


def _draft_itself(scene: CauseFacts) -> str:
    """Return that as its trainer means it the draft accepts no more, "" where it does or is not known to."""
    trained, expected = scene.trained, scene.reference.expected
    if trained is None or expected is None:
        return ""
    served = scene.reference.served.accept_length
    gained = trained.accept_length - served
    if gained >= NEAREST * (expected.accept_length - served):
        return ""
    return (
        f"The draft itself accepts no more: {trained.accept_length:.2f} tokens a round as its trainer means "
        f"it, {served:.2f} as served, and {expected.accept_length:.2f} are expected; neither one change nor "
        "a pair restores that. It is undertrained, off its domain, written wrong, or trained otherwise than "
        "its config says."
    )


def _best_by_fact(tried: Sequence[Tried]) -> list[Tried]:
    """Return the best of each set of facts, best first, of those that were confirmed."""
    best: dict[frozenset[str], Tried] = {}
    for one in tried:
        if one.confirmed and len(one.facts) == len(one.switches):
            held = best.get(one.facts)
            if held is None or one.measured.accept_length > held.measured.accept_length:
                best[one.facts] = one
    return sorted(best.values(), key=lambda t: -t.measured.accept_length)


def _rivals(first: Tried, other: Tried) -> bool:
    """Tell whether another fact explains as much: within chance, or enough by itself."""
    restored = other.lift.restored
    enough = restored is not None and restored >= RESTORED
    return enough or not clear(first.measured, other.measured)


def _confidence(scene: CauseFacts, first: Tried) -> Confidence:
    """Return certain only where the interval and what is known without a replay say the same."""
    lift = first.lift
    sure = any(h.fact in first.facts and h.sure for h in scene.hints)
    low = lift.restored_interval[0] if lift.restored_interval else 0.0
    return "certain" if sure and low >= RESTORED / 2 else "likely"


def _against(scene: CauseFacts, facts: frozenset[str], runner: Tried | None) -> tuple[str, ...]:
    said = []
    if runner is not None and runner.lift.lift_interval[0] > 0:
        said.append(f"next best: {runner.lift.words}, {percent(runner.lift)}")
    said += [
        f"not confirmed by a replay: {h.finding.title}"
        for h in scene.hints
        if h.sure and h.fact and h.fact not in facts
    ]
    if scene.unknown:
        said.append(f"what the engine's memory held for {scene.unknown[0]} is not known")
    return tuple(said[:5])
