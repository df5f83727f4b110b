"""What changed between two sets of weights: read in blocks, tensor by tensor, by equal names."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from workbench.checkpoint.dequantize import logical_weights
from workbench.core.bars import bar as progress_bar
from workbench.errors import WorkbenchError, shorten, shown
from workbench.weights.changes import Change, Changes
from workbench.weights.comparison import WeightComparison
from workbench.weights.equality import blocks, equal
from workbench.weights.exchanged import exchanged
from workbench.weights.likeness import rearranged
from workbench.weights.requested import limited_to, named_positions
from workbench.weights.sides import Side, Sides
from workbench.weights.verdict_compare import conclude

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.weights.results import WeightScan

Floats = np.ndarray[Any, np.dtype[np.float32]]
Shape = tuple[int, ...]

_SERVER = re.compile(r"https?://[^/?#]+/?$")


class Values(Protocol):
    """A weight whose rows can be read: `LogicalWeight`, and what a server holds."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dtype(self) -> str:
        """Its stored type."""

    @property
    def shape(self) -> Shape:
        """Its shape."""

    @property
    def flaw(self) -> str:
        """Why its values cannot be told; empty where they can."""

    def rows(self, start: int, stop: int) -> Floats:
        """Return some rows as float32."""


@runtime_checkable
class Scanned(Protocol):
    """A `WeightScan`, of which only the source is read here."""

    @property
    def source(self) -> str:
        """What was scanned."""

    @property
    def kind(self) -> str:
        """A checkpoint or a server."""

    @property
    def loaded(self) -> bool:
        """Whether the scan was read from a file."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """One side: `weights` is None of a server, which is asked for what the other side names."""

    source: str
    weights: Mapping[str, Values] | None = None
    opened: Checkpoint | None = None


def compare_weights(
    before: WeightScan,
    after: WeightScan | Checkpoint | str | os.PathLike[str],
    source: str | os.PathLike[str] | None = None,
    names: str | Iterable[str] | None = None,
) -> WeightComparison:
    """Return what changed from the source of `before` to `after`; see `WeightScan.compare`."""
    from workbench.weights.live import held_beside

    text, asked = _first(before, source)
    second = _second(after)
    first = _Place(text) if asked else _opened(text, text)
    left, right, limited = _requested(first.weights, second.weights, names)
    notes: list[str] = []
    is_own = False
    if left is None and right is None:
        raise WorkbenchError(
            "two servers cannot be compared",
            why="each has parameter names of its own",
            next_step="Compare each with the checkpoint that it was started with.",
        )
    if left is None:
        assert right is not None
        right, left, is_own = held_beside(first.source, second.source, right, notes)
    elif right is None:
        left, right, is_own = held_beside(second.source, first.source, left, notes)
    scanned = after if isinstance(after, Scanned) else None
    sides = Sides(Side.of(before), Side.of(scanned), limited)
    found = compare_sets(left, right, first.source, second.source, tuple(notes), is_own, sides)
    for place in (second, first):
        if place.opened is not None and (changed := place.opened.changed()):
            raise WorkbenchError(
                f"{shorten(changed[0])} changed while it was compared",
                why="it was replaced or written to, so what was read may be of two checkpoints",
                next_step="Compare again when its writer is done.",
            )
    return found


def _second(after: WeightScan | Checkpoint | str | os.PathLike[str]) -> _Place:
    from workbench.checkpoint.checkpoint import Checkpoint

    if isinstance(after, Checkpoint):
        return _Place(after.source, _of_checkpoint(after), after)
    text, is_server = _source(after)
    return _Place(text) if is_server else _opened(text)


def _opened(path: str, shown_as: str = "") -> _Place:
    from workbench.checkpoint.open import open_checkpoint

    opened = open_checkpoint(path)
    return _Place(shown_as or opened.source, _of_checkpoint(opened), opened)


def _requested(
    left: Mapping[str, Values] | None,
    right: Mapping[str, Values] | None,
    patterns: str | Iterable[str] | None,
) -> tuple[Mapping[str, Values] | None, Mapping[str, Values] | None, str]:
    """Return of each side what was requested, and how much was not in words, "" for nothing."""
    known = list(dict.fromkeys([*(left or {}), *(right or {})]))
    if patterns is None or not known:
        return left, right, ""
    chosen = {known[at] for at in named_positions(known, patterns, "the comparison")}
    limited = limited_to(len(chosen), len(known))
    sides = (
        None if side is None else {name: side[name] for name in side if name in chosen}
        for side in (left, right)
    )
    return next(sides), next(sides), limited


def _first(before: WeightScan, source: str | os.PathLike[str] | None) -> tuple[str, bool]:
    """Return where the first side is read, and whether that is a server."""
    if source is not None:
        return _source(source)
    _check_known(before)
    return before.source, before.kind == "server"


def _check_known(scan: Scanned) -> None:
    """Refuse to open or ask what stands in a file that may be somebody else's."""
    if scan.loaded:
        raise WorkbenchError(
            f"the source of this scan, {shorten(scan.source)}, was read from a file and is not opened",
            why="a file may name any path or address",
            next_step="If it is right, say so: scan.compare(other, source=scan.source), or scan it again.",
        )


def _source(after: Scanned | str | os.PathLike[str]) -> tuple[str, bool]:
    """Return what to open, and whether it is a server."""
    if isinstance(after, Scanned):
        _check_known(after)
        return after.source, after.kind == "server"
    try:
        text = os.fspath(after)
    except TypeError:
        raise WorkbenchError(
            f"{shown(after)} cannot be compared with",
            next_step="Give a path, an open checkpoint, a scan, or the address of a server.",
        ) from None
    return str(text), bool(_SERVER.match(str(text)))


