"""The merged prefix tree of all ranks' stacks: which ranks pass through which frame, in each snapshot."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set

from workbench.hang.diagnosis_records import TreeNode
from workbench.hang.judge import waits
from workbench.hang.records import Frame

# py-spy itself stops here.
DEEPEST = 4096


@dataclasses.dataclass(slots=True)
class _Node:
    frame: Frame
    ranks: list[set[int]]
    children: dict[tuple[str, str, int], _Node]


def plain(frame: Frame) -> Frame:
    """Return a frame that compares equal from rank to rank: no addresses, no template arguments."""
    name = waits.plain_name(frame.function)
    return frame if name == frame.function else dataclasses.replace(frame, function=name)


def merge(snapshots: Sequence[Mapping[int, Sequence[Frame]]]) -> tuple[TreeNode, ...]:
    """Merge the stacks of all ranks, root first.

    Parameters
    ----------
    snapshots
        For each snapshot, the stack of each rank's thread of interest by its number, leaf first.

    Returns
    -------
    tuple of TreeNode
        The roots. Of a node's children the one that most ranks pass comes first; ``moving`` marks a frame
        through which other ranks pass in the last snapshot than in the one before.
    """
    count = len(snapshots)
    roots: dict[tuple[str, str, int], _Node] = {}
    for at, stacks in enumerate(snapshots):
        # Ranks mostly are in the same few stacks: each is walked once, for all that share it.
        shared: dict[tuple[Frame, ...], list[int]] = {}
        for rank, frames in stacks.items():
            shared.setdefault(tuple(frames), []).append(rank)
        for frames, ranks in shared.items():
            level = roots
            for raw in reversed(frames[:DEEPEST]):
                name = waits.plain_name(raw.function)
                key = (name, raw.file, raw.line)
                node = level.get(key)
                if node is None:
                    node = level[key] = _Node(plain(raw), [set() for _ in range(count)], {})
                node.ranks[at].update(ranks)
                level = node.children
    last = snapshots[-2:]
    both = set(last[0]) & set(last[-1]) if last else set()
    return _finished(roots, both)


def _finished(roots: dict[tuple[str, str, int], _Node], both: Set[int]) -> tuple[TreeNode, ...]:
    """Turn the nodes into records, the leaves first: stacks may be deeper than Python recurses.

    Only ranks with a stack in `both` of the last two snapshots tell what moves.
    """
    ordered: list[_Node] = []
    todo = list(roots.values())
    while todo:
        node = todo.pop()
        ordered.append(node)
        todo += node.children.values()
    done: dict[int, TreeNode] = {}
    for node in reversed(ordered):
        children = _sorted(done.pop(id(child)) for child in node.children.values())
        ranks = tuple(tuple(sorted(one)) for one in node.ranks)
        moving = len(ranks) > 1 and node.ranks[-1] & both != node.ranks[-2] & both
        done[id(node)] = TreeNode(node.frame, ranks, moving, children)
    return _sorted(done[id(node)] for node in roots.values())


def _sorted(nodes: Iterable[TreeNode]) -> tuple[TreeNode, ...]:
    def order(node: TreeNode) -> tuple[int, tuple[int, ...], str, int]:
        everyone = node.everyone()
        return -len(everyone), everyone, node.frame.function, node.frame.line

    return tuple(sorted(nodes, key=order))
