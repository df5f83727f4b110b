"""What differs where the engine is not SGLang: what is not judged, and what only vLLM's evidence shows.

The rules are shared: they compare places and progress. The workers of a healthy vLLM, though, look like those
of one with a stuck engine core, so that neither `idle` nor `serving` is said of another engine.
"""

from __future__ import annotations

import dataclasses

from workbench.facts import engines
from workbench.hang.judge import loose_stacks, rules, waits, wording
from workbench.hang.judge.phases import MarkedLine
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.judge.rules import Rule
from workbench.hang.records import WELL, Phase

# How long before the end of a log the last line of waiting may be, to still be the state at its end.
_STILL = 180.0
_SHARED = ("", "sglang")


def rule_for(group: RankGroup, phase: Phase) -> Rule:
    """Return the first rule that holds, in the words of the group's engine."""
    rule = loose_stacks.without_ranks(group, rules.rule_for(group, phase))
    if group.engine in _SHARED:
        return rule
    if group.engine == "vllm":
        rule = _of_vllm(group, rule)
    if rule.state in WELL:
        rule = _not_judged(group)
    return _named(rule, group.engine)


def _of_vllm(group: RankGroup, rule: Rule) -> Rule:
    """Return the rule for what shows in vLLM alone: waits on its shared memory, workers without work."""
    if rule.state == "cannot_tell" and not group.alive:
        waiting = shm_waits(group)
        return _waits_by_log(group, waiting) if waiting else _last_step(group, rule)
    receiving = group.complete and group.alive and all(r.wait == "IDLE" for r in group.alive)
    if receiving and rule.code in ("R16", "R18", "R15"):
        return _without_work(group)
    return rule


def shm_waits(group: RankGroup) -> tuple[MarkedLine, ...]:
    """Return the lines of waiting on shared memory with which the log ends; () where work followed them.

    Written by an engine core they say that its workers have not answered; the workers' own say only that
    nothing came, as in an idle server.
    """
    lines = group.story.errors_of("shm_wait")
    told = [one for one in lines if one.rank is None]
    last = max((one.line.number for one in told), default=0)
    later = [*group.story.batches, *([group.story.last] if group.story.last else [])]
    if any(one.line.number > last for one in later):
        return ()
    end = group.story.last_at
    at = next((one.at for one in reversed(told) if one.at is not None), None)
    return tuple(told) if end is None or at is None or end - at < _STILL else ()


def _row(
    code: str, evidence: str, cause: str, unknown: str, ladder: tuple[str, ...] = ("native",)
) -> Rule:
    return Rule(
        code, "cannot_tell", lambda group, phase: True, evidence, cause, ladder, unknown=unknown
    )


def _waits_by_log(group: RankGroup, lines: tuple[MarkedLine, ...]) -> Rule:
    seconds = sum(float(one.event.facts["seconds"]) for one in _since_work(group, lines))
    return _row(
        "shm_wait",
        f"the engine core has waited {wording.duration(seconds)} for its workers "
        f"(by {len(lines)} lines of shm_broadcast){_step_text(group)}",
        "a worker does not answer: it hangs, or its work takes long, such as a compilation",
        "which worker is late, and whether it moves: the stacks of the workers in two snapshots are missing",
        ("second_snapshot",),
    )


def _since_work(group: RankGroup, lines: tuple[MarkedLine, ...]) -> list[MarkedLine]:
    """Return the lines after the last step or batch: those before it belong to an earlier wait."""
    done = [*group.story.batches, *([group.story.last] if group.story.last else [])]
    last = max((one.line.number for one in done), default=0)
    return [one for one in lines if one.line.number > last]


def _step_text(group: RankGroup) -> str:
    last = group.story.last
    if last is None:
        return ""
    words = last.line.text.split(": ")[0].split(" (")[0][:60].rstrip(".")
    whose = f" of {last.line.rank}" if last.line.rank else ""
    return f"; its last step is {words!r}{whose}"


def _last_step(group: RankGroup, rule: Rule) -> Rule:
    if rule.code != "R1":
        return rule
    return dataclasses.replace(
        rule, evidence=rule.evidence + _step_text(group), ladder=("second_snapshot",)
    )


def _without_work(group: RankGroup) -> Rule:
    """Return the rule for workers that all wait for work: the core's stack may say why none comes."""
    frames = [core.frames for core in group.cores if core.frames]
    where = next((f for f in map(waits.telling_frame, frames) if f is not None), None)
    resting = frames and all(waits.in_receive(one) for one in frames)
    core = (
        "the engine core waits for requests"
        if resting
        else f"the engine core is in {wording.frame_text(where)}"
        if where is not None
        else "the stack of the engine core is missing"
    )
    return _row(
        "engine_core",
        f"all workers wait for work from the engine core, and {core}",
        "without requests that is healthy; with requests waiting, the engine core or the API server is stuck",
        "whether requests are waiting: the log's statistics or a request of your own would show it",
        ("ask_health",) if resting else ("native", "second_snapshot"),
    )


def _not_judged(group: RankGroup) -> Rule:
    name = engines.spoken(group.engine)
    return _row(
        "not_judged",
        f"no rank looks stuck, and whether {name} is idle or serves is not judged",
        f"what a healthy event loop of {name} looks like is not part of the rules",
        "whether requests are answered: send one with a time limit",
        ("ask_health",),
    )


def _named(rule: Rule, engine: str) -> Rule:
    """Return a rule without SGLang's name in it."""
    name = engines.spoken(engine)
    texts = {field: getattr(rule, field) for field in ("evidence", "cause", "unknown")}
    changed = {
        field: text.replace("SGLang", name) for field, text in texts.items() if "SGLang" in text
    }
    return dataclasses.replace(rule, **changed) if changed else rule
