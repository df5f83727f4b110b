"""A text that somebody pasted: an issue in Markdown, or the output of several tools one after the other.

Stacks are read wherever they are; logs only inside fences, because what a person writes around them is no
evidence. A stack gets a rank, and a pass a time, only where the text says so.
"""

from __future__ import annotations

import calendar
import dataclasses
import itertools
import re
import textwrap
import time
from collections.abc import Iterator, Sequence

from workbench.errors import WorkbenchError
from workbench.hang.read.log import is_log
from workbench.hang.read.pyspy import (
    TextDump,
    is_json_dump,
    read_faulthandler,
    read_json,
    read_text,
)
from workbench.hang.read.tracebacks import has_gdb, has_pystack, read_gdb, read_pystack

LOOKED_FOR = (
    "py-spy (JSON or text), pystack, gdb's py-bt, faulthandler, `ray stack`, a log, nvidia-smi, NCCL RAS, "
    "PyTorch's flight recorder"
)
"""What a file may be, for a message about one that is none of it."""
MOST_BYTES = 32 << 20

_FENCE = re.compile(r"^\s*(?:>\s?)*(?P<mark>`{3,}|~{3,})\s*(?P<kind>[\w.+-]*)\s*$")
_PRE = re.compile(r"^\s*<(?P<end>/?)pre>\s*(?:<code>)?\s*$", re.IGNORECASE)
_PROCESS = re.compile(r"(?m)^\s*Process \d{1,10}: ")
_FAULT = re.compile(
    r"(?m)^\s*(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}[^\n]{0,80}\(most recent call first\):"
)
# A label of one rank; `TP=8` and `TP 8` are sizes.
_RANK = re.compile(r"\brank[ _#:=-]{0,2}(\d{1,5})\b|\b(?:Worker_)?TP(\d{1,5})\b", re.IGNORECASE)
_PID = re.compile(r"\bpid[ :=#]{0,2}(\d{2,10})\b", re.IGNORECASE)
_DATE = re.compile(r"\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_TIME = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
_SPAN = r"(\d{1,5}(?:\.\d+)?) ?(s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b"
_LATER = re.compile(
    rf"\b(?:after|waited|waiting)\b[^.\n\d]{{0,30}}{_SPAN}|{_SPAN}[^.\n\d]{{0,20}}\b(?:later|after|apart)\b",
    re.IGNORECASE,
)
# What a person or a script writes between two stacks: no line of a stack is at the margin and has a clock.
_PROSE = re.compile(r"(?![^\n]*(?:\.py\b|\bFrame 0x|\bThread ))[#=\-*\w\[(][^\n]{0,200}$")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True, slots=True)
class PastedDump:
    """A stack out of a text; `rank` is None and `at` is None where the text does not say them."""

    found: TextDump
    rank: int | None = None


@dataclasses.dataclass(slots=True)
class Pass:
    """One pass over the processes, in seconds of the text's own clock or since its first pass."""

    dumps: list[PastedDump] = dataclasses.field(default_factory=list)
    at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pasted:
    """What a text holds: passes over the processes in their order, and the lines of logs."""

    passes: tuple[Pass, ...] = ()
    log: str = ""
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    """A part of the text, and the prose before it."""

    text: str
    before: tuple[str, ...] = ()


def is_pasted(head: bytes) -> bool:
    """Whether a file's first bytes are of a text with stacks in it, or of Markdown, and of no log."""
    if b"\0" in head:
        return False
    text = head.decode("utf-8", "replace")
    first = "\n".join(text.lstrip().splitlines()[:3])
    if is_log(first.encode()):
        return False
    if any(_FENCE.match(line) or _PRE.match(line) for line in text.splitlines()):
        return True
    return _has_stack(text) and not ("Pyspy dump" in text or "Fatal Python error" in text)


def _has_stack(text: str) -> bool:
    found = _PROCESS.search(text) or _FAULT.search(text)
    return bool(found) or has_pystack(text) or has_gdb(text)


def read_pasted(text: str) -> Pasted:
    """Read a text: stacks with what it says of them, and the logs inside its fences."""
    passes: list[Pass] = []
    logs: list[str] = []
    clock: float | None = None
    for block in _blocks(text):
        content = block.text
        if (
            "Pyspy dump" in content
            or "Fatal Python error" in content
            or (is_log(content.encode()[: 64 << 10]) and not _has_stack(content))
        ):
            logs.append(content)
            clock = _clock(block.before, clock)
            continue
        for one, before in _dumps(block):
            clock = _clock(before, clock)
            if not passes or _again(passes[-1], one) or _much_later(passes[-1], clock):
                passes.append(Pass())
            passes[-1].dumps.append(one)
            passes[-1].at = clock if passes[-1].at is None else passes[-1].at
    return _timed(passes, "\n".join(logs))


