"""The real recordings of the shipped case, read without the parsers: what is judged here is the judgement."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from tests.hang.cases.case import Case
from workbench.facts import flags
from workbench.facts.startup import rank_of_title, read_title
from workbench.hang.records import (
    Dump,
    Frame,
    Gpu,
    Log,
    LogLine,
    Process,
    Rank,
    Scene,
    Snapshot,
    Thread,
)

FOLDER = Path(__file__).resolve().parents[3] / "data" / "incident" / "hang"
_PREFIX = re.compile(r"\[(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+)(?: ([A-Z0-9 ]+))?\] (.*)")
_LETTER = {
    "sleeping": "S",
    "running": "R",
    "stopped": "T",
    "zombie": "Z",
    "disk-sleep": "D",
    "idle": "I",
}


def dump(path: Path, at: float) -> Dump:
    threads = tuple(
        Thread(
            tuple(
                Frame(f["name"], f["filename"] or "", f["line"], f["module"] or "")
                for f in one["frames"]
            ),
            one["thread_name"] or "",
            one["os_thread_id"],
            one["active"],
            one["owns_gil"],
            one["thread_name"] == "MainThread",
        )
        for one in json.loads(path.read_text())
    )
    pid = int(path.stem.rpartition("-")[2])
    return Dump(pid, "py-spy", threads, at, native="native" in path.stem)


def gpus(path: Path) -> tuple[Gpu, ...]:
    rows = [re.findall(r"[\d.]+", line) for line in path.read_text().splitlines()]
    readings = [[float(cell) for cell in row] for row in rows if len(row) == 5]
    uses = [(int(row[0]), float(row[1])) for row in rows if len(row) == 2]
    return tuple(
        Gpu(int(index), "node0", "", "H200", memory, total, used, watts, dict([uses[int(index)]]))
        for index, memory, total, used, watts in readings
    )


def process(item: dict[str, object], at: int) -> Process:
    title = str(item["cmd"]).strip()
    parts = rank_of_title(title)
    cpu = item["cpu"]
    assert isinstance(cpu, dict)
    return Process(
        pid=int(str(item["pid"])),
        host="node0",
        role=read_title(title).role,  # type: ignore[arg-type]
        title=title,
        rank=None if parts is None else Rank(parts.get("tp", 0), tp=parts.get("tp")),
        parent=int(str(item["ppid"])),
        state=_LETTER[str(item["status"])],
        threads=int(str(item["threads"])),
        cpu_seconds=cpu["user"] + cpu["system"],
    )


def log(path: Path) -> Log:
    lines = []
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = _PREFIX.match(text)
        if match is None:
            lines.append(LogLine(number, text))
            continue
        day, hour, minute, second = (int(match[i]) for i in (3, 4, 5, 6))
        at = 1795910400.0 + (day - 29) * 86400 + hour * 3600 + minute * 60 + second
        lines.append(LogLine(number, match[8], at, match[7] or ""))
    last = next((line.at for line in reversed(lines) if line.at is not None), None)
    return Log(path.name, tuple(lines), "node0", len(lines), last)


@cache
def recorded(name: str) -> Scene:
    """Return one recording of the shipped case as a scene."""
    folder = FOLDER / name
    launch = json.loads((folder / "launch.json").read_text())
    version = launch["versions"]["sglang"]
    shots = []
    for number, shot in enumerate(sorted(folder.glob("snapshot-*"))):
        listed = json.loads((shot / "processes.json").read_text())
        at = listed["taken_at"]
        found = tuple(process(item, number) for item in listed["processes"])
        dumps = tuple(dump(path, at) for path in sorted(shot.glob("pyspy-*.json")))
        shots.append(Snapshot(at, "node0", found, dumps, gpus(shot / "nvidia-smi.csv")))
    given = flags.arguments_of(launch["command"], version)
    return Scene(
        source=name,
        snapshots=tuple(shots),
        logs=(log(folder / "server.log"),),
        engine="sglang",
        version=version,
        arguments={key: str(value) for key, value in given.items()},
        environment=launch["environment"],
    )


RECORDED = (
    Case(
        "recorded-capture-hang",
        lambda: recorded("capture-hang"),
        "hung",
        "graph_decode",
        "rank 1 was stopped during capture; rank 0 waits in the barrier",
        odd=(1,),
        wait="HOST_COLL",
        rule="RT",
        proposes="kill -CONT 2186",
        source="two H200, SGLang 0.5.14",
    ),
    Case(
        "recorded-healthy-idle",
        lambda: recorded("relaunch-graphs-off"),
        "idle",
        "ready",
        "both ranks turn in their event loops",
        wait="IDLE",
        rule="R15",
        source="two H200, SGLang 0.5.14",
    ),
    Case(
        "recorded-served-and-ended",
        lambda: recorded("first-start"),
        "cannot_tell",
        "ready",
        "a log that ends with a shutdown that was asked for is no crash",
        rule="RE",
        source="two H200, SGLang 0.5.14",
    ),
)
