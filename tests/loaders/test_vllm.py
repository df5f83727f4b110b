"""vLLM's profiles, on the shipped drafts and on altered copies of them."""

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
from workbench.loaders import vllm
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import Profile, Refused
from workbench.loaders.simulate import simulate

DRAFTS = Path(__file__).parents[2] / "data" / "drafts"
LLAMA = "Eagle3LlamaForCausalLM"
Rows = list[TensorInfo]


def profile(version: str, model_class: str = LLAMA) -> Profile:
    (found,) = (
        p
        for p in vllm.PROFILES
        if p.model_class == model_class and Version(p.first) <= Version(version) <= Version(p.last)
    )
    return found


def load(
    name: str,
    version: str,
    change: Callable[[Rows], Rows] = list,
    model_class: str = LLAMA,
    **config: Any,
) -> LoadOutcome:
    checkpoint = open_checkpoint(DRAFTS / name)
    raw = {**checkpoint.config.raw, **config}
    rules = profile(version, model_class)
    table = TensorTable.from_rows(change(list(checkpoint.table)))
    return simulate(rules, rules.build(Config(raw)), table, version)


def keys(outcome: LoadOutcome, status: str) -> set[str]:
    return {n for g in outcome.keys if g.status == status for n in g.names}


def parameters(outcome: LoadOutcome, status: str) -> set[str]:
    return {n for g in outcome.parameters if g.status == status for n in g.names}


def renamed(old: str, new: str) -> Callable[[Rows], Rows]:
    return lambda rows: [dataclasses.replace(r, name=r.name.replace(old, new)) for r in rows]


def without(*names: str) -> Callable[[Rows], Rows]:
    return lambda rows: [r for r in rows if r.name not in names]


def plus(name: str, shape: tuple[int, ...]) -> Callable[[Rows], Rows]:
    return lambda rows: [*rows, TensorInfo(name, "F32", shape, rows[0].shard)]


@pytest.mark.parametrize("version", ["0.11.2", "0.15.1", "0.19.1", "0.24.0", "0.32.0"])
@pytest.mark.parametrize(("name", "loaded"), [("speculators", 15), ("specforge", 14)])
def test_both_spellings_load_in_every_range(name: str, loaded: int, version: str) -> None:
    outcome = load(name, version)
    assert outcome.outcome == "loads"
    assert len(keys(outcome, "loaded")) == loaded
    assert keys(outcome, "ignored") == {"t2d"}
    assert not parameters(outcome, "missing") | parameters(outcome, "partial")
    own = "embed_tokens.weight" in keys(outcome, "loaded")
    assert parameters(outcome, "shared") == (set() if own else {"model.embed_tokens.weight"})


def test_a_prefix_stops_the_loader() -> None:
    outcome = load("speculators", "0.32.0", renamed("layers.0.", "decoder.0."))
    assert outcome.outcome == "raises"
    assert len(keys(outcome, "dropped")) == 10
    assert len(parameters(outcome, "missing")) == 7


def test_a_missing_layer_is_not_noticed() -> None:
    outcome = load("specforge", "0.32.0", lambda rows: [r for r in rows if "mlp" not in r.name])
    assert outcome.outcome == "loads"
    assert parameters(outcome, "missing") == {
        "model.layers.0.mlp.gate_up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
    }


def test_one_shard_missing_leaves_a_quarter_unfilled() -> None:
    outcome = load("specforge", "0.32.0", without("midlayer.self_attn.k_proj.weight"))
    (group,) = (g for g in outcome.parameters if g.status == "partial")
    assert group.names == ("model.layers.0.self_attn.qkv_proj.weight",)
    assert group.fraction == pytest.approx(0.75)


def test_deep_modelopt_names_stop_the_loader() -> None:
    deep = renamed("midlayer.", "midlayer.0.")
    assert load("specforge", "0.32.0", deep).outcome == "raises"


def test_a_norm_behind_a_flag_is_dropped_without_a_word() -> None:
    more = plus("input_norm.weight", (384,))
    off = load("specforge", "0.32.0", more)
    assert (off.outcome, keys(off, "dropped")) == ("loads", {"input_norm.weight"})
    on = load("specforge", "0.32.0", more, norm_before_fc=True)
    assert "input_norm.weight" in keys(on, "loaded")
    # The releases before 0.18 know no such norm, and no skip either.
    assert load("specforge", "0.17.1", more, norm_before_fc=True).outcome == "raises"
    nested = load("speculators", "0.18.1", more, norm_before_fc=True)
    assert keys(nested, "dropped") == {"input_norm.weight"}  # not passed on from that form yet


