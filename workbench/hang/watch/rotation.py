"""The folder of a watch: its owner's alone, and only the last cases in it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from workbench.core.outputs import kind_of
from workbench.errors import WorkbenchError, shown

# Numbered, not dated: a clock that steps back must not make the newest case the oldest.
_CASE = re.compile(r"case-(\d{6,9})\.zip")


class Folder:
    """Where cases go.

    Parameters
    ----------
    path
        A new or empty folder, or one of an earlier watch.
    keep
        How many cases stay.

    Raises
    ------
    WorkbenchError
        It is no folder, another user's, or holds other files and is open to others.
    """

    def __init__(self, path: str | os.PathLike[str], keep: int) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise WorkbenchError(
                f"{shown(path)} is not a folder for cases",
                next_step="Give the path of a folder that exists or can be made.",
            )
        self.path = Path(path).expanduser()
        self.keep = keep
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._own()
        except FileExistsError:
            raise self._refused("it is not a folder") from None
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from None

    def _own(self) -> None:
        """Let only its owner in; a folder with other things in it is not ours to close."""
        found = self.path.stat()
        if not stat.S_IMODE(found.st_mode) & 0o077:
            return
        foreign = [one.name for one in self.path.iterdir() if not _CASE.fullmatch(one.name)]
        if foreign:
            raise self._refused(f"others may read it, and it holds other files ({foreign[0]})")
        if found.st_uid not in (os.geteuid(), 0) or os.geteuid() not in (0, found.st_uid):
            raise self._refused("it belongs to another user, and others may read it")
        self.path.chmod(0o700)

    def _refused(self, why: str) -> WorkbenchError:
        return WorkbenchError(
            f"cannot keep cases in {self.path}",
            why=why,
            next_step="Give a new folder, or one with mode 0700.",
        )

    def next(self) -> Path:
        """Return the path of the next case."""
        numbers = [number for number, _ in self.cases()]
        return self.path / f"case-{max(numbers, default=0) + 1:06}.zip"

    def cases(self) -> list[tuple[int, Path]]:
        """Return the cases with their numbers, the oldest first."""
        found = ((_CASE.fullmatch(one.name), one) for one in self.path.iterdir())
        return sorted((int(match[1]), one) for match, one in found if match)

    def rotate(self) -> None:
        """Remove the oldest cases, so that `keep` stay; what is no case stays, whatever its name."""
        cases = [path for _, path in self.cases() if kind_of(path) == "case"]
        for path in cases[: max(len(cases) - self.keep, 0)]:
            path.unlink(missing_ok=True)
