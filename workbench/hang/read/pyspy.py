"""Stacks from py-spy (JSON and text), from SGLang's own dumps in a log, and from faulthandler."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

import msgspec

from workbench.errors import WorkbenchError, clean
from workbench.hang.records import Dump, Frame, Thread

# py-spy itself stops at 4,096 of each.
MOST_THREADS = 4096
MOST_FRAMES = 4096
MOST_DUMPS = 4096
_LONGEST_NAME = 400
_LONGEST_PATH = 1000

_PROCESS = re.compile(r"^Process (\d{1,10}): ?(.*)$")
_PYTHON = re.compile(r"^Python v(\S{1,40})(?: \((.*)\))?\s*$")
_THREAD = re.compile(
    r"^Thread (?:(\d{1,20})|0x[0-9a-fA-F]{1,16}) \((idle|active)(\+gil)?\)(?:: \"(.*)\")?\s*$"
)
_PLACE = re.compile(r"(.*?)(?::(\d{1,9}))?")
_LOCALS = re.compile(r"^ {8,}")
_DUMP = re.compile(r"Pyspy dump for PID (\d{1,10})(?: \(([^)\n]{0,200})\))?:\s*$")
_FAILED = re.compile(
    r"Pyspy failed (?:to dump PID (?P<pid>\d{1,10})\.|\((?P<command>[^)\n]{0,200})\)\.) Error: ?(?P<why>.*)$"
)
_PID_OF_COMMAND = re.compile(r"--pid (\d{1,10})")
_FATAL = re.compile(r"Fatal Python error: (.{0,120})")
_FAULT_THREAD = re.compile(
    r"(?P<before>.*?)(?P<current>Current thread|Thread) 0x(?P<id>[0-9a-fA-F]{1,16})"
    r"(?: \[(?P<name>[^\]\n]{0,64})\])? \(most recent call first\):\s*$"
)
_FAULT_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]{0,2000})", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>\S.{0,500}?)\s*$'
)
_CLOCK = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_HEX = re.compile(r"^(?:0x)?[0-9a-fA-F]{6,16}$")


@dataclasses.dataclass(frozen=True, slots=True)
class TextDump:
    """A dump found in a text, with what the text says next to it.

    Attributes
    ----------
    title
        The command line that py-spy shows, "" where there is none.
    line
        Number of the text's line, from 0, at which it begins.
    prefix
        The rank of the log line that announces it (``TP0``); the process dumps itself, so it is its own.
    """

    dump: Dump
    title: str = ""
    line: int = 0
    prefix: str = ""


class _JsonFrame(msgspec.Struct, gc=False):
    name: str = ""
    filename: str | None = ""
    module: str | None = None
    line: int = 0


class _JsonThread(msgspec.Struct, gc=False):
    frames: list[_JsonFrame]
    pid: int | None = None
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None


_JSON = msgspec.json.Decoder(list[_JsonThread])
Frames = dict[tuple[str, str | None, int, str | None], Frame]


def read_json(
    data: bytes, pid: int | None = None, *, frames: Frames | None = None, what: str = "the dump"
) -> Dump:
    """Read what ``py-spy dump --json`` wrote.

    Parameters
    ----------
    pid
        The process, where the file's name tells it; a dump of no threads does not.
    frames
        Frames made before: the ranks of a server are in the same ones.

    Raises
    ------
    WorkbenchError
        It is no JSON, or no dump.
    """
    hint = "Take it again: py-spy dump --json --pid PID."
    try:
        threads = _JSON.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"{what} is no py-spy JSON", why=str(error), next_step=hint) from None
    known: Frames = {} if frames is None else frames
    read = [_thread(thread, known) for thread in threads[:MOST_THREADS]]
    number = next((thread.pid for thread in threads if thread.pid is not None), pid)
    if number is None or not 0 <= number < 1 << 31:
        raise WorkbenchError(
            f"{what} does not say of which process it is",
            why="it has no threads, and the file's name has no pid",
            next_step="Name the file pyspy-PID.json.",
        )
    return Dump(number, "py-spy", _with_main(read, number), native=_is_native(read))


def is_json_dump(head: bytes) -> bool:
    """Tell a py-spy dump by its first bytes."""
    return head.lstrip()[:1] == b"[" and b'"frames"' in head and b'"thread_id"' in head


def read_text(lines: Sequence[str]) -> list[TextDump]:
    """Read what ``py-spy dump`` wrote, one process or several one after the other."""
    found: list[TextDump] = []
    number = 0
    while number < len(lines) and len(found) < MOST_DUMPS:
        match = _PROCESS.match(lines[number])
        if match is None:
            number += 1
            continue
        start = number
        threads, number = _text_threads(lines, number + 1)
        pid = int(match[1])
        dump = Dump(pid, "py-spy text", _with_main(threads, pid), native=_is_native(threads))
        found.append(TextDump(dump, clean(match[2].strip()[:2000]), start))
    return found


def read_watchdog(lines: Sequence[str]) -> list[TextDump]:
    """Read the dumps that SGLang's watchdogs and crash handlers wrote into a log.

    Up to 0.5.10 ``Pyspy dump for PID N:``, since then with the command in parentheses. Failures are
    dumps without threads that say why.
    """
    found: list[TextDump] = []
    number = 0
    while number < len(lines) and len(found) < MOST_DUMPS:
        line = lines[number]
        failed = _FAILED.search(line) if "Pyspy failed" in line else None
        match = _DUMP.search(line) if "Pyspy dump" in line else None
        if failed:
            found += _failure(failed, line, number)
        if match is None:
            number += 1
            continue
        start = number
        pid = int(match[1])
        at = number + 1
        while at < len(lines) and at < number + 4 and not _PROCESS.match(lines[at]):
            at += 1
        head = _PROCESS.match(lines[at]) if at < len(lines) else None
        if head is None or int(head[1]) != pid:
            number += 1
            continue
        threads, number = _text_threads(lines, at + 1)
        dump = Dump(pid, "watchdog", _with_main(threads, pid), native=_is_native(threads))
        found.append(TextDump(dump, clean(head[2].strip()[:2000]), start, _prefix(line)))
    return found


def read_faulthandler(lines: Sequence[str], *, asked: bool = False) -> list[TextDump]:
    """Read the stacks that Python prints when it is killed by a signal (SIGABRT, SIGSEGV).

    With `asked` they were asked for, and no line says why they were printed.

    A block names neither process nor rank, and threads have no names (before 3.14). Blocks of several
    processes may interleave: a thread's block ends at the first line that is no frame, and of lines in
    between only frames are taken. The pids are made up: -1, -2, … in order.
    """
    found: list[TextDump] = []
    threads: list[Thread] = []
    frames: list[Frame] | None = None
    start, current, why = 0, False, ""

    def close_thread() -> None:
        nonlocal frames
        if frames:
            threads.append(Thread(tuple(frames), main=False, active=current or None))
        frames = None

    def close_block() -> None:
        nonlocal threads, why
        close_thread()
        if threads:
            dump = Dump(-1 - len(found), "faulthandler", _guess_main(threads), refusal="")
            found.append(TextDump(dump, why, start))
        threads, why = [], ""

    for number, line in enumerate(lines):
        fatal = _FATAL.search(line)
        if fatal:
            close_block()
            start, why = number, clean(fatal[1].strip())
            continue
        head = _FAULT_THREAD.match(line)
        if head and (asked or why or head["current"] == "Current thread" or threads):
            close_thread()
            frames, current = [], head["current"] == "Current thread"
            continue
        frame = _FAULT_FRAME.match(line) if frames is not None else None
        if frame and frames is not None and len(frames) < MOST_FRAMES:
            shown = frame["line"]
            frames.append(
                Frame(
                    clean(frame["function"])[:_LONGEST_NAME],
                    clean(frame["file"])[:_LONGEST_PATH],
                    int(shown) if shown.isdigit() else 0,
                )
            )
        elif frames is not None and not line.strip():
            close_thread()
        elif frames is not None and line.startswith("Extension modules:"):
            close_block()
        if len(threads) >= MOST_THREADS or len(found) >= MOST_DUMPS:
            break
    close_block()
    return found


def _thread(thread: _JsonThread, known: Frames) -> Thread:
    frames = []
    for frame in thread.frames[:MOST_FRAMES]:
        key = (frame.name, frame.filename, frame.line, frame.module)
        made = known.get(key)
        if made is None:
            made = known[key] = _frame(frame)
        frames.append(made)
    number = thread.os_thread_id
    return Thread(
        tuple(frames),
        clean(thread.thread_name or "")[:_LONGEST_NAME],
        number if number is not None and 0 <= number < 1 << 63 else None,
        thread.active,
        thread.owns_gil is True,
    )


def _frame(frame: _JsonFrame) -> Frame:
    library = clean(frame.module or "")[:_LONGEST_PATH]
    return Frame(
        _function(frame.name, library),
        clean(frame.filename or "")[:_LONGEST_PATH],
        frame.line if 0 <= frame.line < 1 << 31 else 0,
        library,
    )


def _function(name: str, library: str) -> str:
    """Return a function's name; an address, which differs from process to process, as ``<libc.so.6>+?``."""
    if _HEX.match(name) and (library or name.startswith("0x")):
        return f"<{library.rpartition('/')[2] or 'native'}>+?"
    name = clean(name)
    if len(name) > _LONGEST_NAME:  # C++ templates run to thousands of characters
        name = name[: _LONGEST_NAME - 1] + "…"
    return name


