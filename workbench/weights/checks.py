"""Values that need no statistics: missing, not finite, not written, or all the same."""

from __future__ import annotations

from workbench.weights.records import Judgement, Measure

# Above 2^30 no weight of a model that ever ran; between it and 2^20 only where many values are like that.
_HUGE, _LARGE, _TINY = 2.0**30, 2.0**20, 2.0**-40
_GARBAGE_SHARE = 1e-3
# Variances of a batch norm whose inputs are in volts or pixels; garbage is of every size.
_ONE_SIZE = 1e3
# A flipped bit of the exponent: at most a few values, so many times what 99.8 % of all stay within. The
# largest weights that training made ("super weights") are a thousand times that.
_FLIPPED, _FEW, _MANY = 1e6, 4, 4096


def check(measure: Measure) -> Judgement | None:
    """Return the verdict on values that are missing, not finite, not written or all the same."""
    seen = measure.seen
    if not seen:
        why = "its values could not be read" if measure.count else "it has no elements"
        return Judgement("undecided", why, stage=0)
    if measure.nan + measure.inf:
        return _not_finite(measure)
    large = measure.absmax >= _LARGE and measure.top_exponent_share > _GARBAGE_SHARE
    if measure.absmax >= _HUGE or (large and not _are_variances(measure)):
        return Judgement(
            "invalid",
            f"values up to {measure.absmax:.2g}, {_percent(measure.top_exponent_share)} of them outside "
            "2^-40 to 2^20: memory that was never written, or a scale that was not applied",
            family="memory",
            stage=0,
        )
    if measure.min == measure.max:
        return _constant(measure)
    within = max(map(abs, measure.quantiles[1:-1]), default=0.0)
    # A value alone makes the variance: so many values as large as the largest do.
    few = measure.seen * (measure.std / measure.absmax) ** 2
    if seen >= _MANY and few < _FEW and 0 < within * _FLIPPED < measure.absmax:
        return Judgement(
            "invalid",
            f"a value of {measure.absmax:.3g} where 99.8 % are within ±{within:.2g}: a flipped bit, or a "
            "write that went astray",
            family="memory",
            stage=0,
        )
    if measure.absmax < _TINY:
        return Judgement(
            "invalid",
            f"no value reaches {measure.absmax:.2g}: whole numbers or leftovers read as floats",
            family="memory",
            stage=0,
        )
    return None


def _are_variances(measure: Measure) -> bool:
    """Say whether values are those of a vector of variances: above zero, of about one size."""
    is_vector = sum(size > 1 for size in measure.shape) < 2
    return is_vector and measure.min > 0 and measure.max < _ONE_SIZE * measure.min


def _not_finite(measure: Measure) -> Judgement:
    if measure.nan == measure.seen:
        return Judgement(
            "invalid", f"all {measure.seen:,} values are NaN: it was never filled", stage=0
        )
    parts = [
        f"{count:,} {what}"
        for count, what in ((measure.nan, "NaN"), (measure.inf, "infinite"))
        if count
    ]
    huge = measure.absmax >= _LARGE and measure.top_exponent_share > _GARBAGE_SHARE
    return Judgement(
        "invalid",
        f"{' and '.join(parts)} of {measure.seen:,} values"
        + (", and finite ones of every size: memory that was never written" if huge else ""),
        family="memory" if huge else "",
        stage=0,
    )


def _constant(measure: Measure) -> Judgement:
    value, vector = measure.min, sum(size > 1 for size in measure.shape) < 2
    what = f"all {measure.seen:,} values read are {value + 0.0:g}"  # no -0
    if value == 0:
        if not vector:
            return Judgement(
                "constant", f"{what}: a matrix of zeros passes nothing on", "zeros", stage=0
            )
        text = f"{what}: at init, or not changed by more than the resolution of {measure.dtype}"
        return Judgement("at_init", text, "zeros", 0.0, stage=0)
    if value == 1 and vector and measure.count > 1:
        text = f"{what}: at init, or not changed by more than the resolution of {measure.dtype}"
        return Judgement("at_init", text, "ones", 0.0, stage=0)
    return Judgement("constant", what, "ones" if value == 1 else "constant", stage=0)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
