"""Whole checkpoints, healthy and sick: what a scan answers, against a table of right answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import save_file

import workbench
from tests.weights.whole_files.cases import CASES, Case
from tests.weights.whole_files.reports import REPORTS
from workbench.errors import WorkbenchError
from workbench.weights.results import WeightScan


def write(case: Case, folder: Path) -> Path:
    """Write a case as a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, config = case.tensors()
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def text_of(scan: WeightScan) -> str:
    """Return all that a user reads of a scan but its table."""
    parts = [scan.summary, *scan.notes]
    for found in scan.findings:
        parts += [found.title, found.detail, *found.evidence_for, *found.evidence_against]
    return "\n".join(parts)


def faults(case: Case, folder: Path) -> list[str]:
    """Return in what a scan of a case is wrong."""
    try:
        scan = workbench.scan_weights(write(case, folder))
    except WorkbenchError as error:
        return [f"raised: {error}"]
    text = text_of(scan)
    return [
        *([] if scan.ok in case.ok else [f"ok is {scan.ok}: {scan.summary}"]),
        *[f"does not say {p}" for p in case.says if not re.search(p, text, re.I)],
        *[f"says {p}" for p in case.never if re.search(p, text, re.I)],
    ]


@pytest.mark.parametrize("case", [*CASES, *REPORTS], ids=lambda case: case.name)
def test_a_whole_file_gets_the_right_answer(case: Case, tmp_path: Path) -> None:
    assert not faults(case, tmp_path)
