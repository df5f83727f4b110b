"""Norms, biases and other vectors: short, and most of them start at a constant."""

from __future__ import annotations

import math
import re

from workbench.weights.families import UNIFORM, fit
from workbench.weights.records import Judgement, Measure

_NORM = re.compile(
    r"(norm|(^|[._])ln|(^|[._])bn)[^.]*\.(weight|scale|gamma|g)$|(^|[._])(gamma|weight_g)$", re.I
)
_BIAS = re.compile(r"(bias|beta)[^.]*$", re.I)
# A shorter vector says nothing about a law.
_FEWEST = 64
# How far below the bound the largest of n uniform values may lie, in units of bound / n.
_GAP = 12


def is_norm(name: str) -> bool:
    """Say whether a name is that of a norm's scale, which starts at one (or zero)."""
    return _NORM.search(name) is not None


def judge_vector(measure: Measure, fan_in: int | None) -> Judgement:
    """Return what is concluded of a vector whose values are finite and differ.

    Parameters
    ----------
    measure
        Of the vector.
    fan_in
        Columns of the matrix beside it: the default bias of PyTorch's Linear is uniform within
        1/√fan_in of zero.

    Returns
    -------
    Judgement
    """
    if is_norm(measure.name):
        return Judgement(
            "trained",
            f"a norm's scale starts constant; its values lie between {measure.min:.4g} and {measure.max:.4g}",
        )
    if measure.seen < _FEWEST:
        return Judgement("undecided", f"too short to tell: {measure.seen:,} values")
    law = fit(measure)
    statistics = (("kurtosis_z", law.kurtosis_z),) + (
        (("ks", law.ks),) if law.ks is not None else ()
    )
    if fan_in and _is_default_bias(measure, 1 / math.sqrt(fan_in)):
        return Judgement(
            "at_init",
            f"indistinguishable from i.i.d. uniform values within 1/√fan_in = {fan_in**-0.5:.4g} of zero, "
            "the default bias of PyTorch's Linear and Conv",
            "uniform",
            measure.std,
            power_text="a vector has no spectrum: changes that keep its law and bounds would not be seen",
            statistics=statistics,
        )
    if law.is_far:
        text = (
            f"its values do not follow any law of initialisation (kurtosis {measure.kurtosis:.2f})"
        )
        return Judgement("trained", text, statistics=statistics)
    if _BIAS.search(measure.name) and fan_in and measure.absmax > 1.05 / math.sqrt(fan_in):
        text = f"a bias starts at zero or within 1/√fan_in of it, and this one reaches {measure.absmax:.4g}"
        return Judgement("trained", text, statistics=statistics)
    text = f"a vector of {measure.seen:,} values that looks {law.law.text}: trained biases do that as well"
    return Judgement("undecided", text, statistics=statistics)


def _is_default_bias(measure: Measure, bound: float) -> bool:
    gap = 1 - measure.absmax / bound
    off = abs(measure.kurtosis - UNIFORM.kurtosis) - 0.02
    uniform = off / math.sqrt(UNIFORM.spread / measure.seen)
    return -0.005 <= gap <= _GAP / measure.seen + 0.005 and uniform < 4
