"""Files are written beside their place, and moved there once they are whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from workbench.errors import WorkbenchError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file beside `path` for writing, and move it there once all is written.

    Raises
    ------
    WorkbenchError
        The folder is missing or cannot be written to. Nothing is left behind.
    """
    try:
        path = Path(path).expanduser()
    except TypeError as error:
        raise WorkbenchError(
            f"{path!r} is no path to write to", why=str(error), next_step="Give the path of a file."
        ) from None
    path = Path(os.path.realpath(path))  # a link stays one
    if path.is_dir():
        raise WorkbenchError(
            f"cannot write {path}", why="it is a folder", next_step="Give the path of a file in it."
        )
    if path.exists() and not path.is_file():  # root could replace /dev/null by a page
        raise WorkbenchError(
            f"cannot write {path}",
            why="it is a device or a pipe, and a result is moved to its place once it is whole",
            next_step="Give the path of a file.",
        )
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            next_step="Choose a folder that exists and that you may write to.",
        ) from None
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except OSError as error:
        raise WorkbenchError(
            f"cannot write {path}",
            why=error.strerror or str(error),
            next_step="Free some space, or choose another path.",
        ) from None
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
