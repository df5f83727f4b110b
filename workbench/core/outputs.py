"""Where files are written: every writer of the workbench asks here, before its work and again when it writes.

Three rules. A file that the workbench did not write is never replaced, unless the user says so (``force``).
A file of another kind counts as foreign: a page never replaces a collected case. And nothing is ever
written into what is examined, whatever the user says: not into the checkpoint's folder, not into the
evidence, not over the notebook.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from workbench.errors import WorkbenchError, shown

Kind = Literal[
    "page", "result", "case", "stacks", "ledger", "collector", "junit", "badge", "picture"
]  # fmt: skip
"""What a file of the workbench is: a page (HTML), a saved result (JSON), a collected case (zip), the merged
stacks (speedscope), a ledger of launches (JSON lines), the packed collector (zip), a report for CI (JUnit
XML), a badge (SVG or Markdown), a picture of a terminal (SVG)."""

WORDS: dict[Kind, str] = {
    "page": "a page",
    "result": "a saved result",
    "case": "a collected case",
    "stacks": "a speedscope file",
    "ledger": "a ledger of launches",
    "collector": "a packed collector",
    "junit": "a JUnit report",
    "badge": "a badge",
    "picture": "a picture of a terminal",
}
Examined = Iterable[str | os.PathLike[str] | None]
"""What the work reads: paths, or texts that may be one. What is not on this machine is passed over."""

# Bytes at the start of a file that hold its mark. Before the body of a page stands its style sheet.
_HEAD = 1 << 18
_PAGE = rb"\A<!DOCTYPE html>(?:(?!<body).)*"
_MARKS: tuple[tuple[Kind, re.Pattern[bytes]], ...] = (
    ("page", re.compile(_PAGE + rb'<meta name="generator" content="workbench\b', re.S)),
    # Pages of version 0.1 have no generator: their verdict, or the bar at their top, is their mark.
    ("page", re.compile(_PAGE + rb'<meta name="workbench-verdict"', re.S)),
    ("page", re.compile(rb'\A<!DOCTYPE html>.*<body>\n<div class="wb-top">', re.S)),
    ("result", re.compile(rb'\A\s*\{\s*"schema":\s*"workbench\.[a-z]+/\d+"')),
    ("stacks", re.compile(rb'\A\s*\{(?=.{0,400}"exporter":\s*"workbench )', re.S)),
    ("junit", re.compile(rb'\A<\?xml[^>]*\?>\s*<testsuites name="workbench"')),
    ("badge", re.compile(rb'\A<svg [^>]*aria-label="workbench: ')),
    ("badge", re.compile(rb"\A\[!\[loads in ")),
    ("picture", re.compile(rb"\A<svg [^>]*>\s*<!-- workbench: ")),
    ("ledger", re.compile(rb'^\{"format":\s{0,4}"workbench\.launch/\d+"', re.M)),
)  # fmt: skip
# Where a packed collector has its program: now, and in version 0.1.
_COLLECTORS = frozenset(
    {"workbench/hang/collect/collector/__main__.py", "workbench/hang/collector/__main__.py"}
)
_MANIFEST = "manifest.json"
_MOST_MANIFEST = 64 << 20
# Entries of an examined folder whose identity is known, so that a link to one is recognised.
_MOST_ENTRIES = 50_000


@dataclasses.dataclass(frozen=True)
class Output:
    """A path that was found fit to be written to; `writing` and every writer take it as a path.

    Attributes
    ----------
    path
        As it was given, with ``~`` expanded.
    kind
        What will be written.
    examined
        What the work reads, where nothing is written.
    force
        Whether a foreign file may be replaced.
    """

    path: Path
    kind: Kind
    examined: tuple[str, ...] = ()
    force: bool = False

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def prepared(
    path: str | os.PathLike[str],
    kind: Kind,
    *,
    examined: Examined = (),
    force: bool = False,
) -> Output:
    """Check a path before the work begins, so that nobody waits an hour for an error.

    Parameters
    ----------
    path
        The file to write.
    kind
        What will be written. An older file of that kind, written by the workbench, may be replaced.
    examined
        What the work reads.
    force
        Whether a file that the workbench did not write may be replaced.

    Returns
    -------
    Output
        The checked path.

    Raises
    ------
    WorkbenchError
        The folder is missing or not writable, the path is a folder or a device, a foreign file is
        there, or the path leads into what is examined.
    """
    if isinstance(path, Output):
        examined, force = (*path.examined, *examined), path.force or force is True
    output = Output(_path(path), kind, tuple(_texts(examined)), force is True)
    real = _checked(output)
    try:  # permissions alone do not tell: the disk may be mounted read-only
        with tempfile.TemporaryFile(dir=real.parent):
            pass
    except OSError as error:
        raise _failed(output.path, error) from None
    return output


@contextmanager
def writing(
    path: str | os.PathLike[str],
    kind: Kind,
    *,
    examined: Examined = (),
    force: bool = False,
    mode: int = 0o666,
) -> Iterator[IO[bytes]]:
    """Open a new file next to `path` for writing, and move it there once all is written.

    Parameters
    ----------
    path, kind, examined, force
        As for `prepared`, whose `Output` may be given as the path.
    mode
        The file's permissions; the process's umask is taken off. A file that is replaced keeps its own, as
        far as these allow.

    Raises
    ------
    WorkbenchError
        As for `prepared`; or the disk is full. Nothing is left behind, and what was there is unchanged.
    """
    output = prepared(path, kind, examined=examined, force=force)
    real = Path(os.path.realpath(output.path))  # a link stays one
    name = real.parent / f".{real.name[:100]}.{secrets.token_hex(6)}"
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except OSError as error:
        raise _failed(output.path, error) from None
    try:
        with os.fdopen(handle, "wb") as out:
            with contextlib.suppress(
                FileNotFoundError
            ):  # whoever may read the older file, and no one else
                os.fchmod(handle, stat.S_IMODE(os.stat(real).st_mode) & mode)
            yield out
        _checked(output)  # the work may have taken an hour
        os.replace(name, real)
    except OSError as error:
        raise _failed(
            output.path, error, next_step="Free some space, or choose another path."
        ) from None
    finally:
        name.unlink(missing_ok=True)


def check_append(path: str | os.PathLike[str], kind: Kind) -> None:
    """Check that a file to which lines are appended is absent, empty, or of that kind.

    Raises
    ------
    WorkbenchError
        It is another file.
    """
    place = _path(path)
    found = kind_of(place)
    if found != kind and _size(place) > 0:
        raise WorkbenchError(
            f"cannot write {place}",
            why=_what(found),
            next_step="Choose another path.",
        )


def check_folder(path: str | os.PathLike[str], *, examined: Examined = ()) -> Path:
    """Check that a folder may be made: absent or empty, and outside what is examined.

    Raises
    ------
    WorkbenchError
        It is a file or not empty, its parent is missing or not writable, or it is examined.
    """
    place = Path(os.path.abspath(_path(path)))
    _check_examined(Output(place, "result", tuple(_texts(examined))), Path(os.path.realpath(place)))
    what = f"cannot write to {place}"
    try:
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise WorkbenchError(
                what, why="it exists and is not a folder", next_step="Choose another path."
            )
        if place.exists() and any(place.iterdir()):
            raise WorkbenchError(
                what, why="it is not empty", next_step="Choose a new folder, or empty this one."
            )
        if not place.parent.is_dir():
            raise WorkbenchError(
                what,
                why=f"there is no folder {place.parent}",
                next_step="Make it first, or choose another.",
            )
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise _failed(place, error) from None
    return place


def kind_of(path: str | os.PathLike[str]) -> Kind | None:
    """Return what an existing file of the workbench is by the mark in it; None for any other file."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return None
    for kind, mark in _MARKS:
        if mark.search(head):
            return kind
    return _kind_of_zip(path) if b"PK\x03\x04" in head[:64] else None


