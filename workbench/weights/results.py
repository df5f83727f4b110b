"""The result of `scan_weights`: frozen, columnar inside, no I/O."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.weights.columns import Pair, Tensors
from workbench.weights.records import Kind
from workbench.weights.saved import SavedScan, SavedTensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.config import Config
    from workbench.weights.comparison import WeightComparison
    from workbench.weights.needed import Needed
    from workbench.weights.seen import Seen
    from workbench.weights.tied import Tied

Picture = Literal["verdict", "std", "kurtosis"]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class WeightScan(Result):
    """What the numbers of a checkpoint's weights say, as `workbench.scan_weights` measured them.

    Attributes
    ----------
    source, kind
        What was read: a checkpoint, or the server at an address.
    verdict
        The answer, with every template that it covers. ``ok``: True: every tensor that matters looks trained.
        False: one that matters is at init, constant or invalid. None: one that matters is undecided, or not
        all was read.
    tensors
        All tensors, by number or by name, each a `ScannedTensor`.
    notes
        What was left out or could not be read.
    bytes_read, sampled
        How much was read; the most values of a tensor that `sample` allowed, None for all.
    interrupted
        Whether it was stopped before all was read.
    loaded
        Whether it was read from a file: its `source` is then somebody's word, and not opened by itself.
    config, needed
        The model's config, and what it needs; not saved with the result, None of one that was loaded.
    """

    schema: ClassVar[str] = "workbench.weightscan/1"
    Saved: ClassVar[type[Saved]] = SavedScan

    source: str
    kind: Kind
    verdict: Verdict
    tensors: Tensors
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    bytes_read: int = 0
    sampled: int | None = None
    interrupted: bool = False
    loaded: bool = False
    config: Config | None = None
    needed: Needed | None = None

    @classmethod
    def build(
        cls,
        source: str,
        pairs: Iterable[Pair],
        *,
        kind: Kind = "checkpoint",
        notes: tuple[str, ...] = (),
        bytes_read: int = 0,
        sampled: int | None = None,
        interrupted: bool = False,
        unseen: int = 0,
        config: Config | None = None,
        needed: Needed | None = None,
        changed: str = "",
        limited: str = "",
        tied: Tied | None = None,
    ) -> Self:
        """Make the result of what was measured and judged; the findings follow from that.

        `unseen` is how many tensors were asked for and not seen; `needed` what the model needs, None where
        only a part was asked for; `changed` the files that changed while they were read; `limited` says how
        much was not requested; `tied` whether a head that the config ties has the embedding's values.
        """
        from workbench.weights.findings import conclude
        from workbench.weights.seen import Seen

        tensors = Tensors(pairs)
        seen = Seen(
            tensors, kind, sampled, interrupted, config, unseen, needed, changed, limited, tied
        )
        verdict, findings = conclude(seen)
        return cls(
            source=source,
            kind=kind,
            verdict=verdict,
            tensors=tensors,
            findings=findings,
            notes=tuple(notes),
            bytes_read=bytes_read,
            sampled=sampled,
            interrupted=interrupted,
            config=config,
            needed=needed,
        )

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Weights of {self.source}"

    @cached_property
    def seen(self) -> Seen:
        """Which tensors hold weights, and which of those decide."""
        from workbench.weights.seen import Seen

        return Seen(
            self.tensors, self.kind, self.sampled, self.interrupted, self.config, needed=self.needed
        )

    def compare(
        self,
        other: WeightScan | Checkpoint | str | os.PathLike[str],
        *,
        source: str | os.PathLike[str] | None = None,
        names: str | Iterable[str] | None = None,
    ) -> WeightComparison:
        """Return what changed between this and `other`, tensor by tensor.

        What a scan proved wrong of either side counts in the answer: a tensor that is at random
        initialisation and does not change is wrong, and one that changes is trained only if `other` is a scan
        that says so.

        Parameters
        ----------
        other
            A checkpoint's path, an open checkpoint, another scan, or the address of a server. The values are
            read again, in blocks.
        source
            Where this side is read; by default where it was scanned. A scan that was loaded from a file needs
            it: what a file names is not opened or asked without being told to.
        names
            Exact names or patterns of the tensors to compare, one or several; None for all.

        Returns
        -------
        WeightComparison
            With the relative change ``norm(other - this) / norm(this)`` of every tensor that both have.

        Raises
        ------
        WorkbenchError
            A source cannot be read any more, or neither has a tensor of a name that the other has.
        """
        from workbench.weights.compare import compare_weights

        return compare_weights(self, other, source, names)

    def plot(self, kind: Picture = "verdict") -> Figure:
        """Return a matplotlib figure: layers down, kinds of tensor across, coloured by `kind`."""
        from workbench.weights.plots import plot_scan

        return plot_scan(self, kind)

    def plot_tensor(self, name: str) -> Figure:
        """Return a matplotlib figure of one tensor's histogram against the fitted family."""
        from workbench.weights.plots import plot_tensor

        return plot_tensor(self, name)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a tensor: every number but the histogram and the quantiles."""
        for tensor in self.tensors:
            row = {f.name: getattr(tensor, f.name) for f in dataclasses.fields(tensor)}
            del row["bins"], row["quantiles"], row["ks"], row["statistics"]
            row |= {
                "shape": list(tensor.shape),
                "corroboration": "; ".join(tensor.corroboration),
                "parts": "; ".join(part.text() for part in tensor.parts),
            }
            yield row | {f"statistic_{name}": value for name, value in tensor.statistics}

    def saved(self) -> SavedScan:
        """Return the scan as it is written."""
        return SavedScan(
            **fields_of(self),
            **{name: getattr(self, name) for name in _PLAIN},
            tensors=tuple(map(SavedTensor.of, self.tensors)),
        )

    @classmethod
    def restored(cls, saved: SavedScan, verdict: Verdict) -> Self:
        """Rebuild the scan from what was written."""
        return cls(
            **{name: getattr(saved, name) for name in _PLAIN},
            verdict=verdict,
            tensors=Tensors(tensor.pair() for tensor in saved.tensors),
            findings=saved.findings,
            notes=saved.notes,
            loaded=True,
        )

    def contradiction(self) -> str:
        """Return which tensor contradicts an all-clear."""
        if self.ok is not True:
            return ""
        if self.interrupted:
            return "the scan was interrupted"
        if not self.seen.matters.any():
            return "it has no matrix of weights"
        items = self.verdict.coverage.items
        judged = sum(item.count for item in items if item.kind == "matrix" and item.essential)
        recorded = any(item.kind != "result" for item in items if item.essential)
        if recorded and judged != int(self.seen.matters.sum()):
            return f"the coverage has {judged} of {int(self.seen.matters.sum())} matrices"
        for verdict in ("invalid", "at_init", "constant", "undecided"):
            at = self.seen.having(verdict)
            if len(at):
                return f"{self.tensors.names[int(at[0])]} is {verdict}"
        errors = [finding for finding in self.findings if finding.severity == "error"]
        return f"a finding is an error: {errors[0].title}" if errors else ""


_PLAIN = ("source", "kind", "bytes_read", "sampled", "interrupted")
