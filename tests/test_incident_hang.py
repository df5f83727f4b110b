"""The script that makes the start-up hang, against a stand-in for SGLang: this file, run as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.test_incident_server import READY, SCRIPTS

MARK = "Capture target verify CUDA graph begin"


def serve() -> None:
    """Start two ranks; with graphs, wait for both as a capture does; without, serve."""
    ranks = [
        subprocess.Popen(
            [f"sglang::scheduler_TP{rank}", "-c", "import time; time.sleep(60)"],
            executable=sys.executable,
        )
        for rank in (0, 1)
    ]
    print(MARK, flush=True)
    if "--cuda-graph-backend-decode=disabled" not in sys.argv:
        for _ in range(20):
            time.sleep(0.1)
            if "T" in Path(f"/proc/{ranks[1].pid}/stat").read_text().rpartition(")")[2].split()[:1]:
                ranks[1].wait()
    os.execv(
        sys.executable,
        [sys.executable, str(Path(__file__).with_name("test_incident_server.py")), *sys.argv[1:]],
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root to look into another's process")
def test_the_stopped_rank_is_seen_and_the_relaunch_serves(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": 0, "ids": [1]}) + "\n")
    began = time.monotonic()
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
                "95",
            ),
            *("--settle", "0.5", "--apart", "0.5", "--port", "30510"),
            *("--pyspy", str(Path(sys.executable).with_name("py-spy"))),
            *("--launcher", f"{sys.executable} {__file__}"),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 150
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