def _text_threads(lines: Sequence[str], number: int) -> tuple[tuple[Thread, ...], int]:
    """Read the threads that follow a ``Process`` line, and where they end."""
    threads: list[Thread] = []
    frames: list[Frame] = []
    head: re.Match[str] | None = None
    while number < len(lines):
        line = lines[number]
        new = _THREAD.match(line)
        frame = None if new or head is None else _text_frame(line)
        ended = _PROCESS.match(line) or _CLOCK.match(line)
        if new:
            if head is not None and len(threads) < MOST_THREADS:
                threads.append(_text_thread(head, frames))
            head, frames = new, []
        elif frame:
            if len(frames) < MOST_FRAMES:
                frames.append(frame)
        elif ended or not (_is_filler(line) or (head is not None and _LOCALS.match(line))):
            break
        number += 1
    if head is not None and len(threads) < MOST_THREADS:
        threads.append(_text_thread(head, frames))
    return tuple(threads), number


def _is_filler(line: str) -> bool:
    return not line.strip() or _PYTHON.match(line) is not None


def _text_thread(head: re.Match[str], frames: Iterable[Frame]) -> Thread:
    number = int(head[1]) if head[1] else None
    # The text form shows the OS thread id where py-spy knows it, else the pthread id.
    os_id = number if number is not None and number < 1 << 32 else None
    return Thread(
        tuple(frames),
        clean(head[4] or "")[:_LONGEST_NAME],
        os_id,
        head[2] == "active",
        bool(head[3]),
    )


