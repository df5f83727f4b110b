"""A case's evidence written as the folder that a user would have."""

from __future__ import annotations

import json
import pickle
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .case import UnseenCase

_FRAME = re.compile(r"(?P<name>.+) \((?P<file>.+):(?P<line>\d+)\)")
_STATES = {"S": "sleeping", "R": "running", "T": "stopped", "Z": "zombie", "D": "disk-sleep"}
_SITE = "/usr/local/lib/python3.12/dist-packages/"
_STANDARD = re.compile(
    r"(?:threading|queue|subprocess|ssl|selectors)\.py$|(?:multiprocessing|asyncio|importlib)/"
)
_MEMORY = 143771


def write_evidence(case: UnseenCase, folder: Path) -> None:
    """Write the evidence of a case into an empty folder."""
    given = case.evidence
    for name, text in given.get("files", {}).items():
        (folder / name).write_text(text)
    for number, at in enumerate(given.get("snapshots", {}).get("at", ())):
        snapshot = folder / f"snapshot-{number + 1}"
        snapshot.mkdir()
        _write_snapshot(given, number, at, snapshot)
    entries = defaultdict(list)
    for one in given.get("flight", ()):
        entry = dict(one)
        entries[entry.pop("rank")].append(entry)
    for rank, recorded in entries.items():
        content = {"version": "2.9", "entries": recorded}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content))


def _write_snapshot(given: Mapping[str, Any], number: int, at: float, folder: Path) -> None:
    listed = [one for one in given["process"] if not one.get("gone")]
    processes = [_process(one, number) for one in listed]
    (folder / "processes.json").write_text(json.dumps({"processes": processes, "taken_at": at}))
    for one in listed:
        dump = _dump(one, number, given["stacks"])
        if dump:
            (folder / f"pyspy-{one['pid']}.json").write_text(json.dumps(dump))
    readings = [(one["pid"], *one["gpu"]) for one in listed if "gpu" in one]
    if readings:
        (folder / "nvidia-smi.csv").write_text(_nvidia_smi(readings))


def _process(one: Mapping[str, Any], number: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "pid": one["pid"],
        "ppid": one["parent"],
        "cmd": one["title"],
        "status": _STATES[one["state"][number]],
        "threads": one["threads"],
        "cpu": {"user": one["cpu"][number], "system": 1.0},
    }
    if "io" in one:
        entry["read_bytes"] = one["io"][number]
        entry["written_bytes"] = 1000
    if "started" in one:
        entry["started"] = one["started"][number]
    for here, there in (
        ("wait", "wait_channel"),
        ("compilers", "compilers"),
        ("locks", "lock_files"),
        ("exit_code", "exit_code"),
    ):
        if here in one:
            entry[there] = one[here]
    if "refused" in one:
        entry["py"] = {"exit": 1, "seconds": 0.02, "stderr": one["refused"]}
    elif one.get("stack"):
        entry["py"] = {"exit": 0, "seconds": 0.02, "stderr": ""}
    return entry


def _dump(
    one: Mapping[str, Any], number: int, stacks: Mapping[str, str]
) -> list[dict[str, Any]] | None:
    own = one.get("stack") or ()
    if number >= len(own) or not own[number] or one["state"][number] == "Z":
        return None
    named = [*one.get("others", {}).items(), ("MainThread", own[number])]
    running = one["state"][number] == "R"
    return [
        {
            "pid": one["pid"],
            "thread_id": 140000000000000 + one["pid"] * 100 + index,
            "thread_name": name,
            "os_thread_id": one["pid"] if name == "MainThread" else one["pid"] * 100 + index,
            "active": running and name == "MainThread",
            "owns_gil": False,
            "frames": [_frame(line) for line in stacks[stack].splitlines()],
            "process_info": None,
        }
        for index, (name, stack) in enumerate(named)
    ]


def _frame(line: str) -> dict[str, Any]:
    found = _FRAME.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r} is not a frame")
    file = found["file"]
    if not file.startswith("<"):
        file = ("/usr/lib/python3.12/" if _STANDARD.match(file) else _SITE) + file
    return {
        "name": found["name"],
        "filename": file,
        "module": None,
        "short_filename": file,
        "line": int(found["line"]),
        "locals": None,
        "is_entry": False,
    }


def _nvidia_smi(readings: list[tuple[Any, ...]]) -> str:
    lines = [
        "index, memory.used [MiB], memory.total [MiB], utilization.gpu [%], power.draw [W]",
        *(
            f"{index}, {memory} MiB, {_MEMORY} MiB, {used} %, {watts} W"
            for index, (_, memory, used, watts) in enumerate(readings)
        ),
        "pid, used_gpu_memory [MiB]",
        *(f"{pid}, {memory} MiB" for pid, memory, _, _ in readings),
    ]
    return "\n".join(lines) + "\n"
