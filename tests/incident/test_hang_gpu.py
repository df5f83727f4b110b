"""The script that records hangs on two GPUs, against a stand-in for SGLang: this file, run as a program."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.incident.test_server import READY, SCRIPTS
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.read.scene import read_scene

MARK = "Capture target verify CUDA graph begin"
END = "Capture draft extend CUDA graph end"


def set_title(text: str) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, room = int(fields[45]), int(fields[46]) - int(fields[45]) - 1
    ctypes.memmove(start, text.encode().ljust(room) + b"\0", room + 1)


def serve() -> None:
    """Start two ranks, say what SGLang says, and wait to be killed."""
    for rank in (0, 1):
        if os.fork() == 0:
            set_title(f"sglang::scheduler_TP{rank}")
            time.sleep(100)
    for line in (MARK, END, READY):
        print(line, flush=True)
    time.sleep(100)


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root to look into another's process")
def test_every_chapter_leaves_a_case_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    words = {
        "--engine": tmp_path, "--models": tmp_path / "models", "--out": tmp_path / "out",
        "--work": tmp_path / "work", "--deadline": 200, "--least": 5, "--settle": 0.2, "--apart": 1.2,
        "--pyspy": Path(sys.executable).with_name("py-spy"), "--port": 30610,
        "--launcher": f"{sys.executable} {__file__}",
    }  # fmt: skip
    command = [sys.executable, str(SCRIPTS / "hang_gpu.py"), "--only", "stopped", "stuck"]
    for flag, value in words.items():
        command += [flag, str(value)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])},
    )
    assert done.returncode == 0, done.stderr
    truth = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert {name: one["collector"] for name, one in truth.items()} == {
        "capture-stopped": 0,
        "all-stuck": 0,
    }
    stopped = read_scene(tmp_path / "out" / "capture-stopped.zip")
    assert [p.state for p in stopped.snapshots[1].processes if p.rank is not None] == ["S", "T"]
    assert diagnose(stopped).odd_ranks in ((1,), ())
    assert len(read_scene(tmp_path / "out" / "all-stuck.zip").snapshots) == 2


if __name__ == "__main__":
    serve()
