"""Where in its start-up a server is: by the frames of its stacks, and by its log."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from workbench.facts.engine_phases import marker_reader, order_of, phase_of_stack
from workbench.facts.startup import Step, rank_of_prefix, world_rank
from workbench.facts.startup_markers import Event
from workbench.hang.diagnosis_records import Span
from workbench.hang.records import Frame, Log, LogLine, Phase

_KNOWN: frozenset[str] = frozenset(get_args(Phase))
# A phase that only the outermost frame tells: the scheduler's constructor runs all of them.
WEAK: frozenset[str] = frozenset({"spawn", "unknown"})
# Where a rank is when a phase has ended and nothing later was said. Of the silent ones (load_barrier,
# draft_embed) a log tells nothing: it is only known that they come between two of its lines.
_LABELS = {
    "spawn": "start", "dist_init": "process groups", "weights": "weights", "kv_pool": "KV pool",
    "warmup": "warm-up", "graph_prefill": "prefill graphs", "graph_decode": "decode graphs",
    "graph_draft": "draft graphs", "init_done": "initialised", "ready": "ready",
}  # fmt: skip
_TORCH_RANK = re.compile(r"rank(\d{1,5})")  # torch's own prefix
_NORMAL_END = re.compile(r"SIGTERM received|Shutting down|Gracefully exiting|KeyboardInterrupt")
_MOST_REPEATS = 200  # of one sort of error line of one rank, and the last one
_MOST_RANKS = 65536
_FATAL = frozenset(
    {
        "heartbeat",
        "fatal",
        "out_of_memory",
        "child_crashed",
        "child_failed",
        "child_signal",
        "rank_died",
    }
    | {"exception"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class MarkedLine:
    """One line that a marker recognised: whose, when and what.

    `utc` is its time by the world's clock (of a log whose zone is not known: as if that were UTC), or that
    of the last line before it that has one; `ended` the last line of the traceback that follows it, or "".
    """

    rank: int | None
    at: float | None
    event: Event
    line: LogLine
    utc: float | None = None
    zoned: bool = False
    ended: str = ""

    @property
    def fatal(self) -> bool:
        """Whether it tells a server's end."""
        return self.event.code in _FATAL


@dataclasses.dataclass(frozen=True, slots=True)
class Story:
    """What the logs tell.

    Attributes
    ----------
    spans
        The phases of each rank, as far as the log has them.
    reached
        By rank: the phase it is in or past, by its last line that every rank writes.
    after
        By rank: that line, in a few words (``'Load weight end'``).
    phase
        The phase of the whole: that of the rank furthest behind; lines of rank 0 alone refine it only
        where no rank is behind.
    ended
        What the log says last, in words: an abort, an exit, a deliberate shutdown, or "".
    last
        The last line that tells a step of the start-up, whoever wrote it.
    """

    spans: tuple[Span, ...] = ()
    reached: Mapping[int, str] = dataclasses.field(default_factory=dict)
    after: Mapping[int, str] = dataclasses.field(default_factory=dict)
    last_line: Mapping[int, LogLine] = dataclasses.field(default_factory=dict)
    phase: Phase = "unknown"
    errors: tuple[MarkedLine, ...] = ()
    ready: bool = False
    batches: tuple[MarkedLine, ...] = ()
    stopped: bool = False
    gated: bool = False
    last_at: float | None = None
    last_utc: float | None = None
    addresses: Mapping[int | None, int] = dataclasses.field(default_factory=dict)
    nccl: str = ""
    last: MarkedLine | None = None

    @property
    def fatal(self) -> bool:
        """Whether the log tells the server's end."""
        return any(error.fatal for error in self.errors)

    @property
    def served(self) -> bool:
        """Whether the log has a batch."""
        return bool(self.batches)

    def errors_of(self, code: str) -> tuple[MarkedLine, ...]:
        """Return the error lines of one code."""
        return tuple(error for error in self.errors if error.event.code == code)


def phase_of(frames: Sequence[Frame], version: str, engine: str = "sglang") -> Phase:
    """Return the phase that a stack tells, leaf first; ``unknown`` where it tells none."""
    found = phase_of_stack(engine, ((frame.function, frame.file) for frame in frames), version)
    return _phase(found)


def _phase(text: str) -> Phase:
    return text if text in _KNOWN else "unknown"  # type: ignore[return-value]


def numbered(
    prefix: str, arguments: Mapping[str, str], *, replicas: bool, ranks: int | None
) -> int | None:
    """Return the world rank that a log line's prefix names; None for the parent's lines."""
    parts = rank_of_prefix(prefix)
    if not parts:
        plain = _TORCH_RANK.fullmatch(prefix)
        return int(plain[1]) if plain else 0 if ranks == 1 else None
    sizes = {name: _size(arguments, name) for name in ("tp-size", "pp-size")}
    if "tp" in parts or "pp" in parts or "dp" in parts:
        number = world_rank(
            parts, tp_size=sizes["tp-size"], pp_size=sizes["pp-size"], replicas=replicas
        )
        return number if number < _MOST_RANKS else None
    return None


