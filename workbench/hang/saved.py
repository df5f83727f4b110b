"""How a `HangDiagnosis` is written: the schema ``workbench.hang/1``, with its types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from workbench.core.finding import Confidence, Experiment
from workbench.core.saving import Saved
from workbench.hang.diagnosis_records import Count, RankRow, Span, ThreadRow, TreeNode, walk
from workbench.hang.records import Frame, Phase, State, WaitClass


class Node(Struct, frozen=True):
    """One `TreeNode`: a forest is written flat, parents first, since stacks may be thousands deep."""

    depth: Count
    frame: Frame
    ranks: tuple[tuple[Count, ...], ...]
    moving: bool


class ThreadEntry(Struct, frozen=True):
    """One `ThreadRow`; its frames are numbers in the table ``frames``.

    A server has thousands of threads, and they are in a few hundred places.
    """

    rank: Count | None
    pid: int
    snapshot: Count
    name: str
    role: str
    folded: str
    main: bool
    active: bool | None
    owns_gil: bool
    frames: tuple[Count, ...]


class SavedHang(Saved, frozen=True, kw_only=True):
    """The schema of a `HangDiagnosis`.

    ``state``, ``confidence``, ``overturns`` and ``unknowns`` repeat what ``verdict`` says, for scripts that
    read the file.
    """

    source: str
    engine: str
    version: str
    state: State
    phase: Phase
    wait_class: WaitClass
    confidence: Confidence
    rule: str
    silent_for: float | None
    log_end: float | None
    odd_ranks: tuple[Count, ...]
    waiting_ranks: tuple[Count, ...]
    working_ranks: tuple[Count, ...]
    missing_ranks: tuple[Count, ...]
    not_collected: tuple[Count, ...]
    times: tuple[float, ...]
    overturns: tuple[str, ...]
    unknowns: tuple[str, ...]
    experiment: Experiment
    ranks: tuple[RankRow, ...]
    tree: tuple[Node, ...]
    timeline: tuple[Span, ...]
    threads: tuple[ThreadEntry, ...]
    frames: tuple[Frame, ...]


def nodes_of(forest: tuple[TreeNode, ...]) -> tuple[Node, ...]:
    """Return a forest as a flat list."""
    return tuple(Node(depth, node.frame, node.ranks, node.moving) for depth, node in walk(forest))


def forest_of(nodes: Sequence[Node]) -> tuple[TreeNode, ...]:
    """Rebuild a forest from a flat list.

    Raises
    ------
    ValueError
        A node is deeper than the one above it allows.
    """
    deepest = 0
    for node in nodes:
        if node.depth > deepest:
            raise ValueError(f"`tree` has a node at depth {node.depth} without a parent")
        deepest = node.depth + 1
    # At each depth, the finished nodes from the last to the first.
    waiting: list[list[TreeNode]] = [[]]
    for node in reversed(nodes):
        waiting += [[] for _ in range(node.depth + 2 - len(waiting))]
        children = tuple(reversed(waiting[node.depth + 1]))
        waiting[node.depth + 1] = []
        waiting[node.depth].append(TreeNode(node.frame, node.ranks, node.moving, children))
    return tuple(reversed(waiting[0]))


def entries_of(
    threads: Iterable[ThreadRow],
) -> tuple[tuple[ThreadEntry, ...], tuple[Frame, ...]]:
    """Return threads whose frames are numbers, and the table of those frames."""
    numbers: dict[Frame, int] = {}
    known: dict[int, int] = {}  # by identity: most frames are the same objects, and hashing is slow
    found = []
    for thread in threads:
        at = []
        for frame in thread.frames:
            number = known.get(id(frame))
            if number is None:
                number = known[id(frame)] = numbers.setdefault(frame, len(numbers))
            at.append(number)
        found.append(
            ThreadEntry(
                thread.rank, thread.pid, thread.snapshot, thread.name, thread.role, thread.folded,
                thread.main, thread.active, thread.owns_gil, tuple(at),
            )
        )  # fmt: skip
    return tuple(found), tuple(numbers)


def threads_of(entries: Iterable[ThreadEntry], frames: Sequence[Frame]) -> tuple[ThreadRow, ...]:
    """Rebuild the threads.

    Raises
    ------
    ValueError
        A thread names a frame that is not in the table.
    """
    try:
        return tuple(
            ThreadRow(
                e.rank, e.pid, e.snapshot, e.name, tuple([frames[at] for at in e.frames]),
                e.role, e.folded, e.main, e.active, e.owns_gil,
            )
            for e in entries
        )  # fmt: skip
    except IndexError:
        raise ValueError(f"a thread names a frame beyond the {len(frames)} of `frames`") from None
