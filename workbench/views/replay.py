"""A `Replay`, laid out, and the data of its interactive view."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from workbench.core.saving import strict
from workbench.core.wording import plural
from workbench.errors import WorkbenchError, shorten
from workbench.speculation.result import Replay
from workbench.speculation.rounds import player
from workbench.speculation.rounds.beside import Beside
from workbench.speculation.rounds.records import Round
from workbench.speculation.rounds.round_columns import RoundColumns
from workbench.views.parts import (
    Bar,
    Branch,
    Cell,
    Document,
    Facts,
    Findings,
    Heading,
    Outline,
    Part,
    Prose,
    Table,
    head,
)
from workbench.views.parts import document as lay_out

_BEFORE = 240  # characters of the text so far
_NODES = 40  # nodes of a tree that are listed, each with the target's choices
_ABLATE = "Run ablate(): it changes one thing at a time (--ablate)."


def document(replay: Replay) -> Document:
    """Return the replay as a document: the acceptance, the findings, the first rejection."""
    facts = [
        ("Target", replay.target),
        ("Draft", replay.draft),
        *([("Evidence", replay.evidence)] if replay.evidence else []),
        ("Replayed", setting(replay)),
    ]
    body = [*_acceptance(replay)]
    if replay.findings:
        body.append(Findings(replay.findings))
    row = first_rejection(replay)
    if row is not None:
        body += [Heading(f"The first rejection: {_which(replay, row)}"), *_round(replay, row)]
    known = replay.findings and replay.findings[0].next_step
    next_step = _ABLATE if replay.ok is None and replay.total and not known else ""
    return lay_out(replay, facts, body, next_step=next_step, notes=replay.notes)


def first_rejection(replay: Replay) -> int | None:
    """Return the first round that rejects a draft, of those that a saved result holds too."""
    row = replay.next_rejection()
    return row if replay.kept is not None and row is not None and row < replay.kept.saved else None


def setting(replay: Replay) -> str:
    """Return in words how it was replayed."""
    engine = replay.engine.replace("==", " ") or "as its trainer means it"
    launched = f", launched as {replay.algorithm}" if replay.engine and replay.algorithm else ""
    tree = f"{plural(replay.steps, 'step')}, topk {replay.topk}, {replay.draft_tokens} draft tokens"
    rounds = f"; {plural(replay.total, 'round')}" if replay.total else ""
    return f"{engine}{launched}; {tree}{rounds}"


def _acceptance(replay: Replay) -> Iterator[Part]:
    rows = [(name, f"{length} ({why})" if why else length) for name, length, why in lengths(replay)]
    if not rows:
        return
    yield Heading("Acceptance length")
    printed = printed_line(replay)
    if printed:
        rows.append((f"{replay.engine.replace('==', ' ')} prints", printed))
    yield Facts(tuple(rows))
    table = positions(replay)
    if not table:
        return
    names = ("Replay", "Engine", "Expected")
    used = [at for at in range(3) if any(row[at + 1] is not None for row in table)]
    yield Prose("share of rounds that accept at least so many drafts", "by position: ")
    yield Table(
        ("Position", "", *(names[at] for at in used)),
        tuple(_position(row, used) for row in table),
        noun="position",
    )


def _position(
    row: tuple[int, float | None, float | None, float | None], used: list[int]
) -> tuple[Cell, ...]:
    position, replayed, observed, _ = row
    shares = [row[at + 1] for at in used]
    value = observed if observed is not None else replayed or 0.0
    return (
        str(position),
        Bar(0.0, value),
        *("" if share is None else f"{share:.1%}" for share in shares),
    )


def lengths(replay: Replay) -> list[tuple[str, str, str]]:
    """Return each acceptance length that is known, as text, with where it comes from."""
    out: list[tuple[str, str, str]] = []

    def known(name: str, value: float | None, where: str) -> None:
        out.append((name, "?" if value is None else f"{value:.2f}", where))

    if replay.replayed is not None:
        known("replayed", replay.replayed.accept_length, plural(replay.replayed.rounds, "round"))
    if replay.observed is not None:
        known("engine", replay.observed.accept_length, plural(replay.observed.rounds, "round"))
    if replay.logged is not None:
        rate = replay.logged.accept_rate
        where = plural(replay.logged.lines, "line")
        known(
            "its log",
            replay.logged.accept_length,
            where if rate is None else f"{where}, accept rate {rate:.2f}",
        )
    if replay.expected is not None:
        known("expected", replay.expected.accept_length, replay.expected.source)
    if replay.fills:
        low, high = min(replay.fills.values()), max(replay.fills.values())
        span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}–{high:.2f}"
        out.append(("uninitialised memory", span, f"with {', '.join(replay.fills)} in it"))
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


# One round


def round_parts(replay: Replay, row: int) -> tuple[Part, ...]:
    """Return one round, laid out.

    Raises
    ------
    WorkbenchError
        There is no such round.
    """
    kept = replay.kept
    if kept is None or not -len(kept) <= row < len(kept):
        raise WorkbenchError(
            f"there is no round {row}",
            why=f"{len(kept) if kept else 0} rounds are kept",
            next_step="Ask for show(0), or for show(replay.next_rejection()).",
        )
    row %= len(kept)
    return (Heading(_which(replay, row).capitalize()), *_round(replay, row))


def _which(replay: Replay, row: int) -> str:
    return f"round {row + 1:,} of {replay.total:,}"


def _round(replay: Replay, row: int) -> Iterator[Part]:
    """Yield one round: the text before it, what it accepted, its tree, and why it stopped."""
    kept = replay.kept
    assert kept is not None
    item, words = kept.round(row), kept.words
    asked = kept.requests[item.request]
    yield Prose(f"{shorten(asked.name, 60)}, its round {item.index + 1}", "request: ")
    before = player.tokens_as_text(asked.tokens[: item.prefix], words)
    cut = f"…{before[-_BEFORE:]}" if len(before) > _BEFORE else before
    yield Prose(player.quoted(cut), "so far: ")
    accepted = " ".join(player.quoted(player.word(t, words)) for t in item.accepted)
    yield Prose(accepted or "nothing", "accepted: ")
    bonus = "unknown" if item.bonus is None else player.quoted(player.word(item.bonus, words))
    yield Prose(bonus, "then: ")
    if item.observed is not None:
        same = item.observed == (*item.accepted, item.bonus)
        count = f"{plural(len(item.observed) - 1, 'draft')} accepted"
        yield Prose(count + (", the same" if same else ", not the same"), "engine: ")
    yield Outline(tuple(_tree(item, kept)), shown=2 * _NODES)
    yield Prose(player.why_it_stopped(item), "stop: ")
    yield from _beside(kept, row)


def _beside(kept: RoundColumns, row: int) -> Iterator[Part]:
    """Yield what a changed draft would have said in this round."""
    if kept.beside is None:
        return
    accepted = int(kept.beside.accepted[row])
    drafts = kept.beside.drafts(row)
    yield Prose(f"{kept.beside.words}: {accepted} of {len(drafts)} accepted", "changed: ")
    yield Outline(
        tuple(
            Branch(
                "accepted" if depth < accepted else "rejected" if depth == accepted else "", depth,
                f"{player.quoted(player.word(token, kept.words))} {player.percent(share)}",
            )
            for depth, (token, share) in enumerate(drafts)
        )
    )  # fmt: skip


def _tree(item: Round, kept: RoundColumns) -> Iterator[Branch]:
    """Yield a line for each node, children under their parents, and what the target chose at its place."""
    children: dict[int, list[int]] = {}
    for number, node in enumerate(item.nodes):
        children.setdefault(node.parent, []).append(number)
    todo = [*reversed(children.get(-1, []))]
    while todo:
        number = todo.pop()
        node = item.nodes[number]
        todo += reversed(children.get(number, []))
        fell = "" if node.reason == "parent rejected" else "rejected"
        token = f"{player.quoted(player.word(node.token, kept.words))} {player.percent(node.probability)}"
        why = "" if node.accepted else f"  {player.reason(node, kept.words)}"
        depth = node.depth - 1
        yield Branch("accepted" if node.accepted else fell, depth, f"{token}{why}")
        if number == children[node.parent][0] and node.target_top:
            pairs = [
                f"{player.quoted(player.word(t, kept.words))} {player.percent(p)}"
                for t, p in node.target_top[:3]
            ]
            yield Branch("target", depth, ", ".join(pairs))


# The interactive view


def payload(replay: Replay, limit: int | None = None) -> dict[str, Any]:
    """Return the data of the interactive view, as strict JSON.

    Parameters
    ----------
    limit
        Bytes that the compressed data may take. Where it would take more, fewer rounds are in it;
        ``left_out`` says how many are not.
    """
    kept = replay.kept.bounded() if replay.kept else None
    begin = head(document(replay))
    while True:
        data: dict[str, Any] = strict(begin | _data(replay, kept))
        if limit is None or kept is None or len(kept) <= 1:
            return data
        if len(gzip.compress(json.dumps(data).encode(), 6)) <= limit:
            return data
        kept = kept.first(len(kept) // 2)


def _data(replay: Replay, kept: RoundColumns | None) -> dict[str, Any]:
    return {
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
        "beside": _change(kept),
        **(_rounds(kept) if kept else {"rounds": [], "requests": [], "words": {}}),
    }


def _change(kept: RoundColumns | None) -> list[str] | None:
    """Return the name of the change whose draft stands beside, and what it changes."""
    if kept is None or kept.beside is None:
        return None
    return [kept.beside.change, kept.beside.words]


def _rounds(kept: RoundColumns) -> dict[str, Any]:
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
                [_flat(kept.top(row, place)) for place in range(nodes + 1)],
                c.wanted[row, : max(seen, 0)].tolist(),
                [_flat(kept.own(row, place)) for place in range(nodes + 1)],
                *([_chain(kept.beside, row)] if kept.beside is not None else []),
            ]
        )
    return {
        "rounds": rounds,
        "requests": [[r.name, list(r.tokens), r.prompt] for r in kept.requests],
        "words": {str(token): word for token, word in kept.words.items()},
    }


def _chain(found: Beside, row: int) -> list[Any]:
    """Return how many drafts of a changed draft are accepted, and the drafts."""
    return [int(found.accepted[row]), _flat(found.drafts(row))]


def _node(kept: RoundColumns, row: int, n: int) -> list[int]:
    """Return token, parent, depth, probability in thousandths, accepted, rank (-1: not in its vocabulary)."""
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


def _flat(pairs: Iterable[tuple[int, float]]) -> list[int]:
    """Return tokens and their shares in thousandths, in turn."""
    flat: list[int] = []
    for token, share in pairs:
        flat += [token, -1 if math.isnan(share) else round(1000 * share)]
    return flat
