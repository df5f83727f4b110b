"""What a matrix without structure means in its model: it stands out among its kin, or they are like it.

A matrix that was never trained has no structure, and in a trained model all of its kin have much. Of a
model that was trained briefly, or at a low rate, the same statistics see little anywhere: some matrices
show a few directions, others nothing at all, and those were trained as well. Three things distinguish the
two: how far from noise the kin are; whether the scale is still exactly that of a known init, which
weight decay and growth take away long before a direction shows; and how far the scales of norms have moved
from their start, since an optimiser like Adam moves every parameter by about as much.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workbench.weights.families import known_scale
from workbench.weights.names import Places, is_vocabulary, places
from workbench.weights.provenance import AS_MADE
from workbench.weights.records import Judgement, Measure
from workbench.weights.structure import AT_INIT, TRAINED
from workbench.weights.vectors import is_norm

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Kin are far from noise where they show so much structure: as for the blocks of one matrix.
_FAR = 2 * TRAINED
# The share of the kin that must be far where there are no siblings of the same place.
_MOST = 0.75
# A share of kin with a little structure, and none with much: the model was trained a little.
_SOME = 0.25
# Norms that moved by fewer deviations of a matrix moved too little to say that it should show structure:
# of a small language model a value projection shows none at 0.9 (docs/weights.md).
_LITTLE = 2.0
# Types whose rounding leaves the edge of a law sharp: values within it were not moved.
_SHARP = frozenset(("F64", "F32", "F16", "BF16"))
# The numbers of both are alike.
_COMPUTED = (
    "orthogonal, in a model that is trained elsewhere: an orthogonal init that was never trained, or a "
    "rotation or a basis that was computed and stored (QuaRot, SpinQuant, SliceGPT)"
)
BRIEF = "brief"
"""The statistic of a matrix at init in a model whose norms moved, but only a little."""


def among_kin(
    measures: Sequence[Measure],
    judgements: Sequence[Judgement],
    initializer_range: float | None = None,
    layers: int | None = None,
    norms_start: float = 1.0,
) -> list[Judgement]:
    """Return the judgements, with those at init open that a lightly trained model may have.

    Nothing changes where a matrix is a part of one, where its law, the law's edge or its generator's lattice
    proves how it was made, and where its kin are far from noise. Where no matrix of the model is trained,
    only norms that moved a little open the question: exactly at their start, they agree with an init, and
    far from it, they were trained so long that a matrix would show it.

    Parameters
    ----------
    measures, judgements
        Of the tensors of one checkpoint, in the same order.
    initializer_range, layers
        Of the config.
    norms_start
        Where the scales of norms start in the model's family.

    Returns
    -------
    list of Judgement
    """
    found = list(judgements)
    where = places([measure.name for measure in measures])
    kin = _Kin(measures, judgements, where)
    moved = _norms_moved(measures, judgements, norms_start)
    for at in kin.at_init:
        measure, one = measures[at], judgements[at]
        little = 0 < moved <= _LITTLE * measure.std and not _is_within_edge(measure, one)
        known = bool(known_scale(measure, measure.shape, initializer_range, layers))
        why = kin.why_open(at, known) if kin.some_trained else ""
        # After a few steps the scale still is that of the init, so it proves nothing there.
        unlike = kin.why_open(at, False) if little and kin.some_trained else ""
        brief = little and (bool(why or unlike) or not kin.some_trained)
        if brief:
            why = (
                f"and the scales of norms moved by only {moved:.2g} from their start, where its values have "
                f"σ = {measure.std:.3g}: it was never trained, or the model was trained so briefly that its "
                "matrices do not show it"
            )
        if why:
            text = f"no structure between its entries, {why}"
            marks = ((BRIEF, 1.0),) if brief else ()
            found[at] = _left_open(one, text, marks)
    for at, (measure, one) in enumerate(zip(measures, judgements, strict=True)):
        if kin.some_trained and _may_be_a_basis(measure, one):
            found[at] = _left_open(one, _COMPUTED)
    return found


def _may_be_a_basis(measure: Measure, judged: Judgement) -> bool:
    """Whether an orthogonal matrix is no layer's weight by its name: rotations are stored beside those."""
    is_orthogonal = judged.verdict == "at_init" and judged.family == "orthogonal"
    return is_orthogonal and not measure.name.endswith("weight")


def _left_open(one: Judgement, reason: str, marks: tuple[tuple[str, float], ...] = ()) -> Judgement:
    return dataclasses.replace(
        one, verdict="undecided", family="", sigma=None, reason=reason,
        statistics=(*one.statistics, *marks),
    )  # fmt: skip


def _norms_moved(
    measures: Sequence[Measure], judgements: Sequence[Judgement], start: float
) -> float:
    """Return how far the scales of norms are from their start: the median of their root mean squares."""
    away = [
        math.hypot(measure.mean - start, measure.std)
        for measure, judged in zip(measures, judgements, strict=True)
        if measure.seen > 1
        and judged.verdict in ("trained", "constant", "at_init", "undecided")
        and sum(size > 1 for size in measure.shape) == 1
        and is_norm(measure.name)
    ]
    return float(np.median(away)) if away else 0.0


