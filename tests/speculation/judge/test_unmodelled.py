"""What changes acceptance and is not modelled is named, and keeps the answer open; neutral values do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench
from tests.speculation.faults.faults import INCIDENT, renamed, said, write
from workbench.checkpoint.open import open_checkpoint
from workbench.launch.read import read_record
from workbench.speculation.evidence.observed import DraftLaunch, launch_of
from workbench.speculation.judge.unmodelled import findings, items, named, of_launch, of_target
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.model.windows import window_of

TARGET = INCIDENT / "target"
BASE = (
    "python", "-m", "sglang.launch_server", "--model-path", "t", "--speculative-algorithm", "EAGLE3",
    "--speculative-draft-model-path", "d", "--speculative-num-steps", "4", "--speculative-eagle-topk", "1",
)  # fmt: skip


def launched(*words: str, version: str = "0.5.14") -> DraftLaunch:
    record = {"command": [*BASE, *words], "versions": {"sglang": version}}
    return launch_of(read_record(record, "launch.json"), "launch.json")


def essential(*words: str, version: str = "0.5.14") -> list[tuple[str, bool]]:
    return [(item.name, item.essential) for item in of_launch(launched(*words, version=version))]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--speculative-draft-window-size", "8"), "--speculative-draft-window-size 8"),
        (
            ("--speculative-accept-threshold-single", "0.3"),
            "--speculative-accept-threshold-single 0.3",
        ),
        (("--speculative-accept-threshold-acc", "0.5"), "--speculative-accept-threshold-acc 0.5"),
        (("--speculative-use-rejection-sampling",), "--speculative-use-rejection-sampling"),
        (("--speculative-adaptive",), "--speculative-adaptive"),
        (("--kv-cache-dtype", "fp8_e4m3"), "--kv-cache-dtype fp8_e4m3"),
        (
            ("--speculative-draft-model-quantization", "fp8"),
            "--speculative-draft-model-quantization fp8",
        ),
        (("--load-format", "dummy"), "--load-format dummy"),
    ],
)
def test_an_argument_that_changes_acceptance_is_open(words: tuple[str, ...], name: str) -> None:
    assert essential(*words) == [(name, True)]
    assert name in named(of_launch(launched(*words)))


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--speculative-accept-threshold-single", "1.0"),
        ("--kv-cache-dtype", "auto"),
        ("--speculative-num-draft-tokens", "5"),
        ("--mem-fraction-static", "0.5"),
        # A chain's places are the same on pages of any size.
        ("--page-size", "64"),
    ],
)
def test_what_changes_nothing_is_no_item(words: tuple[str, ...]) -> None:
    assert essential(*words) == []


def test_pages_matter_to_a_tree() -> None:
    tree = (
        "--speculative-eagle-topk",
        "4",
        "--speculative-num-draft-tokens",
        "16",
        "--page-size",
        "64",
    )
    assert essential(*tree) == [("--page-size 64", True)]


def test_what_the_release_corrects_is_named_and_decides_nothing() -> None:
    more = ("--speculative-num-draft-tokens", "24")
    assert essential(*more) == [("--speculative-num-draft-tokens 24", False)]
    assert essential(*more, version="0.5.2") == [("--speculative-num-draft-tokens 24", True)]
    (note,) = findings(of_launch(launched(*more)))
    assert (note.severity, "SGLang takes 5" in note.detail) == ("note", True)
    assert named(of_launch(launched(*more))) == ""


def test_a_token_map_counts_under_eagle_alone() -> None:
    words = ("--speculative-token-map", "hot.pt")
    assert essential(*words) == [("--speculative-token-map hot.pt", False)]
    assert essential(*words, "--speculative-algorithm", "EAGLE") == [
        ("--speculative-token-map hot.pt", True)
    ]


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"sliding_window": 8}, 8),
        (
            {"sliding_window": 8, "use_sliding_window": True, "layer_types": ["sliding_attention"]},
            8,
        ),
        ({"sliding_window": 8, "use_sliding_window": False}, None),
        ({"sliding_window": 8, "layer_types": ["full_attention"]}, None),
        ({"sliding_window": 8, "num_hidden_layers": 4, "max_window_layers": 4}, None),
        ({"sliding_window": 8, "num_hidden_layers": 4, "max_window_layers": 3}, 8),
        ({"sliding_window": None}, None),
        ({}, None),
    ],
)
def test_a_window_is_read_as_models_read_it(config: dict[str, Any], window: int | None) -> None:
    assert window_of(config) == window


@pytest.mark.parametrize(("longest", "open_"), [(9, True), (8, False), (None, False)])
def test_a_window_matters_where_a_text_is_longer(longest: int | None, open_: bool) -> None:
    found = list(items({"sliding_window": 8}, essential=False, longest=longest))
    assert [item.essential for item in found] == ([open_] if longest != 8 else [])


def test_a_targets_window_is_named_too() -> None:
    checkpoint = open_checkpoint(TARGET)
    checkpoint.config.text["sliding_window"] = 64
    target = LlamaTarget.read(checkpoint)
    assert [item.name for item in of_target(target, 65)] == [
        "sliding_window of the target's config.json"
    ]
    assert list(of_target(target, 64)) == []


def test_a_draft_trained_with_a_window_is_not_cleared(tmp_path: Path) -> None:
    draft = write((said(sliding_window=8, use_sliding_window=True),), tmp_path)
    run = INCIDENT / "runs" / "sglang-0.5.14" / "speculators"
    found = workbench.replay(TARGET, draft, evidence=run, expected=2.39, requests=6)
    assert found.ok is None
    assert "the replay does not model sliding_window of the draft's config.json" in found.summary


def test_layers_that_the_config_switches_off_are_the_cause(tmp_path: Path) -> None:
    off_by = said(eagle_config={"use_aux_hidden_state": False})
    draft = write((off_by, renamed("layers.0.", "midlayer.")), tmp_path)
    run = INCIDENT / "training" / "prompts.jsonl"
    ids = [json.loads(line)["ids"] for line in run.read_text().splitlines()[:10]]
    given: dict[str, Any] = {"steps": 4, "new_tokens": 24, "expected": 2.27}
    off = workbench.replay(TARGET, draft, ids, engine="sglang==0.5.14", **given)
    assert off.ok is False
    assert off.accept_length is not None
    assert off.accept_length < 1.2
    assert (
        "use_aux_hidden_state is false, and SGLang 0.5.14 captures no auxiliary layers"
        in off.summary
    )
    # A release that does not read the field captures them, and so does the trainer.
    for engine in ("sglang==0.5.7", None):
        assert (
            workbench.replay(TARGET, draft, ids, engine=engine, **given).accept_length or 0
        ) > 1.8
