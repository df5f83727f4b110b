"""What an analysis concludes: one finding, and the one change that would test it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
Confidence = Literal["certain", "likely", "possible", "unknown"]

SURE: dict[Confidence, str] = {
    "certain": "",
    "likely": "likely, not certain",
    "possible": "possible, not proved",
    "unknown": "how sure is not known",
}
"""How sure a verdict or a finding is, in words; nothing where it is certain."""

# The order in which findings are listed.
GRAVITY: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Experiment:
    """Exactly one change to try, and what each outcome would mean."""

    change: str
    if_right: str
    if_wrong: str
    cost: str = ""
    undo: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion, the evidence for and against it, how sure, and the one next step.

    ``code`` is in words with underscores, ``d2t_absolute``, for some jobs after the job and a dot:
    ``weights.at_init``.
    ``changes_output`` says whether the served model computes something else because of it: a
    finding that changes nothing never makes a result wrong.
    """

    code: str
    severity: Severity
    title: str
    detail: str = ""
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()
    confidence: Confidence = "certain"
    changes_output: bool = False
    next_step: str = ""
    experiment: Experiment | None = None
    place: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain lists, strings and booleans."""
        return dataclasses.asdict(self) | {
            "evidence_for": list(self.evidence_for),
            "evidence_against": list(self.evidence_against),
        }
