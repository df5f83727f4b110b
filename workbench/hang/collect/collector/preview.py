"""What would leave the host, as text, before anything is written to a disk."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from workbench.evidence.pseudonyms import DROPPED
from workbench.hang.collect.collector.collect import Plan, collect
from workbench.secret_shapes import LEFT_OUT

# Of a log so many lines from its beginning and from its end are shown.
HEAD, TAIL = 40, 20
_WIDTH = 160


def preview(plan: Plan) -> str:
    """Take one snapshot into memory and return what a case of it would hold; nothing is written.

    Raises
    ------
    CollectError
        As `collect` raises it.
    """
    out = io.BytesIO()
    collect(out, dataclasses.replace(plan, snapshots=1))
    with zipfile.ZipFile(out) as case:
        return "\n".join(_lines(case, len(out.getvalue()))) + "\n"


def _lines(case: zipfile.ZipFile, size: int) -> Iterator[str]:
    manifest = json.loads(case.read("manifest.json"))
    yield f"This would leave the host: one zip of {_size(size)}, with one snapshot. Nothing was written."
    for name, meaning in (
        (DROPPED, "words that are not on the list of harmless ones"),
        (LEFT_OUT, "what is secret by its name or its shape"),
        ("host-, user-, addr-, dir-, value-…", "replace a name or a text: the same for the same"),
    ):
        yield f"  {name}: {meaning}"
    yield ""
    yield "Files"
    for member in case.infolist():
        yield f"  {member.filename}  {_size(member.file_size)}"
    yield ""
    yield f"Host {manifest['host']}, {manifest['engine']} {manifest['version'] or 'of unknown version'}"
    for note in manifest["notes"]:
        yield f"  note: {note}"
    listed = json.loads(case.read("snapshot-1/processes.json"))["processes"]
    yield ""
    yield "Processes, with their arguments and those variables that are kept"
    shown: dict[str, str] = {}
    for one in listed:
        yield f"  {one['pid']} {one['role']}: {one['cmd']}"
        for path in one.get("lock_files", ()):
            yield f"    holds {path}"
        shown.update(one.get("environment", {}))
    yield from (f"    {name}={value}" for name, value in sorted(shown.items()))
    stacks = [name for name in case.namelist() if "pyspy" in name]
    if stacks:
        yield ""
        yield "Stacks: functions, files and line numbers, no values. The first of them"
        yield from _stack(json.loads(case.read(stacks[0])))
    for entry in manifest["logs"]:
        yield ""
        yield from _log(
            entry["file"], case.read(entry["file"]).decode("utf-8", "replace").splitlines()
        )


def _stack(threads: list[dict[str, Any]]) -> Iterator[str]:
    for thread in threads[:1]:
        yield f"  thread {thread.get('thread_name') or thread.get('os_thread_id')}"
        for frame in thread["frames"][:12]:
            yield f"    {frame['name']} ({frame['filename']}:{frame['line']})"


def _log(name: str, lines: list[str]) -> Iterator[str]:
    less = sum(DROPPED in line or LEFT_OUT in line for line in lines)
    yield f"{name}: {len(lines)} lines, {less} of them with words left out"
    middle = len(lines) - HEAD - TAIL
    for number, line in enumerate(lines):
        if number < HEAD or number >= HEAD + middle:
            yield "  " + (line if len(line) <= _WIDTH else line[: _WIDTH - 1] + DROPPED)
        elif number == HEAD:
            yield f"  ({middle} more lines)"


def _size(count: int) -> str:
    return f"{count} bytes" if count < 2048 else f"{count / 1024:.0f} KB"
