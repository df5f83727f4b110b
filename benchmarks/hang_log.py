"""Judging a long log: two gigabytes of an SGLang server that served for days and then fell silent.

``python -m benchmarks.hang_log [--gib 2] [--folder /tmp]``: the log is written first, then judged by a
process of its own, whose CPU time and largest memory are printed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = """\
[2026-11-29 13:40:00] server_args=ServerArgs(model_path='/models/target', tp_size=2, dp_size=1)
[2026-11-29 13:40:12 TP0] Init torch distributed begin.
[2026-11-29 13:40:12 TP1] Init torch distributed begin.
[2026-11-29 13:40:18 TP0] Init torch distributed ends. elapsed=2.61 s, mem usage=1.01 GB
[2026-11-29 13:40:18 TP1] Init torch distributed ends. elapsed=2.61 s, mem usage=1.01 GB
[2026-11-29 13:43:12] The server is fired up and ready to roll!
"""
CLOCK = "[2026-11-30 {hour:02}:{minute:02}:{second:02}"
BATCH = (
    CLOCK + " TP0] Decode batch, #running-req: 8, #token: {token}, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 412.40, #queue-req: 0\n"
    + CLOCK + '] INFO:     10.0.0.7:{token} - "POST /generate HTTP/1.1" 200 OK\n'
)  # fmt: skip


def write(path: Path, size: int) -> None:
    """Write a log of about `size` bytes."""
    day = "".join(
        BATCH.format(
            hour=n // 3600 % 24, minute=n // 60 % 60, second=n % 60, token=10_000 + n % 50_000
        )
        for n in range(86_400)
    ).encode()
    with path.open("wb") as file:
        file.write(START.encode())
        while file.tell() < size:
            file.write(day[: size - file.tell()])


def judge(path: Path) -> None:
    """Judge a log, and say what that took."""
    import workbench

    begin, cpu = time.perf_counter(), time.process_time()
    got = workbench.open_evidence(path)
    seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{got.state}: {seconds:.1f} s ({used:.1f} s of CPU), at most {most:.0f} MiB of memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--folder", help="where the log is written (a temporary folder by default)")
    parser.add_argument("--judge", type=Path, help="only judge this log")
    given = parser.parse_args()
    if given.judge:
        judge(given.judge)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "server.log"
        write(path, int(given.gib * 2**30))
        print(f"a log of {path.stat().st_size / 2**30:.1f} GiB:", flush=True)
        subprocess.run(
            [sys.executable, "-m", "benchmarks.hang_log", "--judge", str(path)], check=True
        )


if __name__ == "__main__":
    main()
