"""What a recording on an H200 showed: a server that is ending looks idle, a slow disk looks hung."""

from __future__ import annotations

import pytest

from tests.hang.cases.misleading import child_crashed, in_the_kernel
from workbench.hang.judge.diagnose import diagnose


@pytest.mark.parametrize(
    ("at", "ahead", "state"),
    [
        (999, 0.0, "crashed"),
        (1031, 0.0, "crashed"),  # within what a log's clock may be off
        (1032, 0.0, "idle"),  # later than the snapshots: they show a healthy server
        (999, None, "idle"),  # of a clock that nobody knows
    ],
)
def test_a_crash_in_the_log_counts_from_before_the_last_snapshot(
    at: int, ahead: float | None, state: str
) -> None:
    got = diagnose(child_crashed(at, ahead=ahead))
    assert got.state == state
    assert got.ok is (False if state == "crashed" else None)
    assert got.odd_ranks == ()


@pytest.mark.parametrize(
    ("apart", "state", "rule"),
    [
        (28.0, "cannot_tell", "kernel_wait"),
        (59.9, "cannot_tell", "kernel_wait"),
        (60.0, "hung", "asleep_at_start"),
    ],
)
def test_a_disk_has_a_minute_to_answer(apart: float, state: str, rule: str) -> None:
    got = diagnose(in_the_kernel(apart))
    assert (got.state, got.rule, got.odd_ranks) == (state, rule, ())
    assert ("diskstats" in got.experiment.change) is (rule == "kernel_wait")
