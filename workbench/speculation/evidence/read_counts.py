"""Evidence that counts alone: answers' meta_info, streamed chunks, vLLM's per-request metrics, logs.

None of these holds a prompt, so nothing can be replayed from them; rates and histogram can be told.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from workbench.speculation.evidence.tally import (
    HISTOGRAMS,
    MOST_DRAFTS,
    Logged,
    Tally,
    is_histogram,
)

_LINE = re.compile(
    r"accept len: (\d{1,4}\.\d{1,4})(?:, accept rate: (\d{1,2}\.\d{1,4}))?", re.ASCII
)
_DEEPEST = 12  # levels of a JSON object that are searched
_MOST_STEPS = 1 << 22  # of one answer


def tally_of_answers(lines: Sequence[Mapping[str, Any]]) -> tuple[Tally | None, list[str]]:
    """Add up the histograms of answers, whatever each line wraps them in; chunks of a stream count once.

    Returns
    -------
    tuple
        The counts, None where no answer has any; and notes.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for number, line in enumerate(lines):
        for meta in _found(line, "meta_info"):
            if isinstance(meta, Mapping) and any(name in meta for name in HISTOGRAMS):
                last[str(meta.get("id", number))] = meta
    given = [next(meta[name] for name in HISTOGRAMS if name in meta) for meta in last.values()]
    good = [own for own in given if is_histogram(own)]
    odd = len(given) - len(good)
    notes = [f"{odd} answers have an invalid histogram"] if odd else []
    total = Tally.summed(good)
    return (total if total.rounds else None), notes


def tally_of_chunks(lines: Sequence[Mapping[str, Any]]) -> tuple[Tally | None, list[str]]:
    """Count rounds by the size of streamed chunks: each chunk after the first of an answer is one round.

    A length that a request stops at may cut its last round: it counts as what was streamed of it. Chunks of
    an answer that has no ``id`` belong to nobody.
    """
    sizes: dict[str, list[int]] = {}
    for line in lines:
        meta = line.get("meta_info")
        if not isinstance(meta, Mapping) or type(meta.get("id")) not in (str, int):
            continue
        known = meta.get("completion_tokens")
        own = sizes.setdefault(str(meta["id"]), [])
        if type(known) is int and known > (own[-1] if own else 0):
            own.append(known)
    rounds = [b - a - 1 for own in sizes.values() for a, b in pairwise(own)]
    fitting = [n for n in rounds if n < MOST_DRAFTS]
    lost = len(rounds) - len(fitting)
    notes = [f"{lost} chunks have more tokens than a round, and are left out"] if lost else []
    return (Tally.of(fitting) if fitting else None), notes


def tally_of_vllm(lines: Sequence[Mapping[str, Any]]) -> tuple[Tally | None, list[str]]:
    """Count rounds of vLLM's per-request metrics (``per_step_accepted``), in the order they were."""
    rounds: list[int] = []
    odd = 0
    for line in lines:
        for own in _found(line, "per_step_accepted"):
            good = isinstance(own, list) and len(own) < _MOST_STEPS
            if good and all(type(n) is int and 0 <= n < MOST_DRAFTS for n in own):
                rounds += own
            else:
                odd += 1
    notes = [f"{odd} answers have invalid steps"] if odd else []
    return (Tally.of(rounds) if rounds else None), notes


def logged_of(text: str) -> tuple[Logged | None, list[str]]:
    """Return what the lines of a log say of acceptance, None where none does; and notes."""
    found = [(float(a), float(b) if b else None) for a, b in _LINE.findall(text)]
    pairs = [(a, b) for a, b in found if a <= MOST_DRAFTS + 1]
    lost = len(found) - len(pairs)
    notes = (
        [f"{lost} lines of the log have an accept len that a round cannot reach"] if lost else []
    )
    if not pairs:
        return None, notes
    lengths = [a for a, _ in pairs]
    rates = [b for _, b in pairs if b is not None]
    logged = Logged(
        len(pairs),
        sum(lengths) / len(lengths),
        sum(rates) / len(rates) if rates else None,
        min(lengths),
        max(lengths),
        sorted(lengths)[len(lengths) // 10],
        statistics.pstdev(lengths),
    )
    return logged, notes


def _found(value: Any, name: str, depth: int = 0) -> Iterator[Any]:
    """Yield what stands under a name, at any depth that a server's answer has."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        if name in value:
            yield value[name]
        for inner in value.values():
            if isinstance(inner, Mapping | list):
                yield from _found(inner, name, depth + 1)
    elif isinstance(value, list):
        for inner in value[:1024]:
            if isinstance(inner, Mapping):
                yield from _found(inner, name, depth + 1)
