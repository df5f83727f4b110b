"""The pictures of a scan and of a comparison as matplotlib figures, in the colours of the views."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.palette import BACKGROUNDS, RAMP, tone
from workbench.errors import WorkbenchError, clean, shorten, shown
from workbench.weights.changes import STATES
from workbench.weights.grid import Grid, cells, grids, scale, span
from workbench.weights.names import Places, places
from workbench.weights.picture import COMPARE_MODES, SCAN_MODES, VERDICTS, states, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.weights.comparison import WeightComparison
    from workbench.weights.results import WeightScan

_INK, _MUTED, _LINE = "#1b1f24", "#5c6470", "#e2e1dc"
_CALM = ("trained", "not_weights", "identical")
_MOST_LABELS = 64  # rows and columns that are named


def plot_scan(scan: WeightScan, kind: str) -> Figure:
    """Return layers by kinds of tensor, coloured by ``verdict``, ``std`` or ``kurtosis``."""
    mode = next(
        (m for m in SCAN_MODES if m["key"] == ("state" if kind == "verdict" else kind)), None
    )
    if mode is None or kind == "state":
        raise WorkbenchError(
            f"there is not a picture of {shown(kind)}", next_step="Give verdict, std or kurtosis."
        )
    seen, state = states(scan)
    numbers = {} if kind == "verdict" else {kind: scan.tensors.column(kind)}
    words = {verdict: word(verdict) for verdict in VERDICTS}
    where = places(scan.tensors.names)
    title = f"{scan.title}: {str(mode['label']).lower()}"
    return _maps(where, state, words, mode, numbers, seen.matters, title)


def plot_comparison(comparison: WeightComparison) -> Figure:
    """Return layers by kinds of tensor, coloured by the relative change."""
    rows = comparison.changes
    state = np.array([row.state for row in rows], dtype=object)
    change = np.array([math.nan if row.change is None else row.change for row in rows])
    mode = COMPARE_MODES[0]
    whole = np.ones(len(rows), dtype=bool)
    return _maps(
        places(rows.names), state, STATES, mode, {"change": change}, whole, comparison.title
    )


def _maps(
    where: Places,
    state: np.ndarray[Any, Any],
    words: Mapping[str, str],
    mode: Mapping[str, Any],
    numbers: Mapping[str, np.ndarray[Any, Any]],
    prominent: np.ndarray[Any, Any],
    title: str,
) -> Figure:
    found = grids(where)
    if not found:
        raise WorkbenchError("there is nothing to plot", why="tensors were not read")
    heights = [max(len(grid.layers) * _line(grid), 0.35) for grid in found]
    wide = max(len(grid.labels) for grid in found)
    # Labels stand at 45 degrees above each grid.
    labels = sum(0.4 + 0.055 * max(map(len, grid.labels)) for grid in found)
    size = (min(max(3.2 + 0.5 * wide, 6.4), 18), min(sum(heights) + labels + 0.8, 40))
    figure = _figure(size)
    axes = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    drawn = [cells(grid, state, tuple(words), numbers) for grid in found]
    values = [one.numbers[mode["key"]] for one in drawn] if numbers else []
    low, high = (0.0, 1.0)
    if numbers:
        low, high = span(scale(numbers[mode["key"]][prominent], mode["kind"]))
        low, high = mode.get("low", low), mode.get("high", high)
    for at, (grid, one, ax) in enumerate(zip(found, drawn, axes, strict=True)):
        share = None
        if numbers:
            share = (scale(values[at], mode["kind"]) - low) / ((high - low) or 1)
        _draw(ax, grid, one.state, share)
    figure.suptitle(shorten(title, 100), fontsize=11, color=_INK, x=0.01, ha="left")
    present = [s for s in words if any(s in one.state for one in drawn)]
    if numbers:  # colours are numbers then; what has a sign is still explained
        present = [s for s in present if s not in (*_CALM, "changed")]
    _legend(figure, present, words)
    if numbers:
        _bar(figure, list(axes), mode, low, high)
    return figure


def _figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure that a notebook shows, also where nobody imported pyplot."""
    return _shown_figure()(figsize=size, layout="constrained", facecolor=BACKGROUNDS["light"][0])


@functools.cache
def _shown_figure() -> type[Figure]:
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png", dpi=110)
            return out.getvalue()

    return ShownFigure


def _line(grid: Grid) -> float:
    return 0.3 if len(grid.layers) <= 32 else 0.2


