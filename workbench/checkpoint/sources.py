"""Where the bytes of a checkpoint file come from: a local file, or ranges of a remote one."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from workbench.errors import CheckpointError, shown

# What a file really is when it is not what its name says: first bytes, description, next step.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "it is a Git LFS pointer: a small text in place of the weights, which were never downloaded",
        "Run `git lfs pull` in the repository, or download the file again.",
    ),
    (
        b"version https://hawser",
        "it is an old Git LFS pointer, not the weights",
        "Run `git lfs pull` in the repository, or download the file again.",
    ),
    (
        b"GGUF",
        "it is a GGUF file (llama.cpp), which this version does not read",
        "Give the safetensors checkpoint that the GGUF was converted from.",
    ),
    (
        b"\x93NUMPY",
        "it is a NumPy array (.npy), not a checkpoint",
        "Give a safetensors file; an array has no tensor names.",
    ),
    (
        b"\x89HDF",
        "it is an HDF5 file (Keras), which this version does not read",
        "Convert it to safetensors with the framework that wrote it.",
    ),
    (
        b"\x1f\x8b",
        "it is a gzip archive",
        "Unpack it first, and give what is inside.",
    ),
    (
        b"ustar",
        "it is a tar archive",
        "Unpack it first, and give what is inside.",
    ),
    (
        b"PK\x03\x04",
        "it is a zip archive: a PyTorch file (.bin, .pt) or an .npz under another name",
        "Rename it to .pt if torch.save wrote it, or convert it to safetensors.",
    ),
)
_HTML = (b"<!doctype", b"<html", b"<?xml", b"<head")


def looks_like(head: bytes) -> tuple[str, str] | None:
    """Return what a file is by its first bytes, and what to do: None where nothing is recognised."""
    for signature, why, next_step in _SIGNATURES:
        if head.startswith(signature):
            return why, next_step
    text = head.lstrip().lower()
    if text.startswith(_HTML):
        return (
            "it is a web page: an error or login page was saved in place of the file",
            "Download it again, logged in, from the address that serves the file itself.",
        )
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return (
            "it is a bare pickle (or an old torch.save file); nothing in it was executed",
            "Convert it to safetensors where you trust it, or give the original checkpoint.",
        )
    if text[:1] == b"{" and b"\0" not in head:
        return (
            "it is a JSON text, not weights",
            "Give the checkpoint folder, its *.index.json, or a weights file.",
        )
    return None


def not_json(error: Exception) -> str:
    """Return why a text could not be read as JSON, without Python's advice to change its limits."""
    if isinstance(error, RecursionError):
        return "it is not JSON as programs write it: it is nested thousands of levels deep"
    if "set_int_max_str_digits" in str(error):
        return "it holds a whole number of thousands of digits"
    return f"it is not JSON: {error}"


@dataclasses.dataclass(frozen=True, slots=True)
class Stamp:
    """What of a file changes when it is written anew or replaced: its inode, size and time."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """Return the stamp of a file; None where there is none any more."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


class Source(Protocol):
    """One file that can be read in ranges."""

    @property
    def name(self) -> str:
        """The file's own name: the `shard` of its tensors."""

    @property
    def label(self) -> str:
        """Path or address, for messages."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    @property
    def local(self) -> Path | None:
        """The file on this machine, or None."""

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes in that range; fewer only where the file ends before."""


@dataclasses.dataclass(frozen=True)
class LocalFile:
    """A file on this machine. Only regular files are opened: a FIFO would block for ever."""

    path: Path
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        if not self.name:
            object.__setattr__(self, "name", self.path.name)

    @property
    def label(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def local(self) -> Path:
        """The path."""
        return self.path

    @cached_property
    def size(self) -> int:
        """Length in bytes; checks that this is a regular file."""
        return check_regular(self.path).st_size

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes in that range."""
        _ = self.size
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(begin)
                parts = []
                while begin < end and (part := file.read(end - begin)):
                    parts.append(part)
                    begin += len(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)
        except OSError as error:
            raise unreadable(self.path, error) from None


def check_regular(path: Path) -> os.stat_result:
    """Return the status of a regular file.

    Raises
    ------
    CheckpointError
        There is no such file, it may not be read, or it is a directory, FIFO, socket or device.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:  # a NUL in the name
        raise CheckpointError(
            f"cannot read {shown(str(path))}", why=str(error), next_step="Check the spelling."
        ) from None
    if not stat.S_ISREG(status.st_mode):
        kinds = {
            stat.S_IFDIR: "a directory",
            stat.S_IFIFO: "a FIFO (named pipe)",
            stat.S_IFSOCK: "a socket",
            stat.S_IFCHR: "a device",
            stat.S_IFBLK: "a block device",
        }
        raise CheckpointError(
            f"cannot read {path}",
            why=f"it is {kinds.get(stat.S_IFMT(status.st_mode), 'a special file')}, not a file",
            next_step="Give a checkpoint file, or the folder that holds the checkpoint.",
        )
    return status


def unreadable(path: object, error: OSError) -> CheckpointError:
    """Return the error for a file that the system refuses to open."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        step = "Check the spelling; a broken symbolic link also looks like this."
    elif error.errno == errno.ELOOP:
        step = "Put the file itself in place of the symbolic link, which leads back to itself."
    elif error.errno == errno.ENAMETOOLONG:
        step = "Check the path: a name in it is longer than the file system allows."
    elif isinstance(error, PermissionError):
        step = "Ask for read permission (chmod +r), or run as the user that owns the file."
    else:
        step = "Check the disk or the network mount, then try again."
    return CheckpointError(f"cannot read {path}", why=error.strerror or str(error), next_step=step)


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of an fsspec filesystem, read in ranges only."""

    filesystem: Any
    path: str
    label: str
    name: str

    @property
    def local(self) -> None:
        """Remote files are not on this machine."""
        return None

    @cached_property
    def size(self) -> int:
        """Length in bytes as the server tells it."""
        try:
            size = self.filesystem.info(self.path).get("size")
        except Exception as error:  # each filesystem has exceptions of its own
            raise self._failed(error) from None
        if not isinstance(size, int):
            raise CheckpointError(
                f"cannot read {self.label} in ranges",
                why="the server does not tell the length of the file",
                next_step="Download the file and give its path.",
            )
        return size

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes in that range, and never ask for more."""
        end = min(end, self.size)
        if end <= begin:
            return b""
        try:
            with self.filesystem.open(self.path, "rb", cache_type="none") as file:
                if begin:
                    file.seek(begin)
                data = bytearray()
                while len(data) < end - begin and (part := file.read(end - begin - len(data))):
                    data += part
        except Exception as error:
            raise self._failed(error) from None
        if len(data) != end - begin:
            raise CheckpointError(
                f"cannot read {self.label}",
                why=f"the server sent {len(data):,} bytes where {end - begin:,} were asked for",
                next_step="Try again; if it stays so, download the file and give its path.",
            )
        return bytes(data)

    def _failed(self, error: Exception) -> CheckpointError:
        step = "Check the address, the network and the credentials, or download the file."
        if isinstance(error, FileNotFoundError):
            return CheckpointError(
                f"cannot read {self.label}", why="there is no such file", next_step=step
            )
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError) or "range" in text.lower() or "seek" in text.lower():
            text += " (does the server answer range requests?)"
        return CheckpointError(f"cannot read {self.label}", why=text, next_step=step)
