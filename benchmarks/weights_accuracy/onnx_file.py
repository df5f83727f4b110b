"""The initialisers of an ONNX file, read without the onnx package: just enough of its protobuf."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Field numbers of onnx.proto (ONNX 1.x): ModelProto.graph, GraphProto.node and .initializer, NodeProto.output
# and .attribute, AttributeProto.t, TensorProto.dims, .data_type, .float_data, .name and .raw_data.
_GRAPH, _NODE, _INITIALISER = 7, 1, 5
_OUTPUT, _ATTRIBUTE, _TENSOR = 2, 5, 5
_DIMS, _TYPE, _FLOATS, _NAME, _RAW = 1, 2, 4, 8, 9
_KINDS = {1: np.float32, 10: np.float16, 11: np.float64}


def read_onnx(path: Path) -> dict[str, Array]:
    """Return the floating-point initialisers and constants of an ONNX file by name."""
    found: dict[str, Array] = {}
    for number, graph in _fields(memoryview(path.read_bytes())):
        if number != _GRAPH:
            continue
        for kind, body in _fields(graph):
            if kind == _INITIALISER:
                _keep(found, body, "")
            elif kind == _NODE:
                fields = list(_fields(body))
                output = next((bytes(v).decode() for n, v in fields if n == _OUTPUT), "")
                for n, attribute in fields:
                    if n == _ATTRIBUTE:
                        for inner, tensor in _fields(attribute):
                            if inner == _TENSOR and isinstance(tensor, memoryview):
                                _keep(found, tensor, output)
    return found


def _keep(found: dict[str, Array], tensor: memoryview, fallback: str) -> None:
    dims: list[int] = []
    kind, name, raw, floats = 0, fallback, b"", b""
    for number, value in _fields(tensor):
        if number == _DIMS:
            dims += [value] if isinstance(value, int) else list(_varints(value))
        elif number == _TYPE:
            kind = int(value)
        elif number == _NAME:
            name = bytes(value).decode() or fallback
        elif number == _RAW:
            raw = bytes(value)
        elif number == _FLOATS:
            floats += bytes(value)
    if kind in _KINDS and (raw or floats):
        values = np.frombuffer(raw or floats, dtype=_KINDS[kind])
        if values.size == int(np.prod(dims, dtype=np.int64)):
            found[name] = values.reshape(dims)


def _varints(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield (field number, integer or bytes) of one protobuf message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        else:
            size = 8 if wire == 1 else 4
        yield key >> 3, data[at : at + size]
        at += size
