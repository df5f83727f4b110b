"""What changed in each tensor between two sets of weights, in columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, overload

from workbench.errors import WorkbenchError, shown

State = Literal["identical", "changed", "shape", "left", "right", "invalid", "unread"]

STATES: dict[str, str] = {
    "shape": "differs in shape",
    "invalid": "NaN or Inf",
    "changed": "changed",
    "identical": "identical",
    "unread": "could not be read",
    "left": "only in the first",
    "right": "only in the second",
}
"""The states in words, the ones to look at first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One tensor in two places.

    Attributes
    ----------
    shape, shape_after
        Its shapes, () where it does not exist.
    state
        ``identical``: equal values (`same_dtype` says whether the bytes are equal, too). ``changed``.
        ``shape``: the shapes differ. ``left``, ``right``: only the first, the second has it. ``invalid``: a
        NaN or an infinity. ``unread``: it could not be read; `reason` says why.
    change
        norm(after - before) / norm(before); None where it is not defined.
    largest
        The largest absolute difference.
    moved
        The share of elements that differ.
    compared
        How many elements were compared.
    """

    name: str
    shape: tuple[int, ...]
    shape_after: tuple[int, ...]
    dtype: str
    dtype_after: str
    state: State
    change: float | None = None
    largest: float | None = None
    moved: float | None = None
    compared: int = 0
    reason: str = ""

    @property
    def same_dtype(self) -> bool:
        """Whether both are stored in one type."""
        return self.dtype == self.dtype_after


class Changes(Sequence[Change]):
    """The changes of a comparison, by number or by name."""

    def __init__(self, rows: Iterable[Change]) -> None:
        self._rows = tuple(rows)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(row.name for row in self._rows)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._position if isinstance(name, str) else name in self._rows

    @overload
    def __getitem__(self, at: int | str) -> Change: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Change, ...]: ...
    def __getitem__(self, at: int | str | slice) -> Change | tuple[Change, ...]:
        if not isinstance(at, str):
            return self._rows[at]
        if at not in self._position:
            raise WorkbenchError(
                f"the comparison has no tensor {shown(at)}",
                next_step="See .changes.names for what there is.",
            )
        return self._rows[self._position[at]]

    def __repr__(self) -> str:
        return f"<{len(self):,} compared tensors>"
