"""What a `HangDiagnosis` holds for its views: rows of ranks, nodes of the merged tree, spans of the start-up.

Judging makes them, the views show them, and a saved diagnosis keeps them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from workbench.hang.records import Frame

Count = Annotated[int, Meta(ge=0)]
Standing = Literal[
    "odd", "waiting", "missing", "stopped", "moving", "idle", "present", "not_seen", "not_collected"
]
"""What one rank does: ``not_seen``: alive, without a stack; ``not_collected``: its host was not read."""


@dataclasses.dataclass(frozen=True, slots=True)
class RankRow:
    """One rank as the snapshots have it, or why they do not.

    Attributes
    ----------
    rank, name
        Its world number, and what its title says (``TP3``).
    frame
        The frame that tells what it does: the leaf of the thread of interest without wrappers.
    moving
        Whether its stacks differ between the snapshots; None with fewer than two of them.
    cpu
        Seconds of CPU time used per second between the snapshots.
    threads, folded
        Python threads of its dump, and how many of those are bystanders.
    why, remedy
        Why there is no stack (or how it ended), and what to do about it.
    last_line, last_at
        Its last line in a log, and when, in seconds of that log's clock.
    """

    rank: Count
    name: str
    standing: Standing
    host: str = ""
    pid: int | None = None
    phase: str = "unknown"
    wait_class: str = "UNKNOWN"
    frame: Frame | None = None
    moving: bool | None = None
    state: str | None = None
    cpu: float | None = None
    threads: Count | None = None
    folded: Count = 0
    gpu_utilisation: float | None = None
    gpu_memory_mib: float | None = None
    gpu_watts: float | None = None
    why: str = ""
    remedy: str = ""
    last_line: str = ""
    last_at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TreeNode:
    """One frame of the merged prefix tree, the root of the stacks first.

    Attributes
    ----------
    ranks
        For each snapshot, the sorted world numbers of the ranks whose stack passes here.
    moving
        True where the last two snapshots differ in who passes here.
    """

    frame: Frame
    ranks: tuple[tuple[int, ...], ...]
    moving: bool = False
    children: tuple[TreeNode, ...] = ()

    def everyone(self) -> tuple[int, ...]:
        """Return the ranks that pass here in any snapshot."""
        return tuple(sorted(set().union(*self.ranks)))


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """One phase of one rank's start-up as its log tells it; ``end`` None: it never ended.

    ``rank`` is None for the parent's lines; times are seconds of the log's own clock.
    """

    rank: Count | None
    phase: str
    label: str
    begin: float | None
    end: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took, where both ends are known."""
        return None if self.begin is None or self.end is None else self.end - self.begin


@dataclasses.dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread of one dump, for drilling down; ``folded`` says why it is a bystander, or nothing."""

    rank: int | None
    pid: int
    snapshot: int
    name: str
    frames: tuple[Frame, ...]
    role: str = "scheduler"
    folded: str = ""
    main: bool = False
    active: bool | None = None
    owns_gil: bool = False


def walk(nodes: tuple[TreeNode, ...], depth: int = 0) -> Iterator[tuple[int, TreeNode]]:
    """Yield every node of a forest with its depth, parents first, without recursion."""
    todo = [(depth, node) for node in reversed(nodes)]
    while todo:
        at, node = todo.pop()
        yield at, node
        todo += [(at + 1, child) for child in reversed(node.children)]
