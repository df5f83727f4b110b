"""The laws that weights are drawn from before training, and the formulas for their scale."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

from workbench.weights.records import Family, Measure


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """A law of independent entries: its excess kurtosis, and n times the variance of a sample's kurtosis."""

    family: Family
    text: str
    kurtosis: float
    spread: float
    edge: float = 0.0  # where it ends, in its own standard deviations; 0 where it does not


# The spread is m8 - 4 m4 m6 + 4 m4^3 - m4^2 of the standardised moments.
NORMAL = Law("normal", "normal", 0.0, 24.0)
UNIFORM = Law("uniform", "uniform", -1.2, 1.317, math.sqrt(3))
TRUNCATED = Law("truncated", "normal cut off at 2 σ", -0.6345, 3.848, 2.2737)
# OLMo's and others' init. In most tensors it looks normal to a Kolmogorov-Smirnov test.
TRUNCATED_3 = Law("truncated", "normal cut off at 3 σ", -0.1711, 10.63, 3.0408)
LAWS = (NORMAL, UNIFORM, TRUNCATED, TRUNCATED_3)


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """The law that the values follow best.

    ``kurtosis_z`` and ``ks`` are the distances to it; ``fits`` whether both let it pass.
    """

    law: Law
    kurtosis_z: float
    ks: float | None
    fits: bool

    @property
    def is_far(self) -> bool:
        """Whether no init gives such values, rather than hardly any."""
        return not self.fits and abs(self.kurtosis_z) > _FAR_KURTOSIS_Z


# What the rounding of a format does to the kurtosis of an init, at most (benchmarks/weights_accuracy).
_ROUNDING, _ROUNDING_8_BITS, _ROUNDING_4_BITS = 0.02, 0.06, 0.3
# An init stays below the first; a value beyond the second is of no init.
_KURTOSIS_Z, _FAR_KURTOSIS_Z = 4.0, 6.5
_KS = 2.2
_SMALLEST_DISTANCE, _MANY = 5e-4, 1 << 11
# Below, the values are nearer to a uniform law than to a cut normal.
_LIKE_UNIFORM = -0.9


def is_rounded(measure: Measure) -> bool:
    """Say whether the values have a few bits only: from a quantised layout, or 8-bit floats."""
    return bool(measure.layout) or measure.dtype.startswith("F8")


def rounding(layout: str, dtype: str) -> float:
    """Return by how much the format of the values may move the kurtosis of an init."""
    text = (layout or dtype).lower().replace("f8_", "fp8")
    if text.endswith("int8"):  # 255 equal steps: no coarser than bfloat16 at the ends
        return _ROUNDING
    if "fp8" in text:
        return _ROUNDING_8_BITS
    return _ROUNDING_4_BITS if layout else _ROUNDING


def hides_law(measure: Measure) -> bool:
    """Say whether the steps of the format are so coarse that the law of the values cannot be tested.

    The kurtosis of the usual laws lies 0.57 and 0.63 apart, and 4 bits may move it by 0.3: whatever is
    between -1.5 and 0.3 passes for one of them, however many values there are.
    """
    return rounding(measure.layout, measure.dtype) >= _ROUNDING_4_BITS


def fit(measure: Measure) -> Fit:
    """Return the law that the values follow best, by their kurtosis and the Kolmogorov-Smirnov distances."""
    slack = rounding(measure.layout, measure.dtype)
    count = max(measure.seen, 1)

    def far(law: Law) -> float:
        off = measure.kurtosis - law.kurtosis
        return math.copysign(max(abs(off) - slack, 0.0), off) / math.sqrt(law.spread / count)

    if measure.ks is None or is_rounded(measure):
        best = min(LAWS[:3], key=lambda law: abs(measure.kurtosis - law.kurtosis))
        return Fit(best, far(best), None, abs(far(best)) < _KURTOSIS_Z)
    by_ks = min(zip(LAWS, measure.ks, strict=False), key=lambda pair: pair[1])
    # Of many values the distance sees the steps of a type, a truncation to 16 bits, a generator's own bias.
    beyond = max(math.sqrt(count) - _MANY, 0.0)
    limit = _KS + measure.rank_error * math.sqrt(count) + _SMALLEST_DISTANCE * beyond
    if by_ks[1] < limit and abs(far(by_ks[0])) < _KURTOSIS_Z:
        return Fit(by_ks[0], far(by_ks[0]), by_ks[1], True)
    # The distances are to the first three laws only.
    best = min(LAWS, key=lambda law: abs(far(law)))
    fits = best is TRUNCATED_3 and abs(far(best)) < _KURTOSIS_Z
    return Fit(best, far(best), by_ks[1], fits)


def fan(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return fan_in and fan_out of a weight ``[out, in, *kernel]``; both count the kernel's area."""
    area = math.prod(shape[2:])
    return max(math.prod(shape[1:]), 1), max(shape[0] * area, 1)


def formulas(
    shape: tuple[int, ...], initializer_range: float | None, layers: int | None
) -> Iterator[tuple[str, float]]:
    """Yield the known formulas for the standard deviation of an init of that shape, and their values."""
    into, out = fan(shape)
    if initializer_range:
        yield f"initializer_range = {initializer_range:g}", initializer_range
        if layers:
            yield "initializer_range / √(2 layers)", initializer_range / math.sqrt(2 * layers)
    yield "1/√(3 fan_in), the default of PyTorch's Linear and Conv", 1 / math.sqrt(3 * into)
    yield "1/√fan_in", 1 / math.sqrt(into)
    yield "√(2/fan_in) (He)", math.sqrt(2 / into)
    yield "√(2/(fan_in + fan_out)) (Xavier)", math.sqrt(2 / (into + out))
    yield "0.02", 0.02
    if layers:
        yield "0.02/√(2 layers)", 0.02 / math.sqrt(2 * layers)
    yield "1, the default of PyTorch's Embedding", 1.0


def _of_uniforms(shape: tuple[int, ...], layers: int | None) -> Iterator[tuple[str, float]]:
    """Yield the formulas that only uniform values have."""
    yield "10^-3/√3, the dummy weights of SGLang and vLLM", 1e-3 / math.sqrt(3)
    if layers:
        into, _ = fan(shape)
        yield "1/√(3 fan_in layers), as Mamba scales its output", 1 / math.sqrt(3 * into * layers)


def known_scale(
    measure: Measure, shape: tuple[int, ...], initializer_range: float | None, layers: int | None
) -> str:
    """Return the first formula that gives the standard deviation of the values, or ""."""
    error = 3 * math.sqrt((measure.kurtosis + 2) / (4 * max(measure.seen, 1)))
    error += 0.03 if measure.layout else 0.003
    usual = formulas(shape, initializer_range, layers)
    if measure.kurtosis < _LIKE_UNIFORM:
        usual = itertools.chain(usual, _of_uniforms(shape, layers))
    for text, sigma in usual:
        if abs(measure.std / sigma - 1) < error:
            return text
    return ""
