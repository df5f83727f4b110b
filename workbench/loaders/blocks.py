"""Quantised weights: what must hold of blocks' sizes and of lists of layers before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.loaders.profile import NotCovered, Refused

if TYPE_CHECKING:
    from workbench.loaders.families import Layout

_ONE_LAYER = re.compile(r"(^|\.)\d+(\.|$)")


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


def same_in_all_layers(quant: Mapping[str, Any]) -> None:
    """See that no single layer is left unquantised: profiles look at one layer for all.

    Raises
    ------
    NotCovered
        A list names a layer by its number.
    """
    for field in ("ignore", "modules_to_not_convert", "ignored_layers"):
        for entry in quant.get(field) or ():
            if not entry.startswith("re:") and _ONE_LAYER.search(entry):
                raise NotCovered(
                    f"{field} names layers by number ({entry}), which is not described here"
                )
