"""The tensors of a scan and which of them decide, with the pieces that findings are made of."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.wording import plural
from workbench.errors import shorten
from workbench.weights.adapters import second_factor
from workbench.weights.buffers import buffer_doubts
from workbench.weights.by_design import FIXED, is_random_by_design
from workbench.weights.columns import ScannedTensor, Tensors
from workbench.weights.doubts import Doubts
from workbench.weights.magnitude import magnitude_doubts
from workbench.weights.masks import MASK
from workbench.weights.names import Places, decides, is_gate, is_weight, named, places
from workbench.weights.norms import is_scale_of_norm, norm_doubts
from workbench.weights.structure import SMALLEST_SIDE, SMALLEST_SIZE

if TYPE_CHECKING:
    from workbench.checkpoint.config import Config
    from workbench.weights.needed import Needed
    from workbench.weights.tied import Tied

At = np.ndarray[Any, np.dtype[np.int64]]

EXCUSED = 0.005
"""The share of a model's values that may stay undecided: fixed before anything was measured."""
LINES = 6
"""Lines of evidence of one sort."""
# What the contrast of a whole group says better.
_IS_CONTRAST = re.compile(r"siblings look trained$")


def _is_narrow(shape: tuple[int, ...]) -> bool:
    """Say whether a side is too short to judge, of the matrix and of those of a stack (experts)."""
    if len(shape) < 2:
        return True
    sides = min(shape[0], prod(shape[1:]))
    return sides < SMALLEST_SIDE and (len(shape) < 3 or min(shape[-2:]) < SMALLEST_SIDE)


@dataclasses.dataclass(frozen=True)
class Seen:
    """The tensors of a scan, and how they were seen.

    ``counts`` says which hold weights at all; ``matters`` which of those decide: matrices, and whatever is
    not finite. A vector's verdict is a note: a norm at one or a bias at zero proves nothing in 16 bits. So is
    that of a matrix too small to tell. ``limited`` says how much `names` left out, "" for nothing; ``tied``
    whether a head that the config ties has the embedding's values.
    """

    tensors: Tensors
    kind: str
    sampled: int | None
    interrupted: bool
    config: Config | None = None
    unseen: int = 0
    needed: Needed | None = None
    changed: str = ""
    limited: str = ""
    tied: Tied | None = None

    @cached_property
    def verdict(self) -> np.ndarray[Any, Any]:
        """The verdict of each tensor."""
        return self.tensors.column("verdict")

    @cached_property
    def counts(self) -> np.ndarray[Any, Any]:
        """Which tensors hold weights."""
        dtypes, layouts = self.tensors.column("dtype"), self.tensors.column("layout")
        rows = zip(self.tensors.names, dtypes, layouts, self.tensors.is_matrix, strict=True)
        named = np.fromiter((is_weight(*row) for row in rows), bool, len(self.tensors))
        return np.asarray(named & ~self._has(MASK))

    def _has(self, mark: str) -> np.ndarray[Any, Any]:
        return np.asarray(self.tensors.statistic(mark) == 1)

    @cached_property
    def is_norm(self) -> np.ndarray[Any, Any]:
        """Which weights are the scale of a norm."""
        rows = zip(self.tensors.names, self.tensors.is_matrix, strict=True)
        scales = np.fromiter((is_scale_of_norm(*row) for row in rows), bool, len(self.tensors))
        return np.asarray(scales & self.counts)

    @cached_property
    def by_design(self) -> np.ndarray[Any, Any]:
        """Which weights rightly look as they do before training: at a fixed start, or random features."""
        names = self.tensors.names
        random = np.fromiter((is_random_by_design(name) for name in names), bool, len(names))
        return np.asarray(random | self._has(FIXED) | self._frozen_factors)

    @cached_property
    def _frozen_factors(self) -> np.ndarray[Any, Any]:
        """Which first factors of adapters are at init while the second is trained (LoRA-FA freezes them)."""
        frozen = np.zeros(len(self.tensors), dtype=bool)
        first = np.flatnonzero(self.verdict == "at_init")
        names = frozenset(self.tensors.names)
        for i in first.tolist():
            other = second_factor(self.tensors.names[i])
            if other in names:
                frozen[i] = self.verdict[self.tensors.position(other)] == "trained"
        return frozen

    @cached_property
    def is_read(self) -> np.ndarray[Any, Any]:
        """Which tensors have values that were read."""
        return np.asarray(self.tensors.column("seen") > 0)

    @cached_property
    def decides(self) -> np.ndarray[Any, Any]:
        """Which tensors are gates or heads, on which the answer hangs however small they are."""
        names, shapes = self.tensors.names, self.tensors.column("shape")
        # A gate of one row scales one branch; a head of one row is all that the model answers.
        rows = (
            decides(name) and len(shape) > 1 and (matrix or not is_gate(name))
            for name, shape, matrix in zip(names, shapes, self.tensors.is_matrix, strict=True)
        )
        return np.asarray(np.fromiter(rows, bool, len(names)) & self.counts)

    @cached_property
    def excused(self) -> np.ndarray[Any, Any]:
        """Which undecided matrices are too small a share of the model to keep the answer open."""
        open_ = self.counts & self.tensors.is_matrix & (self.verdict == "undecided")
        open_ = open_ & self.is_read & ~self.too_small & ~self.decides
        sizes = self.tensors.column("count")
        share = sizes[open_].sum() / max(int(sizes[self.counts].sum()), 1)
        return np.asarray(open_ & (share <= EXCUSED))

    @cached_property
    def too_small(self) -> np.ndarray[Any, Any]:
        """Which undecided matrices are so small that nobody could tell."""
        shapes = self.tensors.column("shape")
        small = [_is_narrow(shape) for shape in shapes]
        few = self.tensors.column("count") < SMALLEST_SIZE
        return np.asarray(
            (self.verdict == "undecided")
            & (np.array(small, dtype=bool) | few)
            & self.is_read
            & ~self.decides
        )

    @cached_property
    def matters(self) -> np.ndarray[Any, Any]:
        """Which tensors decide the result."""
        decisive = (
            self.tensors.is_matrix | (self.verdict == "invalid") | self.is_memory | self.decides
        )
        aside = self.too_small | self.excused | self.by_design
        return np.asarray(self.counts & decisive & ~aside)

    @cached_property
    def is_memory(self) -> np.ndarray[Any, Any]:
        """Which tensors hold memory that was never written."""
        return np.asarray(self.tensors.column("family") == "memory")

    @cached_property
    def norm_doubts(self) -> Doubts:
        """What is doubted of the scales of norms."""
        return norm_doubts(self)

    @cached_property
    def magnitude_doubts(self) -> Doubts:
        """What is doubted of the magnitudes."""
        return magnitude_doubts(self)

    @cached_property
    def buffer_doubts(self) -> Doubts:
        """What is doubted of buffers and tables."""
        return buffer_doubts(self)

    @cached_property
    def places(self) -> Places:
        """Where each tensor lies."""
        return places(self.tensors.names)

    def having(self, verdict: str, among: np.ndarray[Any, Any] | None = None) -> At:
        """Return the positions of one verdict among the tensors that matter."""
        among = self.matters if among is None else among
        return np.flatnonzero(among & (self.verdict == verdict) & ~self.is_memory)

    def rows(self, at: Iterable[int]) -> list[ScannedTensor]:
        """Return some tensors as rows."""
        return [self.tensors[int(i)] for i in at]


