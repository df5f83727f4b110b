"""Stacks as pystack and gdb's `py-bt` print them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

from workbench.errors import clean
from workbench.hang.read.pyspy import MOST_DUMPS, MOST_FRAMES, MOST_THREADS, TextDump
from workbench.hang.records import Dump, Frame, Thread

_LONGEST_NAME = 400
_LONGEST_PATH = 1000
_PYSTACK = re.compile(
    r"^\s*Traceback for thread (?P<id>\d{1,10})(?: \((?P<name>[^)\n]{0,64})\))? "
    r"\[(?P<state>[^\]\n]{0,200})\] \(most recent call last\):"
)
_PYSTACK_FRAME = re.compile(
    r'^\s*\((?P<kind>Python|C)\) File "(?P<file>[^"\n]{0,2000})", line (?P<line>\d{1,9}),? '
    r"in (?P<function>.{1,2000}?)\s*$"
)
_LIBRARY = re.compile(r"^(?P<name>.*?) \((?P<library>/[^()\n]{0,1000})\)$")
_GDB_THREAD = re.compile(
    r"^\s*Thread \d{1,6} \(Thread 0x[0-9a-f]{1,16} \(LWP (?P<id>\d{1,10})\)"
    r"(?: \"(?P<name>[^\"\n]{0,64})\")?\):"
)
_GDB_TRACE = re.compile(r"^\s*Traceback \(most recent call first\):\s*$")
_GDB_FRAME = re.compile(
    r'^\s*(?:#\d{1,5} )?(?:Frame 0x[0-9a-f]+, for file |File ")(?P<file>[^",\n]{1,2000})"?'
    r", line (?P<line>\d{1,9}), in (?P<function>[^\s(]{1,400})"
)
# A frame that py-spy does not have either: what calls it says where the thread is.
_GDB_BUILT_IN = re.compile(r"^\s*<built-in method ")
_GDB_NATIVE = re.compile(
    r"^\s*#\d{1,5} +(?:0x[0-9a-f]{1,16} in )?(?P<function>[^\s(][^(\n]{0,2000}?)"
    r" \(.*?(?: from (?P<library>\S{1,1000}))?\s*$"
)
_GDB_PROCESS = re.compile(
    r"^\[Inferior \d+ \(process (?P<pid>\d{1,10})\) detached\]"
    r"|^Attaching to (?:program: .*, )?process (?P<other>\d{1,10})"
)


def has_pystack(text: str) -> bool:
    """Whether a text has a stack of pystack's."""
    return re.search(f"(?m){_PYSTACK.pattern}", text) is not None


def has_gdb(text: str) -> bool:
    """Whether a text has stacks of gdb's: Python's own, or all threads' native ones."""
    return (
        re.search(f"(?m){_GDB_TRACE.pattern}", text) is not None
        or re.search(f"(?m){_GDB_THREAD.pattern}", text) is not None
    )


def read_pystack(lines: Sequence[str]) -> list[TextDump]:
    """Read what ``pystack remote PID`` printed; a process ends where a thread comes again.

    The pid is the main thread's, which pystack prints last.
    """
    threads: list[tuple[int, Thread]] = []
    found: list[TextDump] = []
    start = 0

    def close() -> None:
        if threads and len(found) < MOST_DUMPS:
            found.append(_dump("pystack", threads, start))
        threads.clear()

    number = 0
    while number < len(lines):
        head = _PYSTACK.match(lines[number])
        if head is None:
            # Another command's output between two runs: what follows is another process, or another time.
            if threads and lines[number].strip() and not _of_pystack(lines[number]):
                close()
            number += 1
            continue
        frames, end = _taken(lines, number + 1, _pystack_frame, _of_pystack)
        identity = int(head["id"])
        if any(known == identity for known, _ in threads):
            close()
        if not threads:
            start = number
        state = head["state"].lower()
        name = clean(head["name"] or "")
        thread = Thread(
            tuple(reversed(frames)), name, identity, None, "has the gil" in state or "gil]" in state
        )
        if len(threads) < MOST_THREADS:
            threads.append((identity, thread))
        number = end
    close()
    return found


