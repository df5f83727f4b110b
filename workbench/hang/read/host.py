"""One host's files, distinguished by what is in them and read: the parts that a scene is joined of."""

from __future__ import annotations

import dataclasses
import io
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from workbench.errors import WorkbenchError, clean, shorten
from workbench.evidence.casefile import MANIFEST
from workbench.evidence.folder import Folder, Manifest, changed_members
from workbench.facts.engines import engine_of_command
from workbench.hang.collect.collector import ras
from workbench.hang.read.flight import (
    is_flight_json,
    is_flight_pickle,
    rank_of_name,
    read_flight,
    read_flight_pickle,
)
from workbench.hang.read.gpu import Reading, is_nvidia_smi, read_gpus_json, read_nvidia_smi
from workbench.hang.read.log import ReadLog, is_log, read_log
from workbench.hang.read.pasted import LOOKED_FOR, MOST_BYTES, is_pasted, read_pasted
from workbench.hang.read.processes import Listed, is_process_list, read_processes
from workbench.hang.read.pyspy import Frames, TextDump, is_json_dump, read_json
from workbench.hang.read.ranked import is_ranked, read_ranked
from workbench.hang.read.ras import is_ras_json, read_ras
from workbench.hang.records import Dump
from workbench.launch.read import read_launch

_HEAD = 64 << 10
_LONGEST_JSON = 64 << 20
# Of flight recordings together: each is gone through byte by byte.
_MOST_FLIGHT = 64 << 20
_PID_IN_NAME = re.compile(
    r"(?:^|[^0-9a-z])(?:pid[-_.]?)?(\d{2,10})(?=[-_.][^/]*$|$)", re.IGNORECASE
)
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|tp)[-_.]?(\d{1,6})(?=\D|$)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)")
# What may lie next to the evidence and is none of it.
_NOT_READ = re.compile(
    r"(?:^|/)(?:requests|chunks|prompts)\.jsonl(?:\.gz)?$|\.(?:safetensors|bin|pt|pth|gguf|so|py|pyc|png|jpe?g)$"
)
# A note next to evidence may show examples; alone it may be the issue that was asked about.
_NOTE = re.compile(r"\.(?:md|markdown)$")


@dataclasses.dataclass(slots=True)
class Moment:
    """What one folder, or one pass over the processes, has: a snapshot in the making."""

    name: str
    at: float | None = None
    written: float = 0.0
    listed: Listed | None = None
    dumps: list[Dump] = dataclasses.field(default_factory=list)
    titles: dict[int, str] = dataclasses.field(default_factory=dict)
    ranks: dict[int, int] = dataclasses.field(default_factory=dict)
    readings: list[Reading] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Host:
    """Everything that was read of one host."""

    name: str
    manifest: Manifest | None = None
    moments: list[Moment] = dataclasses.field(default_factory=list)
    logs: list[ReadLog] = dataclasses.field(default_factory=list)
    version: str = ""
    command: dict[str, str] = dataclasses.field(default_factory=dict)
    command_engine: str = ""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    flight: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ras: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    inner: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def has_evidence(self) -> bool:
        """Whether anything was seen of a server, and not only of its launch."""
        return bool(self.moments or self.logs or self.flight or self.ras)


def unreadable(failed: Mapping[str, str]) -> list[str]:
    """Return one sentence for each error of the system: how many files could not be read for it."""
    by_error: dict[str, list[str]] = defaultdict(list)
    for name, why in failed.items():
        by_error[why].append(shorten(name, 60))
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} could not be read: {why}"
        for why, names in by_error.items()
    ]


