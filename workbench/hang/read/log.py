"""SGLang logs of any size: a bounded selection of lines with their clocks and ranks, and what they say."""

from __future__ import annotations

import calendar
import dataclasses
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import IO

from workbench.errors import clean
from workbench.evidence.prompts import may_hold_prompts, without_prompts
from workbench.facts.engine_phases import marker_reader
from workbench.facts.engines import engine_of_line
from workbench.facts.startup_markers import Event
from workbench.hang.read.exits import exits
from workbench.hang.read.prefixes import without_prefix
from workbench.hang.read.pyspy import TextDump, read_faulthandler, read_text, read_watchdog
from workbench.hang.read.vllm_lines import has_vllm_lines, read_vllm_line, sizes_of, version_of
from workbench.hang.records import Log, LogLine
from workbench.launch.logs import ARGUMENTS, fields_of

# Of a long log its launch's beginning, its end, and what its middle has of errors and dumps.
HEAD_BYTES = 8 << 20
TAIL_BYTES = 24 << 20
MIDDLE_BYTES = 8 << 20
MOST_LINES = 20_000
LONGEST_LINE = 4000
_LONGEST_RAW = 256 << 10
_BLOCK = 1 << 20
_AROUND = 256 << 10
_LAUNCH = b"server_args="
_ERRORS = (
    b"atchdog timeout", b"Pyspy ", b"Fatal Python error", b"eartbeat monitor", b"crashed with exit",
    b"hit an exception", b"scheduler died", b"scheduler is dead", b"didn't finish loading", b"OutOfMemory",
    b"failed with an exit", b"collective operation timeout",
)  # fmt: skip

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# `[2026-11-29 18:30:49 TP1] `, with .123 under SGLANG_LOG_MS. What may stand before it on its line: a
# container's or a launcher's prefix, or a tqdm bar, which writes no line break.
_STAMP = re.compile(
    r"\[(?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,6}))?"
    r"(?P<rank>(?: [A-Z_]{2,8}\d{1,6}){0,6})\] ?"
)
_BAR = re.compile(r"(?:it/s|s/it|B/s|\?)\]\s*$|\|\s*\d+/\d+ \[[^\]]{0,60}\]?\s*$")
_PREFIXED = re.compile(r"^[^'\"{}]{0,120}$")
_LEVEL = re.compile(r"[A-Z]{4,8}:")
_PROGRESS = re.compile(
    r"(?=Capturing batches \(|Multi-thread loading [a-z ]{0,30}:"
    r"|Loading (?:safetensors|pt|np_cache) checkpoint shards:)"
)
# torch's own lines: `[rank3]:[E1129 18:30:59.123456789 ProcessGroupNCCL.cpp:607] …`.
_TORCH = re.compile(
    r"^(?:\[rank(?P<rank>\d{1,6})\]: ?)?\[?(?P<level>[IWEF])(?P<month>\d\d)(?P<day>\d\d) "
    r"(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?"
)
_RANK_ONLY = re.compile(r"^\[rank(\d{1,6})\]:")
_LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "fatal"}
_NODE_RANK = re.compile(r"\bnode_rank['\"]?[=:] ?(\d{1,6})")
_NNODES = re.compile(r"\bnnodes['\"]?[=:] ?(\d{1,6})")


@dataclasses.dataclass(frozen=True, slots=True)
class ReadLog:
    """What a log file holds.

    Attributes
    ----------
    arguments
        Of the launch, by flag without dashes; empty where the log does not print them.
    dumps
        Stacks inside it, with the clock of the line before.
    exits
        Index of a scheduler (or negative pid) to the exit code that the log tells, in the order told;
        none of an end that was asked for.
    texts
        Ranges of releases that write the lines which were recognised.
    launches
        How many begin in the file: the last is judged.
    engine, version
        Which engine's lines it has, and what they name as its version; "" where nothing in it says so.
    """

    log: Log
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dumps: tuple[TextDump, ...] = ()
    exits: Mapping[int, int] = dataclasses.field(default_factory=dict)
    texts: frozenset[str] = frozenset()
    launches: int = 0
    notes: tuple[str, ...] = ()
    engine: str = ""
    version: str = ""


def is_log(head: bytes) -> bool:
    """Tell whether a file's first bytes are those of a log of SGLang, vLLM, TensorRT-LLM or torch."""
    text = head.decode("utf-8", "replace")
    if has_vllm_lines(_ANSI.sub("", text)) or engine_of_line(_ANSI.sub("", text).splitlines()):
        return True
    return bool(_STAMP.search(text) or re.search(r"(?m)^\[rank\d{1,6}\]:", text)) or any(
        error.decode() in text for error in _ERRORS
    )


