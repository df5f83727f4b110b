"""Launches of a server, one line of JSON each, in a file that only grows.

A launch is what was typed (command and environment), what it ran on, and what came of it. The file
is appended to by whoever launches, perhaps from several shells at once, and may come from somebody
else: lines are written whole, and read without trust.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Self, get_args

from workbench.core.outputs import check_append
from workbench.core.wording import plural
from workbench.errors import WorkbenchError, clean, shorten, shown
from workbench.evidence import launch_words
from workbench.evidence.redact import Redactor, fields, known_secrets

Outcome = Literal["served", "hung", "crashed", "stopped", "unknown"]
OUTCOMES = get_args(Outcome)

FORMAT = "workbench.launch/1"
MOST_BYTES = 64 << 20
MOST_LINE = 1 << 20
MOST_COMMAND = 128 << 10
MOST_WORDS = 2000
MOST_LAUNCHES = 500  # each is compared with the others
_LONGEST = 4000
_LOG_HEAD = 16 << 20  # bytes of a log in which the line of the server's arguments is looked for
_TEXTS = (
    "name", "engine", "version", "log", "hypothesis", "change", "if_right", "if_wrong", "against", "note",
    "image",
)  # fmt: skip
_PROSE = (
    "name",
    "hypothesis",
    "change",
    "if_right",
    "if_wrong",
    "against",
    "note",
)  # people write these
_NUMBERS = ("started", "ended", "ready_after", "exit_status")
_MAPPINGS = ("environment", "versions", "resolved", "launcher", "config")
_REDACTED = 2
_SALT_BYTES = 32
_READY = "The server is fired up and ready to roll!"


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One start of a server.

    Attributes
    ----------
    command
        What was typed, in words; empty where only its log is known.
    environment
        The variables that matter (NCCL_*, CUDA_*, SGLANG_* and their like), no others.
    resolved
        The engine's arguments as it logged them after filling in defaults, by field name.
    launcher
        What ran the command: ``numactl``, ``docker run``, with its options.
    config
        What the file of ``--config`` set.
    image
        The container's image.
    versions, gpus
        Versions of libraries, and the GPUs' names.
    started, ended
        Seconds since 1970.
    ready_after
        Seconds until it served.
    hypothesis, change, if_right, if_wrong
        Why it was launched: the experiment it carries out.
    against
        Name of the launch it is to be compared with; "" for the one before it.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outcome: Outcome = "unknown"
    engine: str = "sglang"
    version: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    resolved: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: str = ""
    started: float | None = None
    ended: float | None = None
    ready_after: float | None = None
    exit_status: float | None = None
    hypothesis: str = ""
    change: str = ""
    if_right: str = ""
    if_wrong: str = ""
    against: str = ""
    note: str = ""
    launcher: Mapping[str, str] = dataclasses.field(default_factory=dict)
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)
    image: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the launch as plain data."""
        return dataclasses.asdict(self) | {"command": list(self.command), "gpus": list(self.gpus)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a launch from data that may come from anybody.

        Raises
        ------
        ValueError
            A field is not of its kind.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise ValueError("a launch needs a name")
        outcome = data.get("outcome", "unknown")
        if outcome not in OUTCOMES:
            raise ValueError(f"unknown outcome: {outcome!r:.60}")
        fields: dict[str, Any] = {name: _text(data.get(name)) for name in _TEXTS}
        fields |= {name: _number(data.get(name)) for name in _NUMBERS}
        fields |= {name: _mapping(data.get(name)) for name in _MAPPINGS}
        fields |= {name: tuple(_words(data.get(name))) for name in ("command", "gpus")}
        return cls(**fields, outcome=outcome)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError("text was expected")
    return value[:_LONGEST]


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15:
        raise ValueError("a number was expected")
    return float(value)


def _words(value: Any) -> Iterator[str]:
    if value is not None and not isinstance(value, list | tuple):
        raise ValueError("a list of words was expected")
    return (_text(word) for word in (value or ())[:MOST_WORDS])


def _mapping(value: Any) -> dict[str, str]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError("names with values were expected")
    pairs = list((value or {}).items())[:MOST_WORDS]
    return {_text(key): _text(None if item is None else str(item)) for key, item in pairs}


def from_command(command: str | Sequence[str], name: str = "", **known: Any) -> Launch:
    """Return a launch from what was typed.

    Parameters
    ----------
    command
        A line for a shell (``NCCL_DEBUG=INFO python -m sglang.launch_server --tp 8``; its leading
        variables and those of ``docker run -e`` become the environment, what it redirects its output
        to its log) or its words. The file of ``--config`` is read, if it is here.

    Raises
    ------
    WorkbenchError
        It is no command, too long, or has an open quote.
    """
    _check_command(command)
    try:
        words = shlex.split(command, comments=True) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise WorkbenchError(
            f"cannot read the command {shorten(str(command))}",
            why=str(error),
            next_step="Give it as it was typed, or as a list of words.",
        ) from None
    words = [word for word in words if word not in ("\n", "exec", "nohup", "env", "&")]
    environment = dict(known.pop("environment", {}))
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        key, _, value = words.pop(0).partition("=")
        environment[key] = value
    words, log = _redirected(words)
    parts = launch_words.split(words)
    known = {
        "log": log,
        "launcher": parts.launcher,
        "config": launch_words.config_of(parts.command),
        "image": parts.image,
    } | known
    return Launch(name, parts.command, environment | dict(parts.environment), **known)


def _check_command(command: object) -> None:
    """Refuse what is no command; a shell's words are read in time that grows with the square of a word."""
    words = [command] if isinstance(command, str) else command
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        why = "it is neither a line for a shell nor a list of words"
    elif not any(word.strip() for word in words):
        why = "it is empty"
    elif sum(map(len, words)) > MOST_COMMAND:
        why = f"it has more than {MOST_COMMAND} letters"
    else:
        return
    raise WorkbenchError(
        f"{shown(command)} is not a command",
        why=why,
        next_step="Give it as it was typed, or as a list of words.",
    )


def _redirected(words: list[str]) -> tuple[list[str], str]:
    """Return a command without its redirections, and the file that its output goes to."""
    for at, word in enumerate(words):
        found = re.fullmatch(r"(?:[12&]?>>?|\|&?|2>&1)(.*)", word)
        if found:
            rest = [found.group(1), *words[at + 1 :]]
            files = (part.lstrip(">&") for part in rest if part and part not in ("tee", "-a", "|"))
            return words[:at], next((file for file in files if not file.isdigit()), "")
    return words, ""


def from_folder(folder: str | os.PathLike[str]) -> Launch:
    """Return the launch that a folder holds: ``launch.json``, and ``server.log`` beside it.

    Without an outcome in ``launch.json`` it is ``served`` where the server said that it was ready,
    ``unknown`` otherwise: a log that ends early does not tell a hang from an impatient hand.
    """
    folder = Path(folder)
    record = folder / "launch.json"
    try:
        data = json.loads(_head(record, MOST_LINE))
        if not isinstance(data, dict):
            raise ValueError("not a record")
        versions = _mapping(data.get("versions"))
        launch = Launch.from_dict(
            {key: value for key, value in data.items() if key not in ("started", "ended")}
            | {"name": data.get("name") or folder.name, "version": versions.get("sglang", "")}
        )
    except (ValueError, RecursionError) as error:
        raise WorkbenchError(
            f"cannot read {record}",
            why=str(error),
            next_step="It holds command, environment and versions as JSON.",
        ) from None
    logs = sorted(folder.glob("*.log"))
    read = from_log(logs[0]) if len(logs) == 1 else Launch("")
    served = launch.ready_after is not None or read.outcome == "served"
    return dataclasses.replace(
        launch,
        started=_moment(data.get("started")),
        ended=_moment(data.get("ended")),
        resolved=read.resolved,
        log=logs[0].name if len(logs) == 1 else "",
        outcome="served" if launch.outcome == "unknown" and served else launch.outcome,
    )


def from_log(path: str | os.PathLike[str], name: str = "") -> Launch:
    """Return what a server's log says of its launch: the arguments, and whether it served."""
    path = Path(path)
    text = _head(path, _LOG_HEAD)
    outcome: Outcome = "served" if _READY in text else "unknown"
    return Launch(
        name or path.stem, resolved=logged_arguments(text), log=path.name, outcome=outcome
    )


def logged_arguments(text: str) -> dict[str, str]:
    """Return the fields of the first ``ServerArgs(…)`` in a log, as Python writes their values."""
    at = text.find("server_args=ServerArgs(")
    if at < 0:
        return {}
    line = text[at:].split("\n", 1)[0][: MOST_LINE // 4]
    pairs = (part.partition("=") for part in fields(line, line.index("(") + 1, unclosed=True))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _regular(path: Path) -> None:
    """Refuse a pipe or a device: opening it would wait for ever, or reading it never end."""
    if path.exists() and not path.is_file():
        why = "it is a folder" if path.is_dir() else "it is a pipe or a device, not a file"
        raise WorkbenchError(
            f"cannot use {shown(str(path))}", why=why, next_step="Give the path of a file."
        )


def _head(path: Path, most: int) -> str:
    _regular(path)
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError as error:
        raise WorkbenchError(
            f"cannot read {path}", why=error.strerror or str(error), next_step="Give its path."
        ) from None


def _moment(value: Any) -> float | None:
    """Return a time as seconds since 1970, from those or from ISO 8601."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return datetime.datetime.fromisoformat(value).timestamp()
        return None
    return _number(value)


def append(path: str | os.PathLike[str], launch: Launch) -> Launch:
    """Write a launch at the end of a ledger, redacted; return it as it was written.

    The line is written at once and under a lock, so that two shells never mix theirs, and whole or not at
    all. Pseudonyms are made with a random salt beside the ledger, so that the same host stays the same word
    from launch to launch and nobody else can find out which. A new ledger is its owner's alone.
    """
    path = Path(path).expanduser()
    _regular(path)
    check_append(path, "ledger")
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            launch = redacted(launch, _salt(path))
            line = json.dumps(
                {"format": FORMAT, "redacted": _REDACTED} | launch.to_dict(), allow_nan=False
            )
            _write_line(file, line.encode(), launch.name)
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            next_step="Free some space, or choose a folder that exists and that you may write to.",
        ) from None
    return launch


def _write_line(file: IO[bytes], line: bytes, name: str) -> None:
    """Write one line at the end of a file; where the disk takes only a part of it, none is left."""
    if len(line) >= MOST_LINE:
        raise WorkbenchError(
            f"the launch {shorten(name)} is too long to record",
            why=f"{len(line):,} bytes; a line may have {MOST_LINE:,}",
            next_step="Record it without `resolved`.",
        )
    size = file.seek(0, os.SEEK_END)
    torn = b""
    if size:  # a line that a crash cut short must not swallow this one
        file.seek(size - 1)
        torn = b"" if file.read(1) == b"\n" else b"\n"
    whole = torn + line + b"\n"
    try:
        written = file.write(whole)
        if written != len(whole):  # the last write that a full disk takes says no more than this
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(size)
        raise


def _salt(path: Path, *, make: bool = True) -> bytes | None:
    """Return the ledger's random salt, in a file beside it that only its owner reads; None without one."""
    place = path.with_name(path.name + ".salt")
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = bytes.fromhex(place.read_bytes()[:256].decode("ascii"))
        if len(known) >= _SALT_BYTES:
            return known
    if not make:
        return None
    fresh = secrets.token_bytes(_SALT_BYTES)
    text = fresh.hex().encode()
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=path.parent)  # 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, place)
    finally:
        Path(name).unlink(missing_ok=True)
    return fresh


def redacted(launch: Launch, salt: bytes | None) -> Launch:
    """Return a launch without secrets and names of hosts and people; without a salt, names are numbered."""
    return _redacted(launch, _redactor(salt))


def _redactor(salt: bytes | None) -> Redactor:
    return Redactor(salt, values=salt, numbered=salt is None)


def _redacted(launch: Launch, hide: Redactor) -> Launch:
    written = [f"--{key}={said}" for key, said in launch.config.items()]
    for secret in known_secrets(dict(launch.environment), [*launch.command, *written]):
        hide.secret(secret)
    texts: dict[str, Any] = {
        name: (hide.prose if name in _PROSE else hide.text)(getattr(launch, name))
        for name in _TEXTS
    }
    return dataclasses.replace(
        launch,
        **texts
        | {
            "command": tuple(hide.arguments(list(launch.command))),
            "environment": hide.environment(dict(launch.environment)),
            "resolved": {key: hide.field(key, said) for key, said in launch.resolved.items()},
            "config": dict(launch_words.pairs(hide.arguments(written))),
            "launcher": {
                key: launch_words.without_values(said, hide)
                for key, said in launch.launcher.items()
            },
            "image": launch_words.without_registry(launch.image, hide),
            "versions": {key: hide.text(said) for key, said in launch.versions.items()},
            "gpus": tuple(map(hide.text, launch.gpus)),
        },
    )


class Read(NamedTuple):
    """What was read of a ledger: its launches in order, and notes; `unread` are those on lost launches."""

    launches: tuple[Launch, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def read(path: str | os.PathLike[str]) -> Read:
    """Read a ledger: its launches in order, and notes on lines that are none.

    A missing file is an empty ledger.
    """
    path = Path(path).expanduser()
    if not path.exists():
        return Read()
    text = _head(path, MOST_BYTES + 1)
    unread, notes = [], []
    hide = _redactor(_salt(path, make=False))
    if len(text) > MOST_BYTES:
        unread.append(f"only the first {MOST_BYTES >> 20} MiB were read")
    found, damaged = [], 0
    for line in text[:MOST_BYTES].split("\n"):
        if not line.strip():
            continue
        try:
            data = json.loads(line) if len(line) <= MOST_LINE else None
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError("not a launch")
            launch = Launch.from_dict(data)
            # An older version left more in a line; what stands for a text is the same in all lines.
            found.append(launch if data.get("redacted") == _REDACTED else _redacted(launch, hide))
        except (ValueError, RecursionError):
            damaged += 1
    if damaged:
        lines = plural(damaged, "damaged or foreign line")
        unread.append(f"{lines} {'was' if damaged == 1 else 'were'} skipped")
    if len(found) > MOST_LAUNCHES:
        notes.append(f"only the last {MOST_LAUNCHES} of {len(found):,} launches are listed")
    return Read(tuple(found[-MOST_LAUNCHES:]), (*unread, *notes), tuple(unread))


def named(launches: Iterable[Launch], which: str | int) -> Launch:
    """Return a launch by its name (the last of that name) or its number, from 1.

    Raises
    ------
    WorkbenchError
        There is none; the message lists those there are.
    """
    every = list(launches)
    if isinstance(which, int) and 1 <= which <= len(every):
        return every[which - 1]
    for launch in reversed(every):
        if launch.name == which:
            return launch
    known = ", ".join(dict.fromkeys(clean(launch.name) for launch in every)) or "none"
    raise WorkbenchError(
        f"there is no launch {which!r}",
        why=f"recorded: {known}",
        next_step="Give the name or the number (from 1) of a recorded launch.",
    )
