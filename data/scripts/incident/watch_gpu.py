r"""`workbench watch` next to a real SGLang on two GPUs: it records a hang by itself, and nothing before.

On a host with two GPUs and the workbench's needs in a folder::

    python3 data/scripts/incident/watch_gpu.py --engine ~/engine --models data/incident --site ~/site \
        --out $OUT

The server is idle, answers some requests, and is idle again; then a request comes and rank 1 sleeps in a
forward hook. `watch.txt` is what the watch printed, `watched/` its folder, `truth.json` when what was done.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import write_json
from hang_gpu import ROOT, Recorder
from hang_gpu_hurts import BODY, Request, hooked, ready

AFTER = 20.0


def started(recorder: Recorder, pid: int, out: Path, site: Path) -> subprocess.Popen[bytes]:
    """Start the watch of a server."""
    engine = recorder.arguments.engine
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(site), str(engine)]),
        "PATH": os.pathsep.join([str(engine / "bin"), os.environ["PATH"]]),
    }
    command = [sys.executable, "-m", "workbench.cli", "watch", str(pid), "--out", str(out)]
    command += ["--after", str(AFTER), "--interval", "6"]
    file = (recorder.arguments.out / "watch.txt").open("wb")
    return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)


def run(recorder: Recorder) -> None:
    """Let the server live, then hurt it, and wait for the case."""
    out = recorder.arguments.work / "watched"
    context, file = hooked(recorder, "watched-server")
    truth: dict[str, Any] = recorder.truth
    with context as server:
        ready(recorder, server)
        watch = started(recorder, server.process.pid, out, recorder.arguments.site)
        time.sleep(25)
        for _ in range(5):
            server.post(BODY)
            time.sleep(3)
        time.sleep(AFTER + 10)
        truth["cases_before_the_hang"] = [path.name for path in out.glob("*.zip")]
        file.write_text("1 sleep")
        began = time.monotonic()
        request = Request(server)
        while not list(out.glob("*.zip")) and time.monotonic() - began < 120:
            time.sleep(0.5)
        truth["seconds_until_the_case"] = round(time.monotonic() - began, 1)
        time.sleep(3)
        truth["cases"] = [path.name for path in out.glob("*.zip")]
        truth["answered_before_the_end"] = request.answered
        file.unlink()
        request.join(25)
        truth["answered_after_the_end"] = request.answered
        watch.send_signal(signal.SIGTERM)
        truth["exit_status_of_the_watch"] = watch.wait(30)
    if out.is_dir():
        shutil.copytree(out, recorder.arguments.out / "watched")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--draft", default="drafts/specforge")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/watch-gpu"))
    parser.add_argument("--deadline", type=float, default=480)
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument("--launcher", default="python3 -m sglang.launch_server")
    arguments = parser.parse_args()
    arguments.launcher = arguments.launcher.split()
    arguments.engine, arguments.models = arguments.engine.resolve(), arguments.models.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.work.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(arguments)
    try:
        run(recorder)
    finally:
        write_json(arguments.out / "truth.json", recorder.truth)
        recorder.log("done")


if __name__ == "__main__":
    main()
