"""What a launch is handed over as: a text, words, a file, a folder or a process, read within bounds."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, shorten

MOST_TEXT = 1 << 20
MOST_LOG = 16 << 20  # a log's first part: its arguments come first
_PACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}
# Files of bytes that have readers of their own.
_FORMED = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".zip"})
_LIKE_PATH = re.compile(
    r"(?:\.{0,2}/|~/)?[^\s'\"=$]+\.(?:sh|ya?ml|json|log|txt|gz|xz|bz2|service|bin|conf|out)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Handed:
    """A launch as text, with the file that it was read from ("" for none)."""

    text: str
    source: str = ""

    @property
    def folder(self) -> Path | None:
        """The folder of the file."""
        return Path(self.source).parent if self.source else None


def is_path(text: str) -> bool:
    """Whether a text names a file or a folder, and is no launch by itself."""
    if "\n" in text or "\0" in text or len(text) > 4096 or not text.strip():
        return False
    try:
        if Path(text).expanduser().exists():
            return True
    except (OSError, RuntimeError, ValueError):
        return False
    return bool(_LIKE_PATH.fullmatch(text.strip()))


def read_file(path: str | os.PathLike[str]) -> Handed:
    """Return the text of a file, packed or not, or of the launch that a folder holds.

    Raises
    ------
    WorkbenchError
        It is not there, is no file, or is too large for a launch.
    """
    try:
        place = Path(path).expanduser()
        place = _in_folder(place) if place.is_dir() else place
    except (OSError, RuntimeError, ValueError) as error:
        raise WorkbenchError(
            f"cannot read {shorten(os.fspath(path))}", why=str(error), next_step="Give a path."
        ) from None
    data = _bytes(place)
    log = b"server_args=" in data or place.suffix in (".log", ".gz", ".xz", ".bz2", ".out")
    if len(data) > MOST_TEXT and not log:
        raise WorkbenchError(
            f"{place} is too large for a launch",
            why=f"it has more than {MOST_TEXT:,} bytes",
            next_step="Give the script, the manifest or the log that holds the launch.",
        )
    return Handed(_decoded(data), str(place))


def _decoded(data: bytes) -> str:
    """Return bytes as text: UTF-16 where they begin with its mark, else UTF-8."""
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if marked else "utf-8-sig", "replace")


def nothing_to_read(place: Path) -> str:
    """Return why a file holds nothing that can be read, "" where it may: it is empty, or has no form."""
    try:
        with place.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        return error.strerror or str(error)
    if not head.strip():
        return "it is empty"
    formed = place.suffix in _FORMED or head.startswith(tuple(_PACKED))
    return (
        "" if formed or is_text(_decoded(head)) else "it is neither text nor a file that is known"
    )


def is_text(text: str) -> bool:
    """Whether what was decoded is text: few of its first characters are none that anybody types."""
    head = text[:4096]
    odd = sum(one == "\ufffd" or (one < " " and one not in "\t\n\r\f\x1b\0") for one in head)
    return odd * 10 <= len(head)


def _in_folder(folder: Path) -> Path:
    record = folder / "launch.json"
    if record.is_file():
        return record
    logs = sorted(
        file for file in folder.iterdir() if re.search(r"\.log(?:\.(?:gz|xz|bz2))?$", file.name)
    )
    if len(logs) == 1:
        return logs[0]
    raise WorkbenchError(
        f"{folder} holds no launch",
        why="it has no launch.json" + (f", and {len(logs)} logs" if logs else ", and no log"),
        next_step="Give the script, the log or the manifest itself.",
    )


def _bytes(place: Path) -> bytes:
    try:
        if not place.is_file():
            why = "it is a pipe or a device" if place.exists() else "there is no such file"
            raise WorkbenchError(
                f"cannot read {shorten(str(place))}", why=why, next_step="Give the path of a file."
            )
        with place.open("rb") as file:
            head = file.read(6)
        opener = next((o for mark, o in _PACKED.items() if head.startswith(mark)), None)
        with opener(place, "rb") if opener else place.open("rb") as stream:
            return stream.read(MOST_LOG)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise WorkbenchError(
            f"cannot read {shorten(str(place))}",
            why=getattr(error, "strerror", None) or str(error) or "it is cut short",
            next_step="Check that the file is whole and that you may read it.",
        ) from None