def _draw(ax: Axes, grid: Grid, state: Sequence[str], share: np.ndarray[Any, Any] | None) -> None:
    from matplotlib.colors import to_rgb

    picture = np.ones((len(grid.layers), len(grid.labels), 3))
    ramp = np.array([to_rgb(colour) for colour in RAMP])
    for at, (row, column) in enumerate(zip(grid.row, grid.column, strict=True)):
        tint = np.array(to_rgb(tone(state[at]).light))
        if share is None:
            picture[row, column] = tint if state[at] not in _CALM else 1 - 0.26 * (1 - tint)
        elif math.isfinite(share[at]):
            place = min(max(float(share[at]), 0.0), 1.0) * (len(ramp) - 1)
            picture[row, column] = ramp[round(place)]
        else:
            picture[row, column] = to_rgb(_LINE)
        if state[at] not in _CALM and not (share is not None and state[at] == "changed"):
            box = {"boxstyle": "circle,pad=0.15", "fc": "white", "ec": "none"}
            ax.text(
                column, row, tone(state[at]).glyph, ha="center", va="center", fontsize=9,
                weight="bold", color="white" if share is None else tone(state[at]).light,
                bbox=None if share is None else box,
            )  # fmt: skip
    ax.imshow(picture, aspect="auto", interpolation="nearest")
    ax.set_xticks(np.arange(-0.5, len(grid.labels)), minor=True)
    ax.set_yticks(np.arange(-0.5, len(grid.layers)), minor=True)
    ax.grid(which="minor", color="white", linewidth=1.2)
    ax.tick_params(which="both", length=0, labelsize=8, colors=_MUTED)
    ax.xaxis.tick_top()
    labels = [clean(label) for label in grid.labels]
    if len(labels) <= _MOST_LABELS:
        ax.set_xticks(range(len(labels)), labels, rotation=45, ha="left", rotation_mode="anchor")
    step = max(1, len(grid.layers) // _MOST_LABELS)
    rows = range(0, len(grid.layers), step)
    ax.set_yticks(list(rows), [str(grid.layers[row]) if grid.stack else "" for row in rows])
    ax.set_ylabel(shorten(grid.stack, 48), fontsize=8, color=_MUTED)
    ax.spines[:].set_visible(False)


def _legend(figure: Figure, present: Sequence[str], words: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(
            facecolor=tone(state).light,
            alpha=0.3 if state in _CALM else 1,
            label=f"{tone(state).glyph} {words[state]}",
        )
        for state in present
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=8)


def _bar(
    figure: Figure, axes: list[Axes], mode: Mapping[str, str], low: float, high: float
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colours = ScalarMappable(Normalize(low, high), ListedColormap(list(RAMP)))
    bar = figure.colorbar(colours, ax=axes, shrink=0.6, aspect=24, pad=0.02)
    ticks = np.linspace(low, high, 4)
    bar.set_ticks(list(ticks), labels=[f"{_unscaled(tick, mode['kind']):.2g}" for tick in ticks])
    bar.ax.tick_params(labelsize=8, colors=_MUTED, length=0)
    bar.outline.set_visible(False)
    bar.set_label(mode["label"], fontsize=8, color=_MUTED)


def _unscaled(value: float, kind: str) -> float:
    if kind == "log":
        return float(10**value)
    return float(np.sign(value) * 0.1 * (10 ** abs(value) - 1))


def plot_tensor(scan: WeightScan, name: str) -> Figure:
    """Return one tensor's histogram on a log scale, with the law that was fitted to it."""
    row = scan.tensors[name]
    if row.bins is None:
        raise WorkbenchError(
            f"there is not a histogram of {shown(name)}",
            why="it has no finite values, or the scan kept only other histograms",
            next_step="Scan it alone: scan_weights(path, names=[name]).",
        )
    edges, counts = (np.array(part, dtype=np.float64) for part in row.bins)
    figure = _figure((6.4, 3.4))
    ax = figure.subplots()
    ax.stairs(counts, edges, fill=True, color=tone("note").light, alpha=0.5, label="values")
    family = row.family if row.family in ("normal", "uniform", "truncated") else "normal"
    if row.std > 0:
        middle = (edges[1:] + edges[:-1]) / 2
        law = counts.sum() * np.diff(law_share(family, edges, row.mean, row.std))
        visible = law > 0.3
        ax.plot(
            middle[visible], law[visible], color=tone("error").light, lw=2, label=f"{family} law"
        )
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    ax.set_title(
        f"{tone(row.verdict).glyph} {shorten(row.name, 70)}: {word(row.verdict)}",
        fontsize=10, color=tone(row.verdict).light, loc="left",
    )  # fmt: skip
    ax.set_xlabel(
        f"mean {row.mean:.3g}, std {row.std:.3g}, kurtosis {row.kurtosis:.3g}", fontsize=8
    )
    ax.tick_params(labelsize=8, colors=_MUTED)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    return figure


def law_share(family: str, values: np.ndarray[Any, Any], mean: float, std: float) -> Any:
    """Return the share of a law of that mean and standard deviation below each value."""
    if family == "uniform":
        half = std * math.sqrt(3)
        return np.clip((values - mean + half) / (2 * half), 0, 1)
    z = (values - mean) / std
    if family == "truncated":  # cut at two of its sigmas it keeps this share of its sigma
        z = np.clip(z * 0.8796257, -2, 2)
        return (_phi(z) - _phi(np.array(-2.0))) / 0.9544997
    return _phi(z)


def _phi(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2))))