def _kind_of_zip(path: str | os.PathLike[str]) -> Kind | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.NameToInfo
            if not _COLLECTORS.isdisjoint(names):
                return "collector"
            if _MANIFEST not in names or names[_MANIFEST].file_size > _MOST_MANIFEST:
                return None
            manifest = json.loads(archive.read(_MANIFEST))
    except (
        OSError,
        ValueError,
        RuntimeError,
        NotImplementedError,
        RecursionError,
        zipfile.BadZipFile,
    ):
        return None  # fmt: skip
    form = manifest.get("format") if isinstance(manifest, dict) else None
    return "case" if isinstance(form, str) and form.startswith("workbench.case/") else None


# --- the rules -------------------------------------------------------------------------------------


def _checked(output: Output) -> Path:
    """Apply the rules to a path as it is now, and return where it really leads."""
    what = f"cannot write {output.path}"
    try:
        real = Path(os.path.realpath(output.path))
        if real.is_dir():
            raise WorkbenchError(
                what, why="it is a folder", next_step="Give the path of a file in it."
            )
        if real.exists() and not real.is_file():  # root could replace /dev/null by a page
            raise WorkbenchError(
                what,
                why="it is a device or a pipe, and a file is moved to its place once it is whole",
                next_step="Give the path of a file.",
            )
        if not real.parent.is_dir():
            raise WorkbenchError(
                what,
                why=f"there is no folder {real.parent}",
                next_step="Choose a folder that exists and that you may write to.",
            )
        if real.is_symlink():
            raise WorkbenchError(
                what, why="it is a link to itself", next_step="Give the path of a file."
            )
        _check_examined(output, real)
        exists = os.path.lexists(real)
    except OSError as error:
        raise _failed(output.path, error) from None
    if exists and not output.force and (found := kind_of(real)) != output.kind:
        raise WorkbenchError(
            what,
            why=_what(found),
            next_step="Choose another path, or allow it to be replaced: --force on the command line, "
            "force=True in Python.",
        )
    return real


