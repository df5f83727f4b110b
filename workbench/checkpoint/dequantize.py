"""Logical weights: the numbers that a model computes with, whatever way they are stored in.

A plain tensor is one logical weight; a quantised weight is one too, and its scales and indices are not. No
value is read to list them. `LogicalWeight.rows` reads some rows and gives float32, so that a tensor larger
than the memory is read in parts.

The formulas are in `workbench.checkpoint.layouts`. Where the way a weight is stored leaves two readings
open, `LogicalWeight.flaw` says so and nothing is computed: statistics of codes mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from workbench.checkpoint.records import DTYPE_BITS, TensorInfo
from workbench.checkpoint.values import units_kind
from workbench.errors import CheckpointError, WorkbenchError, shown

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.quantized import QuantizedGroup

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float32]]
Shape = tuple[int, ...]

# Types whose values are codes where they fill a matrix: ids, masks and counters are vectors.
_CODES = frozenset({"U8", "I8", "U16", "I16", "U32", "I32", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0"})


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """Return rows and columns: the first dimension and all others together; a vector is one column."""
    if not shape:
        return 1, 1
    return shape[0], prod(shape[1:])


class LogicalWeight:
    """One weight as a model has it.

    Attributes
    ----------
    name, dtype, layout
        Its name, the storage type of its values (or codes) as the header writes it, and the quantised layout
        (a constant of `workbench.checkpoint.quantized`; empty for a plain tensor).
    members
        Role -> name of the tensor: ``codes`` and, where quantised, ``scale`` and others.
    """

    def __init__(
        self, ckpt: Checkpoint, name: str, dtype: str, layout: str, members: Mapping[str, str]
    ) -> None:
        self.name, self.dtype, self.layout = name, dtype, layout
        self.members = dict(members)
        self._ckpt = ckpt

    @property
    def shape(self) -> Shape:
        """The weight's own shape; that of its codes where the layout cannot be read."""
        if self.layout and not self.flaw:
            return self._plan[0]
        return self.stored.shape

    @cached_property
    def stored(self) -> TensorInfo:
        """The tensor that holds its values or codes."""
        return self._ckpt[self.members["codes"]]

    @property
    def nbytes(self) -> int:
        """Bytes that all of its members take in the files."""
        return sum(self._ckpt[name].nbytes for name in self.members.values() if name in self._ckpt)

    @cached_property
    def flaw(self) -> str:
        """Why its values cannot be computed with certainty; empty where they can."""
        if not self.layout:
            return _flaw_of_plain(self.stored)
        try:
            _ = self._plan
        except WorkbenchError as error:
            return f"{error.what}: {error.why}" if error.why else error.what
        return ""

    @cached_property
    def _plan(self) -> tuple[Shape, Callable[[int, int], Floats]]:
        from workbench.checkpoint.layouts import plan

        return plan(self._ckpt, self.name, self.layout, self.members)

    def rows(self, start: int, stop: int) -> Floats:
        """Return rows of the first dimension, all other dimensions laid out in one.

        Parameters
        ----------
        start, stop
            The rows, as in a slice with whole numbers from 0; a vector is a matrix of one column.

        Returns
        -------
        ndarray
            float32, ``[stop - start, columns]``.

        Raises
        ------
        CheckpointError
            The values cannot be computed (`flaw`), or the file cannot be read.
        """
        count, columns = matrix_shape(self.shape)
        start, stop, _ = slice(start, stop).indices(count)
        stop = max(start, stop)
        if self.layout and len(self.shape) < 2:
            return self.lines(0, 1).reshape(count, columns)[start:stop]
        if self.layout:
            lines = columns // self.shape[-1] if columns else 0
            return self.lines(start * lines, stop * lines).reshape(stop - start, columns)
        from workbench.checkpoint.number import to_float32

        self._check()
        units = self.units(start * columns, stop * columns)
        return to_float32(units, self.dtype).reshape(stop - start, columns)

    def lines(self, start: int, stop: int) -> Floats:
        """Return runs along the last dimension of a quantised weight, all other dimensions in one."""
        self._check()
        if stop <= start:
            return np.empty((0, self.shape[-1]), np.float32)
        return self._plan[1](start, stop)

    def units(self, begin: int, end: int) -> Array:
        """Return values of a plain tensor as they are stored, in a row: BF16 as uint16, FP8 as uint8."""
        self._check(plain=True)
        return self._ckpt.flat(self.members["codes"], begin, end)

    def read_into(self, begin: int, out: Array) -> None:
        """Read values of a plain tensor as they are stored, from `begin` on, until `out` is full."""
        self._check(plain=True)
        self._ckpt.flat_into(self.members["codes"], begin, out.view(units_kind(self.dtype)))

    def codes(self, start: int, stop: int) -> Array:
        """Return rows of a plain 16-bit tensor as raw codes, uint16."""
        if self.dtype not in ("BF16", "F16"):
            raise CheckpointError(
                f"{shown(self.name)} has no 16-bit codes", why=f"its type is {self.dtype}"
            )
        _, columns = matrix_shape(self.shape)
        return self.units(start * columns, stop * columns).view(np.uint16).reshape(-1, columns)

    def _check(self, plain: bool = False) -> None:
        if self.flaw or (plain and self.layout):
            raise CheckpointError(
                f"the values of {shown(self.name)} cannot be computed",
                why=self.flaw or f"it is stored as {self.layout}, which stores codes",
                next_step="Convert the weight with the tool that quantised it, and scan the result.",
            )

    def __repr__(self) -> str:
        layout = f", {self.layout}" if self.layout else ""
        return f"LogicalWeight({shown(self.name)}, {self.dtype}, {list(self.shape)}{layout})"


