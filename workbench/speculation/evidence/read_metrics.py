"""Acceptance as engines print it for people and for Prometheus: vLLM, SGLang, TensorRT-LLM. No texts."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.evidence.tally import MOST_DRAFTS, Logged, Tally

_NUMBER = r"-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?"
_VLLM_LINE = re.compile(
    r"SpecDecoding metrics: .{0,200}?Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    r"Per-position acceptance rate: ((?:\d\.\d{1,4}(?:, )?){1,64})",
    re.ASCII,
)
_VLLM_VERSION = re.compile(
    r"vLLM (?:API server )?version (\d{1,4}(?:\.\d{1,4}){1,3}(?:\.?[a-z]+\d{1,4})?)", re.ASCII
)
_VLLM_METHOD = re.compile(
    r"speculative_config.{0,400}?['\"]?method['\"]?\s*[:=]\s*['\"](\w{1,40})['\"]", re.ASCII
)
_SAMPLE = re.compile(
    rf"^((?:vllm|sglang):\w{{1,80}})(?:\{{([^}}\n]{{0,2000}})\}})? +({_NUMBER})(?: +\d+)?\s*$",
    re.MULTILINE | re.ASCII,
)
_LABEL = re.compile(r'(\w{1,80})="((?:[^"\\]|\\.){0,400})"', re.ASCII)
_TRTLLM = re.compile(
    rf"\[(DT|ADT|DAR|AL|AR)\] (MINIMUM|MAXIMUM|AVERAGE|P50|P90|P95|P99)\s*: ({_NUMBER})", re.ASCII
)

Samples = list[tuple[str, Mapping[str, str], float]]


@dataclasses.dataclass(frozen=True)
class Printed:
    """What a text says of acceptance.

    Attributes
    ----------
    form
        What wrote it, for a reader.
    tally
        Rounds by accepted drafts, where it counts them.
    logged
        An acceptance length that comes without counts.
    launch
        Engine and steps, as far as they are known.
    notes
        What it cannot tell.
    """

    form: str
    tally: Tally | None = None
    logged: Logged | None = None
    launch: DraftLaunch | None = None
    notes: tuple[str, ...] = ()


def printed_in(text: str) -> Printed | None:
    """Return what a log or a page of metrics says of acceptance; None where it is none of these."""
    return next((found for read in _FORMS if (found := read(text)) is not None), None)


def _vllm_log(text: str) -> Printed | None:
    """Add up the intervals of vLLM's log: each line counts its own interval alone."""
    lines = _VLLM_LINE.findall(text)
    tallies, odd, deep = [], 0, 0
    for accepted, drafted, rates in lines:
        shares = [float(rate) for rate in rates.rstrip(", ").split(", ")]
        rounds, rest = divmod(int(drafted), len(shares))
        if rest or not rounds or int(accepted) > int(drafted):
            odd += 1
            continue
        tallies.append(_tally(rounds, _counts(shares, rounds, int(accepted))))
        deep = max(deep, len(shares))
    if not tallies:
        return None
    notes = [
        "vLLM's log counts the whole server: sampled requests accept less than greedy ones, and the log does "
        "not distinguish them",
        "its rates by position are shares of all rounds, printed with three digits",
    ]
    if odd:
        notes.append(
            f"{odd} of {len(lines)} lines have counts that do not go together, and are left out"
        )
    total = Tally.summed(tally.histogram for tally in tallies)
    return Printed("vLLM's log", total, None, _vllm_launch(text, deep), tuple(notes))


def _counts(shares: Sequence[float], rounds: int, accepted: int) -> list[int]:
    """Return how many rounds reach each position: shares as printed, and their sum as counted."""
    counts = [round(share * rounds) for share in shares]
    at = 0
    while sum(counts) != accepted and at < 4 * MOST_DRAFTS * len(counts):
        step = 1 if sum(counts) < accepted else -1
        counts[at % len(counts)] = min(max(counts[at % len(counts)] + step, 0), rounds)
        at += 1
    return counts


def _tally(rounds: int, reaching: Sequence[float]) -> Tally:
    """Return rounds by accepted drafts, given how many reach each position."""
    whole = [rounds, *(min(max(int(n), 0), rounds) for n in reaching)]
    for at in range(1, len(whole)):
        whole[at] = min(whole[at], whole[at - 1])  # rounded, a later position may seem to have more
    return Tally((*(a - b for a, b in pairwise(whole)), whole[-1]))


def _vllm_launch(text: str, steps: int) -> DraftLaunch | None:
    version, method = _VLLM_VERSION.search(text), _VLLM_METHOD.search(text)
    named = method[1].upper() if method is not None else "EAGLE3"
    algorithm = "EAGLE3" if named in ("EAGLE", "EAGLE3") else named
    if not steps:
        return None
    engine = f"vllm=={version[1]}" if version is not None else ""
    return DraftLaunch(engine, algorithm, steps, 1, steps + 1)


