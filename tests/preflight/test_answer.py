"""The answer of `check` from what was settled: what fails first, how sure it is, and the right line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.launch.rules.asking import ask
from workbench.core.finding import Confidence, Finding, Severity
from workbench.core.verdict import Coverage, Item, State, Verdict
from workbench.keys.records import KeyDiff
from workbench.launch.rules.records import Edit, Moment, Ruled, Served, fault, fine, note, unclear
from workbench.launch.rules.table import Rule
from workbench.preflight import answer
from workbench.preflight.question import DRAFT, TARGET, Loading, Question
from workbench.preflight.records import Fault


def rule(*found: Ruled) -> Rule:
    def check(s: Served) -> Iterator[Ruled]:
        yield from found

    return Rule("made up", check, later=True)


def bad(code: str, moment: Moment, state: State = "wrong", *edits: Edit) -> Ruled:
    return fault("made up", code, f"{code} is wrong", moment, state=state, edits=edits)


def diff(state: State, *findings: Finding, outcome: Any = "loads") -> KeyDiff:
    coverage = Coverage((Item("key", "fc.weight", state, "made up"),))
    return KeyDiff(
        checkpoint="d", model="d", engine="sglang", version="0.5.14", model_class="", basis="traced",
        outcome=outcome, verdict=Verdict("made_up", "made up", "certain", coverage), keys=(), parameters=(),
        findings=findings,
    )  # fmt: skip


def finding(
    code: str,
    severity: Severity = "error",
    confidence: Confidence = "certain",
    changes: bool = True,
) -> Finding:
    return Finding(
        code, severity, f"{code} of the keys", confidence=confidence, changes_output=changes
    )


def question(
    *found: Ruled,
    loadings: tuple[Loading, ...] = (),
    version: str = "0.5.14",
    words: str = "--tp 8",
) -> Question:
    served = ask(words, version)
    return Question(served.launch, served, "", loadings, (rule(*found),))


def codes(asked: Question) -> list[tuple[str, bool]]:
    return [(one.code, one.certain) for one in answer.faults(asked)]


def test_what_fails_for_certain_comes_first_and_then_what_fails_first() -> None:
    asked = question(
        bad("some day", "unknown"), bad("late", "serving"), bad("maybe", "parser", "open"),
        bad("soon", "load"), bad("now", "parser"),
    )  # fmt: skip
    assert codes(asked) == [
        ("now", True), ("soon", True), ("late", True), ("some day", True), ("maybe", False)
    ]  # fmt: skip


def test_a_note_and_what_is_fine_are_no_faults() -> None:
    asked = question(
        note("made up", "remark", "a remark"), fine("made up", "ok"), unclear("made up", "why")
    )
    assert codes(asked) == []


@pytest.mark.parametrize(
    ("state", "one", "version", "right"),
    [
        ("wrong", finding("keys_lost"), "0.5.14", [("keys_lost", True)]),
        ("open", finding("keys_lost"), "0.5.14", [("keys_lost", False)]),
        ("ok", finding("keys_lost"), "0.5.14", [("keys_lost", False)]),
        ("wrong", finding("keys_lost", confidence="likely"), "0.5.14", [("keys_lost", False)]),
        ("wrong", finding("keys_lost"), "99.0", [("keys_lost", False)]),
        ("wrong", finding("keys_lost", "warning"), "0.5.14", []),
        ("wrong", finding("keys_lost", changes=False), "0.5.14", []),
    ],
)
def test_a_fault_of_the_keys_is_certain_where_everything_is(
    state: State, one: Finding, version: str, right: list[tuple[str, bool]]
) -> None:
    asked = question(loadings=(Loading(DRAFT, diff(state, one)),), version=version)
    assert codes(asked) == right


def test_without_a_diff_there_is_no_fault_and_with_another_engine_no_rule() -> None:
    assert codes(question(loadings=(Loading(DRAFT, None, "not here"),))) == []
    launch = ask("--tp 8").launch
    other = Question(launch, None, "why", (Loading(TARGET, diff("wrong", finding("keys_lost"))),))
    assert codes(other) == [("keys_lost", True)]


def test_what_the_rules_found_is_not_found_twice() -> None:
    both = question(
        bad("twice", "load"), loadings=(Loading(DRAFT, diff("wrong", finding("twice"))),)
    )
    assert codes(both) == [("twice", True)]


def test_findings_are_in_the_order_of_gravity_and_of_the_faults() -> None:
    loaded = diff("wrong", finding("remark", "note"), finding("keys_lost"), finding("keys_lost"),
                  finding("doubt", "warning"))  # fmt: skip
    asked = question(
        bad("late", "serving"), bad("now", "parser"), loadings=(Loading(DRAFT, loaded),)
    )
    assert [one.code for one in answer.findings(asked)] == [
        "now",
        "late",
        "keys_lost",
        "doubt",
        "remark",
    ]


def coverage(*states: State) -> Coverage:
    return Coverage(tuple(Item("sum", f"item {at}", one, "how") for at, one in enumerate(states)))


@pytest.mark.parametrize(
    ("states", "state", "confidence"),
    [
        (("ok", "ok"), "starts", "likely"),
        (("ok", "open"), "cannot_tell", "unknown"),
        ((), "cannot_tell", "unknown"),
        (("ok", "wrong", "open"), "fails", "certain"),
    ],
)
def test_the_verdict_follows_from_the_coverage(
    states: tuple[State, ...], state: str, confidence: Confidence
) -> None:
    made = answer.verdict(question(), coverage(*states), (), "SGLang 0.5.14")
    assert (made.state, made.confidence) == (state, confidence)
    assert made.ok is {"starts": True, "cannot_tell": None, "fails": False}[state]


def test_the_sentence_counts_what_is_certain() -> None:
    found = (
        Fault("load", "the keys are lost"),
        Fault("serving", "a"),
        Fault("load", "b", certain=False),
    )
    made = answer.verdict(question(), coverage("wrong"), found, "SGLang")
    assert "while the models are loaded. The keys are lost. 1 more thing is wrong." in made.sentence
    serving = answer.verdict(question(), coverage("wrong"), found[1:], "SGLang")
    assert serving.sentence.startswith("This launch serves, and does not do what it is for. A.")


FEWER = Edit("--tp", "4")


@pytest.mark.parametrize(
    ("found", "right"),
    [
        ((bad("a", "load", "wrong", FEWER),), "sglang serve --model-path t --tp 4"),
        ((bad("a", "load", "open", FEWER),), ""),
        ((bad("a", "load", "wrong"),), ""),
        ((bad("a", "load", "wrong", Edit("--tp", "8")),), ""),  # nothing changes
        ((dataclasses.replace(note("made up", "a", "t"), edits=(FEWER,)),), ""),
        ((dataclasses.replace(note("made up", "a", "t"), state="wrong", edits=(FEWER,)),), ""),
        ((dataclasses.replace(fine("made up", "t"), state="wrong", edits=(FEWER,)),), ""),
        ((fine("made up", "t"),), ""),
    ],
)
def test_the_line_that_does_not_fail(found: tuple[Ruled, ...], right: str) -> None:
    assert answer.line(question(*found)).text == right


def test_what_is_left_is_asked_of_the_corrected_line() -> None:
    made = answer.line(question(bad("a", "load", "wrong", FEWER)))
    assert made.left == ("a is wrong",)  # this rule finds it in every line

    def check(s: Served) -> Iterator[Ruled]:
        many = s.settings.number("tp-size") == 8
        yield bad("a", "load", "wrong", FEWER) if many else fine("made up", "fits")

    asked = dataclasses.replace(question(), rules=(Rule("made up", check, later=True),))
    assert answer.line(asked).left == ()


@pytest.mark.parametrize(
    ("one", "words", "right"),
    [
        (finding("launched_as_eagle"), "--speculative-algo EAGLE",
         "sglang serve --model-path t --speculative-algo EAGLE3"),
        (finding("launched_as_eagle"), "--tp 8",
         "sglang serve --model-path t --tp 8 --speculative-algorithm EAGLE3"),
        (finding("launched_as_eagle", changes=False), "--speculative-algo EAGLE", ""),
        (finding("keys_lost"), "--speculative-algo EAGLE", ""),
    ],
)  # fmt: skip
def test_a_draft_that_is_launched_as_another_kind(one: Finding, words: str, right: str) -> None:
    asked = question(loadings=(Loading(DRAFT, diff("wrong", one)),), words=words)
    assert answer.line(asked).text == right


def test_without_a_release_or_words_there_is_no_line() -> None:
    asked = question(bad("a", "load", "wrong", FEWER))
    assert asked.ruled
    assert answer.line(dataclasses.replace(asked, served=None)).text == ""
    loaded = dataclasses.replace(
        asked, served=None, loadings=(Loading(DRAFT, diff("wrong", finding("launched_as_eagle"))),)
    )
    assert answer.line(loaded).text == ""
    printed = dataclasses.replace(asked.launch, options=())
    assert answer.line(dataclasses.replace(asked, launch=printed)).text == ""
