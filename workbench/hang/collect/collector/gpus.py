"""What nvidia-smi says of the GPUs; the workbench asks NVML itself (`workbench.hang.collect.gpu`)."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import time
from typing import Any

TIMEOUT = 15.0
_GPU = (
    "index", "uuid", "name", "memory.used", "memory.total", "utilization.gpu", "power.draw",
    "enforced.power.limit",
)  # fmt: skip
_FIELDS = ("memory_used_mib", "memory_total_mib", "utilisation", "power_watts", "power_limit_watts")
_PROCESS = ("gpu_uuid", "pid", "used_gpu_memory")


def read() -> tuple[dict[str, Any] | None, str]:
    """Return a case's ``gpus.json``, or None and why there is none.

    nvidia-smi waits for a driver that hangs: after a while it is killed, and that is said.
    """
    at = time.time()
    rows, why = _ask("--query-gpu", _GPU)
    if rows is None:
        return None, why
    processes, why = _ask("--query-compute-apps", _PROCESS)
    return {"taken_at": at, "gpus": [_gpu(row, processes or []) for row in rows]}, why


def _ask(query: str, fields: tuple[str, ...]) -> tuple[list[list[str]] | None, str]:
    command = ["nvidia-smi", f"{query}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        return None, "there is no nvidia-smi here"
    try:
        out, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        # One that waits in the driver cannot be killed: it is left behind, not waited for.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        return None, f"nvidia-smi did not answer within {TIMEOUT:g} s: the driver may hang"
    text = out.decode("utf-8", "replace")
    if process.returncode:
        return None, f"nvidia-smi failed: {text.strip()[:200]}"
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return [row for row in rows if len(row) == len(fields)], ""


def _gpu(row: list[str], processes: list[list[str]]) -> dict[str, Any]:
    gpu: dict[str, Any] = {"index": int(row[0]) if row[0].isdigit() else -1}
    gpu.update(uuid=row[1], name=row[2])
    gpu.update({name: _number(cell) for name, cell in zip(_FIELDS, row[3:])})  # noqa: B905
    gpu["processes"] = {
        pid: memory
        for uuid, pid, used in processes
        if uuid == row[1] and pid.isdigit() and (memory := _number(used)) is not None
    }
    return gpu


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None
