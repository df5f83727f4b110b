"""The rules' codes of version 0.1, which several rules shared, and what they are called now."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from workbench.core.finding import Finding
from workbench.hang.records import Phase, State


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A rule of today, and what sets it apart from others that had its old code and its state.

    Attributes
    ----------
    code
        What it is called now.
    words
        Its finding's detail has one of them; none where no other rule had the code and the state.
    phase
        The phase that it holds in, if the words are not enough.
    """

    code: str
    words: tuple[str, ...] = ()
    phase: Phase | None = None

    def fits(self, detail: str, phase: Phase) -> bool:
        """Whether a saved diagnosis is by this rule."""
        if self.phase not in (None, phase):
            return False
        return not self.words or any(word in detail for word in self.words)


OLD_CODES: Mapping[tuple[str, State], tuple[_Row, ...]] = {
    ("RE", "cannot_tell"): (_Row("requested_shutdown"),),
    ("R12", "crashed"): (_Row("heartbeat_abort"),),
    ("R0", "crashed"): (_Row("server_died"),),
    ("R0", "dead_rank"): (_Row("dead_rank"),),
    ("RT", "hung"): (
        _Row("awaited_stopped_rank", ("a stopped rank",)),
        _Row("awaited_held_rank", ("is held",)),
    ),
    ("RT", "stopped"): (
        _Row("stopped_rank", ("stopped from outside",)),
        _Row("held_rank", ("is held",)),
    ),
    ("RH", "stopped"): (_Row("stopped_helper"),),
    ("RH", "crashed"): (_Row("ended_helper"),),
    ("RG", "slow"): (_Row("gated_launch"),),
    ("R2", "slow"): (_Row("working_rank"),),
    ("RP", "cannot_tell"): (_Row("traced_rank"),),
    ("helper_stuck", "cannot_tell"): (_Row("stuck_helper"),),
    ("R15", "serving"): (_Row("serving"),),
    ("R15", "idle"): (_Row("idle"),),
    ("R1", "hung"): (_Row("asleep_at_start"),),
    ("R1", "cannot_tell"): (
        _Row("ranks_not_collected", ("one of those",)),
        _Row("missing_stack", ("may be that one", "may be the one that")),
        _Row("one_snapshot", ("slow",)),
        _Row("log_alone", ("the phase",)),
    ),
    ("RF", "hung"): (_Row("test_switch"),),
    ("R3", "hung"): (
        _Row("stale_lock", ("its lock file stayed",)),
        _Row("lock_wait", ("one of the ranks",)),
    ),
    ("R4", "hung"): (
        _Row("bootstrap", ("do not come up",)),
        _Row("late_joiner", ("its own work",)),
    ),
    ("R5", "hung"): (
        _Row("load_barrier", ("the barrier",)),
        _Row("silent_storage", ("does not answer",)),
    ),
    ("R8", "hung"): (_Row("buffer_registration"),),
    ("R7", "hung"): (_Row("autotuner"),),
    ("R11", "hung"): (_Row("driver_lock"),),
    ("RL", "cannot_tell"): (_Row("load_or_hang"),),
    ("R9", "hung"): (_Row("all_on_gpu"),),
    ("R10", "hung"): (_Row("endless_kernel"),),
    ("R14", "hung"): (_Row("draft_capture"),),
    ("R6", "hung"): (
        _Row("capture_build", ("compilation",)),
        _Row("prefill_capture", ("diverged",), "graph_prefill"),
        _Row("decode_capture", ("diverged",), "graph_decode"),
    ),
    ("R13", "hung"): (_Row("endless_batch"),),
    ("R17", "hung"): (_Row("foreign_collective"),),
    ("R19", "hung"): (_Row("late_rank"),),
    ("R18", "hung"): (_Row("same_place"),),
    ("R16", "cannot_tell"): (_Row("no_rule"),),
}


def rule_of(code: str, state: State, phase: Phase, findings: Sequence[Finding]) -> str:
    """Return what a saved diagnosis's rule is called now; its code where that is not certain."""
    detail = findings[0].detail if findings else ""
    fitting = [row.code for row in OLD_CODES.get((code, state), ()) if row.fits(detail, phase)]
    return fitting[0] if len(fitting) == 1 else code


def findings_of(code: str, rule: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with the verdict's own under today's code."""
    old = f"hang_{code.lower()}"
    return tuple(
        dataclasses.replace(one, code=f"hang.{rule}") if one.code == old else one
        for one in findings
    )
