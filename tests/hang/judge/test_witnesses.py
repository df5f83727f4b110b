"""Witnesses next to the stacks, each with a twin in which it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from tests.hang_unseen.build import write_evidence
from tests.hang_unseen.case import CASES, SETS, read_case
from workbench.hang.judge.diagnosis import HangDiagnosis

SECOND = SETS["second"]


def opened(text: str, tmp_path: Path) -> HangDiagnosis:
    """Judge the evidence of a case that is given as text."""
    file, evidence = tmp_path / "case.toml", tmp_path / "evidence"
    file.write_text(text)
    evidence.mkdir()
    write_evidence(read_case(file), evidence)
    return workbench.open_evidence(evidence)


def judged(
    name: str, tmp_path: Path, old: str = "", new: str = "", cases: Path = SECOND
) -> HangDiagnosis:
    """Judge a case in which some text has the place of other text."""
    text = (cases / f"{name}.toml").read_text()
    assert old in text
    return opened(text.replace(old, new) if old else text, tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "rule", "odd"),
    [
        ("port-in-use", "", "", "port_taken", ()),
        ("port-in-use", "already in use", "in the way", "log_alone", ()),
        ("flight-two-operations", "", "", "other_operations", (1,)),
        ("flight-two-operations", "nccl:all_gather", "nccl:all_reduce", "no_rule", ()),
        ("ras-text-one-process-missing", "", "", "ras_missing", (5,)),
        ("ras-text-one-process-missing", "The missing rank: 5", "", "no_rule", ()),
        ("ranks-without-their-parent", "", "", "orphans", ()),
        ("ranks-without-their-parent", "parent = 1\n", "parent = 500\n", "idle", ()),
        ("trtllm-one-rank-crashed", "", "", "server_died", (7,)),
        ("trtllm-one-rank-crashed", "crashed on this rank", "began on this rank", "no_rule", ()),
        ("tokenizer-worker-killed", "", "", "ended_helper", ()),
    ],
)  # fmt: skip
def test_a_witness_decides(
    name: str, old: str, new: str, rule: str, odd: tuple[int, ...], tmp_path: Path
) -> None:
    found = judged(name, tmp_path, old, new)
    assert (found.rule, found.odd_ranks) == (rule, odd), found.summary


@pytest.mark.parametrize(("code", "missing"), [("-9", (2,)), ("1", (0, 1, 2))])
def test_who_was_killed_first_is_named_and_not_who_ended_by_that(
    code: str, missing: tuple[int, ...], tmp_path: Path
) -> None:
    found = judged(
        "paste-journal-oom-then-exit-codes", tmp_path, "(exit code: -9)", f"(exit code: {code})"
    )
    assert found.missing_ranks == missing


@pytest.mark.parametrize(("used", "state"), [("", "slow"), ("cpu = [10.0, 10.0]", "hung")])
def test_a_child_that_works_is_progress(used: str, state: str, tmp_path: Path) -> None:
    text = (SECOND / "inductor-workers-compile.toml").read_text()
    head, *processes = text.split("[[process]]")
    if used:
        still = "\n".join
        processes = [
            still(used if line.startswith("cpu =") else line for line in one.splitlines()) + "\n"
            if "compile_worker" in one
            else one
            for one in processes
        ]
    assert opened("[[process]]".join([head, *processes]), tmp_path).state == state


@pytest.mark.parametrize(
    ("watts", "state", "rule"),
    [(610, "slow", "late_health"), (125, "cannot_tell", "health_check")],
)
def test_only_gpus_that_compute_excuse_a_failed_health_check(
    watts: int, state: str, rule: str, tmp_path: Path
) -> None:
    gpu = f"gpu = [76000, 99, {watts}]"
    name = "serving-long-chunked-prefill"
    found = judged(name, tmp_path, "gpu = [76000, 99, 610]", gpu, CASES)
    assert (found.state, found.rule, found.ok) == (state, rule, None)


@pytest.mark.parametrize(("used", "said"), [(0, True), (15, True), (100, False)])
def test_one_gpu_at_rest_is_said(used: int, said: bool, tmp_path: Path) -> None:
    gpu = f"gpu = [76000, {used}, 119]"
    found = judged("one-gpu-at-rest", tmp_path, "gpu = [76000, 0, 119]", gpu, CASES)
    titles = [one.title for one in found.findings if one.code.endswith("gpu_at_rest")]
    assert titles == (
        [f"the GPU of TP6 is at {used} %, those of all others are busy"] if said else []
    )
