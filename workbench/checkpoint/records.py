"""What a checkpoint is, as data: frozen, columnar, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from workbench.checkpoint.templates import Rows, fill, group_names

# Bits of one element, by the names that safetensors headers use (safetensors 0.6, Dtype).
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as its header describes it.

    ``begin`` and ``end`` are byte offsets within the shard file (not within its data section); both
    are -1 where the format does not place a tensor in one run of bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str
    begin: int = -1
    end: int = -1

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the values take."""
        return (self.numel * DTYPE_BITS.get(self.dtype, 0) + 7) // 8


@dataclasses.dataclass(frozen=True)
class TensorGroup:
    """Tensors that share template, shape and dtype.

    ``at`` are their positions in the table, ``index`` the indices in each name, one row a tensor.
    """

    template: str
    at: Rows
    index: Rows
    shape: tuple[int, ...]
    dtype: str

    def __len__(self) -> int:
        return len(self.at)

    @property
    def names(self) -> list[str]:
        """The tensors' names, built on access."""
        return fill(self.template, self.index)

    def take(self, rows: Rows) -> TensorGroup:
        """Return some of the tensors, by their rows in the group."""
        if len(rows) == len(self.at):
            return self
        return dataclasses.replace(self, at=self.at[rows], index=self.index[rows])


@dataclasses.dataclass(frozen=True)
class TensorTable:
    """All tensors of a checkpoint in columns; a row is built when asked for.

    ``dtype``, ``shape`` and ``shard`` are codes into ``dtypes``, ``shapes`` and ``shards``: a
    checkpoint with 200,000 tensors has a handful of each.
    """

    names: Sequence[str]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    shards: tuple[str, ...]
    dtype: np.ndarray[Any, np.dtype[np.integer[Any]]]
    shape: np.ndarray[Any, np.dtype[np.integer[Any]]]
    shard: np.ndarray[Any, np.dtype[np.integer[Any]]]
    begin: np.ndarray[Any, np.dtype[np.int64]]
    end: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[TensorInfo]:
        columns = (self.dtype, self.shape, self.shard, self.begin, self.end)
        for name, dtype, shape, shard, begin, end in zip(
            self.names, *(column.tolist() for column in columns), strict=True
        ):
            yield TensorInfo(
                name, self.dtypes[dtype], self.shapes[shape], self.shards[shard], begin, end
            )

    def __contains__(self, name: object) -> bool:
        return name in self._position

    def __getitem__(self, name: str) -> TensorInfo:
        return self.row(self._position[name])

    def get(self, name: str) -> TensorInfo | None:
        """Return the tensor of that name, or None."""
        at = self._position.get(name)
        return None if at is None else self.row(at)

    def row(self, at: int) -> TensorInfo:
        """Return the tensor at a position."""
        return TensorInfo(
            name=self.names[at],
            dtype=self.dtypes[self.dtype[at]],
            shape=self.shapes[self.shape[at]],
            shard=self.shards[self.shard[at]],
            begin=int(self.begin[at]),
            end=int(self.end[at]),
        )

    @cached_property
    def groups(self) -> tuple[TensorGroup, ...]:
        """The tensors in groups of one template, shape and dtype."""
        groups = group_names(self.names, self.shape, self.dtype)
        first = np.array([group.at[0] for group in groups], dtype=np.int64)
        return tuple(
            TensorGroup(
                group.template, group.at, group.index, self.shapes[shape], self.dtypes[dtype]
            )
            for group, shape, dtype in zip(
                groups, self.shape[first].tolist(), self.dtype[first].tolist(), strict=True
            )
        )

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    def renamed(self, names: Sequence[str]) -> TensorTable:
        """Return the same tensors under other names, position by position."""
        return dataclasses.replace(self, names=names)

    def select(self, positions: Sequence[int]) -> TensorTable:
        """Return the tensors at those positions, in that order."""
        at = np.asarray(positions, dtype=np.int64)
        return dataclasses.replace(
            self,
            names=[self.names[i] for i in at],
            **{c: getattr(self, c)[at] for c in ("dtype", "shape", "shard", "begin", "end")},
        )

    @classmethod
    def from_rows(cls, rows: Sequence[TensorInfo]) -> TensorTable:
        """Build a table from single tensors: for small checkpoints and for models."""
        columns: dict[str, tuple[tuple[Any, ...], np.ndarray[Any, Any]]] = {}
        for column in ("dtype", "shape", "shard"):
            codes: dict[Any, int] = {}
            at = [codes.setdefault(getattr(row, column), len(codes)) for row in rows]
            columns[column] = tuple(codes), np.asarray(at, dtype=np.int32)
        return cls(
            names=[row.name for row in rows],
            dtypes=columns["dtype"][0],
            shapes=columns["shape"][0],
            shards=columns["shard"][0],
            dtype=columns["dtype"][1],
            shape=columns["shape"][1],
            shard=columns["shard"][1],
            begin=np.asarray([row.begin for row in rows], dtype=np.int64),
            end=np.asarray([row.end for row in rows], dtype=np.int64),
        )
