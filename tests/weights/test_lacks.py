"""What public reports taught: codes in a wider type, a lost head, layers for later tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import workbench
from tests.weights.whole_files.families import (
    BASE,
    BF,
    DEEPSEEK,
    Config,
    H,
    Tensors,
    deepseek,
    llama,
)
from tests.weights.whole_files.test_whole_files import text_of
from tests.weights_samples import pair
from workbench.weights.results import WeightScan

UP = "model.layers.0.mlp.up_proj.weight"


def scanned(folder: Path, tensors: Tensors, settings: Config) -> WeightScan:
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(settings))
    return workbench.scan_weights(folder)


def llama_of(architecture: str, **more: Any) -> Config:
    return {**BASE, "architectures": [architecture], "model_type": "llama", **more}


@pytest.mark.parametrize(
    ("largest", "spread", "doubted"),
    [
        (448.0, 6.0, True),
        (448.0, 4.0, False),  # too small a spread: with the one large value 4.8 at most
        (446.0, 6.0, False),  # the largest value is no largest code
        (127.0, 20.0, True),
    ],
)
def test_codes_in_a_wider_type_are_doubted(
    largest: float, spread: float, doubted: bool, tmp_path: Path
) -> None:
    tensors = llama()
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        values = tensors[name].float()
        values = (values / values.std() * spread).clamp(-largest, largest)
        values[0, 0] = largest
        tensors[name] = values.to(BF)
    scan = scanned(tmp_path, tensors, llama_of("LlamaForCausalLM"))
    assert ("8-bit codes in a wider type" in text_of(scan)) is doubted
    assert scan.ok is (None if doubted else True)


@pytest.mark.parametrize(
    ("layout", "largest", "spread", "doubted"),
    [
        ("int8", 127.0, 40.0, True),
        ("int8", 127.0, 4.9, False),
        ("int8", 126.0, 40.0, False),
        ("fp8", 448.0, 60.0, True),
    ],
)
def test_codes_whose_scale_is_one_are_doubted(
    layout: str, largest: float, spread: float, doubted: bool
) -> None:
    coded = pair(
        "layers.1.q_proj.weight", (64, 64), dtype="I8", layout=layout, absmax=largest, std=spread
    )
    found = WeightScan.build("models/x", [pair("layers.0.q_proj.weight", (64, 128)), coded])
    assert ("8-bit codes whose scale is one" in text_of(found)) is doubted


@pytest.mark.parametrize(
    ("kurtosis", "filled", "doubted"),
    [
        (-1.9, 20, True),
        (-1.51, 8, True),
        (-1.49, 20, False),
        (-1.2, 64, False),  # a uniform's
        (-1.9, 7, False),  # one or two bits have few values
    ],
)
def test_magnitudes_in_a_band_are_doubted(kurtosis: float, filled: int, doubted: bool) -> None:
    bins = (tuple(i / 10 for i in range(65)), (1,) * filled + (0,) * (64 - filled))
    band = pair("layers.1.q_proj.weight", (64, 64), kurtosis=kurtosis, bins=bins)
    found = WeightScan.build("models/x", [pair("layers.0.q_proj.weight", (64, 64)), band])
    assert ("none is near zero" in text_of(found)) is doubted
    assert found.ok is (None if doubted else True)


@pytest.mark.parametrize(
    ("architecture", "head", "ok"),
    [
        ("LlamaForSequenceClassification", "", None),
        ("LlamaForRewardModel", "", None),
        ("LlamaForSequenceClassification", "model.attention.output.weight", None),  # no head
        ("LlamaForSequenceClassification", "score.weight", True),
        ("LlamaForRewardModel", "reward_head.weight", True),
        ("LlamaModel", "", True),
    ],
)
def test_a_class_that_scores_needs_its_head(
    architecture: str, head: str, ok: bool | None, tmp_path: Path
) -> None:
    tensors = llama(tied=True)
    if head:
        tensors[head] = tensors["model.embed_tokens.weight"][:300] * 2
    scan = scanned(tmp_path, tensors, llama_of(architecture))
    assert scan.ok is ok
    assert ("answers by a head of its own" in text_of(scan)) is (ok is None)


@pytest.mark.parametrize(
    ("count", "layer", "noted"), [(1, False, True), (1, True, False), (0, False, False)]
)
def test_layers_for_later_tokens_that_are_not_there_are_noted(
    count: int, layer: bool, noted: bool, tmp_path: Path
) -> None:
    tensors = deepseek()
    if layer:
        tensors["model.layers.2.eh_proj.weight"] = torch.cat(
            [tensors["lm_head.weight"][:H], tensors["lm_head.weight"][-H:]], 1
        )
    scan = scanned(tmp_path, tensors, {**DEEPSEEK, "num_nextn_predict_layers": count})
    assert ("predict later tokens" in text_of(scan)) is noted


def test_an_absent_head_is_named_before_the_parts_of_an_absent_layer(tmp_path: Path) -> None:
    tensors = {k: v for k, v in llama().items() if "layers.1." not in k and k != "lm_head.weight"}
    scan = scanned(tmp_path, tensors, llama_of("LlamaForCausalLM"))
    absent = next(found for found in scan.findings if found.code == "weights.absent")
    assert absent.evidence_for[0] == "lm_head.weight"
