"""Every case of the library: the right state, phase and ranks, and nobody else accused."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import workbench
from tests.conftest import ROOT
from tests.hang.cases import CASES, Case
from tests.hang.cases.__main__ import document
from workbench.facts import flags
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.judge.rules import RULES

IDS = [case.name for case in CASES]
# Healthy by their state, and not cleared: what the evidence lacks.
NOT_CLEARED = {
    "trap-dp-healthy": "not checked: main process",
    "detokenizer-at-work": "not checked: main process",
}
# Rules whose cases are files of the unseen sets: test_witnesses.py.
ELSEWHERE = {
    "late_health", "launch_counts", "other_operations", "ras_missing", "orphans", "port_taken",
}  # fmt: skip


@cache
def diagnosed(name: str) -> HangDiagnosis:
    return diagnose(CASES[IDS.index(name)].scene)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case(case: Case) -> None:
    got = diagnosed(case.name)
    assert (got.state, got.phase) == (case.state, case.phase), got.summary
    assert got.odd_ranks == case.odd
    assert got.missing_ranks == case.missing
    assert got.not_collected == case.not_collected
    assert case.wait in ("", got.wait_class)
    assert case.rule in ("", got.rule)
    assert case.proposes in got.experiment.change


def test_there_are_enough_cases_and_none_twice() -> None:
    assert len(CASES) >= 25
    assert len(set(IDS)) == len(IDS)
    assert {rule.code for rule in RULES} - {diagnosed(name).rule for name in IDS} == ELSEWHERE


@pytest.mark.parametrize("name", IDS)
def test_a_diagnosis_is_whole(name: str, tmp_path: Path) -> None:
    got = diagnosed(name)
    cleared = None if name in NOT_CLEARED else True
    assert got.ok == {
        "idle": cleared, "serving": cleared, "slow": None, "cannot_tell": None
    }.get(got.state, False)  # fmt: skip
    if name in NOT_CLEARED:
        assert NOT_CLEARED[name] in got.summary
    first = got.findings[0]
    # An error is what is proved wrong; what is well is a note, and what is open a warning.
    well = got.state in ("idle", "serving")
    assert first.severity == ("error" if got.ok is False else "note" if well else "warning")
    assert first.evidence_for
    assert first.experiment == got.experiment
    assert got.experiment.if_right
    assert got.experiment.if_wrong
    assert got.experiment.cost
    text = got.to_text(80)
    assert max(map(len, text.splitlines())) <= 80
    assert got.experiment.change.split()[0] in text
    again = workbench.load(got.save(tmp_path / "diagnosis.json"))
    assert again.to_dict() == got.to_dict()
    assert again.to_text(100) == got.to_text(100)
    assert "{" not in "".join(
        (got.experiment.change, got.experiment.if_right, got.experiment.if_wrong)
    )
    assert set(got.odd_ranks).isdisjoint(
        (*got.missing_ranks, *got.waiting_ranks, *got.not_collected)
    )
    assert got.state == "cannot_tell" or got.confidence != "unknown"
    if got.state == "cannot_tell":
        assert got.confidence == "unknown"
        assert got.unknowns


@pytest.mark.parametrize("name", IDS)
def test_one_change_at_a_time_that_the_release_takes(name: str) -> None:
    got = diagnosed(name)
    named = re.findall(r"(?<!\w)--[a-z][a-z-]+", got.experiment.change)
    if "change nothing" in got.experiment.change or "SYS_PTRACE" in got.experiment.change:
        return
    assert len(named) <= 1
    assert all(flags.takes(flag, got.version) for flag in named)


def test_only_the_stopped_and_the_stuck_are_certain() -> None:
    sure = {name: diagnosed(name) for name in IDS if diagnosed(name).confidence == "certain"}
    for name, got in sure.items():
        stopped = any(rank.state == "T" for rank in got.ranks)
        assert (
            stopped or got.missing_ranks or got.state in ("idle", "serving", "crashed", "stopped")
        ), name


def test_the_incident_says_what_follows_and_what_does_not() -> None:
    got = diagnosed("incident-from-log-and-gpus")
    assert "heartbeat" in got.summary
    assert "not its cause" in got.findings[0].detail
    unknown = " ".join(got.unknowns)
    assert "whether CUDA graphs are involved" in unknown
    assert "'Load weight end'" in unknown
    assert got.odd_ranks == ()
    seen = " ".join(got.findings[0].evidence_for)
    assert "utilisation 0 %" in seen
    assert "memory 77824 MiB" in seen
    with_stacks = diagnosed("incident-with-stacks")
    assert "later_aborted" in {finding.code for finding in with_stacks.findings}


def test_a_success_is_never_called_a_proof() -> None:
    for name in IDS:
        change = diagnosed(name).experiment
        if "cuda-graph" in change.change:
            assert "no proof" in change.if_right or "proves nothing" in change.if_right, name


def test_ranks_without_a_stack_are_not_seen_never_fine() -> None:
    got = diagnosed("trap-eacces")
    row = next(row for row in got.ranks if row.rank == 1)
    assert row.standing in ("not_seen", "moving")
    assert row.why == "permission denied"
    assert row.remedy == "run as root"


def test_the_table_of_cases_is_current() -> None:
    page = ROOT / "docs" / "hang.md"
    assert page.read_text() == document(page.read_text()), (
        "run python -m tests.hang.cases --write docs/hang.md"
    )