def _samples(text: str) -> Samples:
    return [
        (name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
        if math.isfinite(float(value))
    ]


def _vllm_metrics(text: str) -> Printed | None:
    """Read vLLM's counters: they hold every round since the server began, of all its engines."""
    totals: dict[str, float] = {}
    positions: dict[int, float] = {}
    prefix = "vllm:spec_decode_num_"
    for name, labels, value in _samples(text):
        short = name.removeprefix(prefix).removesuffix("_total")
        if not name.startswith(prefix) or name.endswith("_created") or value < 0:
            continue
        totals[short] = totals.get(short, 0.0) + value
        at = labels.get("position", "")
        if short == "accepted_tokens_per_pos" and at.isdecimal() and int(at) < MOST_DRAFTS:
            positions[int(at)] = positions.get(int(at), 0.0) + value
    rounds, accepted = totals.get("drafts", 0.0), totals.get("accepted_tokens")
    if not rounds or accepted is None:
        return None
    notes = [
        "vLLM's counters hold every request since the server began, greedy and sampled together: a change "
        "in between does not show; take the difference of two readings"
    ]
    steps = max(positions, default=-1) + 1
    if not positions:
        notes.append("there are no counts by position")
        length = 1 + accepted / rounds
        logged = Logged(1, length, None, length, length)
        return Printed("vLLM's metrics", None, logged, None, tuple(notes))
    tally = _tally(round(rounds), [positions.get(k, 0.0) for k in range(steps)])
    return Printed("vLLM's metrics", tally, None, _vllm_launch(text, steps), tuple(notes))


def _sglang_metrics(text: str) -> Printed | None:
    """Read SGLang's gauges: what the last interval was, and no count of rounds."""
    lengths, rates, sizes = list[float](), list[float](), dict[str, float]()
    for name, _, value in _samples(text):
        short = name.removeprefix("sglang:")
        if short == "spec_accept_length" and 1 <= value <= MOST_DRAFTS + 1:
            lengths.append(value)
        elif short == "spec_accept_rate" and 0 <= value <= 1:
            rates.append(value)
        elif short in ("spec_num_steps", "spec_num_draft_tokens"):
            sizes[short] = value
    if not lengths:
        return None
    length = sum(lengths) / len(lengths)
    rate = sum(rates) / len(rates) if rates else None
    notes = [
        "SGLang's gauges hold the last interval alone, and not how many rounds it had: chance cannot be "
        "distinguished from a loss; the log has one line an interval"
    ]
    if rate is not None:
        notes.append(_rate_note(length, rate, sizes))
    logged = Logged(1, length, rate, min(lengths), max(lengths))
    steps = int(sizes.get("spec_num_steps", 0))
    # No version is named, and with one of the gauges alone the tree is not known.
    launch = DraftLaunch("", "EAGLE3", steps, 1, steps + 1) if 0 < steps <= 64 else None
    return Printed("SGLang's metrics", None, logged, launch, tuple(notes))


def _rate_note(length: float, rate: float, sizes: Mapping[str, float]) -> str:
    """Return what SGLang's rate is a rate of, by the numbers: releases differ."""
    tokens = length / rate if rate else math.inf
    whole = round(tokens) if math.isfinite(tokens) else 0
    drafts = sizes.get("spec_num_draft_tokens", 0.0)
    if drafts > 1 and abs(rate - (length - 1) / (drafts - 1)) < 0.005:
        return f"its rate {rate:.2f} is accepted of proposed drafts (SGLang 0.5.11 and newer)"
    if whole > 1 and abs(tokens - whole) < 0.02 * whole and "spec_num_steps" not in sizes:
        zero = ": none of the drafts is accepted" if length < 1.005 else ""
        return (
            f"its rate {rate:.2f} counts the target's own token too, over {whole} draft tokens (SGLang 0.5.5 "
            f"to 0.5.10){zero}"
        )
    return f"what its rate {rate:.2f} is a rate of depends on the release, and is not known here"


def _trtllm(text: str) -> Printed | None:
    """Read the statistics that trtllm-bench prints: averages and percentiles over requests."""
    found: dict[tuple[str, str], float] = {}
    for block, name, value in _TRTLLM.findall(text):
        found[block, name] = float(value)
    older = ("AL", "AVERAGE") not in found
    block = "AR" if older else "AL"
    length = found.get((block, "AVERAGE"))
    if length is None or not 1 <= length <= MOST_DRAFTS + 1:
        return None
    lowest, highest = (found.get((block, name), length) for name in ("MINIMUM", "MAXIMUM"))
    notes = [
        "trtllm-bench prints averages and percentiles over requests, and not how many requests or rounds "
        "there were: chance cannot be distinguished from a loss, and there are no counts by position"
    ]
    if older:
        notes.append("its [AR] block is headed Acceptance Rate, and holds acceptance lengths")
    rate = None if older else found.get(("DAR", "AVERAGE"))
    logged = Logged(1, length, rate, lowest, highest)
    return Printed("the statistics of trtllm-bench", None, logged, None, tuple(notes))


_FORMS: tuple[Callable[[str], Printed | None], ...] = (
    _vllm_log, _vllm_metrics, _sglang_metrics, _trtllm,
)  # fmt: skip


def server_info(values: Sequence[Mapping[str, Any]]) -> tuple[Logged | None, tuple[str, ...]]:
    """Return what SGLang's ``/server_info`` says: the mean acceptance length since the server began."""
    lengths = [length for value in values for length in _averages(value)]
    if not lengths:
        return None, ()
    mean = sum(lengths) / len(lengths)
    note = (
        "/server_info holds one mean over everything since the server began, and not of how many rounds: "
        "chance cannot be distinguished from a loss"
    )
    return Logged(len(lengths), mean, None, min(lengths), max(lengths)), (note,)


def _averages(value: Mapping[str, Any]) -> Iterator[float]:
    states = value.get("internal_states")
    for state in states if isinstance(states, list) else [states]:
        length = state.get("avg_spec_accept_length") if isinstance(state, Mapping) else None
        number = float(length) if isinstance(length, int | float) else 0.0
        if 1 <= number <= MOST_DRAFTS + 1:
            yield number
