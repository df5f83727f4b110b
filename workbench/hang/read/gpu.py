"""GPU readings from files: a case's gpus.json, nvidia-smi's CSV queries and its plain table."""

from __future__ import annotations

import calendar
import csv
import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import clean
from workbench.hang.records import Gpu

MOST_GPUS = 4096
MOST_BYTES = 16 << 20
_COLUMNS = {
    "index": "index",
    "gpu": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "name": "name",
    "gpu_name": "name",
    "memory.used": "memory_used_mib",
    "memory.total": "memory_total_mib",
    "utilization.gpu": "utilisation",
    "power.draw": "power_watts",
    "power.draw.instant": "power_watts",
    "enforced.power.limit": "power_limit_watts",
    "power.limit": "power_limit_watts",
    "pid": "pid",
    "used_gpu_memory": "used",
    "used_memory": "used",
    "timestamp": "timestamp",
}
_HEADER = re.compile(
    r"^\s*(?:index|timestamp|gpu_uuid|uuid|name|gpu_name|pid|memory\.used)\s*(?:\[|,)"
)
_TABLE_GPU = re.compile(r"^\|\s+(\d{1,4})\s{2}(\S.{0,60}?)\s{2,}(?:On|Off|N/A)\s*\|")
_TABLE_USE = re.compile(
    r"^\|.{0,40}?(?:(?P<power>\d+(?:\.\d+)?)W|N/A)\s*/\s*(?:(?P<limit>\d+)W|N/A)\s*\|"
    r"\s*(?P<used>\d+)MiB /\s*(?P<total>\d+)MiB\s*\|\s*(?:(?P<use>\d+)%|N/A)"
)
_TABLE_PROCESS = re.compile(
    r"^\|\s+(?P<gpu>\d{1,4})\s+(?:\S+\s+\S+\s+)?(?P<pid>\d{1,10})\s+(?:C|G|C\+G|M|M\+C)\s.*?(?P<used>\d+)MiB\s*\|"
)
_TABLE_TIME = re.compile(
    r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\s*$"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The GPUs of a host at one time; `at` is None where the file does not say."""

    gpus: tuple[Gpu, ...]
    at: float | None = None


def is_nvidia_smi(head: bytes) -> bool:
    """Tell nvidia-smi's output by its first bytes."""
    text = head.decode("utf-8", "replace")
    return "NVIDIA-SMI" in text or any(
        _HEADER.match(line) and _known(line) for line in text.splitlines()[:3]
    )


def read_nvidia_smi(data: bytes, host: str = "") -> list[Reading]:
    """Read what nvidia-smi wrote: one or several queries or tables, one after the other."""
    lines = data[:MOST_BYTES].decode("utf-8", "replace").splitlines()
    if any("NVIDIA-SMI" in line for line in lines):
        return _tables(lines, host)
    reading = _csv(lines, host)
    return [reading] if reading.gpus else []


def read_gpus_json(value: Any, host: str = "") -> Reading:
    """Read a case's ``gpus.json``, decoded."""
    found = value.get("gpus") if isinstance(value, dict) else None
    at = _number(value.get("taken_at")) if isinstance(value, dict) else None
    gpus = []
    for entry in found[:MOST_GPUS] if isinstance(found, list) else ():
        if isinstance(entry, dict) and type(entry.get("index")) is int:
            gpus.append(_gpu(entry, host))
    return Reading(tuple(gpus), at)


def _gpu(entry: Mapping[str, Any], host: str) -> Gpu:
    processes = entry.get("processes")
    return Gpu(
        index=entry["index"],
        host=host,
        uuid=_text(entry.get("uuid")),
        name=_text(entry.get("name")),
        memory_used_mib=_number(entry.get("memory_used_mib")),
        memory_total_mib=_number(entry.get("memory_total_mib")),
        utilisation=_number(entry.get("utilisation")),
        power_watts=_number(entry.get("power_watts")),
        power_limit_watts=_number(entry.get("power_limit_watts")),
        processes={
            int(pid): used
            for pid, memory in (processes.items() if isinstance(processes, dict) else ())
            if str(pid).isdigit() and len(str(pid)) < 11 and (used := _number(memory)) is not None
        },
    )


def _csv(lines: Sequence[str], host: str) -> Reading:
    """Read CSV sections, each with its own header; the last row of a GPU counts."""
    header: list[str] = []
    gpus: dict[str, dict[str, Any]] = {}
    owners: list[dict[str, str]] = []
    at = None
    for row in csv.reader(line[:4000] for line in lines):
        cells = [cell.strip() for cell in row]
        if _HEADER.match(",".join(cells) + ","):
            header = [_COLUMNS.get(cell.split(" ")[0], "") for cell in cells]
            continue
        if not header or len(cells) != len(header):
            continue
        entry = {name: cell for name, cell in zip(header, cells, strict=True) if name}
        at = _timestamp(entry.pop("timestamp", "")) or at
        if "pid" in entry:
            owners.append(entry)
        elif len(gpus) < MOST_GPUS:
            shown = entry.get("index", "")
            index = int(shown) if shown.isdigit() and len(shown) < 6 else len(gpus)
            key = entry.get("uuid") or str(index)
            gpus[key] = {**entry, "index": index, "processes": {}}
    for owner in owners[: 1 << 16]:
        # Without the GPU's name the owner of its memory is known only where there is but one GPU.
        key = owner.get("uuid", "")
        place = gpus.get(key) or (next(iter(gpus.values())) if len(gpus) == 1 else None)
        if place is not None:
            place["processes"][owner["pid"]] = owner.get("used", "")
    return Reading(tuple(_gpu(entry, host) for entry in gpus.values()), at)


def _tables(lines: Sequence[str], host: str) -> list[Reading]:
    readings: list[Reading] = []
    gpus: dict[int, dict[str, Any]] = {}
    index, at, next_at = None, None, None

    def close() -> None:
        if gpus:
            readings.append(Reading(tuple(_gpu(entry, host) for entry in gpus.values()), at))
        gpus.clear()

    for line in lines:
        line = line[:400]  # noqa: PLW2901 - a table is narrow
        moment = _TABLE_TIME.match(line)
        if moment:
            next_at = _parsed(moment[1], "%b %d %H:%M:%S %Y")
        if "NVIDIA-SMI" in line:
            close()
            index, at, next_at = None, next_at, None
        elif (head := _TABLE_GPU.match(line)) and len(gpus) < MOST_GPUS:
            index = int(head[1])
            gpus[index] = {"index": index, "name": head[2], "processes": {}}
        elif index in gpus and (use := _TABLE_USE.match(line)):
            gpus[index].update(
                memory_used_mib=use["used"],
                memory_total_mib=use["total"],
                utilisation=use["use"],
                power_watts=use["power"],
                power_limit_watts=use["limit"],
            )
            index = None
        elif owner := _TABLE_PROCESS.match(line):
            gpu = gpus.get(int(owner["gpu"]))
            if gpu is not None:
                gpu["processes"][owner["pid"]] = owner["used"]
    close()
    return readings


def _known(line: str) -> bool:
    return sum(cell.strip().split(" ")[0] in _COLUMNS for cell in line.split(",")) >= 2


def _timestamp(text: str) -> float | None:
    return _parsed(text.partition(".")[0], "%Y/%m/%d %H:%M:%S")


def _parsed(text: str, form: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text, form)))
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    return clean(value[:200]) if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """Return a figure; nvidia-smi writes its unit behind it, and ``[N/A]`` where there is none."""
    if isinstance(value, str):
        match = re.match(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*(?:MiB|%|W)?\s*$", value)
        return float(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e12 else None
