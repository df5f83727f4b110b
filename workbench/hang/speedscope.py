"""A diagnosis as a file for speedscope (https://www.speedscope.app), whose format is its own JSON schema.

One profile a snapshot. A rank is a sample of weight one, its frames root first, and samples are sorted,
so that speedscope's "left heavy" view shows the merged stacks, as wide as the ranks that pass them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.core.outputs import writing
from workbench.errors import clean, shorten
from workbench.hang.diagnosis_records import TreeNode

if TYPE_CHECKING:
    from workbench.hang.judge.diagnosis import HangDiagnosis
    from workbench.hang.records import Frame

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(diagnosis: HangDiagnosis) -> dict[str, Any]:
    """Return the merged stacks of all ranks in speedscope's file format."""
    numbers: dict[Frame, int] = {}
    names = {rank.rank: rank.name for rank in diagnosis.ranks}
    profiles = [
        _profile(diagnosis.tree, at, names, numbers)
        for at in range(_snapshots(diagnosis.tree) or len(diagnosis.times))
    ]
    return {
        "$schema": SCHEMA,
        "exporter": f"workbench {__version__}",
        "name": shorten(diagnosis.title),
        "activeProfileIndex": max(len(profiles) - 1, 0),
        "shared": {"frames": [_frame(frame) for frame in numbers]},
        "profiles": profiles,
    }


def write(diagnosis: HangDiagnosis, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write the merged stacks as a speedscope file; it appears whole or not at all."""
    with writing(path, "stacks", examined=diagnosis.examined(force), force=force) as out:
        out.write(json.dumps(speedscope(diagnosis), allow_nan=False).encode())
    return Path(path)


def _snapshots(forest: tuple[TreeNode, ...]) -> int:
    return max((len(node.ranks) for node in forest), default=0)


def _frame(frame: Frame) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": clean(frame.function) or "?"}
    if frame.file or frame.module:
        shown["file"] = clean(frame.file or frame.module)
    if frame.line > 0:
        shown["line"] = frame.line
    return shown


def _profile(
    forest: tuple[TreeNode, ...], at: int, names: dict[int, str], numbers: dict[Frame, int]
) -> dict[str, Any]:
    """Return one snapshot: for each rank its stack, ranks with the same stack next to each other."""
    stacks: dict[int, list[int]] = {}
    todo: list[tuple[TreeNode, list[int]]] = [(node, []) for node in reversed(forest)]
    while todo:
        node, above = todo.pop()
        here = node.ranks[at] if at < len(node.ranks) else ()
        if not here:
            continue
        path = [*above, numbers.setdefault(node.frame, len(numbers))]
        for rank in here:  # the deepest that a rank reaches comes last
            if len(path) > len(stacks.get(rank, ())):
                stacks[rank] = path
        todo += [(child, path) for child in reversed(node.children)]
    ordered = sorted(stacks, key=lambda rank: (stacks[rank], rank))
    seen = ", ".join(shorten(names.get(rank, str(rank)), 20) for rank in ordered[:8])
    return {
        "type": "sampled",
        "name": f"snapshot {at + 1}: {len(ordered)} ranks ({seen}{', …' if len(ordered) > 8 else ''})",
        "unit": "none",
        "startValue": 0,
        "endValue": len(ordered),
        "samples": [stacks[rank] for rank in ordered],
        "weights": [1] * len(ordered),
    }
