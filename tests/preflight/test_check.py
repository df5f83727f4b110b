"""`check`: real models, real lines; what fails first, when, and the line to paste."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from tests.forms import check_forms
from workbench.errors import WorkbenchError
from workbench.preflight import check as module
from workbench.preflight.question import CHECKS, Question, covered

LINE = (
    "python3 -m sglang.launch_server --model-path data/incident/target --tp 2 "
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path data/incident/drafts/specforge "
    "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"
)
NEW = "sglang==0.5.14"
TOKENS = "--speculative-num-draft-tokens"


@pytest.fixture(autouse=True)
def _in_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def question(line: str = LINE) -> Question:
    found: list[Question] = []
    kept = module.question.covered
    module.question.covered = lambda asked, checks=None: found.append(asked) or kept(asked, checks)  # type: ignore[assignment, func-returns-value]
    try:
        workbench.check(line, engine=NEW)
    finally:
        module.question.covered = kept
    return found[0]


def test_a_good_line_is_an_all_clear() -> None:
    found = workbench.check(LINE, engine=NEW)
    assert found.ok is True
    assert found.faults == ()
    assert found.corrected == ""
    kinds = {item.kind for item in found.verdict.coverage.items}
    assert {
        "argument",
        "parser",
        "sum",
        "model",
        "key",
        "parameter",
        "contract",
        "release",
    } <= kinds


def test_without_any_one_check_there_is_no_all_clear() -> None:
    asked = question()
    assert covered(asked).ok is True
    for check in CHECKS:
        left = covered(asked, [other for other in CHECKS if other is not check])
        assert left.ok is None, check.__name__


@pytest.mark.parametrize(
    ("before", "after", "moment", "corrected"),
    [
        ("EAGLE3", "EAGLE", "serving", "--speculative-algorithm EAGLE3"),
        ("--tp 2", "--tp 3", "load", "--tp 2"),
        ("--tp 2", "--tp-siz 2 --tpp 1", "parser", "--tp-siz 2"),
        ("--tp 2", "--disable-cuda-grap", "parser", ""),
        ("--speculative-eagle-topk 1", "", "checks", "--speculative-eagle-topk 1"),
        (f"topk 1 {TOKENS} 5", f"topk 2 {TOKENS} 50", "first request", f"{TOKENS} 15"),
        ("--tp 2", "--mem-fraction-static 85", "memory", "--mem-fraction-static 0.85"),
        ("--tp 2", "--context-length 1000000", "checks", "--context-length"),
        ("drafts/specforge", "drafts/not-there", "checks", ""),
        ("drafts/specforge", "drafts/speculators", "checks", ""),
    ],
)  # fmt: skip
def test_the_first_thing_that_fails_and_the_line_that_does_not(
    before: str, after: str, moment: str, corrected: str
) -> None:
    assert before in LINE
    found = workbench.check(LINE.replace(before, after), engine=NEW)
    assert found.ok is False
    assert found.first is not None
    assert found.first.moment == moment
    assert corrected in found.corrected
    if corrected and not found.left and moment not in ("serving",):
        assert workbench.check(found.corrected, engine=NEW).ok is True


def test_without_a_release_nothing_is_certain() -> None:
    found = workbench.check(LINE)
    assert found.ok is None
    assert "--engine" in found.document().answer.next_step


def test_the_release_of_an_image_counts() -> None:
    line = f"docker run lmsysorg/sglang:v0.5.14 {LINE}"
    found = workbench.check(line)
    assert (found.version, found.version_basis) == ("0.5.14", "tag of the image")


def test_an_engine_of_which_nothing_is_on_file_is_not_judged() -> None:
    found = workbench.check("vllm serve data/incident/target --tensor-parallel-size 2")
    assert found.ok is None
    assert "vllm==VERSION" in found.summary


def test_a_model_of_another_machine_is_no_fault() -> None:
    found = workbench.check(
        LINE.replace("data/incident/drafts/specforge", "/somewhere/else/draft"), engine=NEW
    )
    assert found.ok is None
    assert found.faults == ()


def test_what_is_no_launch_says_so() -> None:
    assert workbench.check("echo hello").ok is None
    with pytest.raises(WorkbenchError, match="not a launch"):
        workbench.check("")


def test_it_is_saved_and_shown_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = workbench.check(LINE.replace("EAGLE3", "EAGLE").replace("--tp 2", "--tp 3"), engine=NEW)
    place = found.save(tmp_path / "check.json")
    assert workbench.load(place) == found
    check_forms(found, "launch-eagle-and-three-ranks", monkeypatch)
    check_forms(workbench.check(LINE, engine=NEW), "launch-good", monkeypatch)


def test_an_all_clear_with_a_fault_is_not_loaded() -> None:
    data = workbench.check(LINE, engine=NEW).to_dict()
    data["faults"] = [{"moment": "load", "text": "x", "code": "y", "certain": True}]
    with pytest.raises(ValueError, match="it fails"):
        type(workbench.check(LINE, engine=NEW)).from_dict(data)
