"""A health check that fails: beside GPUs that compute it is slow, beside others nobody can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from tests.hang_unseen.build import write_evidence
from tests.hang_unseen.case import CASES, read_case

PREFILL = CASES / "serving-long-chunked-prefill.toml"
AT_REST = CASES / "one-gpu-at-rest.toml"


@pytest.mark.parametrize(
    ("watts", "state", "rule"),
    [(610, "slow", "late_health"), (125, "cannot_tell", "health_check")],
)
def test_only_gpus_that_compute_excuse_a_failed_health_check(
    watts: int, state: str, rule: str, tmp_path: Path
) -> None:
    file = tmp_path / "case.toml"
    file.write_text(
        PREFILL.read_text().replace("gpu = [76000, 99, 610]", f"gpu = [76000, 99, {watts}]")
    )
    (tmp_path / "evidence").mkdir()
    write_evidence(read_case(file), tmp_path / "evidence")
    found = workbench.open_evidence(tmp_path / "evidence")
    assert (found.state, found.rule, found.ok) == (state, rule, None)


@pytest.mark.parametrize(("used", "said"), [(0, True), (15, True), (100, False)])
def test_one_gpu_at_rest_is_said(used: int, said: bool, tmp_path: Path) -> None:
    file = tmp_path / "case.toml"
    file.write_text(
        AT_REST.read_text().replace("gpu = [76000, 0, 119]", f"gpu = [76000, {used}, 119]")
    )
    (tmp_path / "evidence").mkdir()
    write_evidence(read_case(file), tmp_path / "evidence")
    found = workbench.open_evidence(tmp_path / "evidence")
    titles = [one.title for one in found.findings if one.code.endswith("gpu_at_rest")]
    assert titles == (
        [f"the GPU of TP6 is at {used} %, those of all others are busy"] if said else []
    )