def read_log(stream: IO[bytes], name: str, host: str = "", *, year: int = 0) -> ReadLog:
    """Read one log file in one pass, of whatever size.

    Parameters
    ----------
    stream
        Open for reading bytes; not closed.
    name
        For `Log.name`.
    year
        When it was collected, for lines without a year; 0: not known.
    """
    text = _select(stream)
    lines: list[LogLine] = []
    raw: list[str] = []
    clocks: list[float | None] = []
    at = None
    for number, line in text.lines:
        raw.append(line)
        for piece in _pieces(line, number, year):
            lines.append(piece)
            if piece.at is not None:
                at = piece.at
                year = _year(piece.at)
        clocks.append(at)
    dumps = _dumps(raw, clocks)
    engine = _engine(text, raw, lines)
    read = marker_reader(engine)
    events = [read(line.text) for line in lines]
    messages = [line.text for line in lines] if engine == "vllm" else []
    notes = list(text.notes)
    if text.launches > 1:
        notes.append(f"{clean(name)} holds {text.launches} launches: the last one is judged")
    last = next((line.at for line in reversed(lines) if line.at is not None), None)
    return ReadLog(
        Log(name, _bounded(lines, events), host, text.total, last),
        fields_of(text.arguments)[0] if text.arguments else sizes_of(messages),
        tuple(dumps),
        exits(lines, events),
        frozenset(
            e.marker.versions
            for e in events
            if engine != "vllm" and e and e.marker.needle and not e.marker.error
        ),
        text.launches,
        tuple(notes),
        engine,
        version_of(messages),
    )


# Lines of weight loaders and progress bars that other engines write in the same words.
_SHARED_CODES = frozenset({"loading", "capturing"})


def _engine(text: _Text, raw: Sequence[str], lines: Sequence[LogLine]) -> str:
    """Return the engine that wrote the lines: SGLang's own outrank vLLM's, whose logger SGLang may call."""
    if text.launches or any(
        line.rank and not line.rank.startswith("rank") for line in lines[:2000]
    ):
        ours = [line for line in raw if line.lstrip().startswith("(") and read_vllm_line(line)]
        return "vllm" if ours and not text.launches else "sglang"
    read = marker_reader("sglang")
    for line in lines:
        event = read(line.text)
        if (
            event
            and event.marker.needle
            and not event.marker.error
            and event.code not in _SHARED_CODES
        ):
            return "sglang"
    if any(read_vllm_line(line) for line in raw[:20_000]):
        return "vllm"
    return engine_of_line(raw[:20_000])


@dataclasses.dataclass(slots=True)
class _Text:
    lines: list[tuple[int, str]]
    total: int = 0
    launches: int = 0
    arguments: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)


class _Selection:
    """Keeps of a stream of blocks (of whole lines) what `read_log` looks at."""

    def __init__(self) -> None:
        self.head: list[tuple[int, bytes]] = []
        self.tail: deque[tuple[int, bytes]] = deque()
        self.middle: list[tuple[int, bytes]] = []
        self.sizes = [0, 0, 0]
        self.line = 0
        self.left_out = 0
        self.launches = 0
        self.nodes: set[int] = set()
        self.arguments = ""

    def add(self, block: bytes) -> None:
        """Take the next block."""
        at = 0
        while (found := block.find(_LAUNCH, at)) >= 0:
            start = block.rfind(b"\n", 0, found) + 1
            end = block.find(b"\n", found)
            end = len(block) if end < 0 else end + 1
            line = block[start:end][:_LONGEST_RAW].decode("utf-8", "replace")
            if self._is_launch(line, found - start):
                if start:
                    self._keep(block[:start])
                self._begin(line)
                block, at = block[start:], end - start
            else:
                at = end
        self._keep(block)

    def _is_launch(self, line: str, place: int) -> bool:
        """Whether it is the line of a parent: nodes that share a file are one launch."""
        before = _ANSI.sub("", line[:place])
        stamp = _STAMP.search(before)
        if (
            not ARGUMENTS.search(line)
            or stamp is None
            or stamp["rank"]
            or before[stamp.end() :].strip()
        ):
            return False
        node, nodes = _NODE_RANK.search(line), _NNODES.search(line)
        if self.nodes and node and nodes and int(nodes[1]) > 1 and int(node[1]) not in self.nodes:
            self.nodes.add(int(node[1]))
            return False
        return True

    def _begin(self, line: str) -> None:
        self.head, self.middle = [], []
        self.tail.clear()
        self.sizes = [0, 0, 0]
        self.left_out = 0
        self.launches += 1
        node = _NODE_RANK.search(line)
        self.nodes = {int(node[1])} if node else {0}
        self.arguments = line

    def _keep(self, block: bytes) -> None:
        item = (self.line, block)
        self.line += block.count(b"\n") + (block[-1:] not in (b"\n", b""))
        if self.sizes[0] < HEAD_BYTES:
            self.head.append(item)
            self.sizes[0] += len(block)
            return
        self.tail.append(item)
        self.sizes[2] += len(block)
        while self.sizes[2] - len(self.tail[0][1]) > TAIL_BYTES:
            number, old = self.tail.popleft()
            self.sizes[2] -= len(old)
            self.left_out += len(old)
            self._middle(number, old)

    def _middle(self, number: int, block: bytes) -> None:
        places = sorted(at for error in _ERRORS if (at := block.find(error)) >= 0)
        if not places or self.sizes[1] >= MIDDLE_BYTES:
            return
        start = block.rfind(b"\n", 0, places[0]) + 1
        end = block.find(b"\n", min(places[-1] + _AROUND, len(block)))
        part = block[start : end + 1 if end >= 0 else len(block)][: MIDDLE_BYTES - self.sizes[1]]
        self.middle.append((number + block.count(b"\n", 0, start), part))
        self.sizes[1] += len(part)


