"""The script that makes the start-up hang, against a stand-in for SGLang: this file, run as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.incident.test_server import READY, SCRIPTS

MARK = "Capture target verify CUDA graph begin"


RANK = "import time; print(1, flush=True); time.sleep(600)"


def serve() -> None:
    """Start two ranks, and serve; in the launch that is to hang, wait for a rank as a capture does."""
    ranks = [
        subprocess.Popen(
            [f"sglang::scheduler_TP{rank}", "-c", RANK],
            executable=sys.executable,
            stdout=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()  # it sleeps from now on
    print(MARK, flush=True)
    if "capture-hang" in os.readlink("/proc/self/fd/1"):
        ranks[1].wait()
    os.execv(
        sys.executable,
        [sys.executable, str(Path(__file__).with_name("test_server.py")), *sys.argv[1:]],
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root to look into another's process")
def test_the_stopped_rank_is_seen_and_the_relaunch_serves(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": 0, "ids": [1]}) + "\n")
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPTS / "hang.py"), "--engine", str(tmp_path)),
            *("--models", str(tmp_path / "models"), "--prompts", str(prompts)),
            *(
                "--out",
                str(tmp_path / "out"),
                "--work",
                str(tmp_path / "work"),
                "--deadline",
                "400",
            ),
            *("--settle", "0.5", "--apart", "0.5", "--port", "30510", "--least", "20"),
            *("--pyspy", str(Path(sys.executable).with_name("py-spy"))),
            *("--launcher", f"{sys.executable} {__file__}"),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])},
    )
    assert done.returncode == 0, done.stderr
    whole = tmp_path / "hang.tar.xz"
    parts = sorted((tmp_path / "out").glob("hang.tar.xz.*"))
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(whole) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "hang" / "capture-hang"
    truth = json.loads((folder / "truth.json").read_text())
    assert truth["served"] is False
    for number in (1, 2):
        snapshot = folder / f"snapshot-{number}"
        processes = json.loads((snapshot / "processes.json").read_text())["processes"]
        by_name = {process["cmd"].split()[0]: process for process in processes}
        assert by_name["sglang::scheduler_TP1"]["status"] == "stopped"
        assert by_name["sglang::scheduler_TP1"]["pid"] == truth["stopped_pid"]
        assert by_name["sglang::scheduler_TP0"]["status"] == "sleeping"
        assert by_name["sglang::scheduler_TP0"]["py"]["exit"] == 0, by_name
        assert (snapshot / f"pyspy-{by_name['sglang::scheduler_TP0']['pid']}.json").exists()
    first = json.loads((tmp_path / "hang" / "first-start" / "truth.json").read_text())
    assert first["served"] is True, first
    off = json.loads((tmp_path / "hang" / "relaunch-graphs-off" / "truth.json").read_text())
    assert off["served"] is True, off
    assert READY in (tmp_path / "hang" / "relaunch-graphs-off" / "server.log").read_text()


if __name__ == "__main__":
    serve()
