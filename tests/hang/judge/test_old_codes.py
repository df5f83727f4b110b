"""Codes of rules that version 0.1 wrote: each becomes one of today's, or stays where that is not certain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench
from workbench.core.finding import Finding
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.judge.old_codes import OLD_CODES, rule_of
from workbench.hang.judge.rules import RULES, Rule
from workbench.hang.records import Phase

FOLDER = Path(__file__).parents[2] / "golden" / "saved-0.1"
SAVED = {
    "hung": "test_switch", "odd": "lock_wait", "stopped": "stopped_rank", "crashed": "server_died",
    "dead_rank": "dead_rank", "slow": "working_rank", "cannot_tell": "no_rule", "partly-seen": "no_rule",
    "idle": "idle", "serving": "serving",
}  # fmt: skip
NOW = {rule.code: rule for rule in RULES}
SHARED = [(old, row.code) for old, rows in OLD_CODES.items() for row in rows if len(rows) > 1]
# As version 0.1 worded what has other words today.
WORDS_OF_01 = {
    "missing_stack": "the rank that all wait for may be the one that was not seen",
    "one_snapshot": "what stands still cannot be told from what is slow",
    "log_alone": "a log tells the phase, and not which rank is behind",
    "late_joiner": "the rank that did not come is held up by its own work",
}


def found(detail: str) -> tuple[Finding, ...]:
    return (Finding("hang-x", "error", "it hangs", detail),)


def phase_of(rule: Rule) -> Phase:
    return "graph_prefill" if rule.code == "prefill_capture" else "graph_decode"


def test_each_old_code_with_its_state_leads_to_rules_of_that_state() -> None:
    led = [row.code for rows in OLD_CODES.values() for row in rows]
    assert len(set(led)) == len(led)
    for (_, state), rows in OLD_CODES.items():
        assert {NOW[row.code].state for row in rows} == {state}


@pytest.mark.parametrize(("old", "code"), SHARED, ids=str)
def test_where_rules_shared_a_code_the_finding_decides(old: tuple[str, str], code: str) -> None:
    rule = NOW[code]
    phase = phase_of(rule)
    for detail in {rule.cause, WORDS_OF_01.get(code, rule.cause)}:
        assert rule_of(old[0], rule.state, phase, found(detail)) == code
    assert rule_of(old[0], rule.state, phase, found("")) == old[0]
    assert rule_of(old[0], rule.state, phase, ()) == old[0]


def test_a_capture_that_diverged_is_of_its_phase_or_of_none() -> None:
    diverged = found(NOW["decode_capture"].cause)
    assert rule_of("R6", "hung", "graph_decode", diverged) == "decode_capture"
    assert rule_of("R6", "hung", "graph_prefill", diverged) == "prefill_capture"
    assert rule_of("R6", "hung", "ready", diverged) == "R6"


def test_a_code_with_another_state_stays() -> None:
    assert rule_of("R6", "idle", "ready", ()) == "R6"
    assert rule_of("idle", "idle", "ready", ()) == "idle"


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_diagnosis_of_version_01_gets_todays_codes(name: str) -> None:
    old = json.loads((FOLDER / f"hang-{name}.json").read_text())
    got = workbench.load(FOLDER / f"hang-{name}.json")
    assert isinstance(got, HangDiagnosis)
    assert got.rule == SAVED[name]
    own = f"hang-{old['rule'].lower()}"
    for before, now in zip(old["findings"], got.findings, strict=True):
        assert now.code == (
            f"hang.{got.rule}" if before["code"] == own else before["code"].replace("-", "_")
        )
