"""A head in the file next to a config that ties it: the same values, rounded ones, and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.weights.test_lacks import llama_of, scanned
from tests.weights.whole_files.families import Tensors, llama

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
Change = Callable[[Tensors], None]


def own_head(tensors: Tensors) -> None:
    """Leave the head as it is: another matrix than the embedding."""


def same_head(tensors: Tensors) -> None:
    tensors[HEAD] = tensors[EMBEDDING].clone()


def rounded_head(tensors: Tensors) -> None:
    tensors[HEAD] = tensors[EMBEDDING].float()
    tensors[EMBEDDING] = (tensors[EMBEDDING].float() * (1 + 2**-9)).to(torch.float16)


def beyond_rounding(tensors: Tensors) -> None:
    rounded_head(tensors)
    tensors[HEAD][5, 5] *= 1.02


def one_value_of_the_same_type(tensors: Tensors) -> None:
    same_head(tensors)
    tensors[HEAD].view(torch.int16)[5, 5] ^= 1


def zeros_of_another_sign(tensors: Tensors) -> None:
    tensors[EMBEDDING][0] = 0
    tensors[HEAD] = tensors[EMBEDDING].clone()
    tensors[HEAD][0] = -0.0


def padded_head(tensors: Tensors) -> None:
    rows = tensors[EMBEDDING]
    tensors[HEAD] = torch.cat([rows, torch.zeros_like(rows[:8])])


def no_head(tensors: Tensors) -> None:
    del tensors[HEAD]


def second_embedding(tensors: Tensors) -> None:
    same_head(tensors)
    tensors["audio.embed_tokens.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].clone()


def narrower_embedding(tensors: Tensors) -> None:
    tensors[EMBEDDING] = tensors[EMBEDDING][:, :128].contiguous()


@pytest.mark.parametrize(
    ("change", "tie", "differs"),
    [
        (own_head, True, True),
        (own_head, False, False),
        (own_head, None, False),
        (own_head, "true", False),
        (same_head, True, False),
        (rounded_head, True, False),
        (beyond_rounding, True, True),
        (one_value_of_the_same_type, True, True),
        (zeros_of_another_sign, True, False),
        (padded_head, True, False),
        (no_head, True, False),
        (second_embedding, True, False),
        (narrower_embedding, True, False),
    ],
)
def test_a_tied_head_that_differs_leaves_the_answer_open(
    change: Change, tie: Any, differs: bool, tmp_path: Path
) -> None:
    tensors = llama()
    change(tensors)
    config = llama_of("LlamaForCausalLM")
    config.pop("tie_word_embeddings", None)
    scan = scanned(
        tmp_path, tensors, config | ({} if tie is None else {"tie_word_embeddings": tie})
    )
    found = [finding for finding in scan.findings if finding.code == "weights.tied_differs"]
    items = [i for i in scan.verdict.coverage.items if "the config ties" in i.name]
    assert bool(found) is differs
    assert [item.state for item in items if item.state != "ok"] == ["open"] * differs
    assert ("set tie_word_embeddings to false" in scan.summary) is differs
    if differs:
        assert scan.ok is None
        assert found[0].evidence_for == (HEAD, EMBEDDING)
        assert any("set tie_word_embeddings to false" in text for text in scan.verdict.missing)
    elif change not in (narrower_embedding, padded_head):  # open for their shapes
        assert scan.ok is True


def test_a_quantised_side_may_differ_by_its_quantiser(tmp_path: Path) -> None:
    for far in (False, True):
        folder = tmp_path / str(far)
        folder.mkdir()
        tensors = llama()
        head = tensors[HEAD] if far else tensors[EMBEDDING]
        scale = head.float().abs().amax() / 448
        tensors[HEAD] = (head.float() / scale).to(torch.float8_e4m3fn)
        tensors["lm_head.weight_scale"] = scale.reshape(1)
        config = llama_of("LlamaForCausalLM", tie_word_embeddings=True)
        config["quantization_config"] = {"quant_method": "fp8"}
        scan = scanned(folder, tensors, config)
        assert ("differs from" in scan.summary) is far
        assert scan.tensors[HEAD].layout


def test_what_was_not_read_whole_or_not_requested_is_not_compared(tmp_path: Path) -> None:
    config = llama_of("LlamaForCausalLM", tie_word_embeddings=True)
    assert "differs from" in scanned(tmp_path, llama(), config).summary
    for how in ({"sample": 0.1}, {"names": "lm_head.weight"}):
        scan = workbench.scan_weights(tmp_path, **how)
        assert not any("the config ties" in item.name for item in scan.verdict.coverage.items)
    both = workbench.scan_weights(tmp_path, names=[EMBEDDING, HEAD])
    assert both.ok is None
    assert "differs from" in both.summary


NAMES = [
    ("t5", "lm_head.weight", "shared.weight"),
    ("gpt_neox", "embed_out.weight", "gpt_neox.embed_in.weight"),
    ("chatglm", "transformer.output_layer.weight", "transformer.embedding.word_embeddings.weight"),
    ("internlm2", "output.weight", "model.tok_embeddings.weight"),
    ("whisper", "proj_out.weight", "model.decoder.embed_tokens.weight"),
    ("roberta", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
]


@pytest.mark.parametrize(("family", "head", "embedding"), NAMES)
@pytest.mark.parametrize("same", [True, False])
def test_heads_and_embeddings_of_other_families(
    family: str, head: str, embedding: str, same: bool, tmp_path: Path
) -> None:
    plain = llama()
    tensors = {embedding: plain[EMBEDDING], head: plain[EMBEDDING if same else HEAD].clone()}
    tensors["model.layers.0.attention.output.weight"] = plain["model.layers.0.mlp.up_proj.weight"]
    config = {"model_type": family, "tie_word_embeddings": True}
    scan = scanned(tmp_path, tensors, config)
    assert scan.ok is (True if same else None)
    found = [finding for finding in scan.findings if finding.code == "weights.tied_differs"]
    assert [one.evidence_for for one in found] == ([] if same else [(head, embedding)])


@pytest.mark.parametrize(
    ("family", "value", "differs"),
    [("t5", None, True), ("t5", False, False), ("mt5", None, False), ("gpt_neox", None, False)],
)
def test_a_family_ties_by_default_where_its_config_says_nothing(
    family: str, value: Any, differs: bool, tmp_path: Path
) -> None:
    plain = llama()
    config: dict[str, Any] = {"model_type": family}
    if value is not None:
        config["tie_word_embeddings"] = value
    tensors = {"shared.weight": plain[EMBEDDING], HEAD: plain[HEAD]}
    scan = scanned(tmp_path, tensors, config)
    assert ("ties them by default" in scan.summary) is differs
    assert scan.ok is (None if differs else True)
