"""Each row of the table of rules by itself: what of its own case it may not do without.

The first row that holds is the verdict, so a row that holds too often is mostly hidden by one above it. Here
each row is asked alone, on its own case and on that case with one thing changed.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import get_args

import pytest

from tests.hang.cases import CASES
from tests.hang.cases.build import R
from tests.hang.cases.rule_scenes import WAITS
from workbench.hang.judge.diagnose import question
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.judge.rules import RULES, Judgement, Rule
from workbench.hang.records import Phase

from .test_borders import FORWARD, GDB, capturing

PHASES: tuple[Phase, ...] = get_args(Phase)
START: set[Phase] = set(PHASES) - {"ready", "init_done", "unknown"}
ANY: set[Phase] = set(PHASES)

HELD = "a debugger holds one of two that compute"

# Cases of as many rows, in the order of the table, and the phases in which the row holds there.
ROWS: tuple[tuple[str, set[Phase]], ...] = (
    ("recorded-served-and-ended", ANY),
    ("R12-faulthandler", ANY),
    ("R0-crashed", ANY),
    ("R0-zombie", ANY),
    ("recorded-capture-hang", ANY),
    ("trap-all-stopped", ANY),
    ("traced", ANY),
    (HELD, ANY),
    ("detokenizer-stopped", {"ready", "init_done"}),
    ("detokenizer-dead", {"ready", "init_done"}),
    ("gated-launch", ANY),
    ("H6-loads", ANY),
    ("traced-by-a-profiler", ANY),
    ("serving", {"ready"}),
    ("H9-idle", ANY),
    ("incident-without-ptrace", START),
    ("trap-one-node-of-two", ANY),
    ("R1-one-unseen", ANY),
    ("R1-one-snapshot", ANY),
    ("trap-own-test-switch", ANY),
    ("H3-nfs", ANY),
    ("R3-holder-inside", ANY),
    ("H5-bootstrap", {"spawn", "dist_init", "unknown"}),
    ("R4-one-late", {"spawn", "dist_init"}),
    ("R5-stuck-loader", {"load_barrier"}),
    ("storage-gives-nothing", {"weights"}),
    ("R8-registration", ANY),
    ("R7-allocator", ANY),
    ("R11-driver", ANY),
    ("load-or-hang", {"ready"}),
    ("R9-ras", ANY),
    ("R10-one-kernel", ANY),
    ("R14-draft", {"graph_draft"}),
    ("R6-build", {"graph_prefill", "graph_decode", "graph_draft"}),
    ("R6-prefill", {"graph_prefill"}),
    ("R6-forward", {"graph_decode"}),
    ("R13-hook", {"init_done", "ready"}),
    ("R17-skipped", {"unknown"}),
    ("incident-with-stacks", ANY),
    ("R18-single", ANY),
    ("R1-log-only", ANY),
    ("trap-idle-frozen", ANY),
)


@cache
def judged(name: str) -> Judgement:
    if name == HELD:
        return question(capturing([R(FORWARD, state="t", halt=GDB), R(FORWARD), R(WAITS)])).worst
    (case,) = (case for case in CASES if case.name == name)
    return question(case.scene).worst


def row(at: int) -> tuple[Rule, RankGroup, Phase]:
    own = judged(ROWS[at][0])
    return own.rule, own.group, own.phase


def changed(group: RankGroup, at: int, **changes: object) -> RankGroup:
    """Return the group with one of its ranks changed."""
    ranks = list(group.ranks)
    ranks[at] = dataclasses.replace(ranks[at], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(group, ranks=tuple(ranks))


def named(at: int) -> str:
    return f"{at}-{ROWS[at][0]}"


HUNG = [at for at in range(len(ROWS)) if row(at)[0].state == "hung"]
# Without stacks "asleep" is what /proc alone says.
OF_STACKS = [at for at in HUNG if ROWS[at][0] != "incident-without-ptrace"]


def test_each_case_is_of_a_row_of_its_own() -> None:
    rows = [row(at)[0] for at in range(len(ROWS))]
    assert [ROWS[at][0] for at, rule in enumerate(rows) if rule in rows[:at]] == []


@pytest.mark.parametrize("at", range(len(ROWS)), ids=named)
def test_each_row_holds_in_its_phases_only(at: int) -> None:
    rule, group, _ = row(at)
    assert {phase for phase in PHASES if rule.when(group, phase)} == ROWS[at][1]


@pytest.mark.parametrize("at", HUNG, ids=named)
def test_no_row_says_hung_where_a_rank_moves_or_may_move(at: int) -> None:
    rule, group, phase = row(at)
    for number in range(len(group.ranks)):
        for moving in (True, None):
            assert not rule.when(changed(group, number, moving=moving), phase), (number, moving)


@pytest.mark.parametrize("at", HUNG, ids=named)
def test_no_row_says_hung_of_one_snapshot(at: int) -> None:
    rule, group, phase = row(at)
    assert not rule.when(dataclasses.replace(group, snapshots=1), phase)
    for number in range(len(group.ranks)):
        assert not rule.when(changed(group, number, snapshots=1), phase), number


@pytest.mark.parametrize("at", OF_STACKS, ids=named)
def test_no_row_of_stacks_says_hung_where_one_is_missing(at: int) -> None:
    rule, group, phase = row(at)
    assert not rule.when(dataclasses.replace(group, expected=group.expected + 1), phase)
    for number, rank in enumerate(group.ranks):
        # What a rank waited for is remembered: nothing but its missing stack speaks against the row.
        if not rank.stopped:
            assert not rule.when(changed(group, number, frames=()), phase), number


@pytest.mark.parametrize("at", range(len(RULES) - 1))
def test_only_the_last_row_holds_of_nothing(at: int) -> None:
    nothing = RankGroup((), 0, True, snapshots=2)
    assert not any(RULES[at].when(nothing, phase) for phase in PHASES)
