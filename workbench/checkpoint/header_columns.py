"""What the readers of a safetensors header share: its tensors as columns, and words for what is broken."""

from __future__ import annotations

import re
from math import prod
from threading import Lock
from typing import NamedTuple

from workbench.checkpoint.columns import Ints, Words
from workbench.checkpoint.records import DTYPE_BITS
from workbench.errors import CheckpointError

# Far beyond any name of a tensor; engines set no bound, but a name of megabytes is an attack or damage.
MAX_NAME = 1 << 16
DAMAGED = "Download or copy the file again, and compare its size and checksum with the origin."
REWRITE = "Have the program that wrote it write it again; engines refuse such a file too."


class Specs:
    """The distinct pairs of dtype and shape of a checkpoint: some thirty for 200,000 tensors."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, tuple[int, ...]], int] = {}
        self.nbytes: list[int] = []
        self._by_text: dict[bytes, int] = {}
        self._lock = Lock()  # headers of remote files are read side by side

    def code(self, dtype: str, shape: tuple[int, ...]) -> int:
        """Return the code of a dtype and shape; ValueError where there can be no such tensor."""
        code = self.codes.get((dtype, shape))
        if code is None:
            bits = prod(shape) * DTYPE_BITS[dtype] if dtype in DTYPE_BITS else -1
            # Two negative sizes make a positive product.
            if min(bits, *shape, 0) < 0 or bits % 8 or bits >= 1 << 63:
                raise ValueError(dtype, shape)
            with self._lock:
                if (dtype, shape) not in self.codes:
                    self.nbytes.append(bits // 8)
                    self.codes[dtype, shape] = len(self.codes)
            code = self.codes[dtype, shape]
        return code

    def of_text(self, text: bytes) -> int:
        """Return the code of ``":{"dtype":"F32","shape":[2,3],"data_offsets":[``, or -1."""
        code = self._by_text.get(text)
        if code is None:
            match = _SPEC.fullmatch(text)
            if match is None:
                return -1
            shape = tuple(int(part) for part in match[2].split(b",")) if match[2] else ()
            try:
                code = self.code(match[1].decode(), shape)
            except ValueError:
                return -1
            self._by_text[text] = code
        return code


_NUMBER = rb"(?:0|[1-9][0-9]{0,18})"
_SPEC = re.compile(
    rb'":\{"dtype":"([A-Z0-9_]+)","shape":\[((?:%b(?:,%b)*)?)\],"data_offsets":\['
    % (_NUMBER, _NUMBER)
)


class Columns(NamedTuple):
    """What a reader found: offsets count from the data section, keys where they came for free."""

    names: list[str]
    spec: Ints
    begin: Ints
    end: Ints
    metadata: dict[str, str]
    keys: Words | None = None


def broken(label: str, why: str, next_step: str) -> CheckpointError:
    """Return the error about a header that cannot be read as it is."""
    return CheckpointError(f"{label} has a broken safetensors header", why=why, next_step=next_step)
