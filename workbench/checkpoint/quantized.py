"""Quantised layouts (placeholder)."""

from __future__ import annotations

import dataclasses

from workbench.checkpoint.config import Config
from workbench.checkpoint.records import TensorTable


@dataclasses.dataclass(frozen=True)
class Quantization:
    """What is known of the layout."""

    format: str = ""


def recognise(table: TensorTable, config: Config) -> Quantization:
    """Return the layout."""
    return Quantization()
