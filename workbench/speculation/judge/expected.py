"""What acceptance should be: from the trainer's metrics, from a healthy recorded run, or as the user says."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from workbench.errors import WorkbenchError, shown
from workbench.speculation.evidence.files import content
from workbench.speculation.evidence.ranges import Count, Number
from workbench.speculation.judge.thresholds import HARDLY

if TYPE_CHECKING:
    from workbench.speculation.evidence.observed import Run

Counted = Literal["rounds", "places"]
_MOST_BYTES = 1 << 26
_FULL = re.compile(r"(?:^|[/._])full_acc_?(\d{1,3})(?:$|[/._])", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """The acceptance that a draft should reach.

    Attributes
    ----------
    accept_length
        Tokens a round, the target's own included.
    per_position
        Share of rounds with at least k drafts accepted, from k = 1 on; empty where it is not known.
    source
        Where it comes from, for a reader.
    counted
        ``places``: as trainers count, a draft from every place of the text. ``rounds``: as engines count,
        only from where a round begins. Rounds begin where the one before ended, at the harder places, and
        so their acceptance is lower; a replay counts in the same way as what it is compared with.
    topk
        Width of the tree that it holds for, 1 for a chain; 0: the same as was served.
    """

    accept_length: Number
    per_position: tuple[Number, ...] = ()
    source: str = "as given"
    counted: Counted = "rounds"
    topk: Count = 0

    @classmethod
    def given(cls, accept_length: float) -> Self:
        """Take the user's word for it."""
        if not 1.0 < accept_length < 1000:
            raise WorkbenchError(
                f"an expected acceptance length of {shown(accept_length)} is not between 1 and 1,000",
                why="the target's own token counts: 1.00 means that nothing is accepted",
                next_step="Give a number above 1, as a healthy server logs it.",
            )
        return cls(float(accept_length))

    @classmethod
    def of_run(cls, run: Run) -> Self:
        """Return what a healthy recorded run reached, but for its last rounds, which the length may cut."""
        steps = run.launch.steps
        emitted = np.array(
            [
                n
                for request in run.requests
                for n, known in zip(request.emitted, request.starts, strict=True)
                if len(request.text) - known > steps
            ]
        )
        if not len(emitted):
            raise WorkbenchError(
                f"{run.source} has no rounds", next_step="Give a run with speculation on."
            )
        profile = [(emitted > k).mean() for k in range(1, steps + 1)]
        length, shares = float(emitted.mean()), tuple(map(float, profile))
        if length - 1 < HARDLY:
            raise WorkbenchError(
                f"{run.source} is not a healthy run: its acceptance length is {length:.2f}",
                why="an expectation has to be more than nothing",
                next_step="Give a run of a draft that works, the trainer's metrics, or a number.",
            )
        return cls(length, shares, f"the run {run.source}", "rounds", run.launch.topk)

    @classmethod
    def of_training(cls, source: str | os.PathLike[str] | Mapping[str, Any], steps: int) -> Self:
        """Return what a trainer's metrics promise: ``1 + Σ full_acc_k``, corrected by the coverage.

        speculators counts a draft as right when it is the target's best token *of the draft's vocabulary*:
        times the share of places whose best token is in it (``coverage``), if the metrics have one.

        Parameters
        ----------
        source
            The metrics, or a JSON or JSON-lines file of them (the last line that has any counts). Known are
            ``full_acc_0``, ``full_acc_1`` … under any prefix, or a list ``full``.
        steps
            How many drafts a round has.
        """
        name = "metrics" if isinstance(source, Mapping) else str(source)
        tables = [source] if isinstance(source, Mapping) else _read(Path(source))
        found: tuple[list[float], bool, float | None] | None = None
        for table in tables:
            found = _full(table) or found
        if found is None:
            raise WorkbenchError(
                f"{name} does not hold an acceptance that a trainer measured",
                why="neither full_acc_0, full_acc_1 … nor a list full is in it",
                next_step="Give the validation metrics, or the acceptance length as a number.",
            )
        full, whole, coverage = found
        factor = 1.0 if whole else coverage if coverage is not None else 1.0
        profile = tuple(value * factor for value in full[:steps])
        said = f"the trainer's metrics, {name}"
        if not whole:
            said += (
                f", times the coverage {coverage:.3f}"
                if coverage is not None
                else " (over the draft's vocabulary; its coverage is not known, so too high)"
            )
        if len(profile) < steps:
            said += f" ({len(profile)} of {steps} positions)"
        return cls(1.0 + sum(profile), profile, said, "places", 1)


def _read(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = content(path, _MOST_BYTES).decode()
    except (WorkbenchError, UnicodeDecodeError) as error:
        raise WorkbenchError(
            f"cannot read {path}",
            why=error.why or error.what if isinstance(error, WorkbenchError) else str(error),
            next_step="Give the trainer's metrics as JSON, or the acceptance length as a number.",
        ) from None
    tables = []
    try:
        tables = [json.loads(text)]
    except (ValueError, RecursionError):
        for line in text.splitlines():
            try:
                tables.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return [table for table in tables if isinstance(table, Mapping)]


def _full(table: Mapping[str, Any]) -> tuple[list[float], bool, float | None] | None:
    """Return the chances of each depth, whether over the whole vocabulary, and the coverage."""
    best: tuple[list[float], bool, float | None] | None = None
    for level in _levels(table, 0):
        coverage = _share(level.get("coverage"))
        listed = level.get("full")
        if isinstance(listed, Sequence) and not isinstance(listed, str):
            values = [_share(v) for v in listed[:256]]
            whole = True
        else:
            numbered = {
                int(match[1]): _share(value)
                for key, value in level.items()
                if (match := _FULL.search(str(key)))
            }
            values = [numbered.get(k) for k in range(len(numbered))]
            whole = False
        if values and all(v is not None for v in values):
            return [v for v in values if v is not None], whole, coverage
    return best


def _levels(table: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield a table and those inside it, outer ones first; in our trainer's report ``trainer`` comes last."""
    yield table
    if depth < 4:
        for name in sorted(table, key=lambda n: (str(n) == "trainer", str(n))):
            if isinstance(table[name], Mapping):
                yield from _levels(table[name], depth + 1)


def _share(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if good else None
