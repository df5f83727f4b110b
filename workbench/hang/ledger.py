"""The ledger of launches: what exactly differs between two, and what their outcomes allow to conclude."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from workbench.core.finding import Experiment, Finding
from workbench.core.result import Result
from workbench.display.text import plural
from workbench.errors import WorkbenchError, shorten, shown
from workbench.evidence import launches as store
from workbench.evidence.launches import Launch
from workbench.hang.launch_differences import Differences, differences

# What a diagnosis calls a state, as the outcome of a launch.
_OF_STATE = {
    "idle": "served",
    "serving": "served",
    "dead_rank": "crashed",
    "slow": "unknown",
    "cannot_tell": "unknown",
}


@dataclasses.dataclass(frozen=True, repr=False)
class LaunchLedger(Result):
    """Launches in order, what changed from one to the next, and what may be concluded.

    Attributes
    ----------
    ok
        False where the last launch hung or crashed, True where a hang is understood by flipping one
        thing and flipping it back, else None: one success proves nothing.
    """

    schema: ClassVar[str] = "workbench.launches/1"

    source: str
    launches: tuple[Launch, ...]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"launches: {self.source}"

    @property
    def ok(self) -> bool | None:
        """Whether the hang is understood; None where the launches do not tell."""
        if not self.launches:
            return None
        if self.launches[-1].outcome in ("hung", "crashed"):
            return False
        return True if any(f.code == "launches.supported" for f in self.findings) else None

    @property
    def summary(self) -> str:
        """The story in one or two sentences."""
        return _summary(self)

    @cached_property
    def steps(self) -> tuple[Differences | None, ...]:
        """For each launch what differs from the one it is compared with; None for the first."""
        found: list[Differences | None] = []
        for at, launch in enumerate(self.launches):
            before = self.launches[at - 1] if at else None
            if launch.against:
                earlier = [one for one in self.launches[:at] if one.name == launch.against]
                before = earlier[-1] if earlier else before
            found.append(differences(before, launch) if before else None)
        return tuple(found)

    @cached_property
    def configurations(self) -> tuple[int, ...]:
        """For each launch the number of its configuration: equal where nothing that matters differs."""
        firsts: list[Launch] = []
        found = []
        for launch in self.launches:
            for number, other in enumerate(firsts):
                told = differences(other, launch)
                if not told.changed and not told.unsure:
                    found.append(number)
                    break
            else:
                found.append(len(firsts))
                firsts.append(launch)
        return tuple(found)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:  # type: ignore[override]
        """What the launches allow to conclude."""
        from workbench.hang.ledger_rules import conclude

        return tuple(conclude(self))

    def differences(self, first: str | int, second: str | int) -> Differences:
        """Return what differs between two launches, by name or by number from 1."""
        pair = (store.named(self.launches, which) for which in (first, second))
        return differences(*pair)

    def counts(self, configuration: int) -> tuple[int, int]:
        """Return how often a configuration hung, and how many of its launches say so or served."""
        outcomes = [
            launch.outcome
            for launch, number in zip(self.launches, self.configurations, strict=True)
            if number == configuration and launch.outcome in ("hung", "served", "crashed")
        ]
        return sum(outcome != "served" for outcome in outcomes), len(outcomes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaunchLedger) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.source, len(self.launches)))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a launch."""
        for launch, step, number in zip(
            self.launches, self.steps, self.configurations, strict=True
        ):
            yield {
                "name": launch.name,
                "outcome": launch.outcome,
                "configuration": number,
                "ready_after": launch.ready_after,
                "compared_with": step.first if step else "",
                "changed": "; ".join(change.text for change in step.changed) if step else "",
                "log": launch.log,
                "hypothesis": launch.hypothesis,
            }

    def to_dict(self) -> dict[str, Any]:
        """Return the launches, the differences and the findings as plain data."""
        return {
            "schema": self.schema,
            "ok": self.ok,
            "summary": self.summary,
            "source": self.source,
            "launches": [launch.to_dict() for launch in self.launches],
            "notes": list(self.notes),
            "steps": [step and step.to_dict() for step in self.steps],
            "configurations": list(self.configurations),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild the ledger from `to_dict`; what is concluded follows from the launches."""
        read = tuple(map(Launch.from_dict, data["launches"]))
        return cls(str(data["source"]), read, tuple(map(str, data["notes"])))

    def to_text(self, width: int | None = None) -> str:
        """Return the ledger as text: the verdict, each launch with what it changed, the findings."""
        from workbench.hang.ledger_view import text

        return text(self, width)

    def payload(self, limit: int | None = None) -> dict[str, Any]:
        """Return the data of the interactive view."""
        from workbench.hang.ledger_view import payload

        return payload(self, limit)


def _summary(ledger: LaunchLedger) -> str:
    known = ledger.launches
    if not known:
        return "No launch was recorded yet."
    tally = ", ".join(
        f"{len(list(group))} {outcome}"
        for outcome, group in itertools.groupby(sorted(one.outcome for one in known))
    )
    kinds = len(set(ledger.configurations))
    said = (
        f"{plural(len(known), 'launch', 'launches')} of {plural(kinds, 'configuration')}: {tally}."
    )
    loudest = next((f for f in ledger.findings if f.severity != "note"), None)
    loudest = loudest or next(iter(ledger.findings), None)
    return f"{loudest.title}. {said}" if loudest else said


class Ledger:
    """The file of launches of one server: record each launch, compare, conclude.

    Parameters
    ----------
    path
        A file of JSON lines; it is made with the first launch.

    Examples
    --------
    >>> ledger = Ledger("launches.jsonl")  # doctest: +SKIP
    >>> ledger.record("sglang serve --tp 8 > first.log", outcome="hung")  # doctest: +SKIP
    >>> ledger.record(  # doctest: +SKIP
    ...     "sglang serve --tp 8 --disable-cuda-graph > second.log",
    ...     experiment=diagnosis.experiment,
    ...     outcome="served",
    ... )
    >>> print(ledger.differences(1, 2))  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise WorkbenchError(
                f"{shown(path)} is no path of a ledger",
                next_step="Give a file that is there or may be made, such as launches.jsonl.",
            )
        self.path = Path(path).expanduser()

    def record(
        self,
        launch: Launch | str | Sequence[str],
        *,
        experiment: Experiment | None = None,
        hypothesis: str = "",
        against: str = "",
        **known: Any,
    ) -> Launch:
        """Write one launch at the end, redacted, and return it as it was written.

        Parameters
        ----------
        launch
            A `Launch` (`launches.from_folder`, `launches.from_log`), or what was typed.
        experiment, hypothesis
            Why it was launched; both sides of the experiment are kept with it.
        against
            Name of the launch that it is to be compared with, if not the one before it.
        known
            What else is known: ``name``, ``outcome`` (or a diagnosis' ``state``), ``version``,
            ``log``, ``ready_after``, …
        """
        if not isinstance(launch, Launch):
            launch = store.from_command(launch)
        plan = experiment or Experiment(launch.change, launch.if_right, launch.if_wrong)
        outcome = str(known.pop("outcome", launch.outcome))
        launch = dataclasses.replace(
            launch,
            hypothesis=hypothesis or launch.hypothesis,
            against=against or launch.against,
            change=plan.change,
            if_right=plan.if_right,
            if_wrong=plan.if_wrong,
            **known,
        )
        name = launch.name or f"launch {len(self.launches) + 1}"
        told = launch.to_dict() | {"name": name, "outcome": _OF_STATE.get(outcome, outcome)}
        try:
            launch = Launch.from_dict(told)
        except ValueError as error:
            raise WorkbenchError(
                f"the launch {shorten(name)} cannot be recorded",
                why=str(error),
                next_step=f"An outcome is one of {', '.join(store.OUTCOMES)}.",
            ) from None
        return store.append(self.path, launch)

    def story(self) -> LaunchLedger:
        """Return all that was recorded so far, as a result."""
        found, notes = store.read(self.path)
        return LaunchLedger(self.path.name, found, notes)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches recorded so far."""
        return self.story().launches

    def differences(self, first: str | int, second: str | int) -> Differences:
        """Return what differs between two launches, by name or by number from 1."""
        return self.story().differences(first, second)

    def __repr__(self) -> str:
        return self.story().to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.story()._repr_mimebundle_(**kwargs)