class _Reader:
    def __init__(self, folder: Folder, prefix: str, host: Host) -> None:
        self.folder = folder
        self.prefix = prefix
        self.host = host
        self.moments: dict[str, Moment] = {}
        self.frames: Frames = {}
        self.flight_bytes = 0
        self.unknown: list[str] = []

    def read(self, names: list[str]) -> None:
        """Read the files of these names, in their order."""
        for name in names:
            if self.folder.sizes[name] == 0 or _NOT_READ.search(name):
                continue
            if len(self.folder.sizes) > 1 and _NOTE.search(name):
                continue
            try:
                known = self._one(name, self.folder.head(name, _HEAD))
            except WorkbenchError as error:
                if name not in self.folder.failed:
                    why = error.why or error.what
                    self.host.notes.append(f"{shorten(name)} was not read: {why}")
                continue
            if not known and name not in self.folder.failed:
                self.unknown.append(name)
        self.host.failed = {n: self.folder.failed[n] for n in names if n in self.folder.failed}
        self.host.notes[:0] = unreadable(self.host.failed)
        self.host.moments = list(_in_order(self.moments.values()))
        if self.unknown:
            shown = ", ".join(shorten(name, 60) for name in self.unknown[:3])
            more = f" and {len(self.unknown) - 3} more" if len(self.unknown) > 3 else ""
            self.host.notes.append(
                f"not recognised, and left out: {shown}{more}; looked for: {LOOKED_FOR}"
            )

    def _one(self, name: str, head: bytes) -> bool:
        """Read one file; whether it was recognised."""
        first = head.lstrip()[:1]
        if name.removeprefix(self.prefix) == MANIFEST:
            return True
        if head[:4] == b"PK\x03\x04":
            self.host.inner.append(name)
            return True
        if first == b"[" and is_json_dump(head):
            self._dump(name)
            return True
        if first == b"{" and self.folder.sizes[name] <= _LONGEST_JSON:
            return self._json(name)
        if is_flight_pickle(head):
            return self._flight(name)
        if is_nvidia_smi(head):
            moment = self._moment(name)
            for reading in read_nvidia_smi(self.folder.read(name), self.host.name):
                moment.readings.append(reading)
            return True
        if is_ranked(head):
            return self._ranked(name)
        if ras.is_text(head) and self.folder.sizes[name] <= MOST_BYTES:
            self.host.ras.append(read_ras(ras.of_text(self.folder.read(name)), what=name))
            return True
        if is_pasted(head) and self.folder.sizes[name] <= MOST_BYTES and self._pasted(name):
            return True
        if b"\0" not in head and (is_log(head) or name.endswith((".log", ".out", ".err"))):
            self._log(name)
            return True
        return False

    def _moment(self, name: str, pid: int | None = None, native: bool = False) -> Moment:
        """Return the snapshot that a file belongs to: that of its folder; a second dump is of a later one."""
        folder = name.rpartition("/")[0]
        number = 0
        while True:
            key = f"{folder}\0{number:04d}"
            moment = self.moments.setdefault(key, Moment(key))
            taken = any(d.pid == pid and d.native == native for d in moment.dumps)
            if pid is None or not taken:
                moment.written = max(moment.written, self.folder.times.get(name, 0.0))
                return moment
            number += 1

    def _dump(self, name: str) -> None:
        stem = name.rpartition("/")[2].rpartition(".")[0]
        pid = _PID_IN_NAME.search(stem)
        dump = read_json(
            self.folder.read(name), int(pid[1]) if pid else None, frames=self.frames, what=name
        )
        moment = self._moment(name, dump.pid, dump.native or "native" in stem)
        moment.dumps.append(dataclasses.replace(dump, native=dump.native or "native" in stem))
        rank = _RANK_IN_NAME.search(stem)
        if rank:
            moment.ranks[dump.pid] = int(rank[1])

    def _pasted(self, name: str) -> bool:
        """Read a text with stacks, an issue for example; its logs are those inside its fences."""
        pasted = read_pasted(self.folder.read(name).decode("utf-8", "replace"))
        self.host.notes += pasted.notes
        dumps = [one for each in pasted.passes for one in each.dumps]
        named = _RANK_IN_NAME.search(name.rpartition("/")[2])
        alone = int(named[1]) if named and len(dumps) == 1 else None
        for number, each in enumerate(pasted.passes):
            for index, one in enumerate(each.dumps):
                rank = one.rank if one.rank is not None else alone
                dump, pid = one.found.dump, one.found.dump.pid
                if pid <= 0:  # made up: that of its rank, or one of no process at all
                    pid = -1 - rank if rank is not None else -(10**6) * (number + 1) - index
                timed = len(pasted.passes) > 1 and each.at is not None
                place = f"{name}#{number}/" if timed else name
                moment = self._moment(place, pid, dump.native)
                moment.at = each.at if timed else moment.at
                moment.dumps.append(dataclasses.replace(dump, pid=pid))
                moment.titles[pid] = one.found.title
                if rank is not None:
                    moment.ranks[pid] = rank
        if pasted.log:
            stream = io.BytesIO(pasted.log.encode())
            self.host.logs.append(read_log(stream, name.removeprefix(self.prefix), self.host.name))
        return bool(dumps or pasted.log)

    def _ranked(self, name: str) -> bool:
        lines = self.folder.read(name).decode("utf-8", "replace").splitlines()
        found = read_ranked(lines)
        for rank, one in found:
            pid = one.dump.pid if one.dump.pid > 0 else -1 - rank
            moment = self._moment(name, pid, one.dump.native)
            moment.dumps.append(dataclasses.replace(one.dump, pid=pid))
            moment.titles[pid] = one.title if one.dump.pid > 0 else ""
            moment.ranks[pid] = rank
        return bool(found)

    def _log(self, name: str) -> None:
        created = self.host.manifest.created if self.host.manifest else None
        year = time.gmtime(created).tm_year if created else 0
        with self.folder.open(name) as stream:
            self.host.logs.append(
                read_log(stream, name.removeprefix(self.prefix), self.host.name, year=year)
            )

    def _flight(self, name: str, value: Any = None) -> bool:
        self.flight_bytes += self.folder.sizes[name]
        if self.flight_bytes > _MOST_FLIGHT:
            raise WorkbenchError(
                "too many", why="the flight recordings have more than 64 MiB together"
            )
        if value is None:
            found = read_flight_pickle(self.folder.read(name), what=name)
        else:
            found = read_flight(value, what=name)
        self.host.flight.append({"rank": rank_of_name(name), "host": self.host.name, **found})
        return True

    def _json(self, name: str) -> bool:
        try:
            value = msgspec.json.decode(self.folder.read(name))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise WorkbenchError("no JSON", why=f"it is damaged JSON ({error})") from None
        if is_process_list(value):
            moment = self._moment(name)
            moment.listed = read_processes(value, self.host.name)
            moment.at = moment.listed.at
        elif is_ras_json(value):
            self.host.ras.append(read_ras(value, what=name))
        elif is_flight_json(value):
            self._flight(name, value)
        elif isinstance(value.get("gpus"), list) and any(
            isinstance(g, dict) for g in value["gpus"]
        ):
            self._moment(name).readings.append(read_gpus_json(value, self.host.name))
        elif isinstance(value.get("command"), list):
            self._launch(value)
        else:
            version = value.get("version")
            self.host.version = self.host.version or (
                clean(version[:60]) if isinstance(version, str) else ""
            )
            return "version" in value or name.rpartition("/")[2] in ("truth.json", "config.json")
        return True

    def _launch(self, value: Mapping[str, Any]) -> None:
        """Read what a launcher wrote down: the command, the environment, the versions."""
        versions, environment = value.get("versions"), value.get("environment")
        words = [word[:2000] for word in value["command"][:400] if isinstance(word, str)]
        self.host.command_engine = engine = engine_of_command(" ".join(words))
        version = versions.get(engine or "sglang") if isinstance(versions, dict) else None
        if isinstance(version, str):
            self.host.version = clean(version[:60])
            self.host.command_engine = engine or "sglang"
        self.host.command = command_arguments(words, self.host.version)
        if isinstance(environment, dict):
            texts = {n: t for n, t in list(environment.items())[:2000] if isinstance(t, str)}
            self.host.environment.update(texts)


