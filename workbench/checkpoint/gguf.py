"""GGUF files (llama.cpp): names, types and places from the header, values by the package `gguf`.

The header is read here and not by the package, which maps the file: a mapped file that is cut short ends the
process. The package knows the formulas of the quantised types, and makes numbers of their blocks.
"""

from __future__ import annotations

import dataclasses
import struct
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.quantized import Quantization, QuantizedGroup
from workbench.checkpoint.records import DTYPE_BITS, TensorInfo, TensorTable
from workbench.checkpoint.sources import Source
from workbench.checkpoint.templates import group_names
from workbench.errors import CheckpointError, shown

if TYPE_CHECKING:
    from workbench.checkpoint.layouts import Floats, Plan, _Parts

LAYOUT = "gguf "
"""How the layouts of quantised tensors begin: ``gguf q4_k``."""

_DAMAGED = "Download or copy the file again, and compare its size and checksum with the origin."
# Far beyond any real file: 200,000 tensors, a vocabulary of a million tokens.
_MOST_ENTRIES, _MOST_TEXT, _MOST_HEADER, _MOST_ITEMS = 1 << 20, 1 << 24, 1 << 28, 1 << 24
_CHUNK = 1 << 20
# Types of metadata (ggml's gguf.md): struct codes by number; 8 is a text, 9 an array.
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _ARRAY = 8, 9
# Types of tensors that hold one number an element.
_PLAIN = {0: "F32", 1: "F16", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 30: "BF16"}


@dataclasses.dataclass(frozen=True)
class GgufTensor:
    """A quantised tensor: the number of its type, and its own shape."""

    kind: int
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class GgufFile:
    """What a GGUF file holds.

    Attributes
    ----------
    table
        Its tensors; a quantised one is a run of bytes.
    quantized
        Of those, the types and shapes.
    metadata
        Single numbers and texts of its header.
    """

    table: TensorTable
    quantized: dict[str, GgufTensor]
    metadata: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """What its metadata says as a config.json would: the number of layers and experts."""
        kind = self.metadata.get("general.architecture")
        named = {"num_hidden_layers": "block_count", "num_local_experts": "expert_count"}
        found = {ours: self.metadata.get(f"{kind}.{theirs}") for ours, theirs in named.items()}
        return {
            name: value for name, value in found.items() if isinstance(value, int) and value > 0
        }

    @property
    def quantization(self) -> Quantization:
        """Its quantised tensors in groups of one template and type."""
        by_kind: dict[str, list[str]] = {}
        for name, one in self.quantized.items():
            by_kind.setdefault(_name_of(one.kind), []).append(name)
        groups = tuple(
            QuantizedGroup(group.template, LAYOUT + kind, {"codes": group.template}, group.index)
            for kind, names in by_kind.items()
            for group in group_names(names)
        )
        return Quantization(
            " + ".join(LAYOUT + kind for kind in by_kind), groups, len(self.quantized)
        )


def read_gguf(source: Source) -> GgufFile:
    """Read the header of a GGUF file.

    Raises
    ------
    CheckpointError
        The file is cut short or contradicts itself, or the package `gguf` is not installed.
    """
    try:
        return _read(source)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CheckpointError(
            f"{source.label} has a broken GGUF header", why=str(error), next_step=_DAMAGED
        ) from None


def lines_of(parts: _Parts, one: GgufTensor) -> Plan:
    """Return the shape of a quantised tensor, and what reads its lines."""
    block, width = _sizes(one.kind)
    columns = one.shape[-1]
    a_line = columns // block * width

    def lines(start: int, stop: int) -> Floats:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        raw = parts.ckpt.flat(parts.members["codes"], start * a_line, stop * a_line)
        try:
            values = dequantize(
                raw.view(np.uint8).reshape(-1, a_line), GGMLQuantizationType(one.kind)
            )
        except NotImplementedError as error:
            raise parts.refused(str(error)) from None
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1, columns)

    return one.shape, lines


class _Cursor:
    """Reads the header from the front, a chunk at a time."""

    def __init__(self, source: Source) -> None:
        self._source, self._buffer, self._start, self.at = source, b"", 0, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > _MOST_HEADER:
            raise ValueError(f"its header is longer than {_MOST_HEADER:,} bytes")
        first = self.at - self._start
        if first + count > len(self._buffer):
            self._buffer = self._source.read(self.at, self.at + max(count, _CHUNK))
            self._start, first = self.at, 0
        self.at += count
        found = self._buffer[first : first + count]
        if len(found) < count:
            raise ValueError(
                f"the file ends at byte {self._start + len(self._buffer):,} of the header"
            )
        return found

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        length = self.number("Q")
        if length > _MOST_TEXT:
            raise ValueError(f"a text of {length:,} bytes")
        return self.take(length).decode("utf-8", "replace")


