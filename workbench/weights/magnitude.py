"""Magnitudes: a tensor beside those of its kind, and codes that lost their scales.

Layers of one model differ in magnitude by a few times, seldom by ten. A hundred times is a scale that was
applied twice or not at all, or a cast that went wrong; which one, the numbers alone do not say.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.weights.doubts import Doubt, Doubts
from workbench.weights.names import is_vocabulary
from workbench.weights.records import has_few_values

if TYPE_CHECKING:
    from workbench.weights.seen import Seen

# How many times larger or smaller than its siblings a tensor may be: docs/weights.md has the measured ranges.
_ODD_MATRIX, _ODD_NORM, _ODD_VECTOR = 100.0, 1e3, 1e4
_LARGE_VECTOR = 100.0
# Codes that fill their type's range; weights that were cast without a scale stay far below.
_FILLS_RANGE = 200.0
# The largest codes of 8-bit formats: E4M3 (also of the FNUZ kind), E5M2, int8. Weights whose largest value is
# exactly one of these, and whose spread is above any that trained weights have, are codes in a wider type.
_LARGEST_CODES = frozenset((448.0, 240.0, 57344.0, 127.0, 128.0))
_SPREAD_OF_CODES = 5.0
_WIDE = frozenset(("BF16", "F16", "F32", "F64"))
# Of a band on both sides of zero; two magnitudes have -2, and no weights that were trained come near.
_KURTOSIS_OF_A_BAND = -1.5
# Siblings that make a median worth the name.
_SIBLINGS = 3
# Nine of ten values below this share of the deviation: a few others make it. Filters that died by weight
# decay are next to nothing too, and up to three quarters of a healthy layer.
_NOTHING = 1e-3
# Quantiles 3 and 7 of `QUANTILES`: nine of ten values lie between them.
_LOWER, _UPPER = 3, 7
# Fewer values may keep to a band by chance.
_FEWEST_OF_A_BAND = 4096


def magnitude_doubts(seen: Seen) -> Doubts:
    """Return tensors of another magnitude than their siblings, and codes without their scales."""
    found = _collapsed(seen) | _codes(seen)
    sizes = _sizes(seen)
    matrices = seen.counts & seen.tensors.is_matrix
    reference = _median(
        [sizes[i] for i in np.flatnonzero(matrices) if not _is_vocabulary(seen, int(i))]
    )
    norms = _median(sizes[np.flatnonzero(seen.is_norm)])
    for members in _kinds(seen):
        first = members[0]
        if matrices[first]:
            limit, usual = _ODD_MATRIX, reference
        elif seen.is_norm[first]:
            limit, usual = _ODD_NORM, norms
        else:
            limit, usual = _ODD_VECTOR, math.nan
        for i, times, count in _odd(members, sizes, limit, usual):
            is_vector = not matrices[i] and not seen.is_norm[i]
            if i not in found and not (is_vector and (times < 1 or sizes[i] < _LARGE_VECTOR)):
                found[i] = Doubt("open", _said(times, count))
    return found


def _said(times: float, count: int) -> str:
    much = (
        f"{times:,.3g} times as large as" if times > 1 else f"{1 / times:,.3g} times smaller than"
    )
    others = f"in its {count:,} siblings" if count > 1 else "in its sibling"
    return f"its values are {much} {others}: a scale that was applied twice, or not at all"


def _is_vocabulary(seen: Seen, i: int) -> bool:
    return is_vocabulary(seen.tensors.names[i])


def _sizes(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the root of the mean square of each tensor, NaN where it has no usual values."""
    mean, std = seen.tensors.column("mean"), seen.tensors.column("std")
    size = np.hypot(mean, std)
    usable = seen.counts & (size > 0) & (seen.verdict != "invalid") & np.isfinite(size)
    return np.where(usable, size, np.nan)


def _kinds(seen: Seen) -> list[list[int]]:
    """Return the tensors of one kind and shape: the same place in other layers, the other experts."""
    where, shapes = seen.places, seen.tensors.column("shape")
    kinds: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for i in np.flatnonzero(seen.counts).tolist():
        kinds[int(where.kind[i]), shapes[i]].append(i)
    return [members for members in kinds.values() if len(members) > 1]