def test_fc_norm_needs_its_flag() -> None:
    more = plus("fc_norm.0.weight", (128,))
    assert load("specforge", "0.32.0", more).outcome == "raises"
    assert load("specforge", "0.32.0", more, fc_norm=True).outcome == "loads"


def test_a_bias_of_a_known_layer_is_forgiven_since_0_25() -> None:
    more = plus("midlayer.self_attn.o_proj.bias", (128,))
    new, old = load("specforge", "0.25.1", more), load("specforge", "0.24.0", more)
    assert (new.outcome, old.outcome) == ("loads", "raises")
    assert keys(new, "dropped") == {"midlayer.self_attn.o_proj.bias"}
    assert load("specforge", "0.25.1", plus("attn.bias", (128,))).outcome == "raises"
    assert load("specforge", "0.32.0", plus("lm_head.bias", (128,))).outcome == "loads"


def test_d2t_beside_a_full_vocabulary() -> None:
    def full(rows: Rows) -> Rows:
        shapes = {"lm_head.weight": (256, 128), "d2t": (256,)}
        return [dataclasses.replace(r, shape=shapes.get(r.name, r.shape)) for r in rows]

    old = load("specforge", "0.29.0", full, draft_vocab_size=256)
    new = load("specforge", "0.30.0", full, draft_vocab_size=256)
    assert (old.outcome, new.outcome) == ("loads", "raises")
    assert "whole vocabulary" in new.error


def test_q_norm_needs_the_qwen3_class() -> None:
    def normed(rows: Rows) -> Rows:
        for part in ("q_norm", "k_norm"):
            rows = plus(f"layers.0.self_attn.{part}.weight", (32,))(rows)
        return rows

    layer = open_checkpoint(DRAFTS / "speculators").config.raw["transformer_layer_config"]
    qwen = {"transformer_layer_config": {**layer, "model_type": "qwen3"}}
    raw = Config(open_checkpoint(DRAFTS / "speculators").config.raw | qwen)
    assert vllm.class_for(raw) == "Eagle3Qwen3ForCausalLM"
    new = load("speculators", "0.32.0", normed, "Eagle3Qwen3ForCausalLM", **qwen)
    old = load("speculators", "0.23.0", normed, "Eagle3Qwen3ForCausalLM", **qwen)
    assert (new.outcome, old.outcome) == ("loads", "raises")
    assert load("speculators", "0.32.0", normed).outcome == "raises"


def test_a_longer_projection_is_cut_without_a_word() -> None:
    def longer(rows: Rows) -> Rows:
        return [dataclasses.replace(r, shape=(160, 256)) if "q_proj" in r.name else r for r in rows]

    outcome = load("specforge", "0.32.0", longer)
    assert outcome.outcome == "loads"
    assert keys(outcome, "mismatched") == {"midlayer.self_attn.q_proj.weight"}


def test_a_second_layer_does_not_read_its_hidden_norm() -> None:
    outcome = load("specforge", "0.32.0", num_hidden_layers=2)
    dead = {n for g in outcome.parameters if g.unused for n in g.names}
    assert dead == {"model.layers.1.hidden_norm.weight"}
    assert "model.layers.1.hidden_norm.weight" not in parameters(outcome, "missing")
    assert "model.layers.1.input_layernorm.weight" in parameters(outcome, "missing")


def test_configs_that_vllm_refuses() -> None:
    with pytest.raises(Refused, match="target_hidden_size is null"):
        load("specforge", "0.32.0", target_hidden_size=None)
    with pytest.raises(Refused, match="speculators_model_type"):
        load("speculators", "0.32.0", speculators_model_type="mtp")


def test_the_target() -> None:
    outcome = load("target", "0.32.0", model_class="LlamaForCausalLM")
    assert (outcome.outcome, len(keys(outcome, "dropped"))) == ("loads", 0)
    gone = without("model.layers.3.mlp.down_proj.weight")
    assert load("target", "0.19.1", gone, "LlamaForCausalLM").outcome == "raises"
    newer = load("target", "0.32.0", gone, "LlamaForCausalLM")
    assert newer.outcome == "loads"  # linear layers are exempt from the check by then
    assert parameters(newer, "missing") == {"model.layers.3.mlp.down_proj.weight"}
    normless = without("model.layers.3.input_layernorm.weight")
    assert load("target", "0.32.0", normless, "LlamaForCausalLM").outcome == "raises"
    tied = load("target", "0.32.0", model_class="LlamaForCausalLM", tie_word_embeddings=True)
    assert keys(tied, "ignored") == {"lm_head.weight"}
