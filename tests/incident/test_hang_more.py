"""The script that hurts several servers at once, against the stand-in of `test_hang`: what it brings back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import workbench
from tests.incident import test_hang
from tests.incident.test_server import SCRIPTS


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root to look into another's process")
def test_each_case_comes_back_and_a_hurt_that_fails_loses_no_other(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "engine" / "bin").mkdir(parents=True)
    (tmp_path / "engine" / "bin" / "py-spy").symlink_to(Path(sys.executable).with_name("py-spy"))
    done = subprocess.run(
        [
            *(
                sys.executable,
                str(SCRIPTS / "hang_gpu_more.py"),
                "--models",
                str(tmp_path / "models"),
            ),
            *("--engine", str(tmp_path / "engine"), "--out", str(tmp_path / "out")),
            *("--work", str(tmp_path / "work"), "--deadline", "240", "--port", "30710"),
            *("--settle", "0.5", "--apart", "1.2", "--at-once", "--chapters", "old_capture", "old"),
            *("--launcher", f"{sys.executable} {test_hang.__file__}"),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert (
        "no process sglang::detokenizer" in done.stdout
    )  # the stand-in has none, and the next one goes on
    with tarfile.open(tmp_path / "out" / "cases.tar") as archive:
        archive.extractall(tmp_path / "cases", filter="data")
    truth = json.loads((tmp_path / "out" / "truth.json").read_text())
    cases = {path.stem for path in (tmp_path / "cases").glob("*.zip")}
    assert cases == set(truth)
    assert cases >= {
        "old-capture-stopped",
        "old-idle",
        "old-sleep-1",
        "old-stopped-1",
        "old-killed-1",
    }
    stopped = workbench.open_evidence(tmp_path / "cases" / "old-stopped-1.zip")
    assert (stopped.state, stopped.odd_ranks) == ("stopped", (1,))