def _is_within_edge(measure: Measure, judged: Judgement) -> bool:
    """Say whether values keep within the edge of their law, which training leaves in a few steps."""
    return (
        judged.family in ("uniform", "truncated") and measure.dtype in _SHARP and not measure.layout
    )


class _Kin:
    """The structure of the matrices of one model, by the place that they have in it."""

    def __init__(
        self, measures: Sequence[Measure], judgements: Sequence[Judgement], where: Places
    ) -> None:
        self._where = where
        self._std = [measure.std for measure in measures]
        self._structure = np.array(
            [_structure(*pair) for pair in zip(measures, judgements, strict=True)]
        )
        self._verdicts = np.array([one.verdict for one in judgements])
        judged = ~np.isnan(self._structure)
        words = np.array([is_vocabulary(measure.name) for measure in measures], dtype=bool)
        self._inner = np.flatnonzero(judged & ~words)
        self.some_trained = bool((judged & (self._verdicts == "trained")).any())
        self._kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
        self._layers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at in np.flatnonzero(judged).tolist():
            self._kinds[self._kind(at), measures[at].shape].append(at)
            if not words[at]:
                self._layers[self._layer(at)].append(at)
        self._shapes = [measure.shape for measure in measures]
        self.at_init = list(_open_to_doubt(judgements, judged))

    def _kind(self, at: int) -> int:
        return int(self._where.kind[at])

    def _layer(self, at: int) -> tuple[int, int]:
        return int(self._where.stack[at]), int(self._where.layer[at])

    def why_open(self, at: int, known: bool) -> str:
        """Return why a matrix at init may have been trained a little; "" where it stands out."""
        siblings = [i for i in self._kinds[self._kind(at), self._shapes[at]] if i != at]
        if known:
            mates = [i for i in self._layers.get(self._layer(at), ()) if i != at]
            return self._few_directions([*siblings, *mates])
        sigma = f"and a scale that is not a known init's (σ = {self._std[at]:.4g})"
        if siblings:
            structure = self._structure[siblings]
            moved = structure[self._verdicts[siblings] != "at_init"]
            far = float(np.median(structure)) > _FAR and bool((moved > _FAR).all())
            whose = "its siblings"
        else:
            structure = self._structure[[i for i in self._inner.tolist() if i != at]]
            far = len(structure) > 0 and float(np.quantile(structure, 1 - _MOST)) > _FAR
            whose = "the other matrices"
        if far:
            return ""
        low, high = _range(structure)
        shown = (
            f"{whose} show hardly more in a model that is trained elsewhere (z = {low} to {high})"
        )
        if not len(structure):
            shown = (
                "there is no other matrix to compare it with, in a model that is trained elsewhere"
            )
        return f"{sigma}; {shown}: a matrix that was trained a little looks like this"

    def _few_directions(self, kin: list[int]) -> str:
        """Return why a matrix at a known scale is open: its kin show a little structure, none shows much."""
        structure, verdicts = self._structure[kin], self._verdicts[kin]
        little = (structure > AT_INIT) & ((verdicts == "undecided") | (structure < _FAR))
        if not len(kin) or little.mean() < _SOME:
            return ""
        if ((verdicts == "trained") & (structure > _FAR)).any():
            return ""
        return (
            f"but {int(little.sum()):,} of the {len(kin):,} matrices of the same layer or place show a "
            "little, and none shows much: a model that was trained briefly, or at a low rate, looks like this"
        )


def _range(structure: Floats) -> tuple[str, str]:
    if not len(structure):
        return "", ""
    low, high = float(structure.min()), float(structure.max())
    return f"{low:.1f}", f"{high:.1f}" if math.isfinite(high) else "far"


def _structure(measure: Measure, judgement: Judgement) -> float:
    """Return how far from noise a matrix is, by its spectrum; NaN for what was not judged so."""
    if judgement.stage == 0 or sum(size > 1 for size in measure.shape) < 2:
        return math.nan
    values = dict(judgement.statistics)
    trained = judgement.verdict == "trained"
    if "gram" not in values:
        return math.inf if trained else math.nan
    # Shown by a part of the rows already, where one at init was read in full.
    if trained and values.get("rows_read", 0) < measure.shape[0]:
        return math.inf
    return max(values["gram"], values["tracy_widom"])


def _open_to_doubt(
    judgements: Sequence[Judgement], judged: np.ndarray[Any, np.dtype[np.bool_]]
) -> Iterator[int]:
    """Yield the matrices at init whose making nothing proves."""
    for at, one in enumerate(judgements):
        proved = one.parts or one.family == "orthogonal" or AS_MADE in one.corroboration
        if one.verdict == "at_init" and judged[at] and not proved:
            yield at