def _text_frame(line: str) -> Frame | None:
    """Read ``    function (place:line)``; a C++ name may hold blanks and parentheses itself."""
    line = line.rstrip()
    at = line.rfind(" (")
    if at < 5 or not line.startswith("    ") or line[4] == " " or not line.endswith(")"):
        return None
    match = _PLACE.fullmatch(line[at + 2 : -1])
    if match is None:
        return None
    # A native frame's place is its library; a Python one's is its file.
    library = match[1] if re.search(r"\.so(?:\.\d+)*$", match[1]) else ""
    return Frame(
        _function(line[4:at], library),
        "" if library else clean(match[1])[:_LONGEST_PATH],
        int(match[2] or 0),
        clean(library)[:_LONGEST_PATH],
    )


def _with_main(threads: Iterable[Thread], pid: int) -> tuple[Thread, ...]:
    """Mark the main thread: by its name, or by an OS thread id that is the pid."""
    every = tuple(threads)
    main = [i for i, thread in enumerate(every) if thread.os_id == pid] or [
        i for i, thread in enumerate(every) if thread.name == "MainThread"
    ]
    return tuple(
        dataclasses.replace(thread, main=True) if main and i == main[0] else thread
        for i, thread in enumerate(every)
    )


def _guess_main(threads: Sequence[Thread]) -> tuple[Thread, ...]:
    """Mark the one thread of a block that stands on the scheduler's own function, the root of its main."""
    roots = (
        "run_scheduler_process",
        "run_detokenizer_process",
        "run_data_parallel_controller_process",
    )
    main = [
        i
        for i, thread in enumerate(threads)
        if any(frame.function.rpartition(".")[2] in roots for frame in thread.frames)
        or (thread.frames[-1].function == "<module>" and thread.frames[-1].file != "<frozen runpy>")
    ]
    return tuple(
        dataclasses.replace(thread, main=True) if len(main) == 1 and i == main[0] else thread
        for i, thread in enumerate(threads)
    )


def _failure(match: re.Match[str], line: str, number: int) -> list[TextDump]:
    named = match["pid"] or ""
    if not named and match["command"]:
        command = _PID_OF_COMMAND.search(match["command"])
        named = command[1] if command else ""
    if not named:
        return []
    why = clean(match["why"].strip())[:300]
    if "not found" in why:
        refusal, remedy = (
            "py-spy was not found",
            "Install py-spy next to SGLang: pip install py-spy.",
        )
    elif "ermission" in why:
        refusal, remedy = "no permission to read the process", "Give the container SYS_PTRACE."
    else:
        refusal, remedy = f"py-spy failed: {why or 'it printed nothing'}", ""
    dump = Dump(int(named), "watchdog", refusal=refusal, remedy=remedy)
    return [TextDump(dump, "", number, _prefix(line))]


def _prefix(line: str) -> str:
    """Return the rank of a log line's prefix."""
    match = re.match(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?((?: [A-Z_]+\d+)*)\]", line)
    return match[1].strip() if match else ""


def _is_native(threads: Iterable[Thread]) -> bool:
    return any(frame.module for thread in threads for frame in thread.frames)