def _timed(passes: list[Pass], log: str) -> Pasted:
    """Return the passes with their times; where one has none they are one moment, and that is said."""
    times = [one.at for one in passes]
    known = all(at is not None for at in times)
    rising = known and all(b > a for a, b in itertools.pairwise(times))  # type: ignore[operator]
    if len(passes) < 2 or rising:
        return Pasted(tuple(passes), log)
    for one in passes:
        one.at = None
    note = f"the text has {len(passes)} passes over the processes, without times: they count as one moment"
    return Pasted(tuple(passes), log, (note,))


def _again(before: Pass, one: PastedDump) -> bool:
    """Whether a pass has this process already."""
    if one.rank is not None and any(other.rank == one.rank for other in before.dumps):
        return True
    pid = one.found.dump.pid
    return pid > 0 and any(other.found.dump.pid == pid for other in before.dumps)


def _much_later(before: Pass, clock: float | None) -> bool:
    """Whether the text says that time went by since a pass began."""
    return before.at is not None and clock is not None and clock - before.at > 2.0


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the parts inside fences, each with the prose before it; of a text without fences the whole."""
    lines = text.splitlines()
    fenced = list(_fenced(lines))
    if not fenced:
        yield _Block(text)
        return
    end = 0
    for start, stop in fenced:
        inside = [re.sub(r"^\s*(?:> ?)+", "", line) for line in lines[start:stop]]
        content = textwrap.dedent("\n".join(inside))
        yield _Block(content, tuple(line for line in lines[end : start - 1] if line.strip()))
        end = stop + 1


def _fenced(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line inside each fence, and the line that closes it; the last may be open."""
    start, mark = None, ""
    for number, line in enumerate(lines):
        fence, pre = _FENCE.match(line), _PRE.match(line)
        if start is None and (fence or (pre and not pre["end"])):
            start, mark = number + 1, fence["mark"] if fence else "pre"
        elif start is not None and (
            (
                fence
                and mark[0] == fence["mark"][0]
                and len(fence["mark"]) >= len(mark)
                and not fence["kind"]
            )
            or (pre and pre["end"] and mark == "pre")
        ):
            yield start, number
            start = None
    if start is not None:
        yield start, len(lines)


def _clock(before: Sequence[str], clock: float | None) -> float | None:
    """Return the time that the prose before a block gives, or the time so far; the first block is at 0."""
    for line in reversed(before):
        if date := _DATE.search(line):
            try:
                day = calendar.timegm(time.strptime(f"{date[1]} {date[2]}", "%Y-%m-%d %H:%M:%S"))
            except (ValueError, OverflowError):
                continue
            return float(day)
        if plain := _TIME.search(line):
            hour, minute, second = (int(part) for part in plain.groups())
            return hour * 3600.0 + minute * 60.0 + second
        later = _LATER.search(line)
        if later and clock is not None:
            amount, unit = (later[1], later[2]) if later[1] else (later[3], later[4])
            return clock + float(amount) * _UNITS[unit[0].lower()]
    return 0.0 if clock is None else clock


def _dumps(block: _Block) -> Iterator[tuple[PastedDump, tuple[str, ...]]]:
    """Yield the stacks of one part, each with the rank that the text gives it and the prose before it."""
    lines = block.text.splitlines()
    found = list(_read(block.text, lines, block.before))
    label = _one_rank(block.before[-1:])
    before, end = block.before, 0
    for one in found:
        above = [line for line in lines[max(one.line - 2, 0) : one.line] if line.strip()]
        own = _one_rank(above[-1:])
        rank = own if own is not None else label if len(found) == 1 else None
        prose = (line for line in lines[end : one.line] if _PROSE.match(line))
        yield PastedDump(one, rank), (*before, *prose)
        before, end = (), one.line + 1


def _one_rank(lines: Sequence[str]) -> int | None:
    """Return the rank that a line names, None where it names none or several."""
    told = {int(match[1] or match[2]) for line in lines for match in _RANK.finditer(line[:300])}
    return told.pop() if len(told) == 1 else None


def _read(text: str, lines: Sequence[str], before: Sequence[str]) -> Iterator[TextDump]:
    if is_json_dump(text.encode()[:4096]):
        named = _PID.search(" ".join(before[-1:]))
        try:
            yield TextDump(read_json(text.encode(), int(named[1]) if named else None))
        except WorkbenchError:
            return
    if _PROCESS.search(text):
        yield from read_text([line.lstrip() if _PROCESS.match(line) else line for line in lines])
    if has_pystack(text):
        yield from read_pystack(lines)
    if has_gdb(text):
        yield from read_gdb(lines)
    elif _FAULT.search(text):
        yield from read_faulthandler(lines, asked=True)
