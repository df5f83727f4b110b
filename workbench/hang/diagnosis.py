"""The result of `attach` and `open_evidence`: frozen, no I/O."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from workbench.core.finding import Confidence, Experiment, Finding
from workbench.core.result import Result
from workbench.hang.records import Frame, Phase, State, WaitClass
from workbench.hang.shown import (
    RankSeen,
    Span,
    ThreadSeen,
    TreeNode,
    forest_from_list,
    forest_to_list,
)

# Nothing is wrong, something is, or it cannot be told (`slow`: it works, and may yet hang).
_OK: dict[str, bool | None] = {
    "idle": True,
    "serving": True,
    "hung": False,
    "stopped": False,
    "crashed": False,
    "dead_rank": False,
    "slow": None,
    "cannot_tell": None,
}
_PLAIN = (
    "source", "engine", "version", "state", "phase", "wait_class", "confidence", "rule", "summary",
    "silent_for", "log_end",
)  # fmt: skip
_NUMBERS = (
    "odd_ranks",
    "waiting_ranks",
    "working_ranks",
    "missing_ranks",
    "not_collected",
    "times",
)
_TEXTS = ("overturns", "unknowns", "notes")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class HangDiagnosis(Result):
    """What a server does or waits for, which rank stands apart, and the one thing to change next.

    Ranks are world numbers. With several data-parallel replicas of their own, the ranks of replica 1 follow
    those of replica 0.

    Attributes
    ----------
    state
        ``hung``, ``slow``, ``idle``, ``serving``, ``stopped``, ``crashed``, ``dead_rank`` or
        ``cannot_tell``.
    phase
        Where in its start-up (or ``ready``) the server is.
    odd_ranks
        Ranks that the others wait for. Empty where the rules forbid an accusation, and where a rank
        is missing: an absent rank outranks an odd one.
    waiting_ranks, working_ranks
        Ranks that wait for others, and ranks that get on.
    missing_ranks, not_collected
        Ranks that are dead or absent where they should have been seen; ranks of hosts that nobody looked at.
    wait_class
        What the waiting ranks wait in (``HOST_COLL``, ``CUDA_SYNC``, …), or what all do.
    rule
        The rule of the classification table that applied (``R6``).
    experiment
        The one change to try next.
    overturns, unknowns
        What would overturn the verdict; what cannot be told, the most telling datum first.
    times
        When the snapshots were taken, in seconds since 1970.
    silent_for, log_end
        How long the log had been silent at the last snapshot, where its clock is known; the time of its
        last line on its own clock.
    """

    schema: ClassVar[str] = "workbench.hang/1"

    source: str
    state: State
    phase: Phase
    summary: str
    confidence: Confidence
    experiment: Experiment
    wait_class: WaitClass = "UNKNOWN"
    rule: str = "R16"
    odd_ranks: tuple[int, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    working_ranks: tuple[int, ...] = ()
    missing_ranks: tuple[int, ...] = ()
    not_collected: tuple[int, ...] = ()
    engine: str = ""
    version: str = ""
    ranks: tuple[RankSeen, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    timeline: tuple[Span, ...] = ()
    threads: tuple[ThreadSeen, ...] = ()
    findings: tuple[Finding, ...] = ()
    overturns: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    silent_for: float | None = None
    log_end: float | None = None

    @property
    def ok(self) -> bool | None:
        """True for ``idle`` and ``serving``, None for ``slow`` and ``cannot_tell``, else False.

        ``slow`` is None: a rank gets on now, and nobody knows whether it will arrive. On the command line
        that is exit code 3.
        """
        return _OK[self.state]

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"{self.state.replace('_', ' ')}: {self.source}"

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain data, with its ``schema``.

        The ``frames`` of a thread are numbers in the table ``frames``: a server has thousands of threads
        that stand in a few hundred places.
        """
        frames: list[Frame] = []
        threads = _numbered(self.threads, frames)
        return (
            {"schema": self.schema, "ok": self.ok}
            | {name: getattr(self, name) for name in _PLAIN}
            | {name: list(getattr(self, name)) for name in (*_NUMBERS, *_TEXTS)}
            | {
                "experiment": dataclasses.asdict(self.experiment),
                "ranks": [rank.to_dict() for rank in self.ranks],
                "tree": forest_to_list(self.tree),
                "timeline": [dataclasses.asdict(span) for span in self.timeline],
                "threads": threads,
                "frames": [dataclasses.asdict(frame) for frame in frames],
                "findings": [finding.to_dict() for finding in self.findings],
            }
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the diagnosis from `to_dict`."""
        if data["state"] not in _OK:
            raise ValueError(f"no such state: {data['state']!r}")
        frames = [Frame(**frame) for frame in data["frames"]]
        fields: dict[str, Any] = {name: data[name] for name in _PLAIN}
        fields |= {name: tuple(data[name]) for name in (*_NUMBERS, *_TEXTS)}
        return cls(
            **fields,
            experiment=Experiment(**data["experiment"]),
            ranks=tuple(map(RankSeen.from_dict, data["ranks"])),
            tree=forest_from_list(data["tree"]),
            timeline=tuple(Span(**span) for span in data["timeline"]),
            threads=tuple(
                ThreadSeen(**item | {"frames": tuple(frames[at] for at in item["frames"])})
                for item in data["threads"]
            ),
            findings=tuple(map(Finding.from_dict, data["findings"])),
        )

    def to_text(self, width: int | None = None) -> str:
        """Return the diagnosis as one screen of text."""
        from workbench.hang.view import text

        return text(self, width)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a rank."""
        for rank in self.ranks:
            frame = rank.frame
            place = f"{frame.function} ({frame.file}:{frame.line})" if frame else ""
            yield rank.to_dict() | {"frame": place}

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.hang.view import payload

        return payload(self, limit)

    def to_speedscope(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the merged stacks as a file for https://www.speedscope.app, a profile a snapshot.

        With `force` it may replace a file that the workbench did not write.
        """
        from workbench.hang.speedscope import write

        return write(self, path, force=force)


_OF_A_THREAD = tuple(f.name for f in dataclasses.fields(ThreadSeen) if f.name != "frames")


def _numbered(threads: Iterable[ThreadSeen], frames: list[Frame]) -> list[dict[str, Any]]:
    """Return threads as plain data whose frames are numbers in `frames`, which is filled."""
    numbers: dict[Frame, int] = {}
    known: dict[
        int, int
    ] = {}  # by identity: most frames are the same objects, and hashing takes its time
    found = []
    for thread in threads:
        row = {name: getattr(thread, name) for name in _OF_A_THREAD}
        at = []
        for frame in thread.frames:
            number = known.get(id(frame))
            if number is None:
                number = numbers.setdefault(frame, len(frames))
                if number == len(frames):
                    frames.append(frame)
                known[id(frame)] = number
            at.append(number)
        found.append(row | {"frames": at})
    return found
