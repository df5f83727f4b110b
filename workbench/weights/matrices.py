"""One matrix: by its measure where that is plain, by the structure between its entries otherwise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from workbench.weights.context import Context
from workbench.weights.copies import distinct
from workbench.weights.families import Fit, fit, formulas, hides_law, is_rounded, known_scale
from workbench.weights.null_models import explanation
from workbench.weights.provenance import (
    AS_MADE,
    CHANGED,
    beyond_edge,
    is_as_made,
    lattice_share,
    was_changed,
)
from workbench.weights.records import Family, Judgement, Measure, Verdict
from workbench.weights.spectrum import Spectrum, spectrum
from workbench.weights.structure import (
    AT_INIT,
    AT_INIT_OF_UNKNOWN_SCALE,
    SMALLEST_SIDE,
    SMALLEST_SIZE,
    SMALLEST_SIZE_4_BITS,
    TRAINED,
    Evidence,
    evidence,
    power,
    slack,
)
from workbench.weights.taps import taps_of

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rows = Callable[[int, int], Floats]

# A trained matrix shows it at the first look, for a fraction of what the measure costs.
_LOOKS = (1 << 18, 1 << 20)
_FEWEST_ROWS = 64
_RUNS = 32
# Kurtosis and dispersion that no init reaches, whatever scales its blocks were drawn with.
_KURTOSIS_Z, _DISPERSION = 20.0, 20.0
_FEW_ZEROS = 0.01
# Beyond, statistics of sums are not sure.
_LIGHT_TAILS = 1.0
# Fewer distinct rows or columns have no spectrum.
_FEWEST_DISTINCT = 16


def judge_matrix(measure: Measure, rows: Rows, context: Context) -> Judgement:
    """Return what is concluded of a matrix whose values are finite and differ.

    Parameters
    ----------
    measure, rows, context
        As in `workbench.weights.verdict.judge`.

    Returns
    -------
    Judgement
    """
    return _cheap(measure) or by_looking(measure, rows, context)


def _cheap(measure: Measure) -> Judgement | None:
    """Return `trained` where tails and norms are far from any init."""
    if measure.seen < measure.count or min(_sides(measure)) < SMALLEST_SIDE:
        return None
    law = fit(measure)
    spread = (measure.row_dispersion or 0.0, measure.column_dispersion or 0.0)
    # Both ways: a fused tensor whose blocks were drawn with different sigmas has unequal rows, not columns.
    if law.kurtosis_z < _KURTOSIS_Z or min(spread) < _DISPERSION:
        return None
    # Rows or columns of zeros, and scales folded into both, give an init heavy tails, too.
    if measure.zeros > _FEW_ZEROS * measure.seen or measure.kurtosis + 3 < 1.1 * _by_scales(
        measure
    ):
        return None
    return Judgement(
        "trained",
        f"heavier tails than any init (kurtosis {measure.kurtosis:.2f}, z = {law.kurtosis_z:.0f} to the "
        f"nearest), and norms of rows and columns that differ (z = {spread[0]:.0f} and {spread[1]:.0f})",
        statistics=(
            ("kurtosis_z", law.kurtosis_z),
            ("row_dispersion", spread[0]),
            ("column_dispersion", spread[1]),
        ),
    )


def _by_scales(measure: Measure) -> float:
    """Return the fourth moment that normal entries have, once their rows and columns have such norms."""
    moment = 3.0
    for z, size, entries in zip(
        (measure.row_dispersion, measure.column_dispersion),
        _sides(measure),
        reversed(_sides(measure)),
        strict=True,
    ):
        # Backwards from the z value: how much squared norms vary, over the square of their mean.
        ratio = 1 + (z or 0.0) / math.sqrt(max(size - 1, 1) / 2)
        moment *= 1 + max(ratio, 0.0) * (measure.kurtosis + 2) / entries
    return moment


def by_looking(measure: Measure, rows: Rows, context: Context) -> Judgement:
    """Return the verdict that structure and law of the entries make together.

    Parameters
    ----------
    measure, rows, context
        As in `workbench.weights.verdict.judge`.

    Returns
    -------
    Judgement
        `trained` after as few values as show it; anything else after all that the budget allows.
    """
    m, n = _sides(measure)
    for budget in _LOOKS:
        if budget < min(m * n, context.budget):
            found = _look(measure, sample(rows, m, n, budget), context)
            if found.verdict == "trained":
                return found
    return _look(measure, sample(rows, m, n, context.budget), context)


def _look(measure: Measure, values: Floats, context: Context) -> Judgement:
    if not np.isfinite(values).all():
        return Judgement("invalid", "NaN or Inf among the rows that were read again", stage=2)
    seen = spectrum(values, slack(measure))
    m, n = _sides(measure)
    found = _without_models(values, seen, measure)
    if seen.empty_rows or seen.empty_columns:
        measure = _of_the_filled(measure, seen)
    law = fit(measure)
    filled = (
        m - m * seen.empty_rows // max(seen.rows, 1),
        n - n * seen.empty_columns // max(seen.columns, 1),
    )
    scale = _scale(measure, context)
    known = _Known(bool(scale), _follows_none(measure, law, seen), tuple(_scales(measure, context)))
    verdict, family, reason = _conclude(measure, found, law, filled, known)
    made: tuple[str, ...] = ()
    if verdict == "at_init" and family == "uniform":
        share = _lattice(measure, values)
        made = (AS_MADE,) if is_as_made(share) else ()
        if was_changed(share):
            verdict, family, reason = "undecided", "", f"no structure ({found.text}), but {CHANGED}"
    size, size_text = None, ""
    corroboration = _empty(seen)
    if verdict != "trained":
        size, size_text = power(seen, measure, family == "orthogonal")
    if verdict == "at_init":
        corroboration = (*scale, *made, *corroboration)
    return Judgement(
        verdict,
        reason,
        family,
        measure.std if verdict == "at_init" else None,
        corroboration=corroboration,
        power=size,
        power_text=size_text,
        statistics=_statistics(seen, law),
        stage=2,
    )


def _without_models(values: Floats, seen: Spectrum, measure: Measure) -> Evidence:
    """Return what structure proves, once models without training are ruled out."""
    rounded = is_rounded(measure)
    found = evidence(seen, rounded, seen.rows * seen.columns == prod(_sides(measure)))
    if found.verdict == "orthogonal" or found.is_thin:
        return found
    if found.verdict != "trained":
        return _by_taps(found, values, seen, measure)
    once = distinct(values)
    if once is not None:
        if min(once.shape) < _FEWEST_DISTINCT:
            return Evidence("undecided", f"copies of {once.shape[0]:,} × {once.shape[1]:,} values")
        rest = spectrum(once, slack(measure))
        if evidence(rest, rounded).verdict != "trained":
            text = "rows or columns that are copies of each other, and no structure once each is counted once"
            return Evidence(
                "undecided", f"{text} ({once.shape[0]:,} × {once.shape[1]:,} distinct values)"
            )
        values, seen = once, rest
    why = explanation(values, seen)
    if not why:
        return found
    return _by_taps(Evidence("undecided", why), values, seen, measure)


def _by_taps(found: Evidence, values: Floats, seen: Spectrum, measure: Measure) -> Evidence:
    """Return `trained` where the taps of a convolution's kernels prove it, else what was found."""
    if measure.layout:
        return found
    taps = taps_of(values, measure.shape, seen.excess)
    if taps is None or taps.z < AT_INIT:
        return found
    if taps.z > TRAINED:
        return Evidence("trained", taps.text)
    return Evidence("undecided", taps.text) if found.verdict == "none" else found


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """What is known of inits: whether one has this scale, whether none has this law, and the usual scales."""

    is_scale: bool
    is_lawless: bool
    scales: tuple[float, ...]


