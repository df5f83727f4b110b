"""Whether texts can serve as evidence: repetition hides most faults, sampling lowers every acceptance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.speculation.model.features import TargetTrace

_PERIOD = 12  # longest loop that is looked for, in tokens
_LAST = 24  # tokens at an answer's end that must all lie in the loop
_DISTINCT = 0.35  # distinct pairs of tokens below which a text is repetitive
_LOOPS = 0.5  # share of answers in a loop above which the others alone count
_GOOD = 8  # of these others, below which the evidence is refused
_SAMPLED = 0.10  # share of places where the text is not the target's choice
_SHORTEST = 8  # rounds of an answer below which its repetition cannot be told


@dataclasses.dataclass(frozen=True, slots=True)
class Texts:
    """What the answers are like.

    Attributes
    ----------
    distinct
        Distinct n-grams over all n-grams inside an answer, for n = 1, 2, 3; the mean over answers.
    looping
        Rows of the answers that repeat themselves.
    refused
        Why these texts are no evidence, "" where they are.
    other
        Share of places where the text is not what this target chooses; None where its choices are unknown.
    """

    distinct: tuple[float, float, float]
    looping: tuple[int, ...]
    requests: int
    refused: str
    other: float | None

    @property
    def sampled(self) -> bool:
        """Whether the text was not chosen greedily by this target."""
        return self.other is not None and self.other > _SAMPLED

    @property
    def kept(self) -> list[int]:
        """Rows of the answers that do not repeat themselves."""
        loops = set(self.looping)
        return [row for row in range(self.requests) if row not in loops]


def describe(trace: TargetTrace) -> Texts:
    """Look at the answers of a trace."""
    tokens = trace.tokens.tolist()
    spans = list(zip(trace.prompts.tolist(), trace.lengths.tolist(), strict=True))
    answers = [row[begin:end] for row, (begin, end) in zip(tokens, spans, strict=True)]
    loops = tuple(n for n, answer in enumerate(answers) if repeats(answer))
    shares = [[distinct(answer, n) for n in (1, 2, 3)] for answer in answers if len(answer) > 3]
    mean = [sum(column) / len(column) for column in zip(*shares, strict=True)] or [1.0, 1.0, 1.0]
    refused = ""
    if not answers or (mostly(len(loops), len(answers)) and len(answers) - len(loops) < _GOOD):
        refused = f"{len(loops)} of {len(answers)} answers repeat themselves"
    return Texts((mean[0], mean[1], mean[2]), loops, len(answers), refused, _other(trace))


def mostly(loops: int, answers: int) -> bool:
    """Tell whether so many of the answers repeat themselves that only the others count."""
    return loops > _LOOPS * answers


def good_of(answers: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the rows of the answers that count where most repeat themselves; None: all, or none do."""
    good = [row for row, answer in enumerate(answers) if not repeats(answer)]
    few = len(good) < _GOOD or not mostly(len(answers) - len(good), len(answers))
    return None if few else good


def repeats(answer: Sequence[int]) -> bool:
    """Tell whether an answer ends in a loop, or says little that is new.

    In a loop a draft is right without the target's features: a lost layer or a shifted one goes unseen.
    """
    if len(answer) < _SHORTEST:
        return False
    last = answer[-min(_LAST, len(answer)) :]
    for period in range(1, min(_PERIOD, len(last) // 3) + 1):
        if all(last[n] == last[n - period] for n in range(period, len(last))):
            return True
    return len(answer) >= 2 * _PERIOD and distinct(answer, 2) < _DISTINCT


def distinct(answer: Sequence[int], n: int) -> float:
    """Return distinct n-grams over all n-grams of an answer."""
    count = len(answer) - n + 1
    if count < 1:
        return 1.0
    return len({tuple(answer[k : k + n]) for k in range(count)}) / count


def _other(trace: TargetTrace) -> float | None:
    """Return the share of the answers' tokens that the target would not have chosen."""
    if trace.choices is None:
        return None
    best = trace.choices.best.tolist()
    tokens = trace.tokens.tolist()
    wrong = total = 0
    for row, (begin, end) in enumerate(
        zip(trace.prompts.tolist(), trace.lengths.tolist(), strict=True)
    ):
        total += end - begin
        wrong += sum(best[row][k - 1] != tokens[row][k] for k in range(begin, end))
    return wrong / total if total else None
