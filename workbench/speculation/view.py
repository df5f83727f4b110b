"""A `Replay` as one screen of text, and as the data of its interactive view."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.saving import strict
from workbench.display import text as lines
from workbench.errors import WorkbenchError
from workbench.speculation import player

if TYPE_CHECKING:
    from workbench.speculation.kept import Kept
    from workbench.speculation.result import Replay

_BAR = 24


def text(replay: Replay, width: int | None = None) -> str:
    """Return the replay as one screen: verdict, acceptance by position, findings, the first rejection."""
    page = lines.Page(width)
    page.verdict(replay.ok, replay.summary)
    page.prose(f"target {replay.target}; draft {replay.draft}")
    page.prose(setting(replay))
    for note in replay.notes:
        page.prose(note, "  note: ")
    if replay.ok is not True and replay.findings and replay.findings[0].next_step:
        page.prose(replay.findings[0].next_step, "  next: ")
    elif replay.ok is None and replay.total:
        page.prose("ablate() changes one thing at a time (--ablate)", "  next: ")
    _acceptance(page, replay)
    if replay.findings:
        page.heading("Findings")
        for item in replay.findings:
            page.finding(item)
    row = first_rejection(replay)
    if row is not None:
        page.out.append("")
        page.add(replay.show(row, page.width).split("\n"))
    return str(page)


def first_rejection(replay: Replay) -> int | None:
    """Return the first round that rejects a draft, of those that a saved result holds too."""
    row = replay.next_rejection()
    return row if replay.kept is not None and row is not None and row < replay.kept.saved else None


def setting(replay: Replay) -> str:
    """Return in words how it was replayed."""
    engine = replay.engine.replace("==", " ") or "as its trainer means it"
    launched = f", launched as {replay.algorithm}" if replay.engine and replay.algorithm else ""
    tree = f"{lines.plural(replay.steps, 'step')}, topk {replay.topk}, {replay.draft_tokens} draft tokens"
    rounds = f"; {lines.plural(replay.total, 'round')}" if replay.total else ""
    return f"{engine}{launched}; {tree}{rounds}"


def _acceptance(page: lines.Page, replay: Replay) -> None:
    seen = replay.observed or replay.replayed
    if seen is None and replay.logged is None:
        return
    page.heading("Acceptance")
    rows = lengths(replay)
    wide = max(len(name) for name, *_ in rows)
    for name, length, said in rows:
        page.prose(said, f"  {name.ljust(wide)}  {length}  ")
    printed = printed_line(replay)
    if printed:
        page.prose(printed, f"  {replay.engine.replace('==', ' ')} prints ")
    table = positions(replay)
    if table:
        page.out.append("")
        full, empty = ("█", "░") if page.unicode else ("#", ".")
        long = _BAR if page.width >= 2 * _BAR + 24 else _BAR // 3
        for position, replayed, observed, wanted in table:
            value = observed if observed is not None else replayed or 0.0
            bar = full * round(value * long) + empty * (long - round(value * long))
            cells = [
                f"{name} {share:.0%}"
                for name, share in (
                    ("replay", replayed),
                    ("engine", observed),
                    ("expected", wanted),
                )
                if share is not None
            ]
            page.prose(", ".join(cells), f"  {position}  {bar}  ")


def lengths(replay: Replay) -> list[tuple[str, str, str]]:
    """Return each accept length that is known, as text, with where it comes from."""
    out: list[tuple[str, str, str]] = []

    def add(name: str, value: float | None, said: str) -> None:
        out.append((name, "?" if value is None else f"{value:.2f}", said))

    if replay.replayed is not None:
        add("replayed", replay.replayed.accept_length, f"{replay.replayed.rounds:,} rounds")
    if replay.observed is not None:
        add("engine", replay.observed.accept_length, f"{replay.observed.rounds:,} rounds")
    if replay.logged is not None:
        rate = replay.logged.accept_rate
        said = f"{replay.logged.lines:,} lines" + (
            "" if rate is None else f", accept rate {rate:.2f}"
        )
        add("its log", replay.logged.accept_length, said)
    if replay.expected is not None:
        add("expected", replay.expected.accept_length, replay.expected.source)
    if replay.fills:
        low, high = min(replay.fills.values()), max(replay.fills.values())
        span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}–{high:.2f}"
        out.append(("unwritten memory", span, f"with {', '.join(replay.fills)} in it"))
    return out


def printed_line(replay: Replay) -> str:
    """Return what the replayed version would print for the engine's rounds, "" where that is not known."""
    if not replay.engine or (replay.replayed or replay.observed) is None:
        return ""
    try:
        return str(replay.accept_rate(observed=replay.observed is not None))
    except WorkbenchError:
        return ""


