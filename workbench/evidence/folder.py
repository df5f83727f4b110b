"""Reading what was seen from a folder, a zip or one file, without trusting any of it.

A case of the workbench (`workbench.evidence.casefile` describes the format) has a manifest. Any
other pile of dumps, logs and readings is read as well: `Folder` only lists and opens files, and
whoever knows their contents recognises them.
"""

from __future__ import annotations

import calendar
import dataclasses
import gzip
import io
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

from workbench.errors import WorkbenchError, shorten, shown
from workbench.evidence.casefile import FORMAT, MANIFEST

MOST_MEMBERS = 20_000
MOST_BYTES = 16 << 30
MOST_DEPTH = 8
# Text of a thousand equal stacks packs 300 to 1; nothing that is worth reading packs better at size.
MOST_RATIO = 400
RATIO_FROM = 64 << 20
# The longest file that is read whole: a py-spy dump of a thousand deep threads has some 10 MB.
MOST_WHOLE = 256 << 20
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_DAMAGED = (
    lzma.LZMAError,
    OSError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    ValueError,
    NotImplementedError,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """What a case says about itself; every field checked."""

    host: str
    created: float | None = None
    utc_offset: float | None = None
    engine: str = ""
    version: str = ""
    port_open: bool | None = None
    node_rank: int | None = None
    logs: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    hashes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Folder:
    """Files by name, from a folder, a zip or one file. Close it, or use it in ``with``.

    Attributes
    ----------
    name
        Its path, for messages.
    sizes
        Name (with ``/``) to size in bytes, sorted by name.
    times
        Name to the time it was last written, in seconds; a copy may have lost it.
    notes
        What was left out, and why.
    failed
        Name to the system's error, of the files that could not be read: a failing disk, no permission.
    """

    def __init__(self, name: str, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.sizes: dict[str, int] = {}
        self.times: dict[str, float] = {}
        self.notes = list(notes)
        self.failed: dict[str, str] = {}

    def open(self, name: str) -> IO[bytes]:
        """Open one file as a stream of bytes; ``.gz`` and ``.xz`` are unpacked on the way."""
        raw = self._open(name)
        if name.endswith(".xz"):
            return lzma.LZMAFile(raw)
        return gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw  # type: ignore[return-value]

    def read(self, name: str, most: int = MOST_WHOLE) -> bytes:
        """Read one file whole.

        Raises
        ------
        WorkbenchError
            It is longer than `most` bytes, or damaged.
        """
        what = f"cannot read {shorten(name)} in {self.name}"
        try:
            with self.open(name) as file:
                data = file.read(most + 1)
        except (*_DAMAGED, RuntimeError) as error:
            self._note_failure(name, error)
            raise WorkbenchError(what, why=str(error), next_step="Collect it again.") from None
        if len(data) > most:
            raise WorkbenchError(
                what,
                why=f"it has more than {most >> 20} MiB",
                next_step="Give a smaller file.",
            )
        return data

    def head(self, name: str, length: int = 4096) -> bytes:
        """Return the first bytes of a file, or none where it is damaged."""
        try:
            with self.open(name) as file:
                return file.read(length)
        except (*_DAMAGED, RuntimeError) as error:
            self._note_failure(name, error)
            return b""

    def _note_failure(self, name: str, error: Exception) -> None:
        # (What is damaged inside a zip has no number of the system's.)
        if isinstance(error, OSError) and error.errno is not None:
            self.failed[name] = error.strerror or str(error)

    def close(self) -> None:
        """Close what is open."""

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str) -> IO[bytes]:
        raise NotImplementedError


class _Disk(Folder):
    def __init__(self, root: Path, name: str) -> None:
        super().__init__(name)
        self._root = root
        if root.is_file():
            self._root = root.parent
            self.sizes[root.name] = root.stat().st_size
            self.times[root.name] = root.stat().st_mtime
            return
        for found, status in sorted(self._walk(), key=lambda pair: pair[0]):
            self.sizes[found] = status.st_size
            self.times[found] = status.st_mtime

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        count = 0
        home = self._root.resolve()
        for folder, folders, files in os.walk(self._root):
            place = Path(folder)
            if len(place.relative_to(self._root).parts) >= MOST_DEPTH:
                self.notes.append(f"folders below {shorten(folder)} were not read")
                folders.clear()
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for file in sorted(files):
                path = place / file
                status = self._usable(path, home)
                if status is None:
                    continue
                count += 1
                if count > MOST_MEMBERS:
                    raise _too_many(self.name)
                yield path.relative_to(self._root).as_posix(), status

    def _usable(self, path: Path, home: Path) -> os.stat_result | None:
        """Return what an ordinary file is like; a link out of the folder is somebody else's file."""
        try:
            if path.is_symlink() and not path.resolve().is_relative_to(home):
                self.notes.append(
                    f"{shorten(path.name)} is a link that points outside the folder: not read"
                )
                return None
            status = path.stat()
        except OSError as error:
            self.notes.append(f"{shorten(path.name)} could not be read: {error.strerror}")
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def _open(self, name: str) -> IO[bytes]:
        return (self._root / name).open("rb")


class _Zip(Folder):
    def __init__(self, source: Path | IO[bytes], name: str) -> None:
        super().__init__(name)
        try:
            self._zip = zipfile.ZipFile(source)
            self._members = _checked(self._zip, name)
        except (*_DAMAGED, RuntimeError) as error:
            raise WorkbenchError(
                f"{name} is not a readable zip",
                why=str(error),
                next_step="Collect it again, or unpack it and give the folder.",
            ) from None
        for found, info in sorted(self._members.items()):
            self.sizes[found] = info.file_size
            with suppress(ValueError):  # a month 0, a hour 31
                self.times[found] = float(calendar.timegm((*info.date_time, 0, 0, 0)))

    def _open(self, name: str) -> IO[bytes]:
        return self._zip.open(self._members[name])

    def close(self) -> None:
        self._zip.close()


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """Open a folder, a zip or a single file of evidence.

    Raises
    ------
    WorkbenchError
        There is nothing there, or it is a zip that is damaged, encrypted or a trap.
    """
    try:
        place = Path(path).expanduser()
        mode = place.stat().st_mode
    except (OSError, TypeError, ValueError) as error:
        raise WorkbenchError(
            f"cannot read {shown(str(path))}",
            why=getattr(error, "strerror", None) or str(error),
            next_step="Give a folder or zip of dumps and logs, or one such file.",
        ) from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise WorkbenchError(
            f"{place} is neither a file nor a folder",
            next_step="Give a folder or zip of dumps and logs, or one such file.",
        )
    try:
        if stat.S_ISREG(mode) and zipfile.is_zipfile(place) and not _is_torch(place):
            return _Zip(place, str(path))
        return _Disk(place, str(path))
    except OSError as error:
        raise WorkbenchError(
            f"cannot read {place}",
            why=error.strerror or str(error),
            next_step="Make it readable for you, or copy it.",
        ) from None


def open_inner(folder: Folder, name: str) -> Folder:
    """Open a zip that lies in a folder or in another zip: one host of several."""
    return _Zip(io.BytesIO(folder.read(name)), f"{folder.name}/{name}")


def read_manifest(folder: Folder, prefix: str = "") -> Manifest | None:
    """Return the manifest of a case, or None where the folder is none.

    Parameters
    ----------
    prefix
        The folder in it that holds the case, with a slash at its end.

    Raises
    ------
    WorkbenchError
        The manifest is damaged, or of a format that is newer than this workbench.
    """
    if prefix + MANIFEST not in folder.sizes:
        return None
    import msgspec

    what = f"{folder.name} has an unreadable manifest"
    try:
        data = msgspec.json.decode(folder.read(prefix + MANIFEST, 32 << 20))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WorkbenchError(what, why=str(error), next_step="Collect it again.") from None
    form = data.get("format") if isinstance(data, dict) else None
    if not isinstance(form, str) or not form.startswith("workbench.case/"):
        return None  # somebody else's manifest.json
    if form != FORMAT:
        raise WorkbenchError(
            f"{folder.name} is a case of the format {shown(form)}",
            why=f"this workbench reads {FORMAT}",
            next_step="Update the workbench.",
        )
    return _manifest(data)


def changed_members(folder: Folder, manifest: Manifest, prefix: str = "") -> list[str]:
    """Return the files of a case that are not as they were collected: changed, or gone."""
    import hashlib

    wrong = []
    for name, wanted in manifest.hashes.items():
        if prefix + name not in folder.sizes:
            wrong.append(name)
            continue
        digest = hashlib.sha256()
        try:
            with folder._open(prefix + name) as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except (*_DAMAGED, RuntimeError):
            wrong.append(name)
            continue
        if digest.hexdigest() != wanted:
            wrong.append(name)
    return wrong


def _manifest(data: dict[str, Any]) -> Manifest:
    logs = {}
    for entry in _list(data.get("logs")):
        if isinstance(entry, dict) and isinstance(entry.get("file"), str):
            pids = (pid for pid in _list(entry.get("pids")) if isinstance(pid, int))
            logs[entry["file"]] = tuple(pids)
    members = data.get("members")
    hashes = {
        name: entry["sha256"]
        for name, entry in (members.items() if isinstance(members, dict) else ())
        if isinstance(entry, dict) and isinstance(entry.get("sha256"), str)
    }
    return Manifest(
        host=_text(data.get("host")),
        created=_number(data.get("created")),
        utc_offset=_number(data.get("utc_offset")),
        engine=_text(data.get("engine")),
        version=_text(data.get("version")),
        port_open=port if isinstance(port := data.get("port_open"), bool) else None,
        node_rank=rank if type(rank := data.get("node_rank")) is int and rank >= 0 else None,
        logs=logs,
        hashes=hashes,
        notes=tuple(shorten(note, 300) for note in _list(data.get("notes"))[:50] if _text(note)),
    )


def _checked(archive: zipfile.ZipFile, name: str) -> dict[str, zipfile.ZipInfo]:
    """Return the ordinary members of a zip, or say why it is not opened."""
    infos = archive.infolist()
    if len(infos) > MOST_MEMBERS:
        raise _too_many(name)
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in infos:
        reason = _danger(info)
        total += info.file_size
        if not reason and info.filename in members:
            reason = "is in it twice"
        if not reason and total > MOST_BYTES:
            reason = f"brings the total to more than {MOST_BYTES >> 30} GiB unpacked"
        if reason:
            raise WorkbenchError(
                f"{name} was not opened",
                why=f"its member {shown(info.filename)} {reason}",
                next_step="Ask for another copy, made by `workbench collect`.",
            )
        if not info.is_dir():
            members[info.filename] = info
    return members


def _danger(info: zipfile.ZipInfo) -> str:
    path = PurePosixPath(info.filename)
    packed = max(info.compress_size, 1)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in info.filename:
        return "has a path that points outside it"
    if info.filename[1:2] == ":" or not info.filename.isprintable():
        return "has a name that is not a plain path"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.compress_type not in _PACKINGS:
        return "is packed in an unknown way"
    if info.file_size > RATIO_FROM and info.file_size / packed > MOST_RATIO:
        return f"unpacks to {info.file_size / packed:.0f} times its size"
    return ""


def _is_torch(path: Path) -> bool:
    """Tell a torch checkpoint, which is a zip too, and no evidence of a hang; a damaged zip is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist()[:8])
    except (*_DAMAGED, RuntimeError):
        return False


def _too_many(name: str) -> WorkbenchError:
    return WorkbenchError(
        f"{name} was not read",
        why=f"it holds more than {MOST_MEMBERS} files",
        next_step="Give the folder that holds the dumps and logs of one launch.",
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return shorten(value) if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 else None
