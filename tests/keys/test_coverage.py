"""What an answer about keys covers: without any one of its checks there is no all-clear."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.core.finding import Confidence, Finding, Severity
from workbench.drafts import contracts
from workbench.keys import verdict
from workbench.keys.coverage import CHECKS, CONTRACTS, Question, covered, items
from workbench.keys.launch_line import of_launch
from workbench.launch.read import read_launch
from workbench.loaders import registry
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.simulate import simulate

DRAFT = "data/drafts/specforge"


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def healthy(launch: str | None = "") -> Question:
    """Return the question about a draft that loads, as `diff_keys` asks it; its launch was understood."""
    checkpoint = workbench.open_checkpoint(DRAFT)
    engine = registry.parse("sglang==0.5.14")
    ((version, profile),) = registry.select(engine, checkpoint.config).profiles
    outcome = simulate(profile, profile.build(checkpoint.config), checkpoint.table, version)
    kept = contracts.check_each(checkpoint, outcome)
    text = (
        "python -m sglang.launch_server --model-path t --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path d"
    )
    read = read_launch(text, version=version)
    target = workbench.open_checkpoint("data/drafts/target")
    ruled = of_launch(read, outcome, checkpoint, target) if launch == "" else ()
    return Question(
        checkpoint.table, outcome, kept, launch=launch, launched=read, ruled=ruled, draft=True
    )


def test_a_draft_that_loads_is_an_all_clear() -> None:
    assert covered(healthy()).ok is True


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_any_one_check_there_is_no_all_clear(check: Any) -> None:
    rest = [other for other in CHECKS if other is not check]
    left = covered(healthy(), rest)
    assert left.ok is None
    assert {item.how for item in left.having("open", essential=True)} == {"not checked"}


def test_every_key_parameter_and_contract_is_listed() -> None:
    question = healthy()
    counts: dict[str, int] = {}
    for item in items(question):
        counts[item.kind] = counts.get(item.kind, 0) + item.count
    assert counts["key"] == len(question.table) == 15
    assert counts["parameter"] == sum(len(g.index) for g in question.outcome.parameters)
    assert counts["contract"] == len(contracts.ALWAYS) + len(contracts.EAGLE3)


def test_groups_of_one_name_are_items_of_their_own() -> None:
    question = healthy()
    one = question.outcome.parameters[0]
    both = (one, dataclasses.replace(one, status="missing"))
    outcome = dataclasses.replace(question.outcome, parameters=both)
    coverage = covered(dataclasses.replace(question, outcome=outcome))
    found = {item.name: item.state for item in coverage.items if item.kind == "parameter"}
    assert found == {one.text: "ok", f"{one.text} (missing)": "wrong"}


def test_what_is_not_read_or_written_twice_is_a_warning() -> None:
    whole = healthy().outcome
    idle = dataclasses.replace(whole.parameters[0], unused="forward does not call it")
    outcome = dataclasses.replace(whole, parameters=(idle,), doubled=("a.weight",))
    found = {f.code: f.severity for f in verdict.findings(outcome, (), DRAFT, "")}
    assert found == {"loaded_but_unused": "warning", "written_twice": "warning"}
    assert verdict.findings(whole, (), DRAFT, "") == []


def test_every_contract_has_its_words() -> None:
    names = {
        contract.__name__ for contract in (*contracts.ALWAYS, *contracts.EAGLE, *contracts.EAGLE3)
    }
    assert names == set(CONTRACTS)


def test_a_key_that_the_loader_never_met_is_open() -> None:
    question = healthy()
    outcome = dataclasses.replace(question.outcome, keys=question.outcome.keys[1:])
    coverage = covered(dataclasses.replace(question, outcome=outcome))
    assert coverage.ok is None
    assert [item.kind for item in coverage.having("open", essential=True)] == ["key"]


def with_finding(
    confidence: Confidence, severity: Severity = "error", breaks: bool = True
) -> Question:
    question = healthy()
    finding = Finding(
        "x", severity, "d2t is absolute", confidence=confidence, changes_output=breaks
    )
    kept = dict(question.contracts) | {"vocabulary": [finding]}
    return dataclasses.replace(question, contracts=kept)


@pytest.mark.parametrize(
    ("question", "ok"),
    [
        (with_finding, False),
        (lambda _: with_finding("likely"), None),
        (lambda _: with_finding("possible"), None),
        (lambda _: with_finding("unknown"), None),
        (lambda _: with_finding("certain", "warning"), None),
        (lambda _: with_finding("certain", "note"), True),
        (lambda _: with_finding("certain", "error", breaks=False), True),
    ],
)
def test_only_a_contract_that_is_certainly_broken_is_a_fault(
    question: Any, ok: bool | None
) -> None:
    assert covered(question("certain")).ok is ok


@pytest.mark.parametrize("field", ["unsure", "uncovered"])
def test_nothing_is_sure_about_a_release_or_config_that_is_not_known(field: str) -> None:
    for question in (healthy(), with_finding("certain")):
        coverage = covered(dataclasses.replace(question, **{field: "nobody read it"}))
        assert coverage.ok is None
        assert coverage.count("wrong") == 0


def test_what_was_not_given_is_listed_and_decides_nothing() -> None:
    without = workbench.diff_keys(DRAFT, "sglang==0.5.14")
    assert without.ok is True
    assert [text.partition(":")[0] for text in without.verdict.missing] == [
        "sizes and vocabulary of the target", "arguments of the launch",
    ]  # fmt: skip
    launch = "python -m sglang.launch_server --speculative-algorithm EAGLE3"
    with_both = workbench.diff_keys(
        DRAFT, "sglang==0.5.14", target="data/drafts/target", launch=launch
    )
    assert with_both.verdict.missing == ()


def test_a_model_in_memory_has_no_contracts() -> None:
    found = workbench.diff_keys(DRAFT, DRAFT)
    assert found.ok is True
    assert "contract" not in {item.kind for item in found.verdict.coverage.items}


def test_versions_that_differ_leave_the_answer_open() -> None:
    found = workbench.diff_keys(DRAFT, "sglang")
    assert found.ok is None
    assert "the version of sglang that serves it" in found.verdict.missing[0]
    assert found.verdict.confidence == "unknown"


def test_the_outcome_is_not_believed_beyond_what_it_lists() -> None:
    question = healthy()
    empty = LoadOutcome(
        "sglang", "0.5.14", "LlamaForCausalLMEagle3", "profile_verified", "loads", (), ()
    )
    assert covered(dataclasses.replace(question, outcome=empty)).ok is None


NOT_UNDERSTOOD = {
    "": "empty",
    "rm -rf '": "not a launch of SGLang",
    "bash launch": "not a launch of SGLang",
    "python -m sglang.launch_server --speculative-algorithm 'EAGLE3": "open quote",
    "python -m sglang.launch_server --config x.yaml": "--config",
    "python -m sglang.launch_server --speculative-algoritm EAGLE3": "--speculative-algoritm",
    "python -m sglang.launch_server --speculative-algorithm EAGLE4": "EAGLE4",
    'vllm serve t --speculative-config \'{"method":"eagle"}\'': "vLLM",
    "python -m sglang.launch_server $SPEC --speculative-algorithm EAGLE3": "$SPEC",
    "docker run lmsysorg/sglang:v0.5.9 sglang serve --speculative-algorithm EAGLE3": "0.5.9",
    "python -m sglang.launch_server --model-path t": "no speculative algorithm",
}


@pytest.mark.parametrize("launch", NOT_UNDERSTOOD)
def test_a_launch_that_was_not_understood_is_no_all_clear(launch: str) -> None:
    found = workbench.diff_keys(DRAFT, "sglang==0.5.14", launch=launch)
    assert found.ok is not True
    assert NOT_UNDERSTOOD[launch] in found.verdict.missing[0]


@pytest.mark.parametrize(
    "launch",
    [
        "--speculative-algorithm EAGLE3",
        "python -m sglang.launch_server --model-path t --speculative-algo EAGLE3 --tp 4",
        "sglang serve --speculative-algorithm=EAGLE3",
    ],
)
def test_a_launch_that_was_understood_is_checked(launch: str) -> None:
    assert workbench.diff_keys(DRAFT, "sglang==0.5.14", launch=launch).ok is True


def test_a_proved_fault_is_said_though_the_launch_was_not_understood() -> None:
    found = workbench.diff_keys("data/drafts/speculators", "sglang==0.5.11", launch="bash launch")
    assert found.ok is False
    assert not found.summary.startswith("Cannot tell")
    assert "not a launch of SGLang" in found.verdict.missing[0]
