"""`Ablations`, laid out, and the data of their picture."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from workbench.core.saving import strict
from workbench.speculation.ablate.ablations import Ablations
from workbench.speculation.ablate.lifts import Lift
from workbench.views.parts import Document, Findings, Group, Groups, Heading, Part, Prose, head
from workbench.views.parts import document as lay_out

_SHOWN = 12  # changes that text and static HTML list


def document(result: Ablations) -> Document:
    """Return the ablations as a document: what each change restores, then the findings."""
    expected = result.expected
    facts = [
        ("Draft", result.source),
        *([("Engine", result.engine.replace("==", " "))] if result.engine else []),
        *([("Expected", f"{expected.accept_length:.2f} by {expected.source}")] if expected else []),
        ("Counted", "every place" if result.counted == "places" else "the engine's rounds"),
    ]
    body = [*_changes(result)]
    if result.findings:
        body.append(Findings(result.findings))
    return lay_out(result, facts, body, next_step=result.cause.next_step, notes=result.notes)


def _changes(result: Ablations) -> Iterator[Part]:
    yield Heading("One change at a time")
    changes = (result.served, *result.lifts)
    rows = tuple(_group(result, lift) for lift in changes)
    yield Groups(rows, shown=1 + _SHOWN, noun="change")
    if result.idle:
        yield Prose(", ".join(result.idle), "no effect here: ")
    if result.pairs:
        yield Heading("Two changes together")
        yield Groups(tuple(_group(result, lift) for lift in result.pairs), noun="pair")


def _group(result: Ablations, lift: Lift) -> Group:
    whole = result.cause.state == "healthy"  # what nothing is missing of cannot be restored
    known = lift.restored is not None and not whole
    restored = f"{_bounded(lift.restored or 0.0):.0%} restored" if known else ""
    shares = " ".join(f"{value:.2f}" for value in lift.per_position)
    low, high = lift.interval
    few = "" if lift.confirmed else f", first pass over {lift.requests} requests"
    line = f"{low:.2f} to {high:.2f} in 95 % of samples, by position {shares}{few}"
    name = lift.name or "as served"
    return Group(_state(result, lift), name, (f"{lift.accept_length:.2f}", restored), (("", line),))


def _bounded(share: float) -> float:
    return max(min(share, 9.99), -9.99)


def _state(result: Ablations, lift: Lift) -> str:
    """Return which sign a change has."""
    if not lift.switches:
        return {True: "ok", False: "wrong", None: "unsure"}[result.ok]
    return "ok" if lift.switches == result.cause.switches else "tried"


def payload(result: Ablations, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the picture, as strict JSON: one bar a change, with interval and profile.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take; the changes that restore least go first.
    """
    expected = result.expected
    data: dict[str, Any] = head(document(result)) | {
        "expected": None
        if expected is None
        else {
            "accept_length": expected.accept_length,
            "per_position": list(expected.per_position),
        },
        "bars": [_bar(result, lift) for lift in (result.served, *result.lifts, *result.pairs)],
        "idle": list(result.idle),
        "entropy": [result.entropy, result.largest_entropy],
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


def _bar(result: Ablations, lift: Lift) -> dict[str, Any]:
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
        "cause": bool(lift.switches) and lift.switches == result.cause.switches,
    }