def _select(stream: IO[bytes]) -> _Text:
    chosen = _Selection()
    rest = b""
    damaged = ""
    while True:
        try:
            block = stream.read(_BLOCK)
        except Exception as error:  # a damaged zip or gzip: what came before it is still evidence
            damaged, block = str(error) or type(error).__name__, b""
        if not block:
            break
        cut = block.rfind(b"\n") + 1
        if (
            not cut and len(rest) + len(block) > 4 * _BLOCK
        ):  # a line without an end is cut into several
            cut = len(block)
        if cut:
            chosen.add(b"".join((rest, memoryview(block)[:cut])))  # copied once
        rest = block[cut:] if cut else rest + block
    if rest:
        chosen.add(rest)
    text = _Text([], chosen.line, chosen.launches, chosen.arguments)
    for number, block in (*chosen.head, *chosen.middle, *chosen.tail):
        text.lines += enumerate(_shown(block), number + 1)
    bare = without_prefix([line for _, line in text.lines])
    text.lines = [(number, line) for (number, _), line in zip(text.lines, bare, strict=True)]
    if chosen.left_out:
        text.notes.append(
            f"of a long log {chosen.left_out >> 20} MiB from its middle were searched for errors only"
        )
    if damaged:
        text.notes.append(f"a log is damaged: {clean(damaged)[:200]}")
    return text


def _shown(block: bytes) -> list[str]:
    """Return the lines of a block as text, without prompts and colours."""
    pieces = block.split(b"\n")
    if pieces and not pieces[-1]:
        pieces.pop()
    lines = [line[:_LONGEST_RAW].rstrip(b"\r").decode("utf-8", "replace") for line in pieces]
    if may_hold_prompts(block):
        lines = [without_prompts(line) for line in lines]
    return [_ANSI.sub("", line) for line in lines] if b"\x1b" in block else lines