def _odd(
    members: list[int], sizes: np.ndarray[Any, Any], limit: float, usual: float
) -> list[tuple[int, float, int]]:
    """Return which members are of another size, how many times, and beside how many siblings."""
    have = [i for i in members if not math.isnan(sizes[i])]
    if len(have) < 2:
        return []
    middle = _median(sizes[have])
    if len(have) < _SIBLINGS:
        # Of two, the one that is farther from the other matrices of the model is the odd one.
        a, b = sorted(have, key=lambda i: abs(math.log(sizes[i] / usual)) if usual > 0 else 0.0)
        times = float(sizes[b] / sizes[a])
        return [(b, times, 1)] if usual > 0 and _is_odd(times, limit) else []
    return [
        (i, float(sizes[i] / middle), len(have) - 1)
        for i in have
        if _is_odd(float(sizes[i] / middle), limit)
    ]


def _is_odd(times: float, limit: float) -> bool:
    return times >= limit or times <= 1 / limit


def _is_a_band(seen: Seen, i: int, kurtosis: float) -> bool:
    """Whether a matrix has two signs and no small magnitudes: a normal's kurtosis is 0, a uniform's -1.2.

    A matrix of one or two bits looks like this by design; it has few values, and its histogram few bins.
    """
    row = seen.tensors[i]
    if kurtosis > _KURTOSIS_OF_A_BAND or row.count < _FEWEST_OF_A_BAND:
        return False
    bins = row.bins
    return bins is not None and not has_few_values(bins)


def _median(values: Any) -> float:
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[~np.isnan(numbers)]
    return float(np.median(numbers)) if len(numbers) else math.nan


def _collapsed(seen: Seen) -> Doubts:
    """Return matrices that a few values make, while most of the others are next to nothing, and not zeros."""
    if seen.tensors.quantiles.shape[1] <= _UPPER:
        return {}
    middle = np.abs(seen.tensors.quantiles[:, (_LOWER, _UPPER)]).max(axis=1)
    std = seen.tensors.column("std")
    tiny = (middle > 0) & (middle < _NOTHING * std) & seen.counts & seen.tensors.is_matrix
    return {
        i: Doubt(
            "open",
            f"nine of ten of its values are below {middle[i] / std[i]:.2g} of their σ of {std[i]:.3g}, and "
            "are not zeros: a branch that decayed, or a scale that reached a part of it",
        )
        for i in np.flatnonzero(tiny).tolist()
    }


def _codes(seen: Seen) -> Doubts:
    """Return matrices of 8-bit floats that are codes: no scale is in the file, and they need one."""
    found: Doubts = {}
    dtypes, layouts = seen.tensors.column("dtype"), seen.tensors.column("layout")
    most = seen.tensors.column("absmax")
    settings = seen.config.quantization if seen.config is not None else {}
    method = str(settings.get("quant_method") or "")
    std, tails = seen.tensors.column("std"), seen.tensors.column("kurtosis")
    for i in np.flatnonzero(seen.counts & seen.tensors.is_matrix).tolist():
        if dtypes[i] in _WIDE or layouts[i]:
            if most[i] in _LARGEST_CODES and std[i] >= _SPREAD_OF_CODES:
                codes = (
                    "8-bit codes whose scale is one" if layouts[i]
                    else "8-bit codes in a wider type, whose scale was not multiplied in"
                )  # fmt: skip
                found[i] = Doubt(
                    "open", f"values up to exactly {most[i]:g} with σ = {std[i]:.3g}: {codes}"
                )
            elif dtypes[i] in _WIDE and not layouts[i] and _is_a_band(seen, i, tails[i]):
                found[i] = Doubt(
                    "open",
                    f"its magnitudes keep within a band around {std[i]:.3g}, and none is near zero: "
                    "values of one type that were read as another look like this",
                )
            continue
        if not str(dtypes[i]).startswith("F8_E"):
            continue
        if method and most[i] >= _FILLS_RANGE:
            found[i] = Doubt(
                "wrong",
                f"FP8 codes up to {most[i]:g} without their scale; the config says that it is quantised "
                f"({method})",
            )
        elif method or most[i] >= _FILLS_RANGE:
            found[i] = Doubt(
                "open", f"FP8 values up to {most[i]:g} without a scale: codes, or a plain cast"
            )
    return found
