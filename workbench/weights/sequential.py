"""Many matrices of one template at initialisation: a sketch of each, and the full spectrum of a few.

A checkpoint that was never loaded has thousands of matrices that are all noise, and noise is what takes
the spectrum longest. So a matrix with many siblings is first judged by a few of its rows. Where that shows
training, it is the verdict. Where not, the full spectrum decides for all of the template, unless nearly
all of them look like noise: then eight of them are judged in full, with those that a sketch leaves open (of
noise a few do, by chance). If none of these shows training, and at most one of the eight is open, the
others keep the verdict of their sketch, which says how many rows it is from.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from workbench.checkpoint.dequantize import LogicalWeights
from workbench.checkpoint.templates import group_names
from workbench.weights.context import is_stack
from workbench.weights.records import Judgement, Measure
from workbench.weights.structure import SMALLEST_SIZE_4_BITS

Pair = tuple[Measure, Judgement]
Found = Iterator[tuple[int, Pair]]

SKETCH = 1 << 18
"""Values of a sketch."""
# Templates with fewer members are judged in full, and so many of the others.
_ENOUGH, _FULL = 16, 8
# The share of a template that chance may leave open: of noise with a scale that is not known, 3 %.
_BY_CHANCE = 0.1
# Of the eight, more open ones than this are no chance.
_OPEN = 1
SKETCHED = "sketched"


def templates(weights: LogicalWeights, chosen: Sequence[int]) -> dict[int, int]:
    """Return the number of its group for each weight that has enough siblings of its shape and type."""
    shapes: dict[tuple[object, ...], int] = {}
    kinds = []
    for at in chosen:
        weight = weights[at]
        kinds.append(shapes.setdefault((weight.shape, weight.dtype, weight.layout), len(shapes)))
    names = [weights[at].name for at in chosen]
    found: dict[int, int] = {}
    for number, group in enumerate(group_names(names, np.array(kinds, dtype=np.int64))):
        first = weights[chosen[int(group.at[0])]]
        matrix = sum(size > 1 for size in first.shape) > 1 and not is_stack(first.name, first.shape)
        size = int(np.prod(first.shape, dtype=np.int64))
        # A sketch has to be large enough to be judged, and worth it.
        if len(group.at) >= _ENOUGH and matrix and size >= 2 * SKETCH > SMALLEST_SIZE_4_BITS:
            found |= {chosen[at]: number for at in group.at.tolist()}
    return found


def refined(first: Found, groups: dict[int, int], again: Callable[[list[int]], Found]) -> Found:
    """Yield what a scan with sketches found, with the full verdict where that could differ.

    Parameters
    ----------
    first
        Position and result of every weight, those in `groups` by a sketch.
    groups
        The group of each weight that is judged by a sketch.
    again
        Judges some weights in full.
    """
    held: dict[int, dict[int, Pair]] = defaultdict(dict)
    mixed: set[int] = set()
    open_: dict[int, set[int]] = defaultdict(set)
    try:
        for at, pair in first:
            group = groups.get(at)
            if group is None or pair[1].verdict in ("trained", "invalid", "constant"):
                if group is not None:
                    mixed.add(group)
                yield at, pair
            else:
                held[group][at] = pair
                if pair[1].verdict != "at_init":
                    open_[group].add(at)
        mixed |= {g for g, some in open_.items() if len(some) > max(1, _BY_CHANCE * len(held[g]))}
        yield from _settled(held, mixed, open_, again)
    except KeyboardInterrupt:
        for pairs in held.values():
            yield from pairs.items()
        raise


def _settled(
    held: dict[int, dict[int, Pair]],
    mixed: set[int],
    open_: dict[int, set[int]],
    again: Callable[[list[int]], Found],
) -> Found:
    """Yield what is held: in full where a template is mixed, or where the eight are not at init."""
    groups = {at: group for group, pairs in held.items() for at in pairs}
    wanted: list[int] = []
    few: set[int] = set()
    for group, pairs in held.items():
        members = sorted(pairs)
        spread = np.unique(np.linspace(0, len(members) - 1, _FULL).astype(int))
        some = {members[i] for i in spread.tolist()}
        few |= some
        wanted += members if group in mixed else sorted(some | open_[group])
    left_open: Counter[int] = Counter()
    for at, pair in again(wanted):
        group = groups[at]
        del held[group][at]
        left_open[group] += at in few and pair[1].verdict == "undecided"
        if pair[1].verdict not in ("at_init", "undecided") or left_open[group] > _OPEN:
            mixed.add(group)
        yield at, pair
    for at, pair in again([at for group in mixed for at in sorted(held.get(group, ()))]):
        del held[groups[at]][at]
        yield at, pair
    for pairs in held.values():
        for at in sorted(pairs):
            yield at, _as_sketched(pairs.pop(at))


def _as_sketched(pair: Pair) -> Pair:
    measure, judged = pair
    text = (
        f"from a part of its rows; {_FULL} of its siblings were judged in full, and are at init too"
    )
    return measure, dataclasses.replace(
        judged,
        corroboration=(*judged.corroboration, text),
        statistics=(*judged.statistics, (SKETCHED, 1.0)),
    )
