"""Writing one host's case: the format, in the standard library alone and in Python 3.9's syntax.

The collector that runs on a node without the workbench carries this very file, so there is one
writer only. Reading is in `workbench.evidence.folder`.

The format, ``workbench.case/1``
--------------------------------
A zip (or the same files in a folder) holds what was seen on **one host**::

    manifest.json
    snapshot-1/processes.json        every process of the server's tree at that time
    snapshot-1/pyspy-PID.json        `py-spy dump --json`, as py-spy wrote it
    snapshot-1/pyspy-native-PID.json the same with --native, where it was asked for
    snapshot-1/gpus.json             readings of NVML; or nvidia-smi.csv, as nvidia-smi wrote it
    snapshot-2/…
    logs/NAME.log                    each log; a long one without its middle (manifest: cut)
    ras.json                         NCCL RAS's answer, as it came
    flight/RANK.pickle               NCCL flight-recorder dumps

Several hosts are several zips, in one folder (or in one zip), merged when they are read. Times are
seconds since 1970 by the host's clock. Unknown fields and files are kept and ignored.

``manifest.json``::

    {"format": "workbench.case/1",
     "tool": "workbench 0.1.0",
     "host": "host-5f2c91",          pseudonym: stable within the case, never the name
     "created": 1795977069.3,
     "utc_offset": 0.0,              seconds that the host's local time (the log's) is ahead of UTC
     "engine": "sglang", "version": "0.5.14",
     "port_open": false,             null: was not tried
     "node_rank": 0,                 null: unknown
     "py_spy": "0.4.3",              the version that took the stacks; empty: unknown, or none
     "snapshots": [{"folder": "snapshot-1", "at": 1795977069.3}],
     "logs": [{"file": "logs/server.log", "pids": [2062], "bytes": 20432, "cut": 0}],
     "notes": ["py-spy is not installed here"],
     "members": {"snapshot-1/processes.json": {"sha256": "…", "bytes": 2830}}}

``processes.json``; what could not be read is left out or null::

    {"taken_at": 1795977069.3,
     "clocks": {"wall": 1795977069.3, "boot": 81203.9, "monotonic": 81203.9},
     "processes": [
       {"pid": 2185, "ppid": 2062, "started": 1795977005.1, "started_boot": 81139.7, "namespace_pid": 14,
        "cmd": "sglang::scheduler_TP0",          the title, or the command line joined with blanks
        "argv": ["python3", "-m", "…"],          where it is a command line
        "status": "sleeping",                    psutil's word, or the letter of /proc/PID/stat
        "halt": {"seconds": 0.5, "tracer": 0, "program": ""},
                                                 of T and t: how long it was seen without a break
        "wait_channel": "futex_do_wait",         of the main thread
        "threads": 141, "thread_states": {"S": 141}, "thread_waits": {"futex_do_wait": 124},
        "cpu": {"user": 34.45, "system": 4.65}, "main_cpu_seconds": 21.2,
        "samples": [{"at": 81201.1, "state": "S", "cpu": 21.2, "wait_channel": "futex_do_wait", "call": 202}],
                                                 of the main thread, since the snapshot before
        "read_bytes": 0, "written_bytes": 0,
        "lock_files": ["…/lock"], "compilers": ["ninja"], "exit_code": null,
        "environment": {"NCCL_DEBUG": "INFO"},   by allow-list; redacted, as all texts here are
        "py": {"exit": 0, "seconds": 0.03, "stderr": "", "nonblocking": false},
        "native": {"exit": 0, "seconds": 1.03, "stderr": ""}}]}

``gpus.json``::

    {"taken_at": 1795977069.3,
     "gpus": [{"index": 0, "uuid": "GPU-…", "name": "NVIDIA H200", "memory_used_mib": 1726,
               "memory_total_mib": 143771, "utilisation": 0, "power_watts": 124.3,
               "power_limit_watts": 700.0,
               "processes": {"2185": 1716}}]}
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable
from typing import IO, Any

FORMAT = "workbench.case/1"
MANIFEST = "manifest.json"
# A log's beginning tells the launch and the phases, its end where it fell silent.
LOG_HEAD = 24 << 20
LOG_TAIL = 40 << 20
_BLOCK = 1 << 20


class SecretError(ValueError):
    """A file of a case holds a secret that is known, and is not written."""


class CaseWriter:
    """Write a case into an open binary file; `close` adds the manifest.

    Parameters
    ----------
    out
        A seekable binary file.
    host
        The pseudonym of this host.
    fields
        Further fields of the manifest (``created``, ``utc_offset``, ``version``, …).

    Attributes
    ----------
    forbidden
        Secrets that are known, such as the values of the server's keys: nothing that holds one is written.
    """

    def __init__(self, out: IO[bytes], host: str, **fields: Any) -> None:
        # Level 6 would take twice the time, while the server is looked at, and stacks are a hundredth anyway.
        self._zip = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=3)
        self._members: dict[str, dict[str, Any]] = {}
        self.forbidden: set[bytes] = set()
        self.manifest: dict[str, Any] = {
            "format": FORMAT,
            "host": host,
            "engine": "sglang",
            "version": "",
            "port_open": None,
            "node_rank": None,
            "snapshots": [],
            "logs": [],
            "notes": [],
            **fields,
        }

    def forbid(self, secrets: Iterable[str]) -> None:
        """Refuse from now on whatever holds one of these, as it is or as JSON writes it."""
        for secret in secrets:
            for form in (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
            ):
                self.forbidden.add(form.encode("utf-8", "surrogateescape"))

    def add(self, name: str, data: str | bytes) -> None:
        """Add one file.

        Raises
        ------
        SecretError
            It holds a secret that is known.
        """
        if name in self._members or name == MANIFEST:
            raise ValueError(f"{name} is in the case already")
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        self._check(name, raw)
        self._members[name] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
        self._zip.writestr(name, raw)

    def _check(self, name: str, raw: bytes) -> None:
        if any(secret in raw or secret in name.encode() for secret in self.forbidden):
            raise SecretError(name)

    def add_json(self, name: str, value: Any) -> None:
        """Add plain data as a JSON file."""
        self.add(name, json.dumps(value, indent=1))

    def add_snapshot(
        self,
        number: int,
        at: float,
        processes: list[dict[str, Any]],
        clocks: dict[str, float] | None = None,
    ) -> str:
        """Add the processes of one snapshot and return its folder."""
        folder = f"snapshot-{number}"
        self.add_json(
            f"{folder}/processes.json", {"taken_at": at, "clocks": clocks, "processes": processes}
        )
        self.manifest["snapshots"].append({"folder": folder, "at": at})
        return folder

    def add_log(self, name: str, path: str, pids: tuple[int, ...] = (), redact: Any = None) -> None:
        """Add a log file; of a long one its beginning and its end.

        `redact` is called with the text and returns it redacted.
        """
        raw, total, cut = read_ends(path)
        if redact is not None:
            text = redact(raw.decode("utf-8", "surrogateescape"))
            raw = text.encode("utf-8", "surrogateescape")
        file = f"logs/{name}"
        self.add(file, raw)
        self.manifest["logs"].append({"file": file, "pids": list(pids), "bytes": total, "cut": cut})

    def abort(self) -> None:
        """Let go of the file without a manifest: what was written so far is no case."""
        self._zip.close()

    def close(self) -> None:
        """Write the manifest and end the zip."""
        manifest = json.dumps({**self.manifest, "members": self._members}, indent=1)
        try:
            self._check(MANIFEST, manifest.encode())
            self._zip.writestr(MANIFEST, manifest)
        finally:
            self._zip.close()


def read_ends(path: str, head: int = LOG_HEAD, tail: int = LOG_TAIL) -> tuple[bytes, int, int]:
    """Read a file, or of a long one its two ends in whole lines; return it, its size and the cut."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        if size <= head + tail:
            raw = file.read(head + tail)  # a log that grows meanwhile does not grow in here
            return raw, len(raw), 0
        first = _read(file, head)
        file.seek(size - tail)
        last = _read(file, tail)
    first = first[: first.rfind(b"\n") + 1] or first
    last = last[last.find(b"\n") + 1 :] or last
    cut = size - len(first) - len(last)
    mark = f"[workbench: {cut} bytes were left out here]\n".encode()
    return first + mark + last, size, cut


def _read(file: IO[bytes], length: int) -> bytes:
    parts = []
    while length > 0:
        block = file.read(min(_BLOCK, length))
        if not block:
            break
        parts.append(block)
        length -= len(block)
    return b"".join(parts)
