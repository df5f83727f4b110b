"""How a diagnosis is worded: names of ranks, frames, durations, and what shares one line."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.core.wording import middle
from workbench.hang.diagnosis_records import RankRow, Span, TreeNode

if TYPE_CHECKING:
    from workbench.hang.judge.diagnosis import HangDiagnosis
    from workbench.hang.records import Frame

STANDINGS = (
    "odd", "missing", "stopped", "not_seen", "waiting", "present", "moving", "idle", "not_collected"
)  # fmt: skip
"""What a rank may be, the ones to look at first."""

WORDS = {"not_seen": "not seen", "not_collected": "not collected"}
PROCESS_STATES = {
    "S": "asleep",
    "R": "running",
    "D": "in I/O",
    "T": "stopped (T)",
    "t": "traced (t)",
    "Z": "zombie",
    "I": "idle",
}
_NUMBERED = re.compile(r"([A-Z]+)(\d+)")


def sentence(text: str) -> str:
    """Return a text with a capital at its start; a name such as vLLM stays as it is."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


def how_often(times: Sequence[float]) -> str:
    """Return how many snapshots there are, and how far apart the first and the last."""
    if not times:
        return "no snapshot, only logs"
    if len(times) == 1:
        return "one snapshot: it cannot distinguish a hung rank from a slow one"
    return f"{len(times)} snapshots, {duration(times[-1] - times[0])} apart"


def alike(ranks: Iterable[RankRow]) -> list[list[RankRow]]:
    """Return the ranks in groups that are alike, those to look at first."""

    def key(rank: RankRow) -> tuple[object, ...]:
        frame = rank.frame
        place = (frame.function, frame.file, frame.line) if frame else ("", "", 0)
        moving = -1 if rank.moving is None else int(rank.moving)
        state = rank.state or ""
        at = STANDINGS.index(rank.standing)
        return at, rank.wait_class, place, moving, state, rank.why, rank.remedy

    ordered = sorted(ranks, key=key)  # stable: world numbers stay in order
    return [list(group) for _, group in itertools.groupby(ordered, key)]


def signs_of_life(group: Sequence[RankRow]) -> list[str]:
    """Return what `/proc` and the GPU show of ranks that are alike."""
    first = group[0]
    said = []
    if first.moving is not None:
        said.append("moving" if first.moving else "frozen")
    if first.state:
        said.append(PROCESS_STATES.get(first.state, first.state))
    for name, before, unit in (("gpu_utilisation", "GPU ", "%"), ("gpu_watts", "", "W")):
        values = [v for v in (getattr(rank, name) for rank in group) if v is not None]
        if values:
            said.append(f"{before}{_between(min(values), max(values))} {unit}")
    return said


def _between(low: float, high: float) -> str:
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}–{high:.0f}"


def names_of(ranks: Sequence[RankRow], most: int = 8) -> str:
    """Return the names of ranks, as short as their numbering allows: ``TP0-6``."""
    parts = [_NUMBERED.fullmatch(rank.name) for rank in ranks]
    kinds = {part.group(1) for part in parts if part}
    if len(kinds) == 1 and all(parts):
        return kinds.pop() + spans(int(part.group(2)) for part in parts if part)
    if len(ranks) <= most:
        return ", ".join(rank.name for rank in ranks)
    return f"ranks {spans(rank.rank for rank in ranks)}"


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: ``0-6,8``."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges(numbers))


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as pairs of first and last."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def frame_text(frame: Frame) -> str:
    """Return a frame as ``function (file:line)``; a native one names its library."""
    if frame.module and not frame.line:
        return f"{middle(frame.function, 160)} ({frame.module.rsplit('/', 1)[-1]})"
    file = frame.file.rsplit("/", 1)[-1]
    place = f" ({file}:{frame.line})" if file and frame.line else f" ({file})" if file else ""
    return middle(frame.function, 160) + place


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """Frames that the same ranks pass through, one below the other; `depth` counts branchings.

    ``ends`` are the ranks whose stacks go no further, where those of others do.
    """

    depth: int
    frames: tuple[Frame, ...]
    has: tuple[int, ...]
    lacks: tuple[int, ...]
    ends: tuple[int, ...]
    moving: bool


def branches(forest: tuple[TreeNode, ...]) -> Iterator[Branch]:
    """Yield the merged tree by its branchings: a run of frames with the same ranks is one line."""
    everyone = set().union(*(node.everyone() for node in forest))
    todo = [(0, node) for node in reversed(forest)]
    while todo:
        depth, node = todo.pop()
        frames, moving = [node.frame], node.moving
        while len(node.children) == 1 and node.children[0].ranks == node.ranks:
            node = node.children[0]
            frames.append(node.frame)
            moving = moving or node.moving
        has = set(node.everyone())
        further = set().union(*(child.everyone() for child in node.children))
        ends = has - further if further else set()
        sets = [tuple(sorted(ranks)) for ranks in (has, everyone - has, ends)]
        yield Branch(depth, tuple(frames), sets[0], sets[1], sets[2], moving)
        todo += [(depth + 1, child) for child in reversed(node.children)]


def stages(timeline: Iterable[Span]) -> list[tuple[str, list[Span]]]:
    """Return the spans of the start-up by stage, in the order in which the stages began."""
    found: dict[str, list[Span]] = {}
    for span in sorted(timeline, key=lambda s: (s.begin is None, s.begin or 0.0)):
        found.setdefault(span.label or span.phase, []).append(span)
    return list(found.items())


def end_of(diagnosis: HangDiagnosis, known: Iterable[Span]) -> float:
    """Return when the picture of the start-up ends: the last line of the log, and its silence."""
    moments = [m for span in known for m in (span.begin, span.end) if m is not None]
    last = max([*moments, diagnosis.log_end or 0.0])
    return last + max(diagnosis.silent_for or 0.0, 0.0)


def clock(moment: float) -> str:
    """Return the time of day of a log's clock."""
    try:
        return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "an impossible time"


def duration(seconds: float) -> str:
    """Return seconds as ``0.2 s``, ``31 s``, ``8 min 5 s``, ``2 h 3 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {left} s" if left else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
