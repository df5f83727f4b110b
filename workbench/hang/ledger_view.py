"""A `LaunchLedger` as text, and as the data of its interactive view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.core.saving import strict
from workbench.display import text as lines
from workbench.hang import words

if TYPE_CHECKING:
    from workbench.evidence.launches import Launch
    from workbench.hang.launch_differences import Change, Differences
    from workbench.hang.ledger import LaunchLedger

SHOWN = 40  # launches that the text lists, the last ones
STATES = {
    "served": "ok",
    "hung": "wrong",
    "crashed": "wrong",
    "stopped": "quiet",
    "unknown": "unsure",
}


def text(ledger: LaunchLedger, width: int | None = None) -> str:
    """Return the ledger as text: the verdict, each launch with what it changed, the findings."""
    page = lines.Page(width)
    page.verdict(ledger.ok, ledger.summary)
    page.prose(ledger.source)
    for note in ledger.notes:
        page.prose(note, "  note: ")
    if ledger.launches:
        page.heading("Launches")
    told = list(zip(ledger.launches, ledger.steps, strict=True))
    if len(told) > SHOWN:
        page.prose(f"{len(told) - SHOWN} earlier launches are left out here (to_html shows all)")
    for at, (launch, step) in list(enumerate(told, 1))[-SHOWN:]:
        page.group(STATES[launch.outcome], f"{at} {launch.name}", outcome(launch))
        if launch.change:
            page.prose(launch.change, "      tries: ")
        _step(page, step)
    if ledger.findings:
        page.heading("What follows")
        for item in ledger.findings:
            page.finding(item)
    return str(page)


def _step(page: lines.Page, step: Differences | None) -> None:
    if step is None:
        return
    if not step.changed and not step.unsure:
        page.prose(f"the same launch as {step.first}", "      ")
    for change in step.changed:
        page.prose(f"{change.text}{f' ({change.why})' if change.why else ''}", "      changed: ")
    for change in step.unsure:
        page.prose(change.text, "      perhaps: ")
    if step.harmless:
        names = ", ".join(change.text.split(":", 1)[0] for change in step.harmless)
        page.prose(names, "      no effect: ")


def outcome(launch: Launch) -> str:
    """Return what came of a launch, and after how long."""
    if launch.ready_after is None:
        return launch.outcome
    return f"{launch.outcome} after {words.duration(launch.ready_after)}"


def payload(ledger: LaunchLedger, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view; with a `limit`, of the last launches only."""
    size = 2000  # bytes that one launch takes at most, compressed, as a rule
    kept = len(ledger.launches) if limit is None else max(1, limit // size)
    told = list(zip(ledger.launches, ledger.steps, ledger.configurations, strict=True))
    shown = list(enumerate(told, 1))[-kept:]
    data: dict[str, Any] = {
        "schema": ledger.schema,
        "title": ledger.title,
        "verdict": {"ok": ledger.ok, "line": ledger.summary},
        "facts": [["Ledger", ledger.source], *(["Note", note] for note in ledger.notes)],
        "findings": [finding.to_dict() for finding in ledger.findings],
        "launches": [_launch(at, *each) for at, each in shown],
        "left_out": len(told) - len(shown),
        "preview": _preview(ledger),
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
    told: tuple[Change, ...] = getattr(step, sort) if step else ()
    return [[c.kind, c.name, c.before, c.after, c.why] for c in told]


def _preview(ledger: LaunchLedger) -> list[dict[str, Any]]:
    rows: list[list[Any]] = []
    for launch, step in list(zip(ledger.launches, ledger.steps, strict=True))[-SHOWN:]:
        changed = "; ".join(change.text for change in step.changed) if step else ""
        same = f"the same as {step.first}" if step else ""
        said = {"state": STATES[launch.outcome], "text": outcome(launch)}
        rows.append([said, launch.name, changed or same])
    if not rows:
        return []
    return [{"kind": "table", "head": ["Outcome", "Launch", "Changed"], "rows": rows}]
