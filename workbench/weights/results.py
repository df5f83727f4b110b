"""The results of `scan_weights` and of its `compare`: frozen, columnar inside, no I/O."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from workbench.core.finding import Finding
from workbench.core.result import Result
from workbench.core.saving import strict
from workbench.weights.changes import Change, Changes
from workbench.weights.columns import Pair, Tensors, pair_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.checkpoint.config import Config
    from workbench.checkpoint.open import Checkpoint
    from workbench.weights.seen import Seen

Kind = Literal["checkpoint", "server"]
Picture = Literal["verdict", "std", "kurtosis"]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class WeightScan(Result):
    """What the numbers of a checkpoint's weights say, as `workbench.scan_weights` measured them.

    Attributes
    ----------
    source, kind
        What was read: a checkpoint, or the server at an address.
    ok
        True: every tensor that matters looks trained. False: one that matters is at init, constant or
        invalid. None: one that matters is undecided, or not all was seen.
    summary
        The verdict in one line.
    tensors
        All tensors, by number or by name, each a `ScannedTensor`.
    notes
        What was left out or could not be seen.
    bytes_read, sampled
        How much was read; the most values of a tensor that `sample` allowed, None for all.
    interrupted
        Whether it was stopped before all was read.
    """

    schema: ClassVar[str] = "workbench.weightscan/1"

    source: str
    kind: Kind
    ok: bool | None
    summary: str
    tensors: Tensors
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    bytes_read: int = 0
    sampled: int | None = None
    interrupted: bool = False

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
    ) -> Self:
        """Make the result of what was measured and judged; the findings follow from that.

        `unseen` is how many tensors were asked for and not seen.
        """
        from workbench.weights.findings import conclude
        from workbench.weights.seen import Seen

        tensors = Tensors(pairs)
        seen = Seen(tensors, kind, sampled, interrupted, config, unseen)
        ok, summary, findings = conclude(seen)
        return cls(
            source=source,
            kind=kind,
            ok=ok,
            summary=summary,
            tensors=tensors,
            findings=findings,
            notes=tuple(notes),
            bytes_read=bytes_read,
            sampled=sampled,
            interrupted=interrupted,
        )

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Weights of {self.source}"

    @cached_property
    def seen(self) -> Seen:
        """Which tensors hold weights, and which of those decide."""
        from workbench.weights.seen import Seen

        return Seen(self.tensors, self.kind, self.sampled, self.interrupted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightScan) and strict(self.to_dict()) == strict(other.to_dict())

    def __hash__(self) -> int:
        return hash((self.source, self.kind, self.summary, len(self.tensors)))

    def __bool__(self) -> bool:
        """Return True only where `ok` is."""
        return self.ok is True

    def compare(self, other: WeightScan | Checkpoint | str | os.PathLike[str]) -> WeightComparison:
        """Say what changed between this and `other`, tensor by tensor.

        Parameters
        ----------
        other
            A checkpoint's path, an open checkpoint, another scan, or the address of a server. The values are
            read again, in blocks.

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

        return compare_weights(self, other)

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
            row = tensor.to_dict()
            statistics = row.pop("statistics")
            del row["bins"], row["quantiles"], row["ks"]
            row["corroboration"] = "; ".join(row["corroboration"])
            yield row | {f"statistic_{name}": value for name, value in statistics.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; ``tensors`` is a list, NaN is null once it is JSON."""
        return {
            "schema": self.schema,
            "source": self.source,
            "kind": self.kind,
            "ok": self.ok,
            "summary": self.summary,
            "bytes_read": self.bytes_read,
            "sampled": self.sampled,
            "interrupted": self.interrupted,
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
            "tensors": [strict(tensor.to_dict()) for tensor in self.tensors],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the result from `to_dict`."""
        if not (data["ok"] is None or isinstance(data["ok"], bool)) or data["kind"] not in get_args(
            Kind
        ):
            raise ValueError(f"no verdict: ok is {data['ok']!r}, kind {data['kind']!r}")
        plain = ("source", "kind", "ok", "summary", "bytes_read", "sampled", "interrupted")
        return cls(
            **{name: data[name] for name in plain},
            tensors=Tensors(map(pair_of, data["tensors"])),
            findings=tuple(Finding.from_dict(finding) for finding in data["findings"]),
            notes=tuple(data["notes"]),
        )

    def to_text(self, width: int | None = None) -> str:
        """Return the scan as text: verdict, findings, tensors by template, what could not be seen."""
        from workbench.weights.view import text

        return text(self, width)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.weights.view import payload

        return payload(self, limit)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class WeightComparison(Result):
    """What changed from one set of weights to another, as `WeightScan.compare` read it.

    Attributes
    ----------
    before, after
        The two sources; the change is relative to `before`.
    ok
        False: a tensor that both have differs in shape, or is not finite. None: something could not be
        compared. True otherwise: a difference is a fact, not a mistake.
    changes
        One `Change` a name, by number or by name.
    same_bytes
        Pairs of tensors with equal bytes under different names.
    """

    schema: ClassVar[str] = "workbench.weightcompare/1"

    before: str
    after: str
    ok: bool | None
    summary: str
    changes: Changes
    same_bytes: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"From {self.before} to {self.after}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightComparison) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.before, self.after, self.summary))

    def __bool__(self) -> bool:
        """Return True only where `ok` is."""
        return self.ok is True

    def names(self, state: str) -> tuple[str, ...]:
        """Return the names in one state: ``identical``, ``changed``, ``shape``, ``left`` and so on."""
        return tuple(change.name for change in self.changes if change.state == state)

    def plot(self) -> Figure:
        """Return a matplotlib figure: layers down, kinds of tensor across, coloured by the change."""
        from workbench.weights.plots import plot_comparison

        return plot_comparison(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a tensor."""
        return (change.to_dict() for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, strict JSON."""
        return {
            "schema": self.schema,
            "before": self.before,
            "after": self.after,
            "ok": self.ok,
            "summary": self.summary,
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
            "same_bytes": [list(pair) for pair in self.same_bytes],
            "changes": [change.to_dict() for change in self.changes],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the result from `to_dict`."""
        return cls(
            **{name: data[name] for name in ("before", "after", "ok", "summary")},
            changes=Changes(Change.from_dict(row) for row in data["changes"]),
            same_bytes=tuple((a, b) for a, b in data["same_bytes"]),
            findings=tuple(Finding.from_dict(finding) for finding in data["findings"]),
            notes=tuple(data["notes"]),
        )

    def to_text(self, width: int | None = None) -> str:
        """Return the comparison as text."""
        from workbench.weights.view_compare import text

        return text(self, width)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.weights.view_compare import payload

        return payload(self, limit)
