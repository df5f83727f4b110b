"""What is known of a tensor beside its values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from workbench.weights.parts import Part, parts_of
from workbench.weights.structure import SMALLEST_SIDE

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config

BUDGET = 1 << 24
"""Elements that the spectrum of one matrix may read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """What stands beside a tensor's values.

    Attributes
    ----------
    initializer_range, layers
        Of the config, None where it does not say.
    fan_in
        Columns of the matrix that a bias belongs to, None where that is not known.
    is_stack
        Whether a tensor of three dimensions or more is a stack of matrices (experts), not a convolution.
    parts
        The projections that a fused matrix holds, () where it is not known to be one.
    budget
        Elements that the spectrum may read.
    """

    initializer_range: float | None = None
    layers: int | None = None
    fan_in: int | None = None
    is_stack: bool = False
    parts: tuple[Part, ...] = ()
    budget: int = BUDGET


def context_of(
    name: str,
    shape: tuple[int, ...],
    config: Config | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    budget: int = BUDGET,
) -> Context:
    """Return what the config and the names of the other tensors say about one.

    Parameters
    ----------
    name, shape
        Of the tensor.
    config
        The model's config.
    shapes
        Shapes of the other tensors by name: a bias is judged by its matrix.
    budget
        Elements that the spectrum may read; less for a sampled scan.

    Returns
    -------
    Context
    """
    beside = (
        (shapes or {}).get(name.removesuffix("bias") + "weight") if name.endswith("bias") else None
    )
    return Context(
        initializer_range=_number(config, "initializer_range"),
        layers=int(_number(config, "num_hidden_layers") or 0) or None,
        fan_in=prod(beside[1:]) if beside and len(beside) > 1 else None,
        is_stack=is_stack(name, shape),
        parts=parts_of(name, shape, _heads(config)),
        budget=budget,
    )


def _number(config: Config | None, name: str) -> float | None:
    value = config.get(name) if config else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 < value < 1e6 else None


def _heads(config: Config | None) -> tuple[int, int, int] | None:
    """Return query heads, heads of keys and values, and a head's size."""
    query = _number(config, "num_attention_heads")
    if not query:
        return None
    size = _number(config, "head_dim") or (_number(config, "hidden_size") or 0.0) / query
    key = _number(config, "num_key_value_heads") or query
    return int(query), int(key), int(size)


def is_stack(name: str, shape: tuple[int, ...]) -> bool:
    """Say whether a tensor of three dimensions or more is a stack of matrices (experts)."""
    if len(shape) < 3 or prod(shape[:-2]) < 2 or min(shape[-2:]) < SMALLEST_SIDE:
        return False
    # Four dimensions are a kernel, such as one of patches of 32 x 32, if nothing says otherwise.
    return "expert" in name or (len(shape) == 3 and "conv" not in name)
