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
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Verdict
from workbench.errors import WorkbenchError, shorten, shown
from workbench.evidence import launch_words
from workbench.evidence import launches as store
from workbench.evidence.launches import Launch
from workbench.hang.ledger.differences import Differences, differences
from workbench.hang.ledger.saved import SavedLedger, Step
from workbench.launch.read import read_launch

# They only start what follows.
_STARTERS = ("exec", "nohup", "env")
# What a diagnosis calls a state, as the outcome of a launch.
_OF_STATE = {
    "idle": "served",
    "serving": "served",
    "dead_rank": "crashed",
    "slow": "unknown",
    "cannot_tell": "unknown",
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LaunchLedger(Result):
    """Launches in order, what changed from one to the next, and what may be concluded.

    Differences, findings and verdict follow from the launches, whatever a file says.

    Attributes
    ----------
    verdict
        ``ok``: False where the last launch hung or crashed; True where a hang is understood by flipping one
        thing and flipping it back, and the last launch served; else None: one success proves nothing.
    unread
        What of the file could not be read. The last launch may be in it, so nothing is cleared.
    """

    schema: ClassVar[str] = "workbench.launches/1"
    Saved: ClassVar[type[Saved]] = SavedLedger

    source: str
    launches: tuple[Launch, ...]
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"launches: {self.source}"

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
                between = differences(other, launch)
                if not between.changed and not between.unsure:
                    found.append(number)
                    break
            else:
                found.append(len(firsts))
                firsts.append(launch)
        return tuple(found)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:  # type: ignore[override]
        """What the launches allow to conclude."""
        from workbench.hang.ledger.rules import conclude

        return tuple(conclude(self))

    @cached_property
    def verdict(self) -> Verdict:  # type: ignore[override]
        """The answer, with every launch that it covers."""
        from workbench.hang.ledger.verdict import verdict

        return verdict(self)

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

    def saved(self) -> SavedLedger:
        """Return the ledger as it is written: the launches, and what follows from them for other readers."""
        return SavedLedger(
            **fields_of(self),
            source=self.source,
            launches=self.launches,
            steps=tuple(Step.of(step) if step else None for step in self.steps),
            configurations=self.configurations,
            unread=self.unread,
        )

    @classmethod
    def restored(cls, saved: SavedLedger, verdict: Verdict) -> Self:
        """Rebuild the ledger from its launches; all that is concluded follows from them."""
        launches = tuple(Launch.from_dict(launch.to_dict()) for launch in saved.launches)
        return cls(saved.source, launches, saved.notes, saved.unread)

    def contradiction(self) -> str:
        """Return "": whatever contradicts the launches has been replaced by what follows from them."""
        return ""


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
                f"{shown(path)} is not the path of a ledger",
                next_step="Give a file that exists or can be made, such as launches.jsonl.",
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
            launch = _of_command(launch)
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
        fields = launch.to_dict() | {"name": name, "outcome": _OF_STATE.get(outcome, outcome)}
        try:
            launch = Launch.from_dict(fields)
        except ValueError as error:
            raise WorkbenchError(
                f"the launch {shorten(name)} cannot be recorded",
                why=str(error),
                next_step=f"An outcome is one of {', '.join(store.OUTCOMES)}.",
            ) from None
        return store.append(self.path, launch)

    def story(self) -> LaunchLedger:
        """Return all that was recorded so far, as a result."""
        return LaunchLedger(self.path.name, *store.read(self.path))

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


def launch_of(text: str) -> Launch:
    """Return the launch that a text names: a folder with ``launch.json``, a log, or what was typed."""
    place = Path(text).expanduser() if len(text) < 4096 else None
    try:
        if place is not None and place.is_dir():
            return store.from_folder(place)
        if place is not None and place.is_file():
            return store.from_log(place)
    except (OSError, ValueError):
        pass  # no path: what was typed
    return _of_command(text)


def _of_command(command: str | Sequence[str]) -> Launch:
    """Return what was typed as a launch; a program that is no known server is kept as it is."""
    plain = store.from_command(command)
    found = read_launch(command) if not isinstance(command, str) or " " in command.strip() else None
    if found is None or not found.engine or not found.words:
        return plain
    words = tuple(itertools.dropwhile(lambda word: word in _STARTERS, found.words))
    if launch_words.is_server(plain.command):
        words = plain.command  # what runs it, and its container, are already apart
    return dataclasses.replace(
        plain,
        command=words or plain.command,
        # As typed: what is secret in it must be known to be left out of the rest.
        environment=dict(found.environment) | dict(plain.environment),
        log=found.log or plain.log,
        engine=found.engine,
        version=found.version,
    )
