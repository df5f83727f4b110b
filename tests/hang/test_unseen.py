"""The unseen hang cases: what they must be, and that the judge is strict. The rules are not asked here."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.hang_unseen.build import write_evidence
from tests.hang_unseen.case import CASES, KINDS, SETS, SICK, TRUTHS, UnseenCase, read_cases
from tests.hang_unseen.judge import _outcome

ALL = read_cases()
SECOND = read_cases("second")


def test_the_cases_are_many_and_mixed() -> None:
    assert len(ALL) >= 100
    assert sum(not one.sick for one in ALL) * 3 >= len(ALL)
    assert sum(one.engine != "sglang" for one in ALL) * 10 >= len(ALL)
    assert sum(one.form == "paste" for one in ALL) >= 15
    assert sum(path.stat().st_size for path in CASES.iterdir()) < 3_000_000


def test_the_second_set_has_its_own_names() -> None:
    assert len(SECOND) >= 55
    assert sum(not one.sick for one in SECOND) * 3 >= len(SECOND)
    assert not {one.name for one in SECOND} & {one.name for one in ALL}
    assert sum(path.stat().st_size for path in SETS["second"].iterdir()) < 1_500_000


@pytest.mark.parametrize("case", ALL + SECOND, ids=lambda case: case.name)
def test_each_case_is_whole(case: UnseenCase, tmp_path: Path) -> None:
    assert case.source.startswith("https://github.com/")
    assert case.kind in KINDS
    assert case.truth in TRUTHS
    assert set(case.expected.must) <= set(case.expected.may)
    if case.sick:
        well = set(case.expected.states) & {"idle", "serving"}
        assert not well or case.expected.not_exit_0
    else:
        assert not case.expected.must
    write_evidence(case, tmp_path)
    assert any(tmp_path.iterdir())
    for listed in tmp_path.glob("snapshot-*/processes.json"):
        pids = {one["pid"] for one in json.loads(listed.read_text())["processes"]}
        dumped = {int(one.stem.rpartition("-")[2]) for one in listed.parent.glob("pyspy-*.json")}
        assert dumped <= pids


SICK_ONE = next(one for one in ALL if one.name == "load-one-dead-nfs")
WELL_ONE = next(one for one in ALL if one.name == "idle-tp8")


@pytest.mark.parametrize(
    ("case", "state", "phase", "named", "ok", "change", "outcome"),
    [
        (SICK_ONE, "hung", "weights", (3,), False, "read from a local disk", "right"),
        (SICK_ONE, "hung", "weights", (), False, "read from a local disk", "wrong detail"),
        (SICK_ONE, "hung", "graph_decode", (3,), False, "read from a local disk", "wrong detail"),
        (SICK_ONE, "hung", "weights", (3,), False, "--disable-cuda-graph", "wrong detail"),
        (SICK_ONE, "hung", "weights", (2, 3), False, "read from a local disk", "wrong accusation"),
        (SICK_ONE, "cannot_tell", "weights", (), None, "", "abstained"),
        (SICK_ONE, "slow", "weights", (), None, "", "wrong state"),
        (SICK_ONE, "idle", "ready", (), True, "", "false all-clear"),
        (WELL_ONE, "idle", "ready", (), True, "", "right"),
        (WELL_ONE, "hung", "ready", (), False, "", "wrong accusation"),
        (WELL_ONE, "serving", "ready", (), True, "", "wrong state"),
        (WELL_ONE, "cannot_tell", "ready", (), None, "", "abstained"),
    ],
)
def test_the_judge_is_strict(
    case: UnseenCase,
    state: str,
    phase: str,
    named: tuple[int, ...],
    ok: bool | None,
    change: str,
    outcome: str,
) -> None:
    assert _outcome(case, state, phase, named, ok, [], change)[0] == outcome


def test_words_that_must_not_be_said_count() -> None:
    want = dataclasses.replace(WELL_ONE.expected, not_says=("^hung",))
    case = dataclasses.replace(WELL_ONE, expected=want)
    assert _outcome(case, "idle", "ready", (), True, ["hung: no"], "")[0] == "wrong detail"
    assert _outcome(case, "idle", "ready", (), True, ["not hung"], "")[0] == "right"


def test_a_sick_case_is_never_right_as_well() -> None:
    for case in ALL:
        if case.kind in SICK:
            got = _outcome(case, "idle", "ready", (), True, [], "")
            assert got[0] == "false all-clear", case.name
