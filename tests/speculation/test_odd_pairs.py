"""What is seldom seen: tied, quantised or incomplete targets, and faults that no switch undoes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.speculation.faults import evidence
from tests.speculation.faults.faults import (
    LAYER,
    NEW,
    Change,
    Fault,
    exchanged,
    listed,
    lost,
    renamed,
)
from tests.speculation.model.test_draft import CONFIG, H, V, target_of, write_draft
from workbench.checkpoint.open import open_checkpoint
from workbench.errors import WorkbenchError
from workbench.speculation.ablate import single_changes as bench
from workbench.speculation.ablate.single_changes import ablate
from workbench.speculation.ablate.static_checks import check
from workbench.speculation.evidence.driving import Driving
from workbench.speculation.judge.trial import Trial
from workbench.speculation.model.loading import load_draft
from workbench.speculation.model.target import LlamaTarget
from workbench.speculation.rounds.run import generate

Tensors = dict[str, torch.Tensor]
PROMPTS = [[5, 9, 2, 30], [7, 1, 1]]


def stored(folder: Path, change: Callable[[Tensors], Any] | None = None, **config: Any) -> Path:
    """Write the small target, changed."""
    tensors = dict(target_of(2).weights)
    if change is not None:
        change(tensors)
    folder.mkdir()
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors"
    )
    said = {**CONFIG, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, **config}
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def read(folder: Path) -> LlamaTarget:
    return LlamaTarget.read(open_checkpoint(folder))


def test_a_target_is_read_as_it_is(tmp_path: Path) -> None:
    target = read(stored(tmp_path / "t"))
    assert target.greedy(PROMPTS, 6) == target_of(2).greedy(PROMPTS, 6)
    assert not target.notes


def test_a_tied_target_has_no_head_of_its_own(tmp_path: Path) -> None:
    target = read(
        stored(tmp_path / "t", lambda t: t.pop("lm_head.weight"), tie_word_embeddings=True)
    )
    assert target.head is target.embedding
    plain = target_of(2)
    weights = {**plain.weights, "lm_head.weight": plain.embedding}
    alike = LlamaTarget(weights, {**CONFIG, "num_hidden_layers": 2})
    assert target.greedy(PROMPTS, 6) == alike.greedy(PROMPTS, 6)
    # A draft without a head of its own is lent the embedding where the vocabulary is the target's.
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    assert draft.origins["lm_head.weight"] == "file"
    trace, found = generate(target, draft, Driving(aux=(0, 1, 2)), PROMPTS, 6)
    assert len(found) > 0
    assert trace.lengths.tolist() == [10, 9]


def pack(name: str, value: torch.Tensor, size: int = 8) -> tuple[Tensors, torch.Tensor]:
    """Return a matrix in four bits as compressed-tensors packs it, and what it then holds."""
    rows, columns = value.shape
    groups = value.reshape(rows, -1, size)
    scale = groups.abs().amax(-1, keepdim=True) / 7
    codes = (groups / scale).round().clamp(-8, 7)
    held = (codes * scale).reshape(rows, columns)
    words = (codes.reshape(rows, -1, 8).long() + 8) << (4 * torch.arange(8))
    total = words.sum(-1)
    total = torch.where(total >= 1 << 31, total - (1 << 32), total)
    base = name.removesuffix(".weight")
    return {
        f"{base}.weight_packed": total.int(),
        f"{base}.weight_scale": scale[..., 0],
        f"{base}.weight_shape": torch.tensor([rows, columns]),
    }, held


QUANTISED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


def packed(tensors: Tensors) -> None:
    """Pack all matrices of the layers whose width goes into words of eight codes."""
    for name in [n for n in tensors if ".layers." in n and tensors[n].dim() == 2]:
        if tensors[name].shape[1] % 8 == 0:
            tensors.update(pack(name, tensors.pop(name))[0])


def test_a_target_of_four_bits_is_dequantised_and_said(tmp_path: Path) -> None:
    target = read(stored(tmp_path / "t", packed, quantization_config=QUANTISED))
    plain = target_of(2)
    changed = 0
    for name, value in plain.weights.items():
        if ".layers." in name and value.dim() == 2 and value.shape[1] % 8 == 0:
            wanted = pack(name, value)[1]
            torch.testing.assert_close(target.weights[name], wanted, rtol=1e-6, atol=1e-6)
            assert not torch.equal(wanted, value)
            changed += 1
        else:
            assert torch.equal(target.weights[name], value)
    assert changed >= 12
    assert "dequantised" in target.notes[0]
    draft = load_draft(open_checkpoint(write_draft(tmp_path / "d")), target)
    assert draft.notes == target.notes
    assert len(generate(target, draft, Driving(aux=(0, 1, 2)), PROMPTS, 6)[1]) > 0


def short_scales(tensors: Tensors) -> None:
    packed(tensors)
    name = "model.layers.1.mlp.up_proj.weight_scale"
    tensors[name] = tensors[name][:, :0]


WRONG: dict[str, tuple[Callable[[Tensors], Any] | None, dict[str, Any], str]] = {
    "no head": (lambda t: t.pop("lm_head.weight"), {}, "has no lm_head.weight"),
    "a lost shard": (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), {}, "has no model.layers.1.mlp"),
    "a head too short": (
        lambda t: t.update({"lm_head.weight": torch.ones(V - 1, H)}), {},
        r"lm_head.weight has shape \[39, 16\]",
    ),
    "a flat norm": (
        lambda t: t.update({"model.norm.weight": torch.ones(1, H)}), {}, "model.norm.weight has shape",
    ),
    "biases of the feed-forward part": (
        lambda t: t.update({"model.layers.0.mlp.up_proj.bias": torch.ones(20)}), {}, "not computed with here",
    ),
    "scales of nothing": (short_scales, {"quantization_config": QUANTISED}, "up_proj.weight"),
    "more layers": (None, {"num_hidden_layers": 3}, "has no model.layers.2"),
    "a million layers": (None, {"num_hidden_layers": 1_000_000}, "num_hidden_layers is 1000000"),
    "another width": (None, {"hidden_size": 32}, "has shape"),
    "a width in words": (None, {"hidden_size": "16"}, "hidden_size is '16'"),
    "no heads": (None, {"num_attention_heads": 0}, "num_attention_heads is 0"),
    "heads that do not divide": (None, {"num_key_value_heads": 3}, "num_key_value_heads is 3"),
    "an epsilon in words": (None, {"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'"),
    "tied in words": (None, {"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'"),
    "another model": (None, {"model_type": "gemma3"}, "a target of type 'gemma3' is not run here"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_target_that_cannot_be_run_is_refused(name: str, tmp_path: Path) -> None:
    change, config, said = WRONG[name]
    with pytest.raises(WorkbenchError, match=said) as caught:
        read(stored(tmp_path / "t", change, **config))
    assert caught.value.next_step


def swapped(tensors: Tensors, config: dict[str, Any]) -> None:
    """Save keys and values under each other's name; they have one shape."""
    exchanged("self_attn.k_proj", "self_attn.v_proj")(tensors, config)