def _flaw_of_plain(info: TensorInfo) -> str:
    if info.dtype not in DTYPE_BITS:
        return f"its type {shown(info.dtype)} is not known"
    if info.dtype == "C64":
        return "it holds complex numbers"
    packed = info.name.endswith(".weight") and prod(info.shape) > 1
    if info.dtype in _CODES and (len(info.shape) > 1 or DTYPE_BITS[info.dtype] < 8 or packed):
        return (
            f"it is {'a matrix of ' * (len(info.shape) > 1)}{info.dtype}: codes of a quantised layout "
            "without the scales that go with them, or in a layout not known here"
        )
    return ""


class LogicalWeights(Sequence[LogicalWeight]):
    """All logical weights of a checkpoint, in the order of its tensors; each is made when asked for."""

    def __init__(self, ckpt: Checkpoint) -> None:
        self._ckpt = ckpt
        groups = ckpt.quantization.groups
        position = {name: at for at, name in enumerate(ckpt.names)} if groups else {}
        taken = np.zeros(len(ckpt), dtype=np.bool_)
        owner = np.full(len(ckpt), -1, dtype=np.int64)
        self._quantized: list[tuple[QuantizedGroup, str, dict[str, str]]] = []
        for group in groups:
            for name, members in group.weights():
                at = position[members["codes"]]
                taken[[position[m] for m in members.values() if m in position]] = True
                owner[at] = len(self._quantized)
                self._quantized.append((group, name, members))
        self._owner = owner
        self._at = np.flatnonzero(~taken | (owner >= 0))

    @cached_property
    def names(self) -> list[str]:
        """The weights' names."""
        names = self._ckpt.names
        return [
            names[at] if own < 0 else self._quantized[own][1]
            for at, own in zip(self._at.tolist(), self._owner[self._at].tolist(), strict=True)
        ]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self._at)

    def has(self, name: str) -> bool:
        """Whether there is a weight of that name."""
        return name in self._position

    @overload
    def __getitem__(self, at: int | str) -> LogicalWeight: ...
    @overload
    def __getitem__(self, at: slice) -> list[LogicalWeight]: ...
    def __getitem__(self, at: int | str | slice) -> LogicalWeight | list[LogicalWeight]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if isinstance(at, str):
            if at not in self._position:
                raise KeyError(at)
            at = self._position[at]
        row = int(self._at[at])
        own = int(self._owner[row])
        if own < 0:
            info = self._ckpt.table.row(row)
            return LogicalWeight(self._ckpt, info.name, info.dtype, "", {"codes": info.name})
        group, name, members = self._quantized[own]
        dtype = self._ckpt[members["codes"]].dtype
        return LogicalWeight(self._ckpt, name, dtype, group.format, members)


def logical_weights(ckpt: Checkpoint) -> LogicalWeights:
    """Return the weights of a checkpoint as a model has them, without reading a value.

    Parameters
    ----------
    ckpt
        An opened checkpoint.

    Returns
    -------
    LogicalWeights
        A sequence; also indexed by name.
    """
    return LogicalWeights(ckpt)