def lines(names: Sequence[str]) -> tuple[str, ...]:
    """Return names as a few lines of evidence."""
    texts = [shorten(text) for text in named(names)]
    if len(texts) <= LINES:
        return tuple(texts)
    return (*texts[: LINES - 1], f"and {plural(len(texts) - LINES + 1, 'template')} more")


def percent(shares: np.ndarray[Any, Any]) -> str:
    """Return shares in per cent: one number, or from the least to the most."""
    least, most = (f"{100 * float(end):.3g}" for end in (shares.min(), shares.max()))
    return f"{least} %" if least == most else f"{least} to {most} %"


def names_of(seen: Seen, at: Iterable[int]) -> list[str]:
    """Return the names at some positions."""
    return [seen.tensors.names[int(i)] for i in at]


def title_of(seen: Seen, at: At) -> str:
    """Name a set of tensors in a few words: the one name, the one template, or their number."""
    texts = named(names_of(seen, at))
    if len(at) == 1:
        part = "A part of " if seen.tensors.statistic("part")[at[0]] == 1 else ""
        return part + shorten(texts[0], 90)
    if len(texts) == 1:
        return f"{shorten(texts[0], 90)} ({len(at):,} tensors)"
    return plural(len(at), "tensor")


def corroboration(rows: Sequence[ScannedTensor]) -> tuple[str, ...]:
    """Return what speaks for the verdicts beside the figures, the most common first."""
    texts = (text for row in rows for text in row.corroboration if not _IS_CONTRAST.search(text))
    said = Counter(texts)
    return tuple(f"{text} ({count}×)" if count > 1 else text for text, count in said.most_common(4))


def power_of(rows: Sequence[ScannedTensor]) -> tuple[str, ...]:
    """Return what could not have been seen, of the tensor where that is most."""
    worst = max(
        (row for row in rows if row.power_text), key=lambda row: row.power or 0, default=None
    )
    return (worst.power_text,) if worst else ()


def step_after_init(seen: Seen) -> str:
    """Return the next step where weights are as they were drawn."""
    if seen.kind == "server":
        return (
            "Run `workbench diff` on the checkpoint and this engine: a parameter without a key keeps what "
            "was in memory."
        )
    return (
        "Ask the trainer whether these parameters had gradients and were in the optimiser, then export "
        "again; "
        "scan_weights(before).compare(after) says what the training changed."
    )
