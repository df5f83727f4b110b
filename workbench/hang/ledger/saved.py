"""How a `LaunchLedger` is written: the schema ``workbench.launches/1``, with its types."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from workbench.core.saving import Saved
from workbench.evidence.launches import Launch
from workbench.hang.ledger.differences import Change, Differences


class Step(Struct, frozen=True):
    """The `Differences` between two launches, with their warning."""

    first: str
    second: str
    changed: tuple[Change, ...]
    harmless: tuple[Change, ...]
    unsure: tuple[Change, ...]
    warning: str

    @classmethod
    def of(cls, one: Differences) -> Step:
        """Return differences as they are written."""
        return cls(one.first, one.second, one.changed, one.harmless, one.unsure, one.warning)


class SavedLedger(Saved, frozen=True, kw_only=True):
    """The schema of a `LaunchLedger`; ``steps`` and ``configurations`` are for other readers."""

    source: str
    launches: tuple[Launch, ...]
    steps: tuple[Step | None, ...]
    configurations: tuple[Annotated[int, Meta(ge=0)], ...]
    unread: tuple[str, ...] = ()
