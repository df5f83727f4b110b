"""Rows and columns that are copies of each other: what is left once each is counted once."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]

_ZEROS = 0.4
_FEWEST_BLOCK = 8


def distinct(values: Floats) -> Floats | None:
    """Return the distinct rows and columns of a matrix; None where there are no copies.

    Parameters
    ----------
    values
        Shape (m, n). Empty rows and columns are not copies: they are left in.

    Returns
    -------
    array or None
        Of a block diagonal, its distinct blocks side by side, if all have one shape.
    """
    blocks = _blocks(values)
    if blocks is not None:
        return blocks
    found = _distinct_rows(values)
    found = np.ascontiguousarray(_distinct_rows(np.ascontiguousarray(found.T)).T)
    return None if found.shape == values.shape else found


def _distinct_rows(values: Floats) -> Floats:
    whole = np.ascontiguousarray(values).view(
        np.dtype((np.void, values.itemsize * values.shape[1]))
    )
    _, first, count = np.unique(whole.ravel(), return_index=True, return_counts=True)
    if len(first) == len(values):
        return values
    # Empty rows (padding) do not make a matrix one of copies.
    if count.max() == len(values) - len(first) + 1 and not values[first[count.argmax()]].any():
        return values
    return values[np.sort(first)]


def _blocks(values: Floats) -> Floats | None:
    """Return the blocks of a block diagonal, one under the other; None where it is none."""
    mask = values != 0
    if np.count_nonzero(mask) > (1 - _ZEROS) * values.size or not mask.any(axis=1).all():
        return None
    _, first, kind = np.unique(
        np.packbits(mask, axis=1), axis=0, return_index=True, return_inverse=True
    )
    kind = kind.ravel()
    if not 2 <= len(first) <= len(values) // _FEWEST_BLOCK:
        return None
    patterns = mask[first]
    if patterns.sum(axis=0).max() > 1:  # they share columns
        return None
    parts = [values[kind == at][:, patterns[at]] for at in range(len(first))]
    if len({part.shape for part in parts}) > 1:
        return None
    return np.concatenate(list({part.tobytes(): part for part in parts}.values()))
