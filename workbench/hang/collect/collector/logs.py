"""Where a server writes its log, found through the files that it holds open."""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

from workbench.hang.collect.collector import proc

_PIPE = re.compile(r"^pipe:\[\d+\]$")
_NOT_A_LOG = ("/dev/", "/proc/", "/sys/", "/memfd:", "/tmp/.", "anon_inode:")
_COPIERS = ("tee", "cat", "ts", "rotatelogs", "multilog", "svlogd", "cronolog")
_LOG_NAME = re.compile(r"\.(log|out|err)(\.\d+)?$")


class LogFile(NamedTuple):
    """One log: its name, a path that opens it (through /proc, even if it was deleted), its writers."""

    name: str
    path: str
    pids: tuple[int, ...]


def find(
    pids: list[int], roots: tuple[int, ...], processes: dict[int, proc.Stat]
) -> tuple[list[LogFile], str]:
    """Return the logs of these processes, and what stands in the way where there is none.

    A server writes to its standard output and error: a file, or a pipe whose reader (tee, a
    supervisor) may write a file.
    """
    found: dict[tuple[int, int], tuple[str, str, set[int]]] = {}
    pipes: dict[str, int] = {}
    seen = ""
    for pid in pids:
        files = proc.open_files(pid)
        for number in (1, 2):
            target = files.get(number, "")
            seen = seen or target if pid in roots else seen
            if _PIPE.match(target):
                pipes.setdefault(target, pid)
            else:
                _note(found, pid, number, target, pid)
    for pid in processes if pipes else ():
        if pid in pids or pid == os.getpid():
            continue
        files = proc.open_files(pid)
        writers = {pipes[target] for target in files.values() if target in pipes}
        copies = proc.read(pid, "comm").strip() in _COPIERS
        for number, target in files.items() if writers else ():
            # Of any other reader only what is called a log: its files are its own affair.
            if number != 0 and (copies or _LOG_NAME.search(target)):
                _note(found, pid, number, target, min(writers))
    names: set[str] = set()
    logs = []
    for name, path, writers in found.values():
        unique = next(n for n in _names(name) if n not in names)
        names.add(unique)
        logs.append(LogFile(unique, path, tuple(sorted(writers))))
    return logs, "" if logs else _why(seen)


def open_paths(pids: list[int]) -> list[str]:
    """Return for each file that these processes have open a path that opens it."""
    return [
        f"{proc.PROC}/{pid}/fd/{number}"
        for pid in pids
        for number, target in proc.open_files(pid).items()
        if target.startswith("/")
    ]


def identities(paths: list[str]) -> set[tuple[int, int]]:
    """Return which files these paths lead to: a link or another mount hides none."""
    found = set()
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
    return found


def _note(
    found: dict[tuple[int, int], tuple[str, str, set[int]]],
    pid: int,
    number: int,
    target: str,
    writer: int,
) -> None:
    """Add an open file if it is a log: an ordinary file that is written to."""
    if not target.startswith("/") or target.startswith(_NOT_A_LOG):
        return
    path = f"{proc.PROC}/{pid}/fd/{number}"
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or not _is_written(pid, number):
            return
    except OSError:
        return
    name = os.path.basename(target.replace(" (deleted)", ""))
    entry = found.setdefault((status.st_dev, status.st_ino), (name, path, set()))
    entry[2].add(writer)


def _is_written(pid: int, number: int) -> bool:
    for line in proc.read(pid, f"fdinfo/{number}").splitlines():
        if line.startswith("flags:"):
            return bool(int(line.split()[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return False


def _names(name: str) -> list[str]:
    clean = re.sub(r"[^\w.+-]", "_", name)[-80:].lstrip(".") or "server.log"
    stem, _, ending = clean.rpartition(".")
    return [clean, *(f"{stem or ending}-{n}.{ending if stem else 'log'}" for n in range(2, 100))]


def _why(target: str) -> str:
    if not target:
        return "the server's open files may not be read by this user"
    if target.startswith(("/dev/pts", "/dev/tty")):
        return f"the server writes to a terminal ({target}), not to a file"
    if target.startswith("/dev/null"):
        return "the server's output goes to /dev/null"
    if target.startswith(("pipe:", "socket:")):
        return "the server's output goes to another program (docker logs, journalctl?)"
    return f"the server's output goes to {target}"
