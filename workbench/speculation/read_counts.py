"""Evidence that counts alone: answers' meta_info, streamed chunks, vLLM's per-request metrics, logs.

None of these holds a prompt, so nothing can be replayed from them; rates and histogram can be told.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from workbench.speculation.tally import MOST_DRAFTS, Logged, Tally

_HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_LINE = re.compile(r"accept len: (\d{1,4}\.\d{1,4})(?:, accept rate: (\d{1,2}\.\d{1,4}))?")
_ARGUMENT = re.compile(r"\b(speculative_[a-z_]{1,40})=('[A-Za-z0-9_./-]{0,200}'|\d{1,6}|None)")
_DEEPEST = 12  # levels of a JSON object that are searched
_MOST_CHUNKS = 1 << 20


def tally_of_answers(lines: Sequence[Mapping[str, Any]]) -> tuple[Tally | None, list[str]]:
    """Add up the histograms of answers, whatever each line wraps them in; chunks of a stream count once.

    Returns
    -------
    tuple
        The counts, None where no answer has any; and notes.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for number, line in enumerate(lines[:_MOST_CHUNKS]):
        for meta in _found(line, "meta_info"):
            if isinstance(meta, Mapping) and any(name in meta for name in _HISTOGRAMS):
                last[str(meta.get("id", number))] = meta
    total: list[int] = []
    odd = 0
    for meta in last.values():
        own = next(meta[name] for name in _HISTOGRAMS if name in meta)
        if not _counts(own):
            odd += 1
            continue
        total += [0] * (len(own) - len(total))
        for accepted, rounds in enumerate(own):
            total[accepted] += rounds
    notes = [f"{odd} answers have a histogram that is none"] if odd else []
    return (Tally(tuple(total)) if any(total) else None), notes


def tally_of_chunks(lines: Sequence[Mapping[str, Any]]) -> Tally | None:
    """Count rounds by the size of streamed chunks: each chunk after the first of an answer is one round.

    A length that a request stops at may cut its last round: it counts as what was streamed of it.
    """
    sizes: dict[str, list[int]] = {}
    for line in lines[:_MOST_CHUNKS]:
        meta = line.get("meta_info")
        known = meta.get("completion_tokens") if isinstance(meta, Mapping) else None
        if isinstance(meta, Mapping) and type(known) is int and 0 < known < 1 << 24:
            own = sizes.setdefault(str(meta.get("id")), [])
            if not own or known > own[-1]:
                own.append(known)
    rounds = [b - a - 1 for own in sizes.values() for a, b in pairwise(own)]
    fitting = [n for n in rounds if n < MOST_DRAFTS]
    return Tally.of(fitting) if fitting else None


def tally_of_vllm(lines: Sequence[Mapping[str, Any]]) -> Tally | None:
    """Count rounds of vLLM's per-request metrics (``per_step_accepted``), in the order they were."""
    rounds: list[int] = []
    for line in lines[:_MOST_CHUNKS]:
        for own in _found(line, "per_step_accepted"):
            if _counts(own) and max(own, default=0) < MOST_DRAFTS:
                rounds += own
    return Tally.of(rounds) if rounds else None


def logged_of(text: str) -> Logged | None:
    """Return what the lines of a log say of acceptance, None where none does."""
    pairs = [(float(a), float(b) if b else None) for a, b in _LINE.findall(text)]
    if not pairs:
        return None
    lengths = [a for a, _ in pairs]
    rates = [b for _, b in pairs if b is not None]
    return Logged(
        len(pairs),
        sum(lengths) / len(lengths),
        sum(rates) / len(rates) if rates else None,
        min(lengths),
        max(lengths),
        sorted(lengths)[len(lengths) // 10],
        statistics.pstdev(lengths),
    )


def arguments_of_log(text: str) -> dict[str, str]:
    """Return the speculative arguments that ``server_args=ServerArgs(…)`` of a log names."""
    start = text.find("ServerArgs(")
    if start < 0:
        return {}
    found = _ARGUMENT.findall(text, start, start + 40_000)
    return {name: value.strip("'") for name, value in found if value != "None"}


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


def _counts(value: Any) -> bool:
    good = isinstance(value, list) and len(value) <= MOST_DRAFTS
    return good and all(type(n) is int and 0 <= n < 1 << 40 for n in value)