def positions(replay: Replay) -> list[tuple[int, float | None, float | None, float | None]]:
    """Return for each position the shares accepted: replayed, by the engine, expected."""
    columns = [
        tally.per_position(replay.steps) if tally else ()
        for tally in (replay.replayed, replay.observed)
    ]
    columns.append(replay.expected.per_position if replay.expected else ())
    deepest = max(len(columns[0]), len(columns[1]))

    def at(column: tuple[float, ...], k: int) -> float | None:
        return column[k] if k < len(column) else None

    return [
        (k + 1, at(columns[0], k), at(columns[1], k), at(columns[2], k)) for k in range(deepest)
    ]


def payload(replay: Replay, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, fewer rounds are in it;
        ``left_out`` says how many are not.
    """
    kept = replay.kept.bounded() if replay.kept else None
    while True:
        data: dict[str, Any] = strict(_data(replay, kept))
        if limit is None or kept is None or len(kept) <= 1:
            return data
        if len(gzip.compress(json.dumps(data).encode(), 6)) <= limit:
            return data
        kept = kept.first(len(kept) // 2)


def _data(replay: Replay, kept: Kept | None) -> dict[str, Any]:
    return {
        "schema": replay.schema,
        "title": replay.title,
        "verdict": {"ok": replay.ok, "line": replay.summary},
        "facts": _facts(replay),
        "findings": [finding.to_dict() for finding in replay.findings],
        "preview": _preview(replay),
        "steps": replay.steps,
        "topk": replay.topk,
        "lengths": [list(row) for row in lengths(replay)],
        "printed": printed_line(replay),
        "positions": [list(row) for row in positions(replay)],
        "expected": dataclasses.asdict(replay.expected) if replay.expected else None,
        "course": [list(pair) for pair in replay.course],
        "stops": player.STOPS,
        "left_out": replay.total - (len(kept) if kept else 0),
        "total": replay.total,
        **(_rounds(kept) if kept else {"rounds": [], "requests": [], "words": {}}),
    }


def _facts(replay: Replay) -> list[list[str]]:
    return [
        ["Draft", replay.draft],
        ["Target", replay.target],
        *([["Evidence", replay.evidence]] if replay.evidence else []),
        ["Replayed", setting(replay)],
        *(["Note", note] for note in replay.notes),
    ]


def _rounds(kept: Kept) -> dict[str, Any]:
    """Return the rounds as flat lists, token ids instead of words, thousandths instead of shares."""
    c = kept.columns
    nodes = kept.choices.shape[1] - 1
    rounds = []
    for row in range(len(kept)):
        seen = int(c.observed[row])
        margins = c.margins[row][: int(c.accepted[row]) + 1]
        margins = margins[~np.isnan(margins)]
        rounds.append(
            [
                int(c.request[row]),
                int(c.index[row]),
                int(c.prefix[row]),
                int(c.bonus[row]),
                seen,
                round(float(margins.min()), 3) if len(margins) else None,
                kept.columns.round(row).stop,
                [_node(kept, row, n) for n in range(nodes)],
                [_top(kept, row, place) for place in range(nodes + 1)],
                c.wanted[row, : max(seen, 0)].tolist(),
            ]
        )
    return {
        "rounds": rounds,
        "requests": [[r.name, list(r.tokens), r.prompt] for r in kept.requests],
        "words": {str(token): word for token, word in kept.words.items()},
    }


def _node(kept: Kept, row: int, n: int) -> list[int]:
    """Return token, parent, depth, probability in thousandths, accepted, rank."""
    c = kept.columns
    share = float(c.probabilities[row, n])
    on = c.parents[row, n] < 0 or bool(c.taken[row, c.parents[row, n]])
    return [
        int(c.tokens[row, n]),
        int(c.parents[row, n]),
        int(c.depths[row, n]),
        -1 if math.isnan(share) else round(1000 * share),
        int(c.taken[row, n]),
        int(c.ranks[row, n]) if on else 0,
    ]


def _top(kept: Kept, row: int, place: int) -> list[int]:
    """Return the target's choices at a place, token and thousandths in turn."""
    flat: list[int] = []
    for token, share in kept.top(row, place):
        flat += [token, -1 if math.isnan(share) else round(1000 * share)]
    return flat


def _preview(replay: Replay) -> list[dict[str, Any]]:
    """Return what is left where no script runs: the lengths, the positions, some rounds."""
    blocks: list[dict[str, Any]] = []
    rows = [list(row) for row in lengths(replay)]
    if rows:
        blocks += [
            {"kind": "heading", "text": "Acceptance"},
            {"kind": "table", "head": ["", "Accept length", ""], "rows": rows},
        ]
    table = [
        [str(k), *("" if v is None else f"{v:.1%}" for v in shares)]
        for k, *shares in positions(replay)
    ]
    if table:
        head = ["Position", "Replay", "Engine", "Expected"]
        blocks.append({"kind": "table", "head": head, "rows": table})
    row = first_rejection(replay)
    if row is not None:
        told = replay.show(row, 100)
        blocks += [
            {"kind": "heading", "text": "The first rejection"},
            {"kind": "code", "text": told},
        ]
    return blocks