def _pieces(line: str, number: int, year: int) -> Iterator[LogLine]:
    """Split a line of the file into the messages that share it, each with its clock and rank."""
    if line.startswith("[") and _is_one(line) and (match := _STAMP.match(line)):
        yield _stamped(match, line[match.end() :], number)  # nearly every line of a long log
        return
    if len(line) > LONGEST_LINE and _LAUNCH.decode() not in line:
        line = line[: LONGEST_LINE // 2] + line[-LONGEST_LINE // 2 :]
    for segment in _segments(line):
        starts = [m for m in _STAMP.finditer(segment) if _may_begin(segment, m.start())]
        before = segment[: starts[0].start()] if starts else segment
        if before.strip():
            yield _unstamped(before, number, year)
        for index, match in enumerate(starts):
            end = starts[index + 1].start() if index + 1 < len(starts) else len(segment)
            yield _stamped(match, segment[match.end() : end], number)


def _is_one(line: str) -> bool:
    """Whether a line with a clock is one message: no other clock, no bar that redraws itself."""
    return (
        len(line) <= LONGEST_LINE
        and line.find("[", 1) < 0
        and "\r" not in line
        and "oading " not in line
        and "Capturing " not in line
    )


def _stamped(match: re.Match[str], text: str, number: int) -> LogLine:
    message = text.rstrip()
    if ARGUMENTS.match(message):  # they are read from the raw line, and may hold keys
        message = "server_args=…"
    level = message.partition(":")[0].lower() if _LEVEL.match(message) else ""
    date, clock, part, rank = match.groups()
    return LogLine(
        number, clean(message[:LONGEST_LINE]), _clock(date, clock, part), rank.strip(), level
    )


def _segments(line: str) -> list[str]:
    """Split at carriage returns; of a bar that redraws itself the last state is kept."""
    parts = [part for part in line.split("\r") if part.strip()]
    if len(parts) > 64:
        parts = [part for part in parts[:-1] if _STAMP.search(part)][:64] + parts[-1:]
    found = []
    for part in parts:
        bars = _PROGRESS.split(part)
        found.append(bars[0] + bars[-1] if len(bars) > 2 else part)
    if len(found) > 1:
        found = [p for i, p in enumerate(found) if i == len(found) - 1 or _STAMP.search(p)]
    return found


def _may_begin(line: str, at: int) -> bool:
    """Whether a clock at this place begins a message; inside a message it may be quoted."""
    before = line[:at]
    return at == 0 or bool(_BAR.search(before[-200:])) or _PREFIXED.match(before) is not None


# A year for clocks that have none: a leap year, so long ago that no snapshot is near.
_NO_YEAR = 1972


def _unstamped(text: str, number: int, year: int) -> LogLine:
    text = text.rstrip()
    own = read_vllm_line(text)
    if own is not None and own.clock:
        at = _clock(f"{year or _NO_YEAR}-{own.day}", own.clock, None)
        return LogLine(number, clean(own.message[:LONGEST_LINE]), at, own.rank, own.level)
    if own is not None:
        bare = _unnamed(own.message, number, year)
        return dataclasses.replace(bare, rank=own.rank or bare.rank)
    return _unnamed(text, number, year)


def _unnamed(text: str, number: int, year: int) -> LogLine:
    shown = clean(text[:LONGEST_LINE])
    match = _TORCH.match(text)
    if match:
        at = None
        if year:
            date = f"{year}-{match['month']}-{match['day']}"
            at = _clock(date, match["time"], (match["part"] or "")[:6] or None)
        rank = f"rank{match['rank']}" if match["rank"] else ""
        return LogLine(number, shown, at, rank, _LEVELS[match["level"]])
    only = _RANK_ONLY.match(text)
    level = "error" if text.startswith("Traceback (most recent") else ""
    return LogLine(number, shown, None, f"rank{only[1]}" if only else "", level)


def _clock(date: str, clock: str, part: str | None) -> float | None:
    day = _day(date)
    hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:])
    if day is None or hour > 23 or minute > 59 or second > 60:
        return None
    return day + hour * 3600 + minute * 60 + second + (float(f"0.{part}") if part else 0.0)


def _year(at: float) -> int:
    return _year_of_day(int(at) // 86400)


@lru_cache(maxsize=256)
def _year_of_day(day: int) -> int:
    return time.gmtime(day * 86400).tm_year


@lru_cache(maxsize=256)
def _day(date: str) -> int | None:
    try:
        return calendar.timegm(time.strptime(date, "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return None


def _dumps(raw: Sequence[str], clocks: Sequence[float | None]) -> list[TextDump]:
    found = [] if not any("Pyspy" in line for line in raw) else read_watchdog(raw)
    inside = {one.line for one in found}
    if any(line.startswith("Process ") for line in raw):
        # `py-spy dump >> server.log` by hand.
        found += [one for one in read_text(raw) if not any(0 <= one.line - n < 5 for n in inside)]
    if any("most recent call first" in line for line in raw):
        found += read_faulthandler(raw)
    dated = []
    for one in found:
        at = clocks[min(one.line, len(clocks) - 1)]
        dated.append(dataclasses.replace(one, dump=dataclasses.replace(one.dump, at=at)))
    return dated


def _bounded(lines: Sequence[LogLine], events: Sequence[Event | None]) -> tuple[LogLine, ...]:
    """Return all lines, or of too many those that say something, the first and the last ones."""
    if len(lines) <= MOST_LINES:
        return tuple(lines)
    kept = set(range(200)) | set(range(len(lines) - 2000, len(lines)))
    last: dict[str, int] = {}
    told = []
    for index, (line, event) in enumerate(zip(lines, events, strict=True)):
        last[line.rank] = index
        if event is not None and event.code != "serving":
            told.append(index)
    kept |= set(list(last.values())[:4096])
    room = MOST_LINES - len(kept)
    if len(told) > room > 0:
        told = told[: room // 2] + told[-(room - room // 2) :]
    kept |= set(told)
    return tuple(lines[index] for index in sorted(kept))
