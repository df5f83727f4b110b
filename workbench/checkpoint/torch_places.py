"""Where the tensors of a mapped PyTorch file lie in the file, so that they can be read instead of mapped.

torch maps the file and makes its tensors views of the mapping. The system's own list of mappings
(`/proc/self/maps`) says which bytes of the file an address stands for; no page is touched.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from workbench.checkpoint.sources import Source
from workbench.errors import CheckpointError, shown

if TYPE_CHECKING:
    import torch

# start-end, permissions, offset in the file, device, inode.
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+)")


@dataclasses.dataclass(frozen=True)
class TensorPlace:
    """Where one tensor lies.

    Attributes
    ----------
    begin
        The first byte of its first element in the file.
    dtype, shape, stride
        As torch has them; strides count elements.
    """

    begin: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def read(self, source: Source, name: str, start: int, stop: int) -> torch.Tensor:
        """Return rows of the first dimension, read into memory of their own.

        Raises
        ------
        CheckpointError
            The file cannot be read, or is shorter than when it was opened.
        """
        import torch

        shape = (stop - start, *self.shape[1:]) if self.shape else ()
        width = self.dtype.itemsize
        if not prod(shape):
            return torch.empty(shape, dtype=self.dtype)
        first = self.begin + (start * self.stride[0] * width if shape else 0)
        span = 1 + sum((n - 1) * step for n, step in zip(shape, self.stride, strict=True))
        data = source.read(first, first + span * width)
        if len(data) < span * width:
            raise CheckpointError(
                f"{source.label} is shorter than when it was opened",
                why=f"{shown(name)} ends at byte {first + span * width:,}",
                next_step="Open the checkpoint again when the writer is done.",
            )
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(self.dtype)
        return flat.as_strided(shape, self.stride)


def places_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, TensorPlace]:
    """Return the places of those tensors that are views of a mapped file."""
    import torch

    plain = {
        name: one
        for name, one in tensors.items()
        if one.layout is torch.strided and one.device.type == "cpu" and not one.is_quantized
    }
    if not plain:
        return {}
    mapped = _mappings()
    starts = [start for start, _, _ in mapped]
    found = {}
    for name, one in plain.items():
        address = one.data_ptr() if one.numel() else 0
        at = bisect.bisect_right(starts, address) - 1
        if address and at >= 0 and address < mapped[at][1]:
            begin = mapped[at][2] + address - mapped[at][0]
            found[name] = TensorPlace(begin, one.dtype, tuple(one.shape), tuple(one.stride()))
    return found


def _mappings() -> list[tuple[int, int, int]]:
    """Return start, end and offset of each mapping of a file, in order."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = _LINE.match(line)
            if match and match[4] != "0":
                found.append((int(match[1], 16), int(match[2], 16), int(match[3], 16)))
    return sorted(found)
