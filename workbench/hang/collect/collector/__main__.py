"""The collector as a program: ``python3 workbench-collect.pyz -o case.zip [PID]``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import zipfile

from workbench import __version__
from workbench.evidence.casefile import FORMAT, MANIFEST
from workbench.hang.collect.collector.collect import Collected, Plan, collect
from workbench.hang.collect.collector.preview import preview
from workbench.hang.collect.collector.servers import CollectError
from workbench.hang.collect.collector.stopping import stopping


def main(words: list[str] | None = None) -> int:
    """Collect a case; 0: it is written, 2: it could not be."""
    parser = argparse.ArgumentParser(
        prog="workbench-collect",
        description="Collect what can be seen of a server of SGLang or vLLM on this host into one zip. "
        "Nothing is changed in the server: py-spy pauses each process for a fraction of a second.",
    )
    parser.add_argument("pid", nargs="?", type=int, help="any process of the server")
    parser.add_argument("-o", "--out", help="the zip to write")
    parser.add_argument(
        "--preview", action="store_true", help="show what would leave the host, and write nothing"
    )
    parser.add_argument("--snapshots", type=int, default=2, help="how many (2)")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between them (30)")
    parser.add_argument("--native", action="store_true", help="native frames, too")
    parser.add_argument("--log", help="the server's log, if it is not found by itself")
    parser.add_argument("--py-spy", help="the program py-spy, where it is not found automatically")
    parser.add_argument(
        "--salt", help="a word that hosts collected for one case share (their job's id)"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a file that is not a collected case"
    )
    given = parser.parse_args(words)
    if given.snapshots < 1 or given.interval < 0:
        parser.error("--snapshots must be at least 1, --interval at least 0")
    if bool(given.out) == given.preview:
        parser.error("give either -o, the zip to write, or --preview")
    plan = Plan(
        pid=given.pid,
        snapshots=given.snapshots,
        interval=given.interval,
        native=given.native,
        log=given.log,
        py_spy=given.py_spy,
        tool=f"workbench-collect {__version__}",
        salt=given.salt,
        target=given.out,
        say=_say,
    )
    try:
        if given.preview:
            print(preview(plan), end="")
            return 0
        check(given.out, given.force)
        with stopping():
            found = write(given.out, plan)
    except KeyboardInterrupt:
        print("workbench-collect: interrupted before anything was taken", file=sys.stderr)
        return 130
    except (CollectError, OSError) as error:
        print(f"workbench-collect: {error}", file=sys.stderr)
        return 2
    lacking = "" if found.stacks else ", no stacks"
    print(f"{given.out}: {found.snapshots} snapshots of {found.processes} processes{lacking}")
    for note in found.notes:
        print(f"  {note}")
    return 0


def check(path: str, force: bool = False) -> None:
    """Refuse a path where something lies that is not a collected case."""
    what = f"cannot write {path}"
    if os.path.exists(path) and not os.path.isfile(path):
        raise CollectError(what, "it is a folder or a device", "Give the path of a file.")
    if os.path.exists(path) and not force and not _is_case(path):
        raise CollectError(
            what, "it exists and is not a collected case", "Choose another path, or give --force."
        )


def _is_case(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return f'"format": "{FORMAT}"'.encode() in archive.read(MANIFEST)[:4096]
    except (OSError, KeyError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile):
        return False


def write(path: str, plan: Plan) -> Collected:
    """Write a case to a path, whole or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, name = tempfile.mkstemp(prefix=".case-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            found = collect(out, plan)
        own(name)
        os.replace(name, path)
        return found
    except BaseException:
        os.unlink(name)
        raise


def own(path: str) -> None:
    """Let only its owner read a case: under sudo whoever asked for it."""
    os.chmod(path, 0o600)
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdigit() and group.isdigit():
        os.chown(path, int(user), int(group))


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
