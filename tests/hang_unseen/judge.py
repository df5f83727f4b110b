"""How one answer agrees with one unseen case. Strict: all that is expected, or it is not right."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import workbench
from workbench.errors import WorkbenchError

from .build import write_evidence
from .case import UnseenCase

_WELL = frozenset({"idle", "serving"})
_ACCUSING = frozenset({"hung", "crashed", "dead_rank", "stopped"})
# From worst to best; an answer has the first that holds.
OUTCOMES = (
    "wrong accusation",
    "false all-clear",
    "error",
    "wrong state",
    "wrong detail",
    "abstained",
    "right",
)


@dataclasses.dataclass(frozen=True)
class Judged:
    """The outcome of one case: what was answered, and why it is not right."""

    case: UnseenCase
    outcome: str
    answer: str
    fault: str = ""


def judge(case: UnseenCase) -> Judged:
    """Ask `workbench.open_evidence` about a case and judge the answer."""
    with tempfile.TemporaryDirectory() as name:
        write_evidence(case, Path(name))
        try:
            got = workbench.open_evidence(name)
        except WorkbenchError as error:
            return Judged(case, "error", "refused", str(error).splitlines()[0])
        except Exception as error:
            return Judged(case, "error", "crash", f"{type(error).__name__}: {error}")
    named = tuple(sorted({*got.odd_ranks, *got.missing_ranks}))
    texts = [got.verdict.sentence, *(one.title for one in got.findings)]
    change = got.experiment.change
    outcome, fault = _outcome(case, got.state, got.phase, named, got.ok, texts, change)
    answer = f"{got.state}, {got.phase}" + (f", names {list(named)}" if named else "")
    return Judged(case, outcome, answer, fault)


def _outcome(
    case: UnseenCase,
    state: str,
    phase: str,
    named: tuple[int, ...],
    ok: bool | None,
    texts: Iterable[str],
    change: str,
) -> tuple[str, str]:
    want = case.expected
    wrongly = sorted(set(named) - set(want.may))
    if wrongly:
        return "wrong accusation", f"names {wrongly}"
    if not case.sick and state in _ACCUSING and state not in want.states:
        return "wrong accusation", f"says {state} of a server that is {case.kind}"
    well = state in _WELL and state not in want.states
    if (case.sick and (well or ok)) or (want.not_exit_0 and ok):
        return "false all-clear", f"says {state} of a server that is {case.kind}"
    if state not in want.states:
        abstains = state == "cannot_tell"
        return ("abstained", "") if abstains else ("wrong state", f"not in {list(want.states)}")
    if state == "cannot_tell" and len(want.states) > 1 and want.must:
        return "abstained", ""
    faults = list(_details(case, phase, named, "\n".join(texts), change, state))
    return ("wrong detail", "; ".join(faults)) if faults else ("right", "")


def _details(
    case: UnseenCase, phase: str, named: tuple[int, ...], text: str, change: str, state: str
) -> Iterable[str]:
    want = case.expected
    if missing := sorted(set(want.must) - set(named)):
        yield f"does not name {missing}"
    if want.phases and phase not in want.phases:
        yield f"phase {phase}"
    found = [one for one in want.not_says if re.search(one, text, re.IGNORECASE | re.MULTILINE)]
    if found:
        yield f"says {found}"
    if want.says and not any(re.search(one, text, re.IGNORECASE) for one in want.says):
        yield f"does not say {list(want.says)}"
    if state == "cannot_tell":  # its next step is the missing evidence
        return
    if want.next and not any(re.search(one, change, re.IGNORECASE) for one in want.next):
        yield f"next: {change[:60]}"
    if found := [one for one in want.next_not if re.search(one, change, re.IGNORECASE)]:
        yield f"next has {found}"
