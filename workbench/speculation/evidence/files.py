"""Files of others, read with care: regular files alone, of a bounded size, unpacked where they are packed."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from workbench.checkpoint.sources import check_regular
from workbench.errors import WorkbenchError, shown

MOST_BYTES = 4 << 30  # of one file, unpacked
_NAMED = 3  # of those that are left out, how many are named
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


def place_of(given: str | os.PathLike[str]) -> Path:
    """Return a path as it was given, with the home folder that it names.

    Raises
    ------
    WorkbenchError
        Nobody has that home folder.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise WorkbenchError(
            f"there is no {shown(os.fspath(given))}",
            why=str(error),
            next_step="Write the whole path.",
        ) from None


def content(path: Path, most: int = MOST_BYTES, *, whole: bool = True) -> bytes:
    """Return a file's content, unpacked.

    Parameters
    ----------
    most
        Bytes that it may have.
    whole
        Whether a larger file is refused; if not, its first bytes are returned.

    Raises
    ------
    WorkbenchError
        There is no such file, it is a pipe or a device, it is damaged, or it is too large.
    """
    try:
        check_regular(path)
    except WorkbenchError as error:
        step = "Check the path: it must be a file, not a folder, pipe or device."
        raise WorkbenchError(error.what, why=error.why, next_step=step) from None
    try:
        file: IO[bytes]
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            data = file.read(most + 1)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise WorkbenchError(
            f"cannot read {path}", why=str(error), next_step="Copy the file again."
        ) from None
    if whole and len(data) > most:
        raise WorkbenchError(
            f"{path} is larger than {most >> 20:,} MiB unpacked",
            next_step="Give a part of it.",
        )
    return data[:most]


def json_of(data: bytes | str, path: Path) -> Any:
    """Return what a JSON text says.

    Raises
    ------
    WorkbenchError
        It is none.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise WorkbenchError(f"{path} is not JSON", next_step="Copy the file again.") from None


def json_lines(path: Path) -> list[dict[str, Any]] | None:
    """Return the objects of a JSON lines file, packed or not; None where there is no such file."""
    if not path.is_file():
        plain = path.with_suffix("")
        if path.suffix != ".gz" or not plain.is_file():
            return None
        path = plain
    out = []
    for number, line in enumerate(content(path).splitlines(), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise WorkbenchError(
                f"line {number} of {path} is not a JSON object",
                next_step="Record again, or remove the line.",
            )
        out.append(value)
    return out


def left_out(what: str, odd: Sequence[tuple[str, WorkbenchError]]) -> list[str]:
    """Return the note that says which of many are not used, and why; none where all are.

    Parameters
    ----------
    what
        What they are, in the plural.
    odd
        The name of each, and what is wrong with it.
    """
    if not odd:
        return []
    told = [f"{name}: {error.what}" + f" ({error.why})" * bool(error.why) for name, error in odd]
    more = f"; and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
    return [f"{what} left out: {'; '.join(told[:_NAMED])}{more}"]
