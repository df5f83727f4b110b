"""Ask `workbench check` about every launch, and say what came out."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from workbench.cli import program

from .cases import Line

OUTCOMES = ("caught", "✓", "unnamed", "cannot tell", "missed", "wrongly accused", "error")


def is_there() -> bool:
    """Whether this tree has the command."""
    return any(verb.__name__ == "check" for verb in program.VERBS)


@dataclasses.dataclass(frozen=True)
class Judged:
    """A launch, and what `workbench check` said of it.

    Attributes
    ----------
    outcome
        One of `OUTCOMES`. ``caught``: accused, and all of `Line.names` is named. ``unnamed``: accused of
        something else. ``✓``: a good launch is cleared.
    answer
        The first line of the text.
    """

    line: Line
    outcome: str
    answer: str


def outcome(line: Line, status: int, text: str) -> str:
    """Return what an exit status and a text mean for a launch."""
    if status not in (0, 1, 3):
        return "error"
    if status == 3:
        return "cannot tell"
    if line.good:
        return "wrongly accused" if status else "✓"
    if not status:
        return "missed"
    return "caught" if names_all(line, text) else "unnamed"


def names_all(line: Line, text: str) -> bool:
    """Whether a text names all that an accusation of this launch must name."""
    flat = re.sub(r"\s+", " ", text).lower()
    return all(any(word.lower() in flat for word in names.split("|")) for names in line.names)


def judge(lines: Iterable[Line], places: Mapping[str, Path]) -> Iterator[Judged]:
    """Run the command on each launch, in this process."""
    for line in lines:
        status, text = run(line, places)
        first = next(iter(text.strip().splitlines()), "")
        yield Judged(line, outcome(line, status, text), first[:120])


def run(line: Line, places: Mapping[str, Path]) -> tuple[int, str]:
    """Return the exit status of the command and what it printed."""
    printed = io.StringIO()
    words = ["workbench", "check", line.placed(places), "--engine", line.engine]
    words += ["--gpu", line.gpu] if line.gpu else []
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), _offline(words):
        try:
            program.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 2
    return status, printed.getvalue()


@contextlib.contextmanager
def _offline(words: Sequence[str]) -> Iterator[None]:
    """Put a command line in place, and keep the hub away: a launch is checked with what is on the disk."""
    arguments, before = sys.argv, os.environ.get("HF_HUB_OFFLINE")
    sys.argv, os.environ["HF_HUB_OFFLINE"] = list(words), "1"
    try:
        yield
    finally:
        sys.argv = arguments
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before


def as_rows(judged: Iterable[Judged]) -> str:
    """Return one JSON object a launch, to keep as an untuned result."""
    return "\n".join(
        json.dumps(
            {"id": one.line.name, "outcome": one.outcome, "answer": one.answer}, ensure_ascii=False
        )
        for one in judged
    )
