"""What a server answered, written as a file, so that it is judged by the way that files are."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from workbench.weights.live import Held


def write_held(found: Iterable[Held], file: IO[bytes]) -> int:
    """Write tensors as safetensors; values that bfloat16 holds exactly are written as such."""
    header: dict[str, Any] = {}
    blobs, at = [], 0
    for one in found:
        codes = np.ascontiguousarray(one.values).view(np.uint32)
        short = not (codes & 0xFFFF).any()
        blob = (codes >> 16).astype("<u2").tobytes() if short else codes.astype("<u4").tobytes()
        header[one.name] = {
            "dtype": "BF16" if short else "F32",
            "shape": list(one.shape),
            "data_offsets": [at, at + len(blob)],
        }
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    file.writelines(blobs)
    return at
