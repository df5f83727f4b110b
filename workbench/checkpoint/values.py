"""Values of single tensors: bytes of a file to numpy and torch, one tensor or a slice of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.checkpoint.records import DTYPE_BITS, TensorInfo
from workbench.checkpoint.sources import Source
from workbench.errors import CheckpointError, shown

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]

# As numpy knows them; the rest is carried as unsigned integers of the same width.
NUMPY_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
    "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
TORCH_TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16",
    "BF16": "bfloat16", "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64",
    "I64": "int64", "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
DTYPE_OF_TORCH = {name: dtype for dtype, name in TORCH_TYPES.items()}


def storage_shape(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the stored units: bytes for packed types, elements for all others.

    The last dimension of a packed type (4 or 6 bits) shrinks to bytes; where it has no whole number of
    them, the tensor is a flat run of bytes.
    """
    bits = DTYPE_BITS[dtype]
    if bits >= 8:
        return shape
    if shape and shape[-1] * bits % 8 == 0:
        return (*shape[:-1], shape[-1] * bits // 8)
    return (int(np.prod(shape, dtype=object)) * bits // 8,)


def read_units(source: Source, info: TensorInfo, index: Any = None) -> Array:
    """Return the stored units of a tensor or of a slice, as a new array.

    Parameters
    ----------
    source
        The file that holds the tensor.
    info
        The tensor, with its place in the file.
    index
        A numpy index (whole numbers, slices, a tuple of them), applied to the stored units.

    Returns
    -------
    ndarray
        Of numpy's own type where it has one, else unsigned integers of the same width.
    """
    kind = units_kind(info.dtype)
    shape = storage_shape(info.dtype, info.shape)
    if info.begin == info.end:
        stored = np.zeros(shape, kind)
    else:
        stored, index = _fetched(source, info, kind, shape, index)
    if index is not None:
        try:
            stored = stored[index]
        except (IndexError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"cannot take {shown(index)} of {shown(info.name)}",
                why=f"{error}; its stored shape is {list(shape)}",
                next_step="Give whole numbers and slices within that shape.",
            ) from None
    return stored if stored.flags.c_contiguous else np.array(stored, order="C")


def read_flat(
    source: Source, info: TensorInfo, begin: int, end: int, out: Array | None = None
) -> Array:
    """Return the stored units `begin` to `end` of a tensor, counted along its run of bytes.

    The file is read, not mapped: a page at a time costs more than copying a block does. `out` is an array
    of that type and length to read into.
    """
    kind = units_kind(info.dtype)
    first, last = info.begin + begin * kind.itemsize, info.begin + end * kind.itemsize
    if not 0 <= begin <= end or last > info.end:
        raise CheckpointError(
            f"cannot take the values {begin} to {end} of {shown(info.name)}",
            why=f"it has {(info.end - info.begin) // kind.itemsize:,}",
        )
    units = np.empty(end - begin, kind) if out is None else out
    if source.local is None:
        units.view(np.uint8)[:] = np.frombuffer(source.read(first, last), np.uint8)
        return units
    view, done = units.view(np.uint8).data, 0
    try:
        with open(source.local, "rb", buffering=0) as file:
            file.seek(first)
            while done < len(view) and (count := file.readinto(view[done:])):
                done += count
    except OSError as error:
        from workbench.checkpoint.sources import unreadable

        raise unreadable(source.local, error) from None
    if done < len(view):
        raise _shorter(source, info)
    return units


def units_kind(dtype: str) -> np.dtype[Any]:
    """Return the numpy type of a type's stored units: unsigned integers where numpy has not the type."""
    return np.dtype(NUMPY_TYPES.get(dtype, f"<u{max(DTYPE_BITS[dtype] // 8, 1)}"))


def _shorter(source: Source, info: TensorInfo) -> CheckpointError:
    return CheckpointError(
        f"{source.label} is shorter than when it was opened",
        why=f"{shown(info.name)} ends at byte {info.end:,}",
        next_step="Open the checkpoint again when the writer is done.",
    )


def _fetched(
    source: Source, info: TensorInfo, kind: np.dtype[Any], shape: tuple[int, ...], index: Any
) -> tuple[Array, Any]:
    """Fetch a tensor; where the index begins with a slice or a number, only those rows.

    Nothing is mapped: a page behind the end of a file that shrank would end the process.
    """
    start, stop, index = rows_of(shape, index)
    if shape:
        row = (info.end - info.begin) // shape[0] // kind.itemsize
        values = read_flat(source, info, start * row, stop * row)
        return values.reshape(stop - start, *shape[1:]), index
    return read_flat(source, info, 0, 1).reshape(()), index


def rows_of(shape: tuple[int, ...], index: Any) -> tuple[int, int, Any]:
    """Return the run of rows that an index needs, and the index into what those rows are."""
    count = shape[0] if shape else 1
    first = index[0] if isinstance(index, tuple) and index else index
    rest = index[1:] if isinstance(index, tuple) else ()
    if isinstance(first, slice) and shape:
        try:
            start, stop, step = first.indices(count)
        except TypeError:  # the index itself is complained about by numpy
            return 0, count, index
        if step == 1:
            return start, max(start, stop), (slice(None), *rest)
    elif isinstance(first, int) and not isinstance(first, bool) and shape:
        at = first + count if first < 0 else first
        if 0 <= at < count:
            return at, at + 1, (0, *rest)
    return 0, count, index


def check_numpy(info: TensorInfo) -> None:
    """Check that numpy has the type of a tensor.

    Raises
    ------
    CheckpointError
        It has not (BF16, the 8-bit floats, packed types).
    """
    if info.dtype not in NUMPY_TYPES:
        raise CheckpointError(
            f"numpy has no type for {shown(info.name)}, which is {info.dtype}",
            next_step="Use .tensor(name) for a torch tensor, and .float() on that.",
        )


def as_torch(info: TensorInfo, units: Array) -> torch.Tensor:
    """Return stored units as a torch tensor, without copying; packed types stay bytes (uint8)."""
    import torch

    kind = getattr(torch, TORCH_TYPES.get(info.dtype, "uint8"), None)
    if kind is None:
        raise CheckpointError(
            f"this torch ({torch.__version__}) has no type for {shown(info.name)}, which is {info.dtype}",
            next_step="Install a newer torch.",
        )
    flat = torch.from_numpy(units.reshape(-1).view(np.uint8))
    result: torch.Tensor = flat.view(kind).reshape(units.shape)
    return result
