"""Steps, topk and draft tokens: each border from both sides, and the line that passes."""

from __future__ import annotations

import pytest

from tests.launch.rules.asking import NEWEST, answer, ask, found, repaired
from workbench.launch.rules.tree import SHAPE

EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"
NAMES = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")


def words(steps: int | None, topk: int | None, tokens: int | None, more: str = "") -> str:
    parts = [f"{name} {value}" for name, value in zip(NAMES, (steps, topk, tokens), strict=True)
             if value is not None]  # fmt: skip
    return " ".join([EAGLE3, *parts, more]).strip()


@pytest.mark.parametrize(
    ("steps", "topk", "tokens", "right"),
    [
        (None, None, None, "ok"),
        (None, 1, None, "wrong no_steps"),
        (None, None, 4, "wrong no_steps"),
        (None, 2, 4, "wrong no_steps"),
        (3, None, None, "wrong no_topk"),
        (3, None, 4, "wrong no_topk"),
        # At least 1
        (1, 1, None, "ok"),
        (1, 1, 2, "ok"),
        (1, 0, None, "wrong not_positive"),
        (1, 0, 2, "wrong not_positive"),
        (0, 1, None, "open"),
        (0, 2, 4, "wrong not_positive"),
        (-1, 1, None, "wrong not_positive"),
        (1, 1, 0, "wrong not_positive"),
        (3, 2, 0, "wrong not_positive"),
        (3, 2, 1, "ok steps_unused"),
        # A chain
        (3, 1, 4, "ok"),
        (3, 1, 3, "ok tokens_adjusted"),
        (3, 1, 5, "ok tokens_adjusted"),
        # A tree: 1 + topk + (steps - 1) x topk x topk
        (3, 2, None, "wrong no_draft_tokens"),
        (1, 2, 3, "ok"),
        (1, 2, 4, "wrong tree_too_small"),
        (2, 2, 7, "ok"),
        (2, 2, 8, "wrong tree_too_small"),
        (3, 4, 37, "ok"),
        (3, 4, 38, "wrong tree_too_small"),
        (3, 4, 4, "ok"),
        (3, 4, 3, "ok steps_unused"),
    ],
)
def test_both_sides(steps: int | None, topk: int | None, tokens: int | None, right: str) -> None:
    assert answer(SHAPE, ask(words(steps, topk, tokens))) == right


@pytest.mark.parametrize(
    ("line", "release", "right"),
    [
        # The assertion and the defaults of all three came with 0.4.4.post4; before, each had its own.
        (words(None, 2, 4), "0.4.4.post4", "wrong no_steps"),
        (words(None, 2, 4), NEWEST, "wrong no_steps"),
        (words(3, None, None), "0.5.1.post3", "open no_topk"),
        (words(3, None, None), "0.5.2", "wrong no_topk"),
        (words(3, None, None), NEWEST, "wrong no_topk"),
        (words(3, 1, 5), "0.4.5.post2", "open"),
        (words(3, 1, 5), "0.4.5.post3", "ok tokens_adjusted"),
        (words(3, 1, 4), "0.4.5.post2", "ok"),
        (words(3, 1, 5), NEWEST, "ok tokens_adjusted"),
        (words(3, None, None, "--speculative-adaptive"), "0.5.14", "open"),
        (words(3, 1, 4, "--speculative-adaptive"), "0.5.14", "open"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "0.5.14", "ok"),
        ("--speculative-eagle-topk 4", "0.5.14", "ok"),
    ],
)
def test_both_sides_of_a_release(line: str, release: str, right: str) -> None:
    assert answer(SHAPE, ask(line, release)) == right


@pytest.mark.parametrize(
    ("given", "fixed"),
    [
        ((None, 1, None), (3, 1, 4)),
        ((None, None, 6), (5, 1, 6)),
        ((None, None, 2), (1, 1, 2)),
        ((None, None, 1), (3, 1, 1)),
        ((None, 1, 6), (5, 1, 6)),
        ((None, 2, 6), (3, 2, 6)),
        ((None, 2, None), (3, 2, 7)),
        ((3, None, None), (3, 1, 4)),
        ((3, None, 4), (3, 1, 4)),
        ((1, 2, None), (1, 2, 3)),  # all that there are
        ((3, 2, None), (3, 2, 7)),
        ((0, 2, 4), (3, 1, 4)),
        ((2, 2, 8), (2, 2, 7)),
        ((3, 2, 6), (3, 2, 6)),
    ],
)
def test_the_line_that_passes(given: tuple[int | None, ...], fixed: tuple[int | None, ...]) -> None:
    made = repaired(SHAPE, ask(words(*given))).split()  # type: ignore[arg-type]
    got = {name: int(made[made.index(name) + 1]) for name in NAMES}
    assert tuple(got[name] for name in NAMES) == fixed


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        (words(None, 1, None), "checks"),
        (words(3, None, None), "checks"),
        (words(1, 0, None), "load"),
        (words(3, 2, None), "load"),
        (words(2, 2, 8), "first request"),
    ],
)
def test_when_it_shows(line: str, moment: str) -> None:
    assert [one.moment for one in found(SHAPE, ask(line))] == [moment]


def test_what_is_given_without_the_steps_is_named() -> None:
    line = words(None, 1, None)
    assert [one.how for one in found(SHAPE, ask(line))] == [f"{NAMES[1]} 1 without {NAMES[0]}"]
