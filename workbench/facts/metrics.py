"""What each engine prints about acceptance, by version: the formulas, and the numbers read back.

One number of accepted drafts has had four names for its rate. SGLang's expressions are facts of each
release (`workbench.facts.rows`, kind ``formula``); what they mean was read in its sources. vLLM: those of
`spec_decode/metrics.py`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from packaging.version import InvalidVersion, Version

from workbench.errors import EngineError, shown
from workbench.facts.rows import known, nearest, row_in

Rate = Literal["none", "tokens/(steps+1)", "tokens/drafts", "drafts/(drafts-1)", "drafts/proposed"]

# The forms of SGLang's expressions, each with what it is: "tokens" are accepted drafts and bonus tokens.
_TOKENS = r"spec_num_(?:total_)?accept(?:ed)?_tokens"
_ROUNDS = r"spec_num_(?:total_)?forward_ct"
_DRAFTS = rf"(?:num_correct_drafts|\({_TOKENS} - {_ROUNDS}\)|\(spec_num_correct_drafts\))"
_LOG: tuple[tuple[str, Rate], ...] = (
    (rf"{_TOKENS} / \({_ROUNDS} \* \(\(speculative_num_steps or 0\) \+ 1\)\)", "tokens/(steps+1)"),
    (rf"{_TOKENS} / \({_ROUNDS} \* \(speculative_num_draft_tokens\b[^-]*\)\)", "tokens/drafts"),
    (
        rf"{_DRAFTS} / \({_ROUNDS} \* \(speculative_num_draft_tokens - 1 \| speculative_num_steps or 0\)\)",
        "drafts/(drafts-1)",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Acceptance:
    """Accepted drafts of many rounds, the numbers that every formula is made of.

    Attributes
    ----------
    rounds
        Verifications: one request verified once is one round.
    accepted
        Drafts accepted in them, without the bonus tokens.
    steps, draft_tokens
        ``--speculative-num-steps`` and ``--speculative-num-draft-tokens`` (the root included).
    """

    rounds: int
    accepted: int
    steps: int
    draft_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    """What a version prints, and what that means.

    Attributes
    ----------
    accept_length, accept_rate
        As the log line gives them; None where that version prints none, or nothing was verified.
    formula
        The rate in words.
    meaning
        One sentence for a person: what the rate says of the drafts.
    drafts_accepted
        Accepted drafts over drafts that could be accepted, the number that compares across versions.
    """

    version: str
    accept_length: float | None
    accept_rate: float | None
    formula: str
    meaning: str
    drafts_accepted: float | None

    def __float__(self) -> float:
        return float("nan") if self.accept_rate is None else self.accept_rate

    def __str__(self) -> str:
        if self.accept_length is None:
            return f"nothing was verified; {self.meaning}"
        rate = "" if self.accept_rate is None else f", accept rate: {self.accept_rate:.2f}"
        return f"accept len: {self.accept_length:.2f}{rate}  ({self.meaning})"


def accept_rate(engine: str, version: str, seen: Acceptance) -> Printed:
    """Return what an engine of that version prints for these rounds.

    Raises
    ------
    EngineError
        The engine prints no such number, or the version is none.
    """
    if engine == "vllm":
        return _vllm(version, seen)
    if engine != "sglang":
        raise EngineError(
            f"the accept-rate formula of {shown(engine)} is not known",
            why="known: those of sglang and vllm",
            next_step='Ask for "sglang==0.5.14" or "vllm".',
        )
    rate = rate_formula(version)
    length = 1 + seen.accepted / seen.rounds if seen.rounds else None
    share = _share(seen.accepted, seen.rounds * max(seen.steps, 0))
    tokens = seen.accepted + seen.rounds
    value, formula = {
        "none": (None, "this version prints no rate"),
        "tokens/(steps+1)": (
            _share(tokens, seen.rounds * (seen.steps + 1)),
            "(accepted drafts + rounds) / (rounds x (steps + 1))",
        ),
        "tokens/drafts": (
            _share(tokens, seen.rounds * (seen.draft_tokens or seen.steps + 1)),
            "(accepted drafts + rounds) / (rounds x draft tokens)",
        ),
        "drafts/(drafts-1)": (
            _share(seen.accepted, seen.rounds * ((seen.draft_tokens or seen.steps + 1) - 1)),
            "accepted drafts / (rounds x (draft tokens - 1))",
        ),
    }[rate]
    return Printed(version, length, value, formula, _meaning(rate, value, seen), share)


def rate_formula(version: str) -> Rate:
    """Return which formula SGLang's log line has in a version (of an unread one: in the one before).

    Raises
    ------
    EngineError
        The version is none, or its formula is not one of those that were understood.
    """
    _release(version)
    text = _expression("log accept rate", version)
    if text is None:
        return "none"
    for pattern, rate in _LOG:
        if re.fullmatch(pattern, text):
            return rate
    raise EngineError(
        f"the accept-rate formula of sglang {version} is not known",
        why=f"its source computes {shown(text, 120)}",
        next_step="Read the length instead: accepted drafts a round are accept len - 1.",
    )


def _expression(name: str, version: str) -> str | None:
    release = known("sglang", version) or nearest("sglang", version)
    row = row_in("sglang", "formula", name, release)
    return str(row.value) if row is not None else None


def _meaning(rate: Rate, value: float | None, seen: Acceptance) -> str:
    if not seen.rounds:
        return "there were no rounds"
    none = "draft tokens were never accepted" if not seen.accepted else ""
    if value is None:
        return none or f"{seen.accepted / seen.rounds:.2f} drafts accepted a round"
    if rate in ("tokens/(steps+1)", "tokens/drafts"):
        floor = 1 / ((seen.draft_tokens if rate == "tokens/drafts" else 0) or seen.steps + 1)
        said = none or f"{seen.accepted / seen.rounds:.2f} drafts accepted a round"
        return f"{said}; this version also counts the bonus token, so {floor:.2f} means none were accepted"
    return none or f"{value:.0%} of the drafts that could be accepted were accepted"


def _vllm(version: str, seen: Acceptance) -> Printed:
    drafted = seen.rounds * seen.steps
    value = _share(seen.accepted, drafted)
    return Printed(
        version,
        1 + seen.accepted / seen.rounds if seen.rounds else None,
        value,
        "accepted drafts / drafted tokens",
        _meaning("drafts/proposed", value, seen),
        value,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _release(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        raise EngineError(
            f"{shown(version)} is not a version of an engine",
            why="a version is written like 0.5.14",
            next_step='Ask for accept_rate(engine="sglang==0.5.14").',
        ) from None
