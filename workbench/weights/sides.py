"""What is known of the two sides of a comparison before it: what their scans proved wrong.

A comparison says what changed, and not whether either side is trained. A ✓ under a side that a scan proved
untrained would say more than is known, so what a scan proved counts here as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.weights.coverage import proved_wrong

if TYPE_CHECKING:
    from workbench.weights.results import WeightScan


@dataclasses.dataclass(frozen=True)
class Side:
    """The scan of one side.

    Attributes
    ----------
    ok, sentence
        The scan's answer; an empty sentence where this side was not scanned.
    wrong
        The tensors that the scan proved wrong, and how.
    """

    ok: bool | None = None
    sentence: str = ""
    wrong: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, scan: WeightScan | None) -> Side:
        """Return what a scan says of its side; one without tensors says nothing."""
        if scan is None or not len(scan.tensors):
            return cls()
        return cls(scan.ok, scan.summary, proved_wrong(scan.seen))


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides, and what of their names was compared: `limited` is "" for all of them."""

    first: Side = Side()
    second: Side = Side()
    limited: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What has to be read with the comparison."""
        named = (("first", self.first), ("second", self.second))
        told = [
            f"The {name} by itself: {side.sentence}" for name, side in named if side.ok is False
        ]
        limits = [f"{self.limited[:1].upper()}{self.limited[1:]}."] if self.limited else []
        return (*limits, *told)