def read_host(
    folder: Folder, names: list[str], prefix: str, manifest: Manifest | None, name: str
) -> Host:
    """Read one host's files.

    Parameters
    ----------
    names
        The members that belong to it.
    prefix
        What their names begin with: the folder of its manifest.
    name
        What to call the host.
    """
    host = Host(name, manifest)
    if manifest is not None:
        host.version = manifest.version
        host.notes += [clean(note) for note in manifest.notes]
        changed = changed_members(folder, manifest, prefix)
        if changed:
            shown = ", ".join(shorten(one, 60) for one in changed[:3])
            host.notes.append(f"{len(changed)} files are not as they were collected: {shown}")
    _Reader(folder, prefix, host).read(names)
    return host


def command_arguments(command: list[str], version: str) -> dict[str, str]:
    """Return a command line's arguments as texts, by their names in the newest release."""
    command = [_long(word) for word in command]
    if not any(command):
        return {}
    known = ((one.key, one.value) for one in read_launch(command, version=version).arguments)
    return {
        name: "True" if value == "true" else clean(value[:2000])
        for name, value in known
        if value is not None
    }


# Sizes that vLLM also takes with one dash.
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
}


def _long(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{_SHORT[name]}{equals}{value}" if name in _SHORT else word


def log_moments(log: ReadLog, offset: float) -> tuple[list[list[TextDump]], list[TextDump]]:
    """Group the dumps inside a log into passes, and return those that are of no known process apart.

    A pass ends where a process comes a second time, or after a minute without a dump.
    """
    passes: list[list[TextDump]] = []
    loose: list[TextDump] = []
    last = None
    for one in log.dumps:
        if one.dump.source == "faulthandler":
            loose.append(one)
            continue
        at = one.dump.at
        seen = {other.dump.pid for other in passes[-1]} if passes else set()
        late = at is not None and last is not None and at - last > 60
        if not passes or one.dump.pid in seen or late:
            passes.append([])
        moved = dataclasses.replace(one.dump, at=None if at is None else at - offset)
        passes[-1].append(dataclasses.replace(one, dump=moved))
        last = at if at is not None else last
    return passes, loose


def natural(name: str) -> list[Any]:
    """Return a key that sorts snapshot-2 before snapshot-10."""
    return [int(part) if index % 2 else part for index, part in enumerate(_NUMBER.split(name))]


def host_names(sizes: Mapping[str, int], prefixes: list[str]) -> dict[str, list[str]]:
    """Return which file belongs to which of several unpacked cases: the longest prefix takes it."""
    found: dict[str, list[str]] = defaultdict(list)
    ordered = sorted(prefixes, key=len, reverse=True)
    for name in sorted(sizes, key=natural):
        owner = next((prefix for prefix in ordered if name.startswith(prefix)), None)
        if owner is not None:
            found[owner].append(name)
    return found


def _in_order(moments: Any) -> Iterator[Moment]:
    """Yield the snapshots in the order of their times; those without one in the order of their names."""
    named = sorted(moments, key=lambda moment: natural(moment.name))
    yield from sorted(
        named, key=lambda moment: moment.at if moment.at is not None else float("inf")
    )
