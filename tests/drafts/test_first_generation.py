"""Contracts of drafts of the first EAGLE generation: they share the target's embedding, head and width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.drafts.test_contracts import Checkpoint, Config
from workbench.core.finding import Finding
from workbench.drafts.contracts import check
from workbench.launch.read import read_launch
from workbench.loaders.outcome import LoadOutcome

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle"], "model_type": "llama", "hidden_size": 128, "vocab_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
CLASS = "LlamaForCausalLMEagle"
LINE = "sglang serve --model-path t --speculative-draft-model-path d --speculative-algorithm "


def found(
    target: dict[str, Any] | None = None, algorithm: str = "", cls: str = ""
) -> list[Finding]:
    checkpoint = Checkpoint(Config(CONFIG), {"fc.weight": np.zeros((128, 256), np.float32)})
    outcome = LoadOutcome(
        "sglang", "0.5.14", cls or "LlamaForCausalLMEagle", "profile_verified", "loads", (), ()
    )
    return check(
        checkpoint,
        outcome,
        target=Config(target) if target is not None else None,
        launch=read_launch(LINE + algorithm) if algorithm else None,
    )


@pytest.mark.parametrize(
    ("target", "codes"),
    [
        ({"hidden_size": 128, "vocab_size": 256}, []),
        ({"hidden_size": 256, "vocab_size": 256}, ["target_hidden_size"]),
        ({"hidden_size": 128, "vocab_size": 320}, ["target_vocabulary"]),
        (None, []),
    ],
)
def test_width_and_vocabulary(target: dict[str, Any] | None, codes: list[str]) -> None:
    assert [finding.code for finding in found(target)] == codes


@pytest.mark.parametrize("cls", ["LlamaForCausalLMEagle", "Qwen2ForCausalLMEagle"])
def test_eagle3_stops_with_it(cls: str) -> None:
    (said,) = found(algorithm="EAGLE3", cls=cls)
    assert (said.code, said.confidence, said.changes_output) == (
        "eagle_draft_as_eagle3",
        "certain",
        True,
    )
    assert "--speculative-algorithm EAGLE" in said.next_step


@pytest.mark.parametrize("algorithm", ["EAGLE", "NEXTN"])
def test_eagle_serves_it(algorithm: str) -> None:
    assert found(algorithm=algorithm) == []


def test_a_class_that_was_not_read_is_not_accused() -> None:
    assert found(algorithm="EAGLE3", cls="Ernie4_5ForCausalLMEagle") == []
