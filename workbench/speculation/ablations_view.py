"""`Ablations` as text, and as the data of its picture."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

from workbench.core.saving import strict
from workbench.display import text as lines
from workbench.speculation.ablations import Ablations
from workbench.speculation.lifts import Lift

_BAR = 16
_SHOWN = 12  # changes that the text lists


def text(result: Ablations, width: int | None = None) -> str:
    """Return verdict, table and findings for a terminal."""
    page = lines.Page(width)
    page.verdict(result.ok, result.summary)
    page.prose(f"draft {result.source}" + (f", {result.engine}" if result.engine else ""), "  ")
    if result.expected is not None:
        page.prose(
            f"expected {result.expected.accept_length:.2f} by {result.expected.source}", "  "
        )
    if result.verdict.missing:
        page.prose(result.verdict.missing, "  missing: ")
    for note in result.notes:
        page.prose(note, "  note: ")
    page.heading("One change at a time")
    for lift in (result.served, *result.lifts[:_SHOWN]):
        _line(page, result, lift)
    if len(result.lifts) > _SHOWN:
        page.prose(f"… and {len(result.lifts) - _SHOWN} more, none better", "    ")
    if result.idle:
        page.prose("changes nothing here: " + ", ".join(result.idle), "  ")
    if result.pairs:
        page.heading("Two changes together")
        for lift in result.pairs:
            _line(page, result, lift)
    if result.findings:
        page.heading("Findings")
        for item in result.findings:
            page.finding(item)
    return str(page)


def _line(page: lines.Page, result: Ablations, lift: Lift) -> None:
    shown = "" if lift.restored is None else f"{max(min(lift.restored, 9.99), -9.99):.0%}"
    page.group(
        _state(result, lift), lift.name or "as served", _bar(result, lift, page.unicode),
        f"{lift.accept_length:.2f}", f"{shown:>5}",
    )  # fmt: skip
    positions = " ".join(f"{value:.2f}" for value in lift.per_position)
    low, high = lift.interval
    few = "" if lift.confirmed else f", first look at {lift.requests} requests"
    page.prose(f"{low:.2f} to {high:.2f}, by position {positions}{few}", "      ")


def _state(result: Ablations, lift: Lift) -> str:
    """Return which sign stands before a change."""
    if not lift.switches:
        return "ok" if result.ok is True else "wrong"
    return "ok" if lift.switches == result.verdict.switches else "quiet"


def _bar(result: Ablations, lift: Lift, unicode: bool) -> str:
    """Return a bar from 1 to what is expected, or to the best."""
    top = result.expected.accept_length if result.expected else 0.0
    top = max([top, result.served.accept_length, *(one.accept_length for one in result.lifts)])
    share = (lift.accept_length - 1) / (top - 1) if top > 1 else 0.0
    if not math.isfinite(share):
        share = 0.0
    filled = round(_BAR * min(max(share, 0.0), 1.0))
    full, empty = ("█", "·") if unicode else ("#", ".")
    return full * filled + empty * (_BAR - filled)


def payload(result: Ablations, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the picture, as strict JSON: one bar a change, with interval and profile.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take; the changes that restore least go first.
    """
    data: dict[str, Any] = {
        "schema": result.schema,
        "title": result.title,
        "verdict": {"ok": result.ok, "line": result.summary, "state": result.verdict.state},
        "facts": [
            ["Draft", result.source],
            *([["Engine", result.engine]] if result.engine else []),
            ["Counted", "every place" if result.counted == "places" else "the engine's rounds"],
            *([["Expected", result.expected.source]] if result.expected else []),
            *([["Missing", result.verdict.missing]] if result.verdict.missing else []),
            *(["Note", note] for note in result.notes),
        ],
        "expected": None
        if result.expected is None
        else {
            "accept_length": result.expected.accept_length,
            "per_position": list(result.expected.per_position),
        },
        "preview": _preview(result),
        "bars": [_bar_data(result, lift) for lift in (result.served, *result.lifts, *result.pairs)],
        "idle": list(result.idle),
        "entropy": [result.entropy, result.largest_entropy],
        "findings": [finding.to_dict() for finding in result.findings],
        "left_out": 0,
    }
    data = strict(data)
    bars = data["bars"]
    spare = sorted(
        (bar for bar in bars[1:] if not bar["cause"]), key=lambda bar: bar["accept_length"] or 0.0
    )
    while limit and spare and len(gzip.compress(json.dumps(data).encode())) > limit:
        bars.remove(spare.pop(0))
        data["left_out"] += 1
    return data


def _bar_data(result: Ablations, lift: Lift) -> dict[str, Any]:
    return {
        "name": lift.name or "as served",
        "fact": " + ".join(lift.facts),
        "words": lift.words,
        "accept_length": lift.accept_length,
        "interval": list(lift.interval),
        "restored": lift.restored,
        "restored_interval": None
        if lift.restored_interval is None
        else list(lift.restored_interval),
        "per_position": list(lift.per_position),
        "profile": lift.profile,
        "rank": lift.rank,
        "confirmed": lift.confirmed,
        "requests": lift.requests,
        "rounds": lift.rounds,
        "same": list(lift.same),
        "cause": bool(lift.switches) and lift.switches == result.verdict.switches,
    }


def _preview(result: Ablations) -> list[dict[str, Any]]:
    """Return what is left of the picture where no script runs: a table of the changes."""
    served = [_preview_row(result, result.served)]
    blocks = _preview_table(
        "One change at a time",
        served + [_preview_row(result, lift) for lift in result.lifts[:_SHOWN]],
    )
    left, expected = len(result.lifts) - _SHOWN, result.expected
    said = [
        *([f"Expected: {expected.accept_length:.2f} tokens a round."] if expected else []),
        *([f"… and {lines.plural(left, 'more change')}, none better."] if left > 0 else []),
        *([f"Without effect here: {', '.join(result.idle)}."] if result.idle else []),
    ]
    if said:
        blocks.append({"kind": "text", "text": " ".join(said)})
    if result.pairs:
        pairs = [_preview_row(result, lift) for lift in result.pairs]
        blocks += _preview_table("Two changes together", pairs)
    return blocks


def _preview_table(heading: str, rows: list[list[Any]]) -> list[dict[str, Any]]:
    head = ["Change", "Accept length before", "After", "Restored", "95 % of samples", "By position"]
    return [
        {"kind": "heading", "text": heading},
        {"kind": "table", "head": head, "rows": rows},
    ]


def _preview_row(result: Ablations, lift: Lift) -> list[Any]:
    """Return a change's cells; the first look at few requests is compared with what those accepted."""
    span = ""
    if lift.restored_interval is not None:
        low, high = lift.restored_interval
        span = f"{low:.0%} to {high:.0%}"
    return [
        {"state": _state(result, lift), "text": lift.name or "as served"},
        f"{lift.accept_length - lift.lift:.2f}",
        f"{lift.accept_length:.2f}" if lift.switches else "",
        "" if lift.restored is None else f"{lift.restored:.0%}",
        span,
        " ".join(f"{value:.2f}" for value in lift.per_position),
    ]
