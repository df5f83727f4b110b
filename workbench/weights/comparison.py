"""The result of comparing two sets of weights: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.weights.changes import Changes
from workbench.weights.saved import SavedComparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class WeightComparison(Result):
    """What changed from one set of weights to another, as `WeightScan.compare` read it.

    Attributes
    ----------
    before, after
        The two sources; the change is relative to `before`.
    verdict
        The answer. ``ok``: False: a tensor that both have differs in shape, or is not finite. None: something
        could not be compared, or holds the same values in another order or place. True otherwise: a
        difference is a fact, not a mistake.
    changes
        One `Change` a name, by number or by name.
    same_bytes
        Pairs of tensors with equal bytes under different names.
    """

    schema: ClassVar[str] = "workbench.weightcompare/1"
    Saved: ClassVar[type[Saved]] = SavedComparison

    before: str
    after: str
    verdict: Verdict
    changes: Changes
    same_bytes: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"From {self.before} to {self.after}"

    def names(self, state: str) -> tuple[str, ...]:
        """Return the names in one state: ``identical``, ``changed``, ``shape``, ``left`` and so on."""
        return tuple(change.name for change in self.changes if change.state == state)

    def plot(self) -> Figure:
        """Return a matplotlib figure: layers down, kinds of tensor across, coloured by the change."""
        from workbench.weights.plots import plot_comparison

        return plot_comparison(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a tensor."""
        return (dataclasses.asdict(change) for change in self.changes)

    def saved(self) -> SavedComparison:
        """Return the comparison as it is written."""
        return SavedComparison(
            **fields_of(self),
            before=self.before,
            after=self.after,
            same_bytes=self.same_bytes,
            changes=tuple(self.changes),
        )

    @classmethod
    def restored(cls, saved: SavedComparison, verdict: Verdict) -> Self:
        """Rebuild the comparison from what was written."""
        return cls(
            before=saved.before,
            after=saved.after,
            verdict=verdict,
            changes=Changes(saved.changes),
            same_bytes=saved.same_bytes,
            findings=saved.findings,
            notes=saved.notes,
        )

    def contradiction(self) -> str:
        """Return which tensor contradicts an all-clear."""
        if self.ok is not True:
            return ""
        for state in ("shape", "invalid", "unread"):
            if self.names(state):
                return f"{self.names(state)[0]} is {state}"
        errors = [finding for finding in self.findings if finding.severity == "error"]
        return f"a finding is an error: {errors[0].title}" if errors else ""