def _of_checkpoint(ckpt: Checkpoint) -> Mapping[str, Values]:
    weights = logical_weights(ckpt)
    return {weights[at].name: weights[at] for at in range(len(weights))}


def compare_sets(
    left: Mapping[str, Values],
    right: Mapping[str, Values],
    before: str,
    after: str,
    notes: tuple[str, ...] = (),
    is_own: bool = False,
    sides: Sides | None = None,
) -> WeightComparison:
    """Return the comparison of two sets of weights by their names.

    With `is_own` one is what a server holds of the other, and a difference is a mistake. `sides` is what is
    known of each by itself.

    Raises
    ------
    WorkbenchError
        They have no name in common.
    """
    names = list(dict.fromkeys([*left, *right]))
    rows = []
    for name in progress_bar(names, unit=" tensors"):
        rows.append(_one(left.get(name), right.get(name)))
    changes = Changes(rows)
    same = tuple(_moved_bytes(left, right, changes))
    moved = [] if is_own else _moved(left, right, changes, same)
    if not same and not moved and not any(name in right for name in left):
        raise WorkbenchError(
            f"{shorten(before)} and {shorten(after)} have no tensor of the same name",
            why=f"the first has {_few(left)}; the second has {_few(right)}",
            next_step="Run `workbench diff FIRST SECOND`: it proposes the renames between them.",
        )
    verdict, findings = conclude(changes, same, is_own, moved, sides)
    return WeightComparison(
        before=before,
        after=after,
        verdict=verdict,
        changes=changes,
        same_bytes=same,
        findings=findings,
        notes=notes,
    )


def _moved(
    left: Mapping[str, Values],
    right: Mapping[str, Values],
    changes: Changes,
    same: Iterable[tuple[str, str]],
) -> list[tuple[str, str, str]]:
    """Return first name, second name and how the second holds the values of the first elsewhere."""
    places = exchanged(left, right, changes)
    takers = {second for _, second, _ in places}
    known = {name for pair in same for name in pair}
    orders = rearranged(left, right, (row for row in changes if row.name not in takers))
    return [*places, *(row for row in orders if not known.intersection(row[:2]))]


def _few(weights: Mapping[str, Values]) -> str:
    names = [shorten(name, 60) for name in list(weights)[:2]]
    return ", ".join(names) + (", …" if len(weights) > 2 else "") if names else "none"


def _one(a: Values | None, b: Values | None) -> Change:
    one = a if a is not None else b
    assert one is not None
    make = partial(
        Change,
        name=one.name,
        shape=a.shape if a is not None else (),
        shape_after=b.shape if b is not None else (),
        dtype=a.dtype if a is not None else "",
        dtype_after=b.dtype if b is not None else "",
    )
    if a is None or b is None:
        return make(state="right" if a is None else "left")
    if a.flaw or b.flaw:
        return make(state="unread", reason=a.flaw or b.flaw)
    if a.shape != b.shape:
        return make(state="shape")
    try:
        return _difference(make, a, b)
    except WorkbenchError as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        return make(state="unread", reason=why)


def _difference(make: Callable[..., Change], a: Values, b: Values) -> Change:
    """Compare two weights of one shape in blocks of rows, in double precision where it adds up."""
    total = moved = bad = 0
    largest = difference = norm = 0.0
    for first, second in blocks(a, b):
        finite = np.isfinite(first) & np.isfinite(second)
        bad += finite.size - int(np.count_nonzero(finite))
        with np.errstate(invalid="ignore", over="ignore"):
            delta = np.where(finite, second - first, 0).astype(np.float64).ravel()
            start = np.where(finite, first, 0).astype(np.float64).ravel()
        difference += float(delta @ delta)
        norm += float(start @ start)
        largest = max(largest, float(np.abs(delta).max(initial=0.0)))
        moved += int(np.count_nonzero(delta))
        total += delta.size
    change = math.sqrt(difference / norm) if norm > 0 else (0.0 if not difference else None)
    facts = {"change": change, "largest": largest, "moved": moved / total if total else 0.0}
    if bad:
        reason = f"{bad:,} of {total:,} values are NaN or infinite on one side or both"
        return make(state="invalid", compared=total - bad, reason=reason, **facts)
    return make(state="changed" if moved else "identical", compared=total, **facts)


def difference(a: Values, b: Values) -> float | None:
    """Return norm(a - b) / norm(b); None where values are not finite, or cannot be read."""
    found = _one(b, a)
    return found.change if found.state in ("identical", "changed") else None


def _moved_bytes(
    left: Mapping[str, Values], right: Mapping[str, Values], changes: Changes
) -> Iterator[tuple[str, str]]:
    """Yield pairs of equal tensors under different names, such as a draft's copy of the target's embedding.

    Only of names that one side alone has, and only where shapes are equal and the first rows are.
    """
    alone = [row.name for row in changes if row.state == "left"]
    others: dict[Shape, list[Values]] = {}
    for row in changes:
        one = right.get(row.name)
        if one is not None and len(one.shape) > 1 and not one.flaw:
            others.setdefault(one.shape, []).append(one)
    for name in alone:
        mine = left[name]
        if mine.flaw or len(mine.shape) < 2:
            continue
        for other in others.get(mine.shape, ())[:_MOST_CANDIDATES]:
            if equal(mine, other):
                yield name, other.name
                break


_MOST_CANDIDATES = 64
