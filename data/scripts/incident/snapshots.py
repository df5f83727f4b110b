"""Snapshots of a server's processes: py-spy stacks, facts of /proc, readings of nvidia-smi."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
}
GPU_QUERIES = (
    "--query-gpu=index,memory.used,memory.total,utilization.gpu,power.draw",
    "--query-compute-apps=pid,used_gpu_memory",
)
NATIVE = "sglang::scheduler"  # of these the native frames are taken, too


def read(path: Path) -> str:
    """Return a file of /proc, or nothing where it is gone or not ours to read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state first."""
    return read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def command_line(pid: int) -> str:
    """Return the command line, cut: it may hold what nobody asked for."""
    return read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")[:120]


def family(root: int) -> list[int]:
    """Return a process and all its descendants, by number."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and len(fields := stat(int(entry.name))) > 1:
            parents[int(entry.name)] = int(fields[1])
    members, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return sorted(members & parents.keys())


def find(root: int, title: str) -> int | None:
    """Return the process of this family whose command line begins with a title."""
    return next((pid for pid in family(root) if command_line(pid).startswith(title)), None)


def facts(pid: int) -> dict[str, Any]:
    """Return what /proc says of one process."""
    fields = stat(pid)
    tasks = list(Path(f"/proc/{pid}/task").glob("*/stat"))
    states = collections.Counter(
        read(task).rpartition(")")[2].split()[0] for task in tasks if read(task)
    )
    waits = collections.Counter(read(task.with_name("wchan")) or "?" for task in tasks)
    times = [int(ticks) / TICKS for ticks in fields[11:15]]
    return {
        "pid": pid,
        "ppid": int(fields[1]),
        "cmd": command_line(pid),
        "status": STATES.get(fields[0], fields[0]),
        "threads": len(tasks),
        "thread_states": dict(states),
        "thread_waits": dict(waits.most_common(12)),
        "cpu": dict(
            zip(("user", "system", "children_user", "children_system"), times, strict=True)
        ),
    }


def dump(pyspy: str, pid: int, out: Path, *options: str) -> dict[str, Any]:
    """Write one py-spy dump and return how the call ended."""
    began = time.monotonic()
    command = [pyspy, "dump", "--json", "--pid", str(pid), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=25, check=False)
    except subprocess.TimeoutExpired:
        return {"exit": None, "seconds": round(time.monotonic() - began, 2), "stderr": "timed out"}
    if done.returncode == 0:
        out.write_text(done.stdout)
    seconds = round(time.monotonic() - began, 2)
    return {"exit": done.returncode, "seconds": seconds, "stderr": done.stderr[-400:]}


def take(root: int, out: Path, pyspy: str) -> list[dict[str, Any]]:
    """Write one snapshot of a process and its descendants.

    A stopped process is dumped without pausing it (`--nonblocking`), since it could not be paused, and
    without native frames.
    """
    out.mkdir(parents=True, exist_ok=True)
    taken, processes = time.time(), []
    for pid in family(root):
        if not command_line(pid):
            continue
        with contextlib.suppress(IndexError, ValueError):  # it ended while we looked
            record = facts(pid)
            still = ["--nonblocking"] if record["status"] == "stopped" else []
            record["py"] = dump(pyspy, pid, out / f"pyspy-{pid}.json", *still)
            if record["cmd"].startswith(NATIVE):
                options = still or ["--native"]
                record["native"] = dump(pyspy, pid, out / f"pyspy-native-{pid}.json", *options)
            processes.append(record)
    lines = []
    for query in GPU_QUERIES:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["nvidia-smi", query, "--format=csv"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            lines.append(done.stdout)
    (out / "nvidia-smi.csv").write_text("".join(lines))
    text = json.dumps({"taken_at": taken, "processes": processes}, indent=1)
    (out / "processes.json").write_text(text + "\n")
    return processes
