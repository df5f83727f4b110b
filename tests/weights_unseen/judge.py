"""How one answer agrees with one case. Strict: all that is expected, or it is not right."""

from __future__ import annotations

import dataclasses
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import workbench
from workbench.errors import WorkbenchError

from . import healthy, healthy_more, sick, sick_more  # noqa: F401  (they list the cases)
from .case import CASES, Answer, UnseenCase

# From worst to best; an answer has the first that holds.
OUTCOMES = ("wrong accusation", "false all-clear", "error", "unnamed", "abstained", "right")
_ACCUSED = frozenset({"at_init", "invalid", "constant"})


@dataclasses.dataclass(frozen=True)
class Judged:
    """The outcome of one case: what was answered, and why it is not right."""

    case: UnseenCase
    outcome: str
    got: str
    answer: str
    fault: str = ""


def read_cases(words: Iterable[str] = ()) -> list[UnseenCase]:
    """Return the cases with one of some words in their names, or all."""
    words = list(words)
    return [one for one in CASES.values() if not words or any(word in one.name for word in words)]


def judge(case: UnseenCase) -> Judged:
    """Build a case, ask `workbench.scan_weights` about it and judge the answer."""
    folder = Path(tempfile.mkdtemp(prefix="weights-"))
    try:
        case.build(folder / "model")
        return _asked(case, folder / "model")
    finally:
        shutil.rmtree(folder)


def _asked(case: UnseenCase, place: Path) -> Judged:
    try:
        scan = _scan(case, place)
        answer = (
            scan.compare(workbench.scan_weights(place.with_name("other")))
            if case.call == "compare"
            else scan
        )
    except WorkbenchError as error:
        return Judged(case, "error", "refused", str(error).splitlines()[0])
    except Exception as error:
        return Judged(case, "error", "crash", f"{type(error).__name__}: {error}")
    accused = [] if case.call == "compare" else _accused(scan.tensors)
    outcome, fault = outcome_of(case, answer.ok, said(answer), accused)
    return Judged(case, outcome, str(answer.ok), answer.summary, fault)


def _scan(case: UnseenCase, place: Path) -> Any:
    target = {"target": place.with_name("other")} if case.call == "target" else {}
    return workbench.scan_weights(place, **target)


def _accused(tensors: Iterable[Any]) -> list[str]:
    """The names of matrices that are called at init, constant or invalid."""
    return [one.name for one in tensors if one.is_matrix and one.verdict in _ACCUSED]


def said(answer: Any) -> str:
    """Return all that a reader sees as a finding: summary, findings, notes, what is missing."""
    lines = [
        answer.summary,
        answer.verdict.sentence,
        *map(str, answer.verdict.missing),
        *map(str, getattr(answer, "notes", ())),
    ]
    for one in answer.findings:
        lines += [one.title, one.detail, *map(str, one.evidence_for)]
    return "\n".join(lines)


def outcome_of(case: UnseenCase, ok: Answer, text: str, accused: Iterable[str]) -> tuple[str, str]:
    """Return the outcome of an answer, and why it is not right."""
    wrongly = [name for name in accused if not (case.may and re.search(case.may, name))]
    if ok is False and False not in case.ok:
        return "wrong accusation", "ok is False"
    if wrongly:
        return "wrong accusation", f"calls {', '.join(wrongly[:3])}" + (
            f" and {len(wrongly) - 3} more" if len(wrongly) > 3 else ""
        )
    if found := [one for one in case.never if re.search(one, text, re.IGNORECASE)]:
        return "wrong accusation", f"says {found}"
    if ok is True and True not in case.ok:
        return "false all-clear", ""
    if lacking := [one for one in case.names if not re.search(one, text, re.IGNORECASE)]:
        return "unnamed", f"does not name {lacking}"
    if ok not in case.ok:
        return "abstained", ""
    return "right", ""