def read_gdb(lines: Sequence[str]) -> list[TextDump]:
    """Read ``py-bt`` and ``thread apply all py-bt`` of gdb, or the native ``bt`` of all threads.

    Of a single ``py-bt`` the thread is not known; of several threads the lowest number is the process's.
    """
    found: list[TextDump] = []
    threads: list[tuple[int, Thread]] = []
    alone: list[Thread] = []
    start, pid = 0, 0

    def close() -> None:
        nonlocal pid
        if (threads or alone) and len(found) < MOST_DUMPS:
            parts = threads or [(pid, thread) for thread in alone[-1:]]
            found.append(_dump("gdb", parts, start, pid))
        threads.clear()
        alone.clear()
        pid = 0

    number = 0
    while number < len(lines):
        line = lines[number]
        named = _GDB_PROCESS.match(line)
        head = _GDB_THREAD.match(line)
        if named:
            pid = int(named["pid"] or named["other"])
            if named["pid"]:  # detached: the end of this process's output
                close()
        if head or _GDB_TRACE.match(line):
            body = number + 1
            while head and body < len(lines) and _GDB_TRACE.match(lines[body]):
                body += 1
            frames, end = _taken(lines, body, _gdb_frame, _of_gdb)
            identity = int(head["id"]) if head else 0
            if not threads and not alone:
                start = number
            if head and any(known == identity for known, _ in threads):
                close()
                start = number
            thread = Thread(
                tuple(frames), clean((head["name"] or "") if head else ""), identity or None
            )
            if frames and head and len(threads) < MOST_THREADS:
                threads.append((identity, thread))
            elif frames and not head:
                alone.append(thread)
            number = max(end, number + 1)
            continue
        number += 1
    close()
    return found


def _taken(
    lines: Sequence[str],
    number: int,
    read: Callable[[str], Frame | None],
    goes_on: Callable[[str], bool],
) -> tuple[list[Frame], int]:
    """Return the frames from a line on, and the first line that is none of the stack's."""
    frames: list[Frame] = []
    while number < len(lines):
        frame = read(lines[number])
        if frame is not None:
            if len(frames) < MOST_FRAMES:
                frames.append(frame)
        elif not goes_on(lines[number]):
            break
        number += 1
    return frames, number


def _of_pystack(line: str) -> bool:
    """Whether a line goes on with a stack: its source line, its locals, or nothing."""
    return (
        line.startswith("      ")
        or (line.strip() == "" and line != "")
        or _PYSTACK_FRAME.match(line) is not None
    )


def _pystack_frame(line: str) -> Frame | None:
    match = _PYSTACK_FRAME.match(line)
    if match is None:
        return None
    function = match["function"]
    if match["kind"] == "Python":
        return Frame(
            clean(function)[:_LONGEST_NAME],
            clean(match["file"])[:_LONGEST_PATH],
            int(match["line"]),
        )
    library = _LIBRARY.match(function.removesuffix(" (inlined)"))
    name = library["name"] if library else function
    place = library["library"] if library else "native"
    return Frame(
        "<native>+?" if name == "???" else clean(name)[:_LONGEST_NAME],
        "",
        0,
        clean(place)[:_LONGEST_PATH],
    )


def _of_gdb(line: str) -> bool:
    """Whether a line goes on with a stack: its source line, or a frame that could not be read."""
    if _GDB_THREAD.match(line) or _GDB_TRACE.match(line) or line.startswith("["):
        return False
    unread = "unable to read python frame" in line
    return line.startswith("    ") or unread or _GDB_BUILT_IN.match(line) is not None


def _gdb_frame(line: str) -> Frame | None:
    if match := _GDB_FRAME.match(line):
        return Frame(
            clean(match["function"])[:_LONGEST_NAME],
            clean(match["file"])[:_LONGEST_PATH],
            int(match["line"]),
        )
    if match := _GDB_NATIVE.match(line):
        name = match["function"]
        return Frame(
            "<native>+?" if name == "??" else clean(name)[:_LONGEST_NAME],
            "",
            0,
            clean(match["library"] or "native"),
        )
    return None


def _dump(source: str, parts: Iterable[tuple[int, Thread]], start: int, pid: int = 0) -> TextDump:
    """Return one process: its main thread has the process's number, the lowest where that is not known."""
    parts = list(parts)
    known = pid or min((number for number, _ in parts if number), default=0)
    rooted = [
        n
        for n, thread in parts
        if thread.frames and any(f.function == "<module>" for f in thread.frames)
    ]
    main = (
        known
        if any(number == known for number, _ in parts)
        else rooted[0]
        if len(rooted) == 1
        else None
    )
    alone = len(parts) == 1
    threads = tuple(
        dataclasses.replace(thread, main=alone or number == main) for number, thread in parts
    )
    native = any(frame.module for thread in threads for frame in thread.frames)
    return TextDump(Dump(known or -1 - start, source, threads, native=native), "", start)
