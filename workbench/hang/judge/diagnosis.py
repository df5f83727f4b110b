"""The result of `attach` and `open_evidence`: frozen, no I/O."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_args

from msgspec import structs

from workbench.core.finding import Confidence, Experiment, Finding
from workbench.core.result import Result
from workbench.core.saving import Saved, fields_of
from workbench.core.verdict import Coverage, Item, Verdict
from workbench.hang import saved as written
from workbench.hang.diagnosis_records import RankRow, Span, Standing, ThreadRow, TreeNode
from workbench.hang.judge import old_codes
from workbench.hang.records import FAULTS, WELL, Phase, State, WaitClass

# Ranks that are one of these contradict an all-clear.
_BAD: frozenset[Standing] = frozenset({"odd", "missing", "stopped", "not_seen", "not_collected"})

# Where a server that is idle or serves can be; and with what the summary of no such server begins.
_PHASES_OF_WELL: frozenset[Phase] = frozenset({"ready", "init_done", "unknown"})
_WORDS_OF_OTHERS = frozenset(one.partition("_")[0] for one in get_args(State) if one not in WELL)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class HangDiagnosis(Result):
    """What a server does or waits for, which rank is apart, and the one thing to change next.

    Ranks are world numbers. With several data-parallel replicas of their own, the ranks of replica 1 follow
    those of replica 0.

    Attributes
    ----------
    verdict
        The answer, with every rank, process, log and clock that it covers. Its ``state`` is ``hung``,
        ``slow``, ``idle``, ``serving``, ``stopped``, ``crashed``, ``dead_rank`` or ``cannot_tell``.
        ``ok``: True: idle or serving, and everything that was expected is in the evidence. False: hung,
        stopped, crashed, or a rank is dead. None: cannot tell (``slow`` works now, and may yet hang).
    phase
        Where in its start-up (or ``ready``) the server is.
    odd_ranks
        Ranks that the others wait for. Empty where the rules forbid an accusation, and where a rank
        is missing: an absent rank outranks an odd one.
    waiting_ranks, working_ranks
        Ranks that wait for others, and ranks that make progress.
    missing_ranks, not_collected
        Ranks that are dead or absent where they should have been; ranks of hosts that were not collected.
    wait_class
        What the waiting ranks wait in (``HOST_COLL``, ``CUDA_SYNC``, …), or what all do.
    rule
        The rule of the classification table that applied (``decode_capture``).
    experiment
        The one change to try next.
    times
        When the snapshots were taken, in seconds since 1970.
    silent_for, log_end
        How long the log had been silent at the last snapshot, where its clock is known; the time of its
        last line on its own clock.
    """

    schema: ClassVar[str] = "workbench.hang/1"
    Saved: ClassVar[type[Saved]] = written.SavedHang

    source: str
    verdict: Verdict
    phase: Phase
    experiment: Experiment
    wait_class: WaitClass = "UNKNOWN"
    rule: str = "no_rule"
    odd_ranks: tuple[int, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    working_ranks: tuple[int, ...] = ()
    missing_ranks: tuple[int, ...] = ()
    not_collected: tuple[int, ...] = ()
    engine: str = ""
    version: str = ""
    ranks: tuple[RankRow, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    timeline: tuple[Span, ...] = ()
    threads: tuple[ThreadRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    silent_for: float | None = None
    log_end: float | None = None

    @property
    def state(self) -> State:
        """The state in one word, such as ``hung``, ``slow`` or ``idle``."""
        return cast(State, self.verdict.state)

    @property
    def confidence(self) -> Confidence:
        """How sure the verdict is."""
        return self.verdict.confidence

    @property
    def overturns(self) -> tuple[str, ...]:
        """What would overturn the verdict."""
        return self.verdict.overturned_by

    @property
    def unknowns(self) -> tuple[str, ...]:
        """What is open, in words; what the answer depends on comes first."""
        return self.verdict.missing

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"{self.state.replace('_', ' ')}: {self.source}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row a rank."""
        for rank in self.ranks:
            frame = rank.frame
            place = f"{frame.function} ({frame.file}:{frame.line})" if frame else ""
            yield dataclasses.asdict(rank) | {"frame": place}

    def to_speedscope(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the merged stacks as a file for https://www.speedscope.app, a profile a snapshot.

        With `force` it may replace a file that the workbench did not write.
        """
        from workbench.hang.speedscope import write

        return write(self, path, force=force)

    def saved(self) -> written.SavedHang:
        """Return the diagnosis as it is written."""
        threads, frames = written.entries_of(self.threads)
        return written.SavedHang(
            **fields_of(self),
            **{name: getattr(self, name) for name in (*_PLAIN, *_OF_VERDICT)},
            tree=written.nodes_of(self.tree),
            threads=threads,
            frames=frames,
        )

    @classmethod
    def restored(cls, saved: written.SavedHang, verdict: Verdict) -> Self:
        """Rebuild the diagnosis; what repeats the verdict must agree with it."""
        if saved.verdict is None:
            verdict = _of_old(saved, verdict)
        rule = old_codes.rule_of(saved.rule, saved.state, saved.phase, saved.findings)
        made = cls(
            **{name: getattr(saved, name) for name in _PLAIN} | {"rule": rule},
            verdict=verdict,
            tree=written.forest_of(saved.tree),
            threads=written.threads_of(saved.threads, saved.frames),
            findings=old_codes.findings_of(saved.rule, rule, saved.findings),
            notes=saved.notes,
        )
        if saved.verdict is not None:
            for name in _OF_VERDICT:
                if getattr(made, name) != getattr(saved, name):
                    raise ValueError(f"`{name}` is not what `verdict` says")
        return made

    def contradiction(self) -> str:
        """Return where `ok` contradicts the state, the rule, or the lists of ranks and findings."""
        if self.state in FAULTS:
            return "" if self.ok is False else f"the state is {self.state}"
        if self.ok is False:
            return f"the state is {self.state}"
        if self.ok is None:
            return ""
        if self.state not in WELL:
            return f"the state is {self.state}"
        for name in ("odd_ranks", "waiting_ranks", "missing_ranks", "not_collected"):
            if getattr(self, name):
                return f"`{name}` is not empty"
        bad = next((rank for rank in self.ranks if rank.standing in _BAD), None)
        if bad is not None:
            return f"{bad.name} is {bad.standing.replace('_', ' ')}"
        error = next((one for one in self.findings if one.severity == "error"), None)
        return f"there is an error: {error.title}" if error is not None else self._unlike_well()

    def _unlike_well(self) -> str:
        """Return what no all-clear has: another rule, phase, wait, next step or first word."""
        from workbench.hang.judge.rules import RULES

        if not any((rule.code, rule.state) == (self.rule, self.state) for rule in RULES):
            return f"rule {self.rule} does not give {self.state}"
        if self.phase not in _PHASES_OF_WELL:
            return f"the phase is {self.phase}"
        if self.wait_class == "STOPPED" or (self.state == "idle" and self.wait_class != "IDLE"):
            return f"the ranks wait in {self.wait_class}"
        if "/health" not in self.experiment.change:
            return "the experiment is not that of a healthy server"
        first = self.summary.lower().replace("_", " ").partition(" ")[0].rstrip(":,")
        return f"the summary begins with {first}" if first in _WORDS_OF_OTHERS else ""


_PLAIN = (
    "source", "engine", "version", "phase", "wait_class", "rule", "silent_for", "log_end", "odd_ranks",
    "waiting_ranks", "working_ranks", "missing_ranks", "not_collected", "times", "experiment", "ranks",
    "timeline",
)  # fmt: skip
_OF_VERDICT = ("state", "confidence", "overturns", "unknowns")


def open_question(text: str) -> Item:
    """Return an open question in words as an item that decides nothing: ``name: what is missing``."""
    name, colon, how = text.partition(": ")
    return Item("question", name, "open", how if colon else "not known", essential=False)


def _of_old(saved: written.SavedHang, verdict: Verdict) -> Verdict:
    """Return the verdict of a diagnosis that version 0.1 saved: its own words, without a coverage."""
    return structs.replace(
        verdict,
        state=saved.state,
        confidence=saved.confidence,
        coverage=Coverage((*verdict.coverage.items, *map(open_question, saved.unknowns))),
        overturned_by=saved.overturns,
    )
