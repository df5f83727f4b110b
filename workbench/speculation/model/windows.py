"""Sliding windows, as configs describe them: neither target nor draft is computed with one here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIELDS = ("sliding_window", "use_sliding_window", "layer_types", "max_window_layers")


def window_of(config: Mapping[str, Any]) -> int | None:
    """Return the sliding window of a model's attention, None where it attends to everything."""
    size = config.get("sliding_window")
    if type(size) is not int or not config.get("use_sliding_window", True):
        return None
    layers, whole = config.get("num_hidden_layers"), config.get("max_window_layers")
    if type(layers) is int and type(whole) is int and whole >= layers:
        return None  # of Qwen's: so many of the first layers attend to everything
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds and "sliding_attention" not in kinds:
        return None
    return size
