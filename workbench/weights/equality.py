"""Two weights read side by side in blocks of rows, and whether they hold the same values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.dequantize import matrix_shape

if TYPE_CHECKING:
    from workbench.weights.compare import Values

Floats = np.ndarray[Any, np.dtype[np.float32]]

_BLOCK = 1 << 22  # elements of each side in memory at a time


def blocks(a: Values, b: Values) -> Iterator[tuple[Floats, Floats]]:
    """Yield the same rows of both; the shape is that of the first."""
    count, columns = matrix_shape(a.shape)
    step = max(_BLOCK // max(columns, 1), 1)
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield a.rows(start, stop), b.rows(start, stop)


def equal(a: Values, b: Values) -> bool:
    """Say whether two weights of one shape hold the same values, in any types."""
    if not np.array_equal(a.rows(0, 4), b.rows(0, 4)):
        return False
    return all(np.array_equal(first, second) for first, second in blocks(a, b))