def _read(source: Source) -> GgufFile:
    cursor = _Cursor(source)
    if cursor.take(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version = cursor.number("I")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}; 2 and 3 are read")
    count, entries = cursor.number("Q"), cursor.number("Q")
    if max(count, entries) > _MOST_ENTRIES:
        raise ValueError(f"it announces {count:,} tensors and {entries:,} entries")
    metadata = {}
    for _ in range(entries):
        name, kind = cursor.text(), cursor.number("I")
        value = _value(cursor, kind)
        if value is not None:
            metadata[name] = value
    rows = [_tensor(cursor) for _ in range(count)]
    if not rows:
        raise CheckpointError(
            f"{source.label} is a GGUF file without tensors",
            why="it holds a header alone: a vocabulary, or the start of a file",
            next_step="Give the file that holds the weights.",
        )
    align = metadata.get("general.alignment", 32)
    if not isinstance(align, int) or not 1 <= align <= 1 << 20:
        raise ValueError(f"its alignment is {align}")
    start = -(-cursor.at // align) * align
    return _placed(source, rows, start, metadata)


def _value(cursor: _Cursor, kind: int) -> Any:
    """Return a single value; None for an array, which is passed over."""
    if kind == _TEXT:
        return cursor.text()
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind != _ARRAY:
        raise ValueError(f"an entry of type {kind}")
    inner, length = cursor.number("I"), cursor.number("Q")
    if length > _MOST_ITEMS:
        raise ValueError(f"an array of {length:,} entries")
    if inner in _SCALARS:
        cursor.take(length * struct.calcsize(_SCALARS[inner]))
    elif inner == _TEXT:
        for _ in range(length):
            cursor.text()
    else:
        raise ValueError(f"an array of entries of type {inner}")
    return None


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, dimensions = cursor.text(), cursor.number("I")
    if dimensions > 8:
        raise ValueError(f"{shown(name)} has {dimensions} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]  # ggml's first runs fastest
    if prod(shape) >= 1 << 60:
        raise ValueError(f"{shown(name)} has the shape {list(shape)}")
    return name, shape, cursor.number("I"), cursor.number("Q")


def _placed(
    source: Source,
    rows: list[tuple[str, tuple[int, ...], int, int]],
    start: int,
    metadata: dict[str, Any],
) -> GgufFile:
    infos, quantized = [], {}
    for name, shape, kind, offset in rows:
        begin = start + offset
        if kind in _PLAIN:
            dtype, stored = _PLAIN[kind], shape
            size = prod(shape) * DTYPE_BITS[dtype] // 8
        else:
            block, width = _sizes(kind)
            if not shape or shape[-1] % block:
                raise ValueError(f"{shown(name)} has rows that are no whole blocks of {block}")
            size = prod(shape) // block * width
            dtype, stored = "U8", (size,)
            quantized[name] = GgufTensor(kind, shape)
        if begin + size > source.size:
            raise CheckpointError(
                f"{source.label} is cut short: {begin + size - source.size:,} bytes missing",
                why=f"{shown(name)} ends at byte {begin + size:,}, the file has {source.size:,}",
                next_step=_DAMAGED,
            )
        infos.append(TensorInfo(name, dtype, stored, source.name, begin, begin + size))
    return GgufFile(TensorTable.from_rows(infos), quantized, metadata)


def _sizes(kind: int) -> tuple[int, int]:
    """Return how many values a block of a quantised type has, and how many bytes."""
    try:
        from gguf.constants import GGML_QUANT_SIZES
    except ImportError:
        raise CheckpointError(
            "a GGUF file with quantised tensors needs the package gguf",
            next_step="Install it: pip install 'forensic-workbench[gguf]'.",
        ) from None
    found = next((size for each, size in GGML_QUANT_SIZES.items() if int(each) == kind), None)
    if found is None:
        raise ValueError(
            f"a tensor of type {kind}, which this release of the package gguf does not know"
        )
    return int(found[0]), int(found[1])


def _name_of(kind: int) -> str:
    from gguf import GGMLQuantizationType

    return str(GGMLQuantizationType(kind).name).lower()
