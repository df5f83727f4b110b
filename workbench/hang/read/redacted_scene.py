"""A scene without secrets, prompts and names: what is judged and shown is what a case would hold.

A case was redacted where it was collected; a folder of raw logs and dumps was not. Both come through here,
so that neither text nor JSON nor a page of a diagnosis has more than the rules read.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from workbench.evidence.harmless import is_harmless
from workbench.evidence.redact import Redactor, known_secrets
from workbench.hang.records import Dump, Frame, Log, Process, Scene, Snapshot, Thread

_NAME = re.compile(r"[a-z][\w.-]{0,69}")
_NO_HOST = re.compile(r"(?:host|node)-?\d{0,6}|host-[0-9a-f]{6}|localhost|")
_HOME = os.path.expanduser("~")


def redacted(scene: Scene) -> Scene:
    """Return a scene whose texts hold no more than the rules read; equal names stay equal."""
    hide = Redactor(numbered=True)
    processes = [process for one in scene.snapshots for process in one.processes]
    for process in processes:
        for secret in known_secrets(dict(process.environment), list(process.arguments)):
            hide.secret(secret)
    for secret in known_secrets(dict(scene.environment), []):
        hide.secret(secret)
    hide.learn_hosts(line.text for log in scene.logs for line in log.lines)
    frames: dict[Frame, Frame] = {}
    names = {log.name: hide.path(log.name) for log in scene.logs}
    return dataclasses.replace(
        scene,
        source=hide.text(_homeless(scene.source)),
        snapshots=tuple(_snapshot(one, hide, frames) for one in scene.snapshots),
        logs=tuple(_log(log, hide) for log in scene.logs),
        version=scene.version if is_harmless(scene.version) else hide.text(scene.version),
        arguments={
            name: hide.value(name, value)
            for name, value in scene.arguments.items()
            if _NAME.fullmatch(name)
        },
        environment=hide.environment(dict(scene.environment)),
        records={name: _record(value, hide) for name, value in scene.records.items()},
        clock_skew={_host(name, hide): value for name, value in scene.clock_skew.items()},
        notes=tuple(hide.text(_renamed(note, names)) for note in scene.notes),
        unread=tuple(hide.text(_renamed(note, names)) for note in scene.unread),
    )


def _host(name: str, hide: Redactor) -> str:
    """Return a host as it is shown: a case's pseudonym, or one for a name that somebody wrote by hand."""
    return name if _NO_HOST.fullmatch(name) else hide.host(name)


def _renamed(note: str, names: Mapping[str, str]) -> str:
    for name, shown in names.items():
        note = note.replace(name, shown) if name else note
    return note


def _homeless(path: str) -> str:
    return path.replace(_HOME + os.sep, "~" + os.sep) if len(_HOME) > 1 else path


def _snapshot(one: Snapshot, hide: Redactor, frames: dict[Frame, Frame]) -> Snapshot:
    return dataclasses.replace(
        one,
        host=_host(one.host, hide),
        processes=tuple(_process(process, hide) for process in one.processes),
        dumps=tuple(_dump(dump, hide, frames) for dump in one.dumps),
        gpus=tuple(
            dataclasses.replace(
                gpu,
                host=_host(gpu.host, hide),
                uuid=hide.token("value", gpu.uuid),
                name=hide.line(gpu.name),
            )
            for gpu in one.gpus
        ),
    )


def _process(process: Process, hide: Redactor) -> Process:
    return dataclasses.replace(
        process,
        host=_host(process.host, hide),
        title=" ".join(hide.arguments(process.title.split())),
        wait_channel=None if process.wait_channel is None else hide.function(process.wait_channel),
        lock_files=tuple(map(hide.path, process.lock_files)),
        compilers=tuple(name for name in process.compilers if is_harmless(name)),
        environment=hide.environment(dict(process.environment)),
        arguments=tuple(hide.arguments(list(process.arguments))),
    )


def _dump(dump: Dump, hide: Redactor, frames: dict[Frame, Frame]) -> Dump:
    return dataclasses.replace(
        dump,
        threads=tuple(_thread(thread, hide, frames) for thread in dump.threads),
        refusal=hide.line(dump.refusal),
        remedy=hide.text(dump.remedy),
    )


def _thread(thread: Thread, hide: Redactor, frames: dict[Frame, Frame]) -> Thread:
    kept = []
    for frame in thread.frames:
        made = frames.get(frame)
        if made is None:
            made = frames[frame] = Frame(
                hide.function(frame.function),
                hide.path(frame.file),
                frame.line,
                hide.path(frame.module),
            )
        kept.append(made)
    return dataclasses.replace(thread, frames=tuple(kept), name=hide.thread(thread.name))


def _log(log: Log, hide: Redactor) -> Log:
    texts = hide.lines([line.text for line in log.lines])
    return dataclasses.replace(
        log,
        name=hide.path(log.name),
        host=_host(log.host, hide),
        lines=tuple(
            dataclasses.replace(
                line, text=text, level=line.level if is_harmless(line.level) else ""
            )
            for line, text in zip(log.lines, texts, strict=True)
        ),
    )


def _record(value: Any, hide: Redactor, name: str = "") -> Any:
    """Return a flight recording or an answer of RAS: its texts as a log's, its hosts as pseudonyms."""
    if isinstance(value, Mapping):
        return {
            (
                key
                if _NAME.fullmatch(str(key)) or is_harmless(str(key))
                else hide.token("value", str(key))
            ): _record(one, hide, str(key))
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_record(one, hide, name) for one in value]
    if not isinstance(value, str) or not value:
        return value
    if name == "host":
        return _host(value, hide)
    if name in ("hash", "timestamp", "log_versions", "version", "nccl", "nccl_version"):
        return value if len(value) < 400 and not any(char in value for char in "/@\\") else ""
    if name in ("function", "operation"):
        return hide.function(value)
    return hide.path(value) if name == "file" else hide.line(value)
