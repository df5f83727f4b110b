"""The memory of tensors, with and without values: whose it is, and how much of it was written."""

from __future__ import annotations

from collections.abc import Iterable

import torch

# Bytes of a memory: the first, how many in a row, and (step, count) for each dimension of such rows.
Block = tuple[int, int, tuple[tuple[int, int], ...]]

# A write that is scattered over more pieces than this is taken as the range from first to last.
MOST_PIECES = 20_000_000


def memory_of(tensor: torch.Tensor) -> int:
    """Identify the memory a tensor lies in: equal for all views of it, 0 where it has none.

    The address would not do: on the meta device it is always 0.
    """
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # a wrapper around other tensors
        return 0


def block_of(tensor: torch.Tensor) -> Block | None:
    """Return the bytes of its memory that a tensor covers, None if it has no elements."""
    if tensor.numel() == 0:
        return None
    item = tensor.element_size()
    start = int(tensor.storage_offset()) * item
    strides = sorted(
        (int(stride) * item, int(size))
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1 and stride > 0  # stride 0: the same elements again
    )
    length = item
    while strides and strides[0][0] <= length:
        stride, size = strides.pop(0)
        length += stride * (size - 1)
    pieces = 1
    for _, size in strides:
        pieces *= size
    if pieces > MOST_PIECES:
        return start, length + sum(s * (n - 1) for s, n in strides), ()
    return start, length, tuple(strides)


def measure(blocks: Iterable[Block]) -> int:
    """Count the bytes that blocks cover together, each byte once."""
    starts, lengths = [], []
    for start, length, strides in blocks:
        places = torch.tensor([start], dtype=torch.int64, device="cpu")
        for stride, size in strides:
            steps = torch.arange(size, dtype=torch.int64, device="cpu") * stride
            places = (places[:, None] + steps).flatten()
        starts.append(places)
        lengths.append(torch.full_like(places, length))
    if not starts:
        return 0
    first, order = torch.cat(starts).sort()
    stop = first + torch.cat(lengths)[order]
    reached = stop.cummax(0).values  # how far all pieces up to here reach
    before = torch.cat([first[:1], reached[:-1]])
    return int((reached - torch.maximum(before, first)).clamp(min=0).sum())


def bytes_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the bytes of a dense tensor, one row an element, or None where there are no values."""
    tensor = tensor.detach()
    if tensor.is_meta or not tensor.is_contiguous() or not tensor.numel():
        return None
    flat = tensor.as_subclass(torch.Tensor).reshape(-1).view(torch.uint8)
    return flat.view(tensor.numel(), tensor.element_size())
