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
from workbench.hang.judge.diagnose import question
from workbench.hang.judge.rank_group import RankGroup
from workbench.hang.judge.rules import RULES, Judgement, Rule
from workbench.hang.records import Phase

PHASES: tuple[Phase, ...] = get_args(Phase)
START: set[Phase] = set(PHASES) - {"ready", "init_done", "unknown"}
ANY: set[Phase] = set(PHASES)

# Cases of as many rows, in the order of the table, and the phases in which the row holds there.
ROWS: tuple[tuple[str, set[Phase]], ...] = (
    ("recorded-served-and-ended", ANY),
    ("one-rank-launched-fewer", ANY),
    ("collectives-at-one-number", ANY),
    ("faulthandler", ANY),
    ("deepep-gave-up", ANY),
    ("crashed", ANY),
    ("zombie", ANY),
    ("recorded-capture-hang", ANY),
    ("trap-all-stopped", ANY),
    ("traced", ANY),
    ("held-by-a-debugger", ANY),
    ("detokenizer-stopped", {"ready", "init_done"}),
    ("detokenizer-dead", {"ready", "init_done"}),
    ("server-ends-by-its-log", {"ready", "init_done"}),
    ("gated-launch", ANY),
    ("H6-loads", ANY),
    ("traced-by-a-profiler", ANY),
    ("health-check-failed", ANY),
    ("detokenizer-at-one-place", ANY),
    ("serving", {"ready"}),
    ("H9-idle", ANY),
    ("disk-gives-little", ANY),
    ("incident-without-ptrace", START),
    ("trap-one-node-of-two", ANY),
    ("one-unseen", ANY),
    ("one-snapshot", ANY),
    ("trap-own-test-switch", ANY),
    ("gpu-computes", ANY),
    ("one-kernel-without-readings", ANY),
    ("trainer-does-not-come", ANY),
    ("mlp-sync-with-cpu", ANY),
    ("mlp-sync-without-cpu", ANY),
    ("H3-nfs", ANY),
    ("holder-inside", ANY),
    ("H5-bootstrap", {"spawn", "dist_init", "unknown"}),
    ("one-late", {"spawn", "dist_init"}),
    ("stuck-loader", {"load_barrier"}),
    ("storage-gives-nothing", {"weights"}),
    ("registration", ANY),
    ("allocator", ANY),
    ("driver", ANY),
    ("load-or-hang", {"ready"}),
    ("ras", ANY),
    ("one-kernel", ANY),
    ("draft", {"graph_draft"}),
    ("build", {"graph_prefill", "graph_decode", "graph_draft"}),
    ("prefill", {"graph_prefill"}),
    ("forward", {"graph_decode"}),
    ("hook", {"init_done", "ready"}),
    ("skipped", {"unknown"}),
    ("incident-with-stacks", ANY),
    ("single", ANY),
    ("log-only", ANY),
    ("trap-idle-frozen", ANY),
)


@cache
def judged(name: str) -> Judgement:
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
# What a watchdog wrote into the log counts alone: it had waited for minutes.
OF_LOGS = ("one-rank-launched-fewer", "collectives-at-one-number")
OF_SNAPSHOTS = [at for at in HUNG if ROWS[at][0] not in OF_LOGS]
# Without stacks "asleep" is what /proc alone says.
OF_STACKS = [at for at in OF_SNAPSHOTS if ROWS[at][0] != "incident-without-ptrace"]


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


@pytest.mark.parametrize("at", OF_SNAPSHOTS, ids=named)
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