def _conclude(
    measure: Measure, found: Evidence, law: Fit, filled: tuple[int, int], known: _Known
) -> tuple[Verdict, Family, str]:
    """Return verdict, family and reason; `filled` is how many rows and columns hold more than zeros."""
    m, n = filled
    if found.verdict == "trained":
        return "trained", "", found.text
    if found.verdict == "orthogonal":
        unequal = max(measure.row_dispersion or 0.0, measure.column_dispersion or 0.0)
        if unequal > TRAINED:
            text = (
                f"{found.text}, but norms differ (z = {unequal:.1f}): the factors of a decomposition look "
                "like this, and so does an orthogonal init with a folded scale"
            )
            return "undecided", "", text
        text = f"indistinguishable from an orthogonal init, σ = {measure.std:.4g}: {found.text}"
        return "at_init", "orthogonal", text
    far = f"kurtosis {measure.kurtosis:.2f}, z = {law.kurtosis_z:.0f} to the nearest"
    if min(m, n) < SMALLEST_SIDE or m * n < SMALLEST_SIZE:
        if known.is_lawless and not found.is_thin:
            return "trained", "", f"its values do not follow any law of initialisation ({far})"
        text = f"too small to tell: {m:,} × {n:,} values without structure do not prove that it is untrained"
        return "undecided", "", text
    if known.is_lawless and found.strongest > AT_INIT and abs(measure.kurtosis) < _LIGHT_TAILS:
        return (
            "trained",
            "",
            f"{found.text}, and values that follow no law of initialisation ({far})",
        )
    if found.verdict == "undecided":
        return "undecided", "", f"faint structure, which an init can also have: {found.text}"
    if not law.fits:
        text = f"its entries have no structure ({found.text})"
        return "undecided", "", f"{text}, but they barely follow the law of an init ({far})"
    if hides_law(measure) and m * n < SMALLEST_SIZE_4_BITS:
        text = (
            f"no structure between its {m:,} × {n:,} values ({found.text}), but the steps of "
            f"{measure.layout} are too coarse to test whether they follow the law of an init: a trained "
            "matrix of this size can look like this"
        )
        return "undecided", "", text
    if not known.is_scale and found.strongest > AT_INIT_OF_UNKNOWN_SCALE:
        scale = f"a scale that is not a known init's (σ = {measure.std:.4g})"
        return "undecided", "", f"faint structure ({found.text}), and {scale}"
    moved = beyond_edge(measure, law.law, known.scales)
    if moved:
        return "undecided", "", f"no structure between its entries ({found.text}), and {moved.text}"
    text = (
        f"indistinguishable from i.i.d. {law.law.text} entries, σ = {measure.std:.4g}: {found.text}"
    )
    return "at_init", law.law.family, text


