"""Drafts that are not EAGLE-3's are recognised by name, and refused; EAGLE-3's own marks are none of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.speculation.faults.faults import Change, Config, Tensors, renamed, said, write
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.arguments import check_draft, check_launch
from workbench.speculation.evidence.observed import DraftLaunch
from workbench.speculation.model.draft_kinds import other_kind, replayed_as


def adds(**tensors: tuple[int, ...]) -> Change:
    """Add tensors of these shapes; a double underscore stands for a dot."""

    def change(held: Tensors, config: Config) -> None:
        for name, shape in tensors.items():
            held[name.replace("__", ".")] = torch.zeros(shape, dtype=torch.bfloat16)

    return change


def as_eagle2(held: Tensors, config: Config) -> None:
    """Leave what an EAGLE-2 draft has: fc over feature and embedding, and a plain decoder layer."""
    for name in (
        "layers.0.hidden_norm.weight",
        "layers.0.input_layernorm.weight",
        "d2t",
        "t2d",
        "lm_head.weight",
    ):
        held.pop(name)
    held["fc.weight"] = held["fc.weight"][:, : 2 * 256].clone()
    for part in ("q", "k", "v"):
        name = f"layers.0.self_attn.{part}_proj.weight"
        held[name] = held[name][:, :256].clone()


KINDS: list[tuple[tuple[Change, ...], str]] = [
    ((said(parallel_drafting=True),), "P-EAGLE"),
    ((said(ptd_token_id=5),), "P-EAGLE"),
    ((adds(mask_hidden=(1, 1, 768)),), "P-EAGLE"),
    ((said(speculators_model_type="peagle"),), "P-EAGLE"),
    ((said(architectures=["DFlashDraftModel"]),), "DFlash"),
    ((said(dflash_config={"block_size": 8}),), "DFlash"),
    ((said(architectures=["Qwen3NextForCausalLMNextN"]),), "MTP (NextN)"),
    ((adds(eh_proj__weight=(256, 512), enorm__weight=(256,), hnorm__weight=(256,)),), "MTP (NextN)"),
    ((said(medusa_num_heads=4),), "Medusa"),
    ((as_eagle2,), "EAGLE-1 or EAGLE-2"),
    ((said(speculators_model_type="eagle"),), "EAGLE-1 or EAGLE-2"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "name"), KINDS)
def test_another_kind_is_refused_by_its_name(
    changes: tuple[Change, ...], name: str, tmp_path: Path
) -> None:
    draft = open_checkpoint(write(changes, tmp_path))
    found = other_kind(draft)
    assert found is not None
    assert found.name == name
    with pytest.raises(
        WorkbenchError, match=f"a draft of another kind, {name.split(' ', maxsplit=1)[0]}"
    ) as refused:
        check_draft(draft)
    assert found.mark in refused.value.why


def as_class(name: str) -> Change:
    """Name a class that goes with the tensors."""
    return said(architectures=[name], draft_vocab_size=None)


EXPERTS = adds(
    model__layers__3__eh_proj__weight=(256, 512), model__layers__3__enorm__weight=(256,),
    model__layers__3__hnorm__weight=(256,), model__layers__3__mlp__experts__0__up_proj__weight=(8, 256),
)  # fmt: skip


def test_an_eagle2_draft_is_replayed_as_one(tmp_path: Path) -> None:
    draft = open_checkpoint(write((as_eagle2, as_class("LlamaForCausalLMEagle")), tmp_path))
    assert replayed_as(draft).joining == "eagle"
    check_draft(draft)


def test_a_prediction_layer_of_experts_is_refused(tmp_path: Path) -> None:
    changes = (renamed("", "other."), EXPERTS, as_class("DeepseekV3ForCausalLMNextN"))
    draft = open_checkpoint(write(changes, tmp_path))
    with pytest.raises(WorkbenchError, match="a draft of another kind, MTP") as refused:
        check_draft(draft)
    assert "experts" in refused.value.why


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (said(parallel_drafting=False, ptd_token_id=None),),
        (said(speculators_model_type="eagle3"),),
        (renamed("layers.0.", "midlayer."),),
        (adds(input_norm__weight=(768,)),),
        # A norm of that name alone is no layer of the target.
        (adds(enorm__weight=(256,)),),
    ],
)
def test_an_eagle3_draft_is_none_of_them(changes: tuple[Change, ...], tmp_path: Path) -> None:
    draft = open_checkpoint(write(changes, tmp_path))
    assert other_kind(draft) is None
    check_draft(draft)


@pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        ("NGRAM", "drafts from the text itself"),
        ("STANDALONE", "an ordinary small model"), ("ODD", "not drafted by"),
    ],
)  # fmt: skip
def test_a_server_that_drafted_otherwise_is_refused_by_name(algorithm: str, how: str) -> None:
    with pytest.raises(WorkbenchError, match=algorithm) as refused:
        check_launch(DraftLaunch("sglang==0.5.14", algorithm))
    assert how in refused.value.why
    check_launch(DraftLaunch("sglang==0.5.14", "EAGLE3"))