def _size(arguments: Mapping[str, str], name: str) -> int:
    value = arguments.get(name, "1")
    return int(value) if value.isdigit() and 0 < int(value) < 10**6 else 1


def read_story(
    logs: Iterable[Log],
    version: str,
    arguments: Mapping[str, str],
    *,
    replicas: bool = False,
    ranks: int | None = None,
    engine: str = "sglang",
) -> Story:
    """Return what the logs tell of each rank's start-up."""
    read_marker = marker_reader(engine)
    said: list[MarkedLine] = []
    last_line: dict[int, LogLine] = {}
    ends: list[float] = []
    clocks: list[float] = []
    stopped = False
    for log in logs:
        clock: float | None = None
        for index, line in enumerate(log.lines):
            clock = clock if line.at is None else line.at - (log.ahead or 0.0)
            number = numbered(line.rank, arguments, replicas=replicas, ranks=ranks)
            if number is not None and line.rank:
                last_line[number] = line
            stopped = stopped or bool(_NORMAL_END.search(line.text))
            event = read_marker(line.text)
            if event is not None:
                ended = _traceback(log.lines, index) if event.code == "exception" else ""
                said.append(
                    MarkedLine(number, line.at, event, line, clock, log.ahead is not None, ended)
                )
        moments = [log.last_at, *(line.at for line in log.lines[-1:])]
        ends += [moment for moment in moments if moment is not None]
        clocks += [moment - (log.ahead or 0.0) for moment in moments if moment is not None]
    draft = bool(arguments.get("speculative-algorithm"))
    order = order_of(engine, version)
    story = _tell(said, order, last_line, stopped, max(ends, default=None), draft)
    return dataclasses.replace(story, last_utc=max(clocks, default=None))


def _kept(errors: Sequence[MarkedLine]) -> Iterator[MarkedLine]:
    """Yield error lines in their order, of a sort that repeats without end the first ones and the last.

    A limit on all of them together would drop the one that matters: a rank dies after its warnings.
    """
    last = {(one.rank, one.event.code): at for at, one in enumerate(errors)}
    count: Counter[tuple[int | None, str]] = Counter()
    for at, one in enumerate(errors):
        sort = (one.rank, one.event.code)
        count[sort] += 1
        if count[sort] <= _MOST_REPEATS or at == last[sort]:
            yield one


def _tell(
    said: Sequence[MarkedLine],
    order: Sequence[Step],
    last_line: Mapping[int, LogLine],
    stopped: bool,
    last_at: float | None,
    draft: bool,
) -> Story:
    errors = [one for one in said if one.event.marker.error]
    told = [one for one in said if not one.event.marker.error]
    codes = Counter(one.event.code for one in told)
    reached, after = _reached(told, order, draft or _has_draft(told))
    return Story(
        spans=_spans(told),
        reached=reached,
        after=after,
        last_line=last_line,
        phase=_whole(told, reached, order),
        errors=tuple(_kept(errors)),
        ready=codes["ready"] > 0,
        batches=tuple(one for one in told if one.event.code == "serving"),
        stopped=stopped,
        gated=codes["gate_begin"] > codes["gate_end"],
        last_at=last_at,
        addresses={
            one.rank: int(one.event.facts["addresses"])
            for one in told
            if one.event.code == "registering"
        },
        last=next((one for one in reversed(told) if one.event.code != "serving"), None),
        nccl=next(
            (o.event.facts.get("nccl", "") for o in told if o.event.code == "nccl_version"), ""
        ),
    )


_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)\b")
_LONGEST_TRACEBACK = 400


def _traceback(lines: Sequence[LogLine], index: int) -> str:
    """Return the line in which the traceback ends that begins at a line, "" where it is cut off."""
    for line in lines[index + 1 : index + 1 + _LONGEST_TRACEBACK]:
        if _RAISED.match(line.text):
            return line.text
        if line.at is not None and line.rank != lines[index].rank:
            continue  # ranks write into one another
        if line.at is not None:
            break
    return ""


def _has_draft(told: Iterable[MarkedLine]) -> bool:
    weights = Counter(one.rank for one in told if one.event.code == "weights_begin")
    return max(weights.values(), default=0) > 1


