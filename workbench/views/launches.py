"""A `LaunchLedger`, laid out, and the data of its interactive view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.core.saving import strict
from workbench.evidence.launches import Launch
from workbench.hang.judge import wording
from workbench.hang.ledger.differences import Change, Differences
from workbench.hang.ledger.ledger import LaunchLedger
from workbench.views.parts import Document, Findings, Group, Groups, Heading, Part, Prose, head
from workbench.views.parts import document as lay_out

SHOWN = 40  # launches that text and static HTML list, the last ones
_SIZE = 2000  # bytes that one launch takes at most, compressed, as a rule
STATES = {
    "served": "ok",
    "hung": "wrong",
    "crashed": "wrong",
    "stopped": "quiet",
    "unknown": "unsure",
}


def document(ledger: LaunchLedger) -> Document:
    """Return the ledger as a document: each launch with what it changed, then the findings."""
    body = (
        *_launches(ledger),
        *([Findings(ledger.findings, "What follows")] if ledger.findings else []),
    )
    return lay_out(ledger, [("Ledger", ledger.source)], body, notes=ledger.notes)


def _launches(ledger: LaunchLedger) -> Iterator[Part]:
    if not ledger.launches:
        return
    yield Heading("Launches")
    numbered = list(enumerate(zip(ledger.launches, ledger.steps, strict=True), 1))
    if len(numbered) > SHOWN:
        left = len(numbered) - SHOWN
        yield Prose(f"{left} earlier launches are not listed here (to_html shows all)")
    rows = (_row(at, *each) for at, each in numbered[-SHOWN:])
    yield Groups(tuple(rows), noun="launch")


def _row(at: int, launch: Launch, step: Differences | None) -> Group:
    details = [("tries: ", launch.change)] if launch.change else []
    details += _step(step) if step else []
    state = STATES[launch.outcome]
    return Group(state, f"{at} {launch.name}", (outcome(launch),), tuple(details))


def _step(step: Differences) -> list[tuple[str, str]]:
    if not step.changed and not step.unsure:
        details = [("", f"the same launch as {step.first}")]
    else:
        details = [("changed: ", _with_reason(change)) for change in step.changed]
        details += [("perhaps: ", change.text) for change in step.unsure]
    names = ", ".join(change.text.split(":", 1)[0] for change in step.harmless)
    return [*details, *([("no effect: ", names)] if names else [])]


def _with_reason(change: Change) -> str:
    return f"{change.text} ({change.why})" if change.why else change.text


def outcome(launch: Launch) -> str:
    """Return what came of a launch, and after how long."""
    if launch.ready_after is None:
        return launch.outcome
    return f"{launch.outcome} after {wording.duration(launch.ready_after)}"


def payload(ledger: LaunchLedger, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view; with a `limit`, of the last launches only."""
    kept = len(ledger.launches) if limit is None else max(1, limit // _SIZE)
    every = list(zip(ledger.launches, ledger.steps, ledger.configurations, strict=True))
    shown = list(enumerate(every, 1))[-kept:]
    data: dict[str, Any] = head(document(ledger)) | {
        "launches": [_launch(at, *each) for at, each in shown],
        "left_out": len(every) - len(shown),
    }
    return {key: strict(value) for key, value in data.items()}


def _launch(
    at: int, launch: Launch, step: Differences | None, configuration: int
) -> dict[str, Any]:
    return {
        "number": at,
        "name": launch.name,
        "state": STATES[launch.outcome],
        "outcome": outcome(launch),
        "configuration": configuration,
        "started": launch.started,
        "log": launch.log,
        "command": " ".join(launch.command),
        "environment": [f"{name}={value}" for name, value in launch.environment.items()],
        "hypothesis": launch.hypothesis,
        "change": launch.change,
        "if_right": launch.if_right,
        "if_wrong": launch.if_wrong,
        "against": step.first if step else "",
        **{name: _changes(step, name) for name in ("changed", "unsure", "harmless")},
        "note": launch.note,
    }


def _changes(step: Differences | None, sort: str) -> list[list[str]]:
    changes: tuple[Change, ...] = getattr(step, sort) if step else ()
    return [[c.kind, c.name, c.before, c.after, c.why] for c in changes]
