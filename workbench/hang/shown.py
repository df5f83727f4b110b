"""What a `HangDiagnosis` shows: one record a rank, a node of the merged tree, a span of the start-up.

Judging makes them, the view draws them, and a saved diagnosis keeps them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from workbench.hang.records import Frame

Standing = Literal[
    "odd", "waiting", "missing", "stopped", "moving", "idle", "present", "not_seen", "not_collected"
]
"""How one rank stands: ``not_seen``: alive, without a stack; ``not_collected``: its host was not read."""


@dataclasses.dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank as it was seen, or why it was not.

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

    rank: int
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
    threads: int | None = None
    folded: int = 0
    gpu_utilisation: float | None = None
    gpu_memory_mib: float | None = None
    gpu_watts: float | None = None
    why: str = ""
    remedy: str = ""
    last_line: str = ""
    last_at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild the record from `to_dict`."""
        frame = data.get("frame")
        return cls(**{**data, "frame": Frame(**frame) if frame else None})


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

    rank: int | None
    phase: str
    label: str
    begin: float | None
    end: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took, where both ends are known."""
        return None if self.begin is None or self.end is None else self.end - self.begin


@dataclasses.dataclass(frozen=True, slots=True)
class ThreadSeen:
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

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild the record from `to_dict`."""
        return cls(**{**data, "frames": tuple(Frame(**frame) for frame in data["frames"])})


def walk(nodes: tuple[TreeNode, ...], depth: int = 0) -> Iterator[tuple[int, TreeNode]]:
    """Yield every node of a forest with its depth, parents first, without recursion."""
    todo = [(depth, node) for node in reversed(nodes)]
    while todo:
        at, node = todo.pop()
        yield at, node
        todo += [(at + 1, child) for child in reversed(node.children)]


def forest_to_list(nodes: tuple[TreeNode, ...]) -> list[dict[str, Any]]:
    """Return a forest as a flat list, parents first with their depth: stacks may be thousands deep."""
    return [
        {
            "depth": depth,
            "frame": dataclasses.asdict(node.frame),
            "ranks": [list(one) for one in node.ranks],
            "moving": node.moving,
        }
        for depth, node in walk(nodes)
    ]


def forest_from_list(data: list[dict[str, Any]]) -> tuple[TreeNode, ...]:
    """Rebuild a forest from `forest_to_list`."""
    waiting: list[list[TreeNode]] = [
        []
    ]  # at each depth, the finished nodes from the last to the first
    for item in reversed(data):
        depth = item["depth"]
        waiting += [[] for _ in range(depth + 2 - len(waiting))]
        node = TreeNode(
            Frame(**item["frame"]),
            tuple(tuple(one) for one in item["ranks"]),
            item["moving"],
            tuple(reversed(waiting[depth + 1])),
        )
        waiting[depth + 1] = []
        waiting[depth].append(node)
    return tuple(reversed(waiting[0]))
