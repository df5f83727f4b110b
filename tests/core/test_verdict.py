"""The one record that rules every job: `ok` follows from what is covered, and from nothing else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.verdict import (
    OLD,
    Coverage,
    Item,
    Settled,
    State,
    Verdict,
    cover,
    unrecorded,
    worst,
)

STATES: tuple[State, ...] = ("ok", "wrong", "open")


def one(state: State, essential: bool = True) -> Coverage:
    return Coverage((Item("key", "a", state, "how", essential=essential),))


@pytest.mark.parametrize(
    ("coverage", "ok"),
    [
        (Coverage(), None),  # nothing was asked: nothing is proved
        (one("ok"), True),
        (one("wrong"), False),
        (one("open"), None),
        (one("ok", essential=False), None),  # nothing that matters was found healthy
        (one("wrong", essential=False), None),
        (one("open", essential=False), None),
    ],
)
def test_ok_follows_from_the_items(coverage: Coverage, ok: bool | None) -> None:
    assert coverage.ok is ok
    assert Verdict("x", "A sentence.", coverage=coverage).ok is ok


@pytest.mark.parametrize("states", [*itertools.product(STATES, repeat=3)])
def test_a_fault_outranks_what_is_open_and_that_outranks_what_is_well(
    states: tuple[State, ...],
) -> None:
    items = tuple(Item("key", str(at), state) for at, state in enumerate(states))
    wanted = False if "wrong" in states else None if "open" in states else True
    assert Coverage(items).ok is wanted


def test_an_open_item_that_decides_nothing_leaves_the_answer_and_is_listed() -> None:
    items = (
        Item("key", "the target", "open", "not given", essential=False),
        Item("key", "a", "ok"),
        Item("key", "b", "open", "unreadable"),
    )
    assert Coverage(items[:2]).ok is True
    verdict = Verdict("x", "s", coverage=Coverage(items))
    assert verdict.ok is None
    assert verdict.missing == (
        "b: unreadable",
        "the target: not given",
    )  # what it hangs on is first


def test_what_no_check_settles_stays_open() -> None:
    items = [Item("rank", "TP0"), Item("rank", "TP1")]
    assert cover(items, []).ok is None
    half = cover(items, [Settled("rank", "TP0", "ok", "it serves")])
    assert half.ok is None
    assert [item.how for item in half.having("open")] == ["not checked"]
    both = [Settled("rank", name, "ok", "it serves") for name in ("TP0", "TP1")]
    assert cover(items, both).ok is True


@pytest.mark.parametrize("order", [*itertools.permutations(STATES)])
def test_an_item_takes_the_worst_that_any_check_found(order: tuple[State, ...]) -> None:
    found = [Settled("rank", "TP0", state, state) for state in order]
    [item] = cover([Item("rank", "TP0")], found).items
    assert (item.state, item.how) == ("wrong", "wrong")


def test_a_fault_of_what_nobody_listed_counts() -> None:
    items = [Item("rank", "TP0", "ok")]
    found = cover(items, [Settled("rank", "TP7", "wrong", "dead")])
    assert found.ok is False
    assert [item.name for item in found.having("wrong")] == ["TP7"]


@given(st.lists(st.sampled_from([True, False, None])))
def test_the_worst_of_several_answers(answers: list[bool | None]) -> None:
    if not answers:
        assert worst(answers) is None
    elif False in answers:
        assert worst(answers) is False
    else:
        assert worst(answers) is (None if None in answers else True)


def test_counts_are_of_essential_items() -> None:
    items = (
        Item("key", "layers.{0...3}.q", "ok", count=4),
        Item("key", "x", "ok", essential=False, count=9),
    )
    assert Coverage(items).count("ok") == 4


@pytest.mark.parametrize("ok", [True, False, None])
def test_a_result_of_version_01_keeps_its_answer_and_says_that_nothing_more_is_known(
    ok: bool | None,
) -> None:
    coverage = unrecorded(ok, "workbench.keydiff/1")
    assert coverage.ok is ok
    assert "recorded no coverage" in coverage.items[0].how


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_of_version_01_says_in_every_form_that_nothing_more_is_known(ok: bool) -> None:
    verdict = Verdict("x", "s", coverage=unrecorded(ok, "the answer"))
    assert verdict.missing == (f"what was checked: {OLD}",)
