"""FP8 weights with one scale a block: what the engines check of their sizes before they load anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.loaders.profile import Refused

if TYPE_CHECKING:
    from workbench.loaders.families import Layout


def whole_blocks(fused: bool, layout: Layout, parts: Sequence[tuple[str, int, str]]) -> None:
    """Refuse parts of a stacked parameter that are not whole blocks: each must have scales of its own.

    Raises
    ------
    Refused
        A part's rows are no multiple of a block's.
    """
    for name, rows, _ in parts if fused and layout.name == "fp8-block" else ():
        if rows % layout.block[0]:
            raise Refused(
                f"{name} has {rows} rows, which weight_block_size {list(layout.block)} does not divide: "
                "ValueError while the model is built",
                "layers/quantization/fp8.py create_weights",
            )