def _what(kind: Kind | None) -> str:
    found = f"it is {WORDS[kind]}" if kind else "the workbench did not write it"
    return f"it exists, and {found}"


def _check_examined(output: Output, real: Path) -> None:
    """Refuse a path into what is examined: by identity, so that no link and no mount hides it."""
    known: dict[tuple[int, int], str] = {}
    for text in output.examined:
        if (place := _local(text)) is not None:
            _identify(place, known)
    given = Path(os.path.abspath(output.path))
    for at, place in enumerate((real, *real.parents, *given.parents)):
        inside = known.get(_identity(place) or (-1, -1))
        if inside is None:
            continue
        same = "it is" if os.path.realpath(inside) == str(place) else "it is the same file as"
        raise WorkbenchError(
            f"cannot write {output.path}",
            why=f"{'it is inside' if at else same} {inside}, which is examined",
            next_step="Choose a path elsewhere; what is examined is never changed.",
        )


def _identify(place: Path, known: dict[tuple[int, int], str]) -> None:
    """Add the identity of a file; of a folder also those of all in it, but of no folder behind a link."""
    if (identity := _identity(place)) is None:
        return
    known.setdefault(identity, str(place))
    todo = [str(place)] if place.is_dir() else []
    while todo and len(known) < _MOST_ENTRIES:
        try:
            entries = list(os.scandir(todo.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                todo.append(entry.path)
            elif entry.is_dir():
                continue  # a link to / in somebody's evidence must not make the whole disk examined
            if (identity := _identity(Path(entry.path))) is not None:
                known.setdefault(identity, entry.path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except (OSError, ValueError):
        return None
    return about.st_dev, about.st_ino


def _local(text: str) -> Path | None:
    """Return the place on this machine that a text names, if it names one."""
    address = text.rpartition("::")[2]
    for scheme in ("file://", "local://"):
        address = address.removeprefix(scheme)
    try:
        place = Path(address).expanduser()
        return place if address and place.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _texts(examined: Examined) -> Iterator[str]:
    for thing in examined:
        if isinstance(thing, str | os.PathLike):
            yield os.fsdecode(thing)


def _path(path: object) -> Path:
    if isinstance(path, Output):
        return path.path
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in str(path):
        raise WorkbenchError(
            f"{shown(path)} is not a path to write to", next_step="Give the path of a file."
        )
    try:
        os.fsencode(path)
        return Path(os.fsdecode(path)).expanduser()
    except (RuntimeError, UnicodeError) as error:  # ~somebody who does not exist; half a character
        raise WorkbenchError(
            f"{shown(path)} is not a path to write to",
            why=str(error),
            next_step="Give the whole path.",
        ) from None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _failed(path: Path, error: OSError, *, next_step: str = "") -> WorkbenchError:
    return WorkbenchError(
        f"cannot write {path}",
        why=error.strerror or str(error),
        next_step=next_step or "Choose a folder that exists and that you may write to.",
    )