def trial_of(folder: Path, *changes: Change) -> Trial:
    return evidence.of_fault(Fault("one", "", changes, frozenset(), NEW, "EAGLE3"), folder, 8)


def test_keys_and_values_exchanged_accuse_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No switch undoes it, and almost nothing is accepted, by the trainer's own names either."""
    monkeypatch.setattr(bench, "_FIRSTS", 1)  # pairs with every switch would take a minute
    verdict = ablate(trial_of(tmp_path / "d", swapped)).cause
    assert verdict.state == "draft_itself"
    assert not verdict.facts
    assert "neither one change nor a pair" in verdict.sentence


@pytest.mark.parametrize("norm", ["input_layernorm", "hidden_norm"])
def test_a_lost_norm_is_said_and_is_no_cause_of_nothing(norm: str, tmp_path: Path) -> None:
    """The shipped draft loses next to nothing by it."""
    trial = trial_of(tmp_path / "d", lost(f"{LAYER}{norm}.weight"))
    (hint,) = [hint for hint in check(trial) if hint.finding.code == "norm_absent"]
    assert hint.finding.title.startswith(f"{LAYER}{norm}.weight is in no file")
    assert hint.sure
    found = ablate(trial)
    assert not found.cause.facts
    assert found.ok is not False


def test_what_is_saved_under_another_name_is_not_absent(tmp_path: Path) -> None:
    trial = trial_of(tmp_path / "d", renamed("norm.", "draft_model.norm."))
    assert trial.draft.origins["norm.weight"] == "ones"
    assert "norm_absent" not in {hint.finding.code for hint in check(trial)}


def test_an_order_of_layers_and_one_of_blocks_are_not_told_apart(tmp_path: Path) -> None:
    """Reading the layers backwards and joining fc's blocks backwards are the same arithmetic."""
    verdict = ablate(trial_of(tmp_path / "d", listed(8, 5, 1))).cause
    assert verdict.state == "lost"
    assert "fc's blocks in the order 3 2 1" in verdict.sentence
    assert "the inputs of layers 2, 6, 9" in verdict.sentence
    assert "cannot distinguish the two" in verdict.sentence
