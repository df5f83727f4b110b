"""Which projections lie together in one matrix, by its name."""

from __future__ import annotations

import dataclasses
import re
from itertools import accumulate


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A projection inside a fused matrix: rows (axis 0) or columns (axis 1) `start` to `stop`."""

    name: str
    axis: int
    start: int
    stop: int


_QKV = re.compile(
    r"(?:^|\.)(?:qkv(?:_proj)?|query_key_value|Wqkv|c_attn|attn_qkv)\.weight$|in_proj_weight$"
)
_GATED = re.compile(r"(?:^|\.)(?:gate_up_proj|gate_up|gate_and_up_proj)\.weight$")
_COLUMNS = re.compile(r"(?:^|\.)c_attn\.weight$")  # GPT-2 keeps it as [in, out]


def parts_of(
    name: str, shape: tuple[int, ...], heads: tuple[int, int, int] | None
) -> tuple[Part, ...]:
    """Return the projections that one matrix holds, by its name.

    Parameters
    ----------
    name, shape
        Of the tensor.
    heads
        Query heads, heads of keys and values, and a head's size, where the config gives them: parts of
        unequal size.

    Returns
    -------
    tuple of Part
        () where it is not known to be fused. Where a family interleaves the parts head by head, each of
        these is a mixture: one that was never trained then hides as before, and none is accused wrongly.
    """
    if len(shape) != 2:
        return ()
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    if _GATED.search(name):
        names, sizes = ("gate_proj", "up_proj"), (1, 1)
    elif _QKV.search(name):
        names, sizes = ("q_proj", "k_proj", "v_proj"), (1, 1, 1)
    else:
        return ()
    axis = int(bool(_COLUMNS.search(name)) and shape[1] == 3 * shape[0])
    total = shape[axis]
    if heads is not None and len(names) == 3:
        query, key, size = heads
        if (query + 2 * key) * size == total:
            sizes = (query * size, key * size, key * size)
    if total % sum(sizes):
        return ()
    unit = total // sum(sizes)
    ends = [end * unit for end in accumulate(sizes)]
    starts = [0, *ends[:-1]]
    return tuple(Part(*one) for one in zip(names, (axis,) * len(names), starts, ends, strict=True))
