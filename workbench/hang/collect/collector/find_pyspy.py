"""Which py-spy is run, and which version it is: the one of this Python first, then the one on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import NamedTuple, Optional

# The first that reads Python 3.12; 0.3.14 refuses it, and every newer one.
OLDEST = (0, 4, 0)
_TIMEOUT = 10.0
_VERSION = re.compile(r"py-spy (\d+)\.(\d+)\.(\d+)")


class Found(NamedTuple):
    """A py-spy: where it is, its version, and what is wrong with it.

    Attributes
    ----------
    path
        The program; None where there is none that runs.
    version
        As it prints it; empty where it did not.
    warning
        Why it may give no stacks; empty where nothing is known against it.
    """

    path: Optional[str]  # noqa: UP045  # the collector also runs on Python 3.9
    version: str = ""
    warning: str = ""


def find() -> Found:
    """Return the first py-spy that says its version, or the first at all."""
    places = candidates()
    found = [examine(path) for path in places]
    running = [one for one in found if one.version]
    return (running or found or [Found(None)])[0]


def candidates() -> list[str]:
    """Return the programs named py-spy: next to this Python, where pip puts it, then on the PATH."""
    folders = [
        _scripts(),
        os.path.dirname(sys.executable or ""),
        _scripts(f"{os.name}_user"),  # pip install --user
    ]
    named = [os.path.join(folder, "py-spy") for folder in folders if folder]
    paths = [path for path in named if os.path.isfile(path) and os.access(path, os.X_OK)]
    on_path = shutil.which("py-spy")
    return list(dict.fromkeys(paths + ([on_path] if on_path else [])))


def _scripts(scheme: str | None = None) -> str:
    """Return the folder in which pip puts programs, "" where this user cannot read what names it."""
    try:
        return (
            sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        ) or ""
    except (AttributeError, ImportError, KeyError, OSError):
        return ""


def examine(path: str) -> Found:
    """Ask a py-spy for its version."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or "it does not answer"
        return Found(path, "", f"py-spy does not say its version: {why}")
    match = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    if match is None:
        return Found(path, "", "py-spy does not say its version")
    numbers = tuple(map(int, match.groups()))
    version = ".".join(match.groups())
    if numbers < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Found(
            path,
            version,
            f"py-spy {version} is too old: it reads no Python 3.12 or newer. "
            f"Install {wanted} or newer: pip install --upgrade py-spy",
        )
    return Found(path, version)
