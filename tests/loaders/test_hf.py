"""The profiles of transformers and TensorRT-LLM, on the shipped checkpoints and altered copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from workbench.checkpoint.config import Config
from workbench.checkpoint.open import open_checkpoint
from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.loaders import hf, registry, tensorrt_llm
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import Refused
from workbench.loaders.simulate import simulate

DRAFTS = Path(__file__).parents[2] / "data" / "drafts"
Rows = list[TensorInfo]


def load(
    version: str,
    change: Callable[[Rows], Rows] = list,
    name: str = "target",
    model_class: str = "LlamaForCausalLM",
    **config: Any,
) -> LoadOutcome:
    room = tensorrt_llm if "Eagle3" in model_class else hf
    (rules,) = (
        p
        for p in room.PROFILES
        if p.model_class == model_class and Version(p.first) <= Version(version) <= Version(p.last)
    )
    checkpoint = open_checkpoint(DRAFTS / name)
    table = TensorTable.from_rows(change(list(checkpoint.table)))
    return simulate(rules, rules.build(Config({**checkpoint.config.raw, **config})), table, version)


def keys(outcome: LoadOutcome, status: str) -> set[str]:
    return {n for g in outcome.keys if g.status == status for n in g.names}


def parameters(outcome: LoadOutcome, status: str) -> set[str]:
    return {n for g in outcome.parameters if g.status == status for n in g.names}


def renamed(old: str, new: str) -> Callable[[Rows], Rows]:
    return lambda rows: [dataclasses.replace(r, name=r.name.replace(old, new)) for r in rows]


@pytest.mark.parametrize("version", ["4.57.1", "5.8.1", "5.24.0"])
def test_the_target_loads(version: str) -> None:
    outcome = load(version)
    assert outcome.outcome == "loads"
    assert (len(keys(outcome, "loaded")), keys(outcome, "dropped")) == (75, set())
    assert len(parameters(outcome, "written")) == 75


def test_lost_and_lacking_tensors_are_only_warned_about() -> None:
    outcome = load("5.24.0", renamed("layers.3.mlp.up_proj", "layers.3.mlp.up"))
    assert outcome.outcome == "loads"
    assert keys(outcome, "dropped") == {"model.layers.3.mlp.up.weight"}
    assert parameters(outcome, "missing") == {"model.layers.3.mlp.up_proj.weight"}
    (group,) = (g for g in outcome.keys if g.status == "dropped")
    assert "with a warning" in group.reason


def test_a_wrong_shape_stops_it() -> None:
    outcome = load("5.24.0", intermediate_size=512)
    assert outcome.outcome == "raises"
    assert len(keys(outcome, "mismatched")) == 24


def test_a_file_of_the_model_without_its_head() -> None:
    outcome = load("5.24.0", renamed("model.", ""))
    assert keys(outcome, "dropped") == set()
    assert len(parameters(outcome, "written")) == 75


def test_tied_weights() -> None:
    tied = load("5.24.0", tie_word_embeddings=True)
    assert keys(tied, "dropped") == set()
    assert "lm_head.weight" not in parameters(tied, "written")
    head_only = load(
        "5.24.0",
        lambda rows: [r for r in rows if "embed" not in r.name],
        tie_word_embeddings=True,
    )
    assert parameters(head_only, "missing") == set()  # 5.x ties either way
    old = load(
        "4.57.1",
        lambda rows: [r for r in rows if "embed" not in r.name],
        tie_word_embeddings=True,
    )
    assert parameters(old, "missing") == {"model.embed_tokens.weight"}


def test_defaults_of_the_config_class_hold_where_the_file_is_silent() -> None:
    rules = next(p for p in hf.PROFILES if p.model_class == "Qwen3ForCausalLM" and p.last[0] == "5")
    model = rules.build(Config({"model_type": "qwen3", "hidden_size": 256}))
    assert model.shapes["model.layers.{0}.self_attn.q_proj.weight"] == (32 * 128, 256)
    assert model.shapes["model.layers.{0}.self_attn.k_norm.weight"] == (128,)


def test_a_speculators_config_is_refused() -> None:
    with pytest.raises(Refused, match="model_type"):
        load("5.24.0", name="speculators")


def test_tensorrt_llm_reads_both_spellings_and_says_nothing() -> None:
    outcome = load("1.3.0rc0", name="specforge", model_class="LlamaForCausalLMEagle3")
    assert (len(keys(outcome, "loaded")), keys(outcome, "ignored")) == (14, {"t2d"})
    spelled = renamed("midlayer.", "layers.0.")
    again = load("1.3.0rc0", spelled, "specforge", "LlamaForCausalLMEagle3")
    assert len(keys(again, "loaded")) == 14
    lost = load("1.3.0rc0", renamed("midlayer.", "x."), "specforge", "LlamaForCausalLMEagle3")
    assert (lost.outcome, len(keys(lost, "dropped"))) == ("loads", 10)
    assert len(parameters(lost, "missing")) == 7
    assert parameters(lost, "shared") == {"model.embed_tokens.weight"}


def test_tensorrt_llm_takes_the_targets_head_where_there_is_none() -> None:
    outcome = load(
        "1.3.0rc0",
        lambda rows: [r for r in rows if "lm_head" not in r.name],
        "specforge",
        "LlamaForCausalLMEagle3",
    )
    assert parameters(outcome, "shared") == {"lm_head.weight", "model.embed_tokens.weight"}


def test_a_development_branch_is_never_certain() -> None:
    config = open_checkpoint(DRAFTS / "specforge").config
    choice = registry.select(registry.parse("tensorrt-llm"), config)
    assert not choice.certain
    assert "development branch" in choice.why
