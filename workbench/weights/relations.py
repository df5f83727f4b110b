"""What the other tensors say about one: siblings, the bias and norms beside it, copies, precision.

It is added to a judgement as corroboration. No verdict is changed by it: a tensor that looks like an init
stays one, however many of its siblings were trained.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from workbench.checkpoint.templates import group_names
from workbench.errors import shorten
from workbench.weights.likeness import Likeness
from workbench.weights.records import Judgement, Measure
from workbench.weights.vectors import is_norm

# A share of values exact in fp16 that says "made in half precision", and one that says "not".
_ALL_EXACT, _HARDLY_EXACT = 0.999, 0.5
# Smaller tensors are equal by chance or by convention.
_SMALLEST_COPY = 256
_NAMED = 3
TARGETS_OWN = "targets_own"
FROM_TARGET = "change_from_target"


def relate(
    measures: Sequence[Measure],
    judgements: Sequence[Judgement],
    target: Mapping[str, Likeness] | None = None,
) -> list[Judgement]:
    """Return the judgements with what the other tensors say about each.

    Parameters
    ----------
    measures, judgements
        Of the tensors of one checkpoint, in the same order.
    target
        By name, which tensor of another checkpoint, such as a draft's target, a tensor is or was.

    Returns
    -------
    list of Judgement
        In the same order; verdicts are as they were.
    """
    said: list[list[str]] = [[] for _ in measures]
    _beside(measures, judgements, said)
    _siblings(measures, judgements, said)
    _copies(measures, judgements, said)
    told = [
        dataclasses.replace(one, corroboration=(*one.corroboration, *more)) if more else one
        for one, more in zip(judgements, said, strict=True)
    ]
    return _of_target(measures, told, target or {})


def _matters(measure: Measure) -> bool:
    return sum(size > 1 for size in measure.shape) > 1


def _beside(
    measures: Sequence[Measure], judgements: Sequence[Judgement], said: list[list[str]]
) -> None:
    """Say what bias and norms in the same module as a matrix look like."""
    position = {measure.name: at for at, measure in enumerate(measures)}
    norms: dict[str, list[int]] = defaultdict(list)
    for at, measure in enumerate(measures):
        if is_norm(measure.name) and not _matters(measure):
            norms[_module(_module(measure.name))].append(at)
    for at, (measure, judgement) in enumerate(zip(measures, judgements, strict=True)):
        if judgement.verdict not in ("at_init", "undecided") or not _matters(measure):
            continue
        bias = position.get(f"{_module(measure.name)}.bias")
        if bias is not None and judgements[bias].verdict == "at_init":
            kind = "zero" if judgements[bias].family == "zeros" else "at init, too"
            said[at].append(f"its bias is {kind}")
        near = _nearest_norms(measure.name, norms)
        still = sum(judgements[norm].verdict == "at_init" for norm in near)
        if near and still == len(near):
            what = "norm next to it is" if still == 1 else f"{still} norms next to it are"
            said[at].append(f"the {what} at init, or not changed by more than the type can store")


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _nearest_norms(name: str, norms: dict[str, list[int]]) -> list[int]:
    """Return the norms in the innermost module around a tensor that holds any."""
    module = _module(_module(name))
    while module:
        if module in norms:
            return norms[module]
        module = _module(module)
    return []


def _siblings(
    measures: Sequence[Measure], judgements: Sequence[Judgement], said: list[list[str]]
) -> None:
    """Contrast tensors with those of the same template, shape and type: other layers, other experts."""
    for group in group_names([measure.name for measure in measures]):
        if len(group.at) < 2:
            continue
        by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at in group.at.tolist():
            by_shape[measures[at].shape].append(at)
        for members in by_shape.values():
            if len(members) > 1:
                _contrast(members, measures, judgements, said)


def _contrast(
    members: list[int],
    measures: Sequence[Measure],
    judgements: Sequence[Judgement],
    said: list[list[str]],
) -> None:
    counts = Counter(judgements[at].verdict for at in members)
    exact = [measures[at].exact_in_fp16 for at in members]
    rough = sum(share is not None and share < _HARDLY_EXACT for share in exact)
    for at, share in zip(members, exact, strict=True):
        verdict = judgements[at].verdict
        if verdict == "trained" or not _matters(measures[at]):
            continue
        if counts["trained"]:
            said[at].append(
                f"{counts['trained']:,} of its {len(members) - 1:,} siblings look trained"
            )
        elif counts[verdict] == len(members):
            said[at].append(f"so are all {len(members) - 1:,} siblings of its shape")
        if share is not None and share >= _ALL_EXACT and rough:
            said[at].append(
                f"all its values are exact in fp16, those of {rough:,} siblings are not: it was saved at "
                "another time or by another program"
            )


def _copies(
    measures: Sequence[Measure], judgements: Sequence[Judgement], said: list[list[str]]
) -> None:
    """Name tensors with the same bytes; constants are equal by nature."""
    same: dict[str, list[int]] = defaultdict(list)
    for at, (measure, judgement) in enumerate(zip(measures, judgements, strict=True)):
        if measure.digest and measure.count >= _SMALLEST_COPY and judgement.stage != 0:
            same[measure.digest].append(at)
    for members in same.values():
        for at in members if len(members) > 1 else ():
            others = [measures[other].name for other in members[: _NAMED + 1] if other != at]
            more = len(members) - 1 - len(others[:_NAMED])
            text = ", ".join(shorten(name, 80) for name in others[:_NAMED])
            said[at].append(
                f"equal, bit by bit, to {text}" + (f" and {more:,} more" if more else "")
            )


def _of_target(
    measures: Sequence[Measure], judgements: list[Judgement], target: Mapping[str, Likeness]
) -> list[Judgement]:
    """Add which tensor of the target a tensor is, or started from."""
    told = []
    for measure, judgement in zip(measures, judgements, strict=True):
        like, one = target.get(measure.name), judgement
        if like is not None and one.stage != 0:
            one = dataclasses.replace(
                one,
                corroboration=(*one.corroboration, like.text),
                statistics=(
                    *one.statistics,
                    (TARGETS_OWN, float(like.change == 0)),
                    (FROM_TARGET, like.change),
                ),
            )
        told.append(one)
    return told
