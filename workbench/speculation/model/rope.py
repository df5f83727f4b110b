"""Rotary frequencies from a config, in the forms of transformers 4 (rope_scaling) and 5 (rope_parameters)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.errors import WorkbenchError, shown
from workbench.speculation.model.layers import Rope

Config = Mapping[str, Any]
# No model turns more than a few thousand dimensions of a head.
_MOST = 1 << 16
# Bounds of every number here, so wide that no model is near them, and no formula leaves what a float holds.
_LEAST_NUMBER, _MOST_NUMBER = 1e-6, 1e15


def rope_of(config: Config, width: int, *, interleaved: bool = False) -> Rope:
    """Return the rotary positions of a config.

    Parameters
    ----------
    config
        The flat config; ``rope_parameters`` goes before ``rope_theta`` and ``rope_scaling``.
    width
        Size of what is turned before ``partial_rotary_factor`` cuts it.

    Raises
    ------
    WorkbenchError
        A kind of scaling that is not known, or a number that is none.
    """
    table = _table(config)
    theta = _number(table.get("rope_theta", config.get("rope_theta", 10000.0)), "rope_theta")
    part = _number(
        table.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)),
        "partial_rotary_factor",
    )
    size = int(width * part) // 2 * 2
    if part > 1 or not 0 < size <= _MOST:
        raise _odd("partial_rotary_factor", part, f"the share of heads of {width} that is rotated")
    inverse = [theta ** -(2 * k / size) for k in range(size // 2)]
    kind = str(table.get("rope_type", table.get("type", "default")) or "default")
    if kind in ("default", "mrope"):
        return Rope(tuple(inverse), interleaved=interleaved)
    factor = _number(table.get("factor", 1.0), "factor")
    if kind == "linear":
        return Rope(tuple(value / factor for value in inverse), interleaved=interleaved)
    if kind == "llama3":
        return Rope(tuple(_llama3(inverse, table, factor)), interleaved=interleaved)
    if kind in ("yarn", "deepseek_yarn"):
        if theta <= 1:
            raise _odd("rope_theta", theta, "YaRN wants one above 1")
        scaled = _yarn(inverse, table, factor, theta, size, config)
        return Rope(tuple(scaled), _yarn_scale(table, factor), interleaved)
    raise WorkbenchError(
        f"the rotary scaling {shown(kind)} is not known here",
        why="known are default, linear, llama3 and yarn",
        next_step="Replay without it by removing rope_scaling, if the text is short.",
    )


def attention_scale(config: Config, width: int) -> float:
    """Return the factor of attention scores; DeepSeek's YaRN enlarges it by the square of its mscale."""
    table = _table(config)
    scale = 1 / math.sqrt(width)
    kind = str(table.get("rope_type", table.get("type", "default")))
    if kind in ("yarn", "deepseek_yarn") and table.get("mscale_all_dim"):
        scale *= (
            _mscale(
                _number(table.get("factor", 1.0), "factor"),
                _number(table["mscale_all_dim"], "mscale_all_dim"),
            )
            ** 2
        )
    return scale


def _table(config: Config) -> Config:
    for name in ("rope_parameters", "rope_scaling"):
        table = config.get(name)
        if isinstance(table, Mapping):
            return table
        if table is not None:
            raise _odd(name, table, "it must be an object")
    return {}


def _llama3(inverse: list[float], table: Config, factor: float) -> list[float]:
    low = _number(table.get("low_freq_factor", 1.0), "low_freq_factor")
    high = _number(table.get("high_freq_factor", 4.0), "high_freq_factor")
    trained = _number(table.get("original_max_position_embeddings", 8192), "original length")
    out = []
    for value in inverse:
        length = 2 * math.pi / value
        smooth = (trained / length - low) / (high - low) if high != low else 1.0
        smooth = min(1.0, max(0.0, smooth))
        out.append((1 - smooth) * value / factor + smooth * value)
    return out


def _yarn(
    inverse: list[float], table: Config, factor: float, theta: float, size: int, config: Config
) -> list[float]:
    trained = _number(
        table.get("original_max_position_embeddings", config.get("max_position_embeddings", 4096)),
        "original length",
    )

    def dimension(turns: float) -> float:
        return size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(0, math.floor(dimension(_number(table.get("beta_fast", 32), "beta_fast"))))
    high = min(size - 1, math.ceil(dimension(_number(table.get("beta_slow", 1), "beta_slow"))))
    out = []
    for k, value in enumerate(inverse):
        ramp = min(1.0, max(0.0, (k - low) / (high - low or 0.001)))
        out.append(value / factor * ramp + value * (1 - ramp))
    return out


def _yarn_scale(table: Config, factor: float) -> float:
    if table.get("attention_factor") is not None:
        return _number(table["attention_factor"], "attention_factor")
    if table.get("mscale") and table.get("mscale_all_dim"):
        return _mscale(factor, _number(table["mscale"], "mscale")) / _mscale(
            factor, _number(table["mscale_all_dim"], "mscale_all_dim")
        )
    return _mscale(factor, 1.0)


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _number(value: Any, name: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not _LEAST_NUMBER <= value <= _MOST_NUMBER:
        raise _odd(name, value, f"it must be a number from {_LEAST_NUMBER:g} to {_MOST_NUMBER:g}")
    return float(value)


def _odd(name: str, value: Any, why: str) -> WorkbenchError:
    return WorkbenchError(
        f"{name} is {shown(value)} in the config",
        why=why,
        next_step="Correct config.json: compare it with the training run's.",
    )