def _follows_none(measure: Measure, law: Fit, seen: Spectrum) -> bool:
    """Say whether the values follow no law of an init, nor do they once all rows and columns have one scale.

    A norm that was folded into an init, and one of which many entries are zeros, have tails of their own.
    """
    if not law.is_far or measure.zeros > _FEW_ZEROS * measure.seen:
        return False
    if measure.shape[0] == 1 and len(measure.shape) > 2:
        return True  # [1, places, width]: no norm is folded into embeddings of places
    return fit(dataclasses.replace(measure, kurtosis=seen.kurtosis, ks=None)).is_far


def _of_the_filled(measure: Measure, seen: Spectrum) -> Measure:
    """Return the measure of what is not in rows or columns of zeros, a peak otherwise."""
    filled = (1 - seen.empty_rows / seen.rows) * (1 - seen.empty_columns / seen.columns)
    std = measure.std / max(filled, 1 / measure.seen) ** 0.5
    count = max(round(measure.seen * filled), 1)
    return dataclasses.replace(measure, kurtosis=seen.kurtosis, std=std, ks=None, seen=count)


def _empty(seen: Spectrum) -> tuple[str, ...]:
    parts = (
        (seen.empty_rows, seen.rows, "rows"),
        (seen.empty_columns, seen.columns, "columns"),
    )
    return tuple(
        f"{empty:,} of {total:,} {what} read are all zeros" for empty, total, what in parts if empty
    )


def _lattice(measure: Measure, values: Floats) -> float | None:
    """Return the share of the values near zero on a generator's lattice; None where that is not known."""
    if measure.dtype != "F32" or measure.layout:
        return None
    return lattice_share(values, measure.shape)


def _scale(measure: Measure, context: Context) -> tuple[str, ...]:
    known = known_scale(measure, measure.shape, context.initializer_range, context.layers)
    return (f"its σ is a known init's: {known}",) if known else ()


def _scales(measure: Measure, context: Context) -> Iterator[float]:
    """Yield the deviations that usual inits of its shape have."""
    for _, scale in formulas(measure.shape, context.initializer_range, context.layers):
        yield scale


def _statistics(seen: Spectrum, law: Fit) -> tuple[tuple[str, float], ...]:
    values = {
        "gram": seen.gram, "tracy_widom": seen.edge, "row_scale": seen.row_scale,
        "column_scale": seen.column_scale, "row_neighbours": seen.row_neighbours,
        "column_neighbours": seen.column_neighbours, "orthogonality": seen.orthogonality,
        "row_means": seen.row_means, "column_means": seen.column_means, "mean": seen.mean,
        "kurtosis_z": law.kurtosis_z, "rows_read": float(seen.rows),
    }  # fmt: skip
    if law.ks is not None:
        values["ks"] = law.ks
    return tuple(values.items())


def sample(rows: Rows, m: int, n: int, budget: int) -> Floats:
    """Return a matrix, or as many of its rows as the budget allows, in runs spread over it."""
    if m * n <= budget:
        return rows(0, m)
    wanted = min(m, max(budget // n, _FEWEST_ROWS))
    run = max(wanted // _RUNS, 1)
    starts = np.linspace(0, m - run, max(wanted // run, 1)).astype(np.int64)
    columns = max(budget // wanted, _FEWEST_ROWS)
    return np.concatenate([rows(int(at), int(at) + run)[:, :columns] for at in starts])


def _sides(measure: Measure) -> tuple[int, int]:
    return measure.shape[0], prod(measure.shape[1:])
