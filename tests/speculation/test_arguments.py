"""What a user may give to `replay`: each argument of every type, right and wrong, before anything is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import workbench
from tests.conftest import ROOT
from workbench.cli import app
from workbench.errors import WorkbenchError
from workbench.speculation import arguments
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.evidence.prompts import Words, prompts_of

INCIDENT = ROOT / "data" / "incident"
TARGET, DRAFT = INCIDENT / "target", INCIDENT / "drafts" / "speculators"
RUN = INCIDENT / "runs" / "sglang-0.5.14" / "speculators"
WORDS = Words(TARGET)


@pytest.mark.parametrize("temperature", [0, 0.0, 1, 99.9, np.float32(0.5)])
@pytest.mark.parametrize("engine", [None, "trainer", "sglang==0.5.14", "vllm"])
def test_what_is_right_passes(temperature: Any, engine: Any) -> None:
    arguments.check_arguments(TARGET, [[1, 2]], None, temperature, engine)


@pytest.mark.parametrize("temperature", [-1, float("nan"), 100, 1e9, True, "0", None, [0]])
def test_a_temperature_that_is_none(temperature: Any) -> None:
    with pytest.raises(WorkbenchError, match="temperature") as caught:
        arguments.check_arguments(TARGET, [[1, 2]], None, temperature, None)
    assert caught.value.next_step


@pytest.mark.parametrize("engine", [5, ["sglang"], b"sglang", True, "", "sglang=0.5", "no==1"])
def test_an_engine_that_is_none(engine: Any) -> None:
    with pytest.raises(WorkbenchError):
        arguments.check_arguments(TARGET, [[1, 2]], None, 0.0, engine)


# What is expected


@pytest.mark.parametrize("value", [2.4, "2.4", " 2.4 ", "24e-1", np.float64(2.4)])
def test_a_number_is_expected_also_as_text(value: Any) -> None:
    found = arguments.read_expected(value, 3)
    assert found is not None
    assert found.accept_length == pytest.approx(2.4)


def test_metrics_and_healthy_runs_are_expected(tmp_path: Path) -> None:
    metrics = {"full_acc_0": 0.6, "full_acc_1": 0.3}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    for source in (metrics, tmp_path / "metrics.json", str(tmp_path / "metrics.json")):
        found = arguments.read_expected(source, 3)
        assert found is not None
        assert found.accept_length == pytest.approx(1.9)
    healthy = arguments.read_expected(RUN, 4)
    assert healthy is not None
    assert healthy.counted == "rounds"
    assert arguments.read_expected(healthy, 4) is healthy
    assert arguments.read_expected(None, 4) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *[
            (bad, "is not (between 1 and|an expected)")
            for bad in (True, "", [2.0], b"2.4", 1.0, -2, "nan", "inf", 1e9)
        ],
        *[(bad, "cannot read") for bad in ("no-such", "٢.٤", "a\0b", os.devnull)],
        (str(DRAFT), "holds no recorded run"),
        ({"full_acc_0": "x"}, "not hold an acceptance that a trainer measured"),
        ({"full_acc_٠": 0.5}, "not hold an acceptance that a trainer measured"),
        ("~nobody-of-this-name/x", "there is no"),
    ],
)
def test_what_says_nothing_of_acceptance(value: Any, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        arguments.read_expected(value, 3)


# Prompts


@pytest.mark.parametrize(
    "prompts",
    [[[300, 301]], ((300, 301),), np.array([[300, 301]]), [np.array([300, 301])]],
)
def test_prompts_are_lists_of_ids(prompts: Any) -> None:
    assert prompts_of(prompts, WORDS) == [[300, 301]]


@pytest.mark.parametrize(
    "prompts",
    [
        "no-such.jsonl", "a\0b", str(ROOT), os.devnull, "~nobody-of-this-name/x", 5, b"abc", {"a": 1}, [],
        [[]], [""], ["\ud800"], [[-1]], [[1 << 31]], [[1.5]], [[True]], [[[1]]], [None],
        (x for x in [[1]]), np.array(3),
    ],
)  # fmt: skip
def test_what_is_no_prompt(prompts: Any) -> None:
    with pytest.raises(WorkbenchError) as caught:
        prompts_of(prompts, WORDS)
    assert caught.value.next_step


def test_files_of_prompts(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")

    def file(name: str, text: bytes) -> Path:
        (tmp_path / name).write_bytes(text)
        return tmp_path / name

    lines = b'{"input_ids": [300, 301]}\n\n{"token_ids": [7]}\n'
    assert prompts_of(file("a.jsonl", lines), WORDS) == [[300, 301], [7]]
    assert len(prompts_of(file("a.txt", b"def f():\n\nx = 1\n"), WORDS)) == 2
    for name, text in (
        ("b.json", b'[{"text": "x"}]'),
        ("c.txt", b"\xff\xfe"),
        ("d.txt", b""),
        ("e.jsonl", b"{"),
        ("f.jsonl", b'{"messages": []}'),
        ("g.jsonl", b'{"text": null}'),
        ("h.txt.gz", b"no gzip"),
    ):
        with pytest.raises(WorkbenchError):
            prompts_of(file(name, text), WORDS)


def test_a_pipe_is_no_file_of_prompts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.jsonl")
    with pytest.raises(WorkbenchError, match=r"cannot read the prompts[\s\S]*FIFO"):
        prompts_of(tmp_path / "p.jsonl", WORDS)


# What the target can hold


class Sizes:
    layers, hidden, vocabulary = 12, 256, 4096


def test_texts_that_the_target_cannot_have_or_hold() -> None:
    arguments.check_texts([[1, 4095], [2]], Sizes, 64)
    with pytest.raises(WorkbenchError, match="past the target's vocabulary of 4,096"):
        arguments.check_texts([[4096]], Sizes)
    with pytest.raises(WorkbenchError, match=r"1 texts of up to 1,048,576 tokens need 4,4\d\d GB"):
        arguments.check_texts([[1] * (1 << 20)], Sizes)
    with pytest.raises(WorkbenchError, match=r"need \d,\d\d\d,\d\d\d GB"):
        arguments.check_texts([[1]], Sizes, 1 << 24)


@pytest.mark.parametrize("name", ["", "EAGLE", "EAGLE3"])
def test_launches_of_an_eagle_draft(name: str) -> None:
    arguments.check_launch(DraftLaunch("sglang==0.5.14", name))
    arguments.check_launch(None)


@pytest.mark.parametrize("name", ["NGRAM", "STANDALONE", "\x1b[31m"])
def test_launches_of_another_drafter_are_not_replayed(name: str) -> None:
    with pytest.raises(WorkbenchError, match="not drafted by an EAGLE-3 draft"):
        arguments.check_launch(DraftLaunch("sglang==0.5.14", name))


# The command


@pytest.mark.parametrize(
    "arguments",
    [
        ("--evidence", str(RUN), "--expected", ""),
        ("--evidence", ""),
        ("--prompts", ""),
        ("--evidence", str(RUN), "--expected", "٢.٤"),
    ],
)
def test_an_empty_word_is_an_error_of_the_command(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(
        app, ["replay", "--target", str(TARGET), "--draft", str(DRAFT), *arguments]
    )
    assert isinstance(done.exception, WorkbenchError)


@pytest.mark.parametrize("value", [5, b"/tmp", [], "", "a\0b", "x" * 5000, "~nobody-of-this-name"])
def test_evidence_that_is_no_place(value: Any) -> None:
    with pytest.raises(WorkbenchError):
        workbench.replay(TARGET, DRAFT, evidence=value)


def test_numbers_of_numpy_are_numbers() -> None:
    plain = {
        "steps": 2,
        "topk": 2,
        "draft_tokens": 5,
        "new_tokens": 4,
        "requests": 1,
        "expected": 2.0,
    }
    numpys: dict[str, Any] = {name: np.array(value)[()] for name, value in plain.items()}
    numpys["temperature"] = np.float32(0)
    found = workbench.replay(TARGET, DRAFT, [[300, 301, 302]], **numpys)
    same: dict[str, Any] = plain | {"expected": "2"}
    assert found.to_json() == workbench.replay(TARGET, DRAFT, [[300, 301, 302]], **same).to_json()


# How answers are sampled


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"top_k": -1}, "top-k"),
        ({"top_k": 1.5}, "top-k"),
        ({"top_p": 0.0}, "top-p"),
        ({"top_p": 1.01}, "top-p"),
        ({"threshold_single": 0}, "threshold-single"),
        ({"threshold_acc": "1"}, "threshold-acc"),
        ({"hardware": "tpu"}, "hardware"),
    ],
)
def test_how_answers_are_sampled_is_checked(given: dict[str, Any], match: str) -> None:
    with pytest.raises(WorkbenchError, match=match) as caught:
        workbench.replay(TARGET, DRAFT, [[1, 2]], **given)
    assert caught.value.next_step


def test_what_cuts_nothing_passes() -> None:
    found = arguments.read_sampling(np.float32(0.5), 0, 1, 1.0, 1.0, "npu")
    assert (found.temperature, found.top_k, found.top_p) == (0.5, 0, 1.0)


@pytest.mark.parametrize(
    ("engine", "hardware", "greedily"),
    [
        ("sglang==0.5.14", "rocm", True),
        ("sglang==0.5.14", "npu", True),
        ("sglang==0.5.14", "cuda", False),
        ("vllm==0.32.0", "rocm", False),
    ],
)
def test_sglang_verifies_greedily_without_its_cuda_kernels(
    engine: str, hardware: str, greedily: bool
) -> None:
    assert arguments.verifies_greedily(engine, hardware) is greedily