def _reached(
    told: Iterable[MarkedLine], order: Sequence[Step], draft: bool
) -> tuple[dict[int, str], dict[int, str]]:
    """Return each rank's phase after its last line, and that line, of the lines that every rank writes."""
    reached: dict[int, str] = {}
    after: dict[int, str] = {}
    ended: Counter[tuple[int, str]] = Counter()
    for one in told:
        if one.rank is None or one.event.marker.who != "rank" or one.event.phase == "spawn":
            continue
        phase = one.event.phase
        if one.event.marker.edge == "end":
            ended[one.rank, phase] += 1
            phase = _next(phase, ended[one.rank, phase], order, draft)
        reached[one.rank] = phase
        after[one.rank] = _words(one.line.text)
    return reached, after


def _words(text: str) -> str:
    return re.split(r"[.,=]", text, maxsplit=1)[0][:60].strip()


def _next(phase: str, times: int, order: Sequence[Step], draft: bool) -> str:
    """Return the step that follows when a phase has ended for the `times`-th time."""
    # Prefill graphs are off in many launches: only their own lines put a rank there.
    steps = [
        step
        for step in order
        if (step.model == "target" or draft)
        and (step.phase != "graph_prefill" or phase == step.phase)
    ]
    places = [i for i, step in enumerate(steps) if step.phase == phase]
    if not places:
        return phase
    at = places[min(times, len(places)) - 1] + 1
    return steps[at].phase if at < len(steps) else phase


def _whole(told: Sequence[MarkedLine], reached: Mapping[int, str], steps: Sequence[Step]) -> Phase:
    """Return the phase of the rank furthest behind; where none is, rank 0's own lines may refine it."""
    if any(one.event.phase == "ready" for one in told):
        return "ready"
    order = [step.phase for step in steps]
    behind = min(reached.values(), key=lambda p: order.index(p) if p in order else 0, default="")
    if len(set(reached.values())) <= 1:
        alone = [
            one for one in told if one.event.marker.who == "rank0" and one.event.code not in _LOOSE
        ]
        last = [one for one in told if one.event.marker.who == "rank"]
        if alone and (not last or told.index(alone[-1]) > told.index(last[-1])):
            one = alone[-1]
            return _phase(
                _next(one.event.phase, 9, steps, True)
                if one.event.marker.edge == "end"
                else one.event.phase
            )
    if behind:
        return _phase(behind)
    return _phase(told[-1].event.phase) if told else "unknown"


# Progress bars: which phase's they are only its own begin line tells.
_LOOSE = frozenset({"capturing", "registering", "loading", "nccl_version"})


def _spans(told: Iterable[MarkedLine]) -> tuple[Span, ...]:
    """Return the phases with their begin and end, rank by rank, in the order of the log."""
    found: list[Span] = []
    open_at: dict[tuple[int | None, str], int] = {}
    times: Counter[tuple[int | None, str]] = Counter()
    for one in told:
        key = (one.rank, one.event.phase)
        edge = one.event.marker.edge
        if one.event.code in _LOOSE or one.event.code == "serving":
            continue
        if key not in open_at:
            times[key] += 1
            begin = one.at
            if edge == "end":  # it began unseen
                elapsed = one.event.facts.get("elapsed")
                begin = one.at - float(elapsed) if one.at is not None and elapsed else one.at
            open_at[key] = len(found)
            found.append(Span(one.rank, one.event.phase, _label(key[1], times[key], one), begin))
        if edge == "end" or one.event.phase in ("init_done", "ready"):
            at = open_at.pop(key)
            found[at] = dataclasses.replace(found[at], end=one.at)
        elif edge == "begin" and found[open_at[key]].begin is None:
            found[open_at[key]] = dataclasses.replace(found[open_at[key]], begin=one.at)
    return tuple(_closed(found))


def _label(phase: str, times: int, one: MarkedLine) -> str:
    label = _LABELS.get(phase, phase)
    draft = times > 1 and phase in ("weights", "kv_pool", "dist_init")
    if one.event.code.startswith("draft_"):
        label = one.event.code.rpartition("_")[0].replace("_", " ") + " graphs"
    return f"draft {label}" if draft else label


def _closed(spans: Sequence[Span]) -> list[Span]:
    """Return the spans with those closed that a later one of the same rank has overtaken."""
    last: dict[int | None, Span] = {}
    found = list(spans)
    for i in range(len(spans) - 1, -1, -1):
        span = found[i]
        later = last.get(span.rank)
        if span.end is None and later is not None:
            found[i] = dataclasses.replace(span, end=later.begin)
        last[span.rank] = found[i]
    parents = [i for i, span in enumerate(found) if span.rank is None and span.end is None]
    starts = [s.begin for s in found if s.rank is not None and s.begin is not None]
    for i in parents:
        if starts and found[i].phase == "spawn":
            found[i] = dataclasses.replace(found[i], end=min(starts))
    return found
