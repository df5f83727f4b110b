"""What the values of one matrix remember of their making: the init's edge, and its generator's lattice.

A uniform or truncated init ends at a bound. Straight after it no value lies beyond; one optimiser step in
16 bits carries some over, long before a spectrum sees any change. PyTorch's `uniform_` in float32 makes
multiples of 2^-24 of its range, so values near zero lie on a lattice that any later addition leaves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from workbench.weights.families import TRUNCATED, TRUNCATED_3, UNIFORM, Law, fan
from workbench.weights.records import Measure

Floats = np.ndarray[Any, np.dtype[np.float32]]

# A value at the bound may be rounded up by half a unit in the last place of its type.
_ROUNDED_UP = {"F32": 2.0**-20, "F64": 2.0**-20, "F16": 2.0**-11, "BF16": 2.0**-8}
# Deviations by which the bound that the spread gives may be too small.
_SURE = 4.0
# Values nearer to zero than this share of the bound have bits to spare below the lattice.
_NEAR_ZERO = 1 / 64
_FEWEST = 64
_ON, _OFF = 0.999, 0.1
_WHOLE = 0.01
# Deviations, before the cut, at which a normal law is cut.
_CUTS = {TRUNCATED: 2.0, TRUNCATED_3: 3.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Edge:
    """How far values reach beyond the bound of the law that they otherwise follow.

    ``bound`` as the spread of the values gives it, ``reach`` the farthest value from their middle.
    """

    bound: float
    reach: float
    text: str


def beyond_edge(measure: Measure, law: Law, scales: Iterable[float] = ()) -> Edge | None:
    """Return how values that follow a bounded law leave its bounds; None where they do not.

    The bound follows from the standard deviation, so any scale of an init is covered; where a usual init has
    one of that size, it is known exactly. Something that moved the values after they were initialised has
    blurred the edge.

    Parameters
    ----------
    measure
        Of the matrix; only plain floating-point types have an edge that rounding leaves sharp enough.
    law
        The law that its values follow.
    scales
        Deviations that usual inits of its shape have: a cut normal ends at two or three of them.

    Returns
    -------
    Edge or None
    """
    rounded = _ROUNDED_UP.get(measure.dtype)
    if not law.edge or rounded is None or measure.layout or measure.std <= 0:
        return None
    error = math.sqrt((measure.kurtosis + 2) / (4 * max(measure.seen, 1)))
    middle = measure.mean if abs(measure.mean) > measure.std / 2 else 0.0
    bound = law.edge * measure.std
    off = _SURE * error + rounded
    known = bounds_of(measure.shape) if law is UNIFORM else _bounds_of_cut(law, scales)
    usual = [one for one in known if abs(one / bound - 1) <= off]
    bound, error = (max(usual), 0.0) if usual else (bound, error)
    reach = max(measure.max - middle, middle - measure.min)
    # Of a cut normal the spread depends on the cut as well: its estimate is a little less sure.
    slack = abs(measure.mean - middle) if error else 0.0
    if reach <= bound * (1 + rounded + _SURE * error) + slack:
        return None
    text = (
        f"values that reach {reach:.6g} where the {law.text} law that they follow ends at {bound:.6g}: "
        "something moved them after they were initialised"
    )
    return Edge(bound, reach, text)


def lattice_share(values: Floats, shape: tuple[int, ...]) -> float | None:
    """Return which share of the values near zero lies on the lattice of float32 generators.

    Parameters
    ----------
    values
        Of a float32 matrix that follows a uniform law around zero.
    shape
        Of the tensor: the usual bounds follow from it.

    Returns
    -------
    float or None
        None where too few values are near zero, or the bound is none that is known.
    """
    farthest = float(np.abs(values).max(initial=0.0))
    near = values[np.abs(values) < farthest * _NEAR_ZERO]
    near = near[near != 0].astype(np.float64)
    if len(near) < _FEWEST or not farthest > 0:
        return None
    fits = [bound for bound in bounds_of(shape) if abs(bound / farthest - 1) < 1e-2]
    # A product that is rounded before the bound is taken off leaves multiples of the bound's last place.
    unit = 2.0 ** (math.floor(math.log2(farthest * (1 - _NEAR_ZERO))) - 23)
    best = _whole(near / unit, 0.0)
    for bound in fits:
        best = max(best, _whole((near / (2 * bound) + 0.5) * 2.0**24, _WHOLE))
    return best if fits or best >= _ON else None


def _whole(places: np.ndarray[Any, np.dtype[np.float64]], slack: float) -> float:
    return float(np.mean(np.abs(places - np.rint(places)) <= slack))


def bounds_of(shape: tuple[int, ...]) -> Iterator[float]:
    """Yield the bounds of the usual uniform inits as float32, as PyTorch passes them to its generator."""
    into, out = fan(shape)
    for square in (1 / into, 3 / into, 6 / into, 6 / (into + out), 6 / out, 3 / out, 1 / out):
        for bound in (math.sqrt(square), math.sqrt(2 * square)):
            yield float(np.float32(bound))


def _bounds_of_cut(law: Law, scales: Iterable[float]) -> Iterator[float]:
    """Yield where a normal law of a known scale is cut: the scale is that before the cut.

    JAX and TensorFlow, which cut at two deviations, make it that after the cut, too.
    """
    for scale in scales:
        yield _CUTS[law] * scale
        if law is TRUNCATED:
            yield law.edge * scale


AS_MADE = (
    "bit for bit as a float32 generator makes it: every value near zero is on the lattice of its random "
    "numbers, which one optimiser step would leave"
)
CHANGED = (
    "its values near zero are not on the lattice that float32 generators leave (PyTorch, TensorFlow, JAX): "
    "they were changed after they were made, or another program made them"
)


def is_as_made(share: float | None) -> bool:
    """Say whether values are bit for bit what a generator made."""
    return share is not None and share >= _ON


def was_changed(share: float | None) -> bool:
    """Say whether values have left the lattice of the generators that make such a bound."""
    return share is not None and share <= _OFF
