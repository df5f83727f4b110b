"""Proposed renames: found, composed, proved; and never more sure than the names allow."""

from __future__ import annotations

import pytest

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.keys.records import Rename
from workbench.keys.rename import propose
from workbench.loaders.inspect import model_of, strict_profile
from workbench.loaders.simulate import simulate

Rows = dict[str, tuple[int, ...]]

BODY: Rows = {
    "self_attn.q_proj.weight": (8, 16),
    "self_attn.k_proj.weight": (4, 16),
    "self_attn.v_proj.weight": (4, 16),
    "self_attn.o_proj.weight": (8, 8),
    "mlp.gate_proj.weight": (12, 8),
    "mlp.up_proj.weight": (12, 8),
    "mlp.down_proj.weight": (8, 12),
    "input_layernorm.weight": (8,),
    "post_attention_layernorm.weight": (8,),
}
HEADS: Rows = {"embed_tokens.weight": (32, 8), "norm.weight": (8,)}


def layers(prefix: str, count: int = 3) -> Rows:
    return {f"{prefix}layers.{n}.{k}": v for n in range(count) for k, v in BODY.items()}


def table(rows: Rows, dtype: str = "BF16") -> TensorTable:
    return TensorTable.from_rows([TensorInfo(n, dtype, s, "") for n, s in rows.items()])


def ask(have: Rows, wants: Rows, dtype: str = "BF16") -> tuple[Rename, ...]:
    model = model_of(table(wants))
    profile = strict_profile("model")
    mine = table(have, dtype)
    return propose(
        mine, simulate(profile, model, mine, ""), lambda t: simulate(profile, model, t, "")
    )


def only(found: tuple[Rename, ...]) -> Rename:
    (rename,) = found
    return rename


def test_layer_prefix() -> None:
    have = {f"layers.0.{k}": v for k, v in BODY.items()} | HEADS
    wants = {f"midlayer.{k}": v for k, v in BODY.items()} | HEADS
    rename = only(ask(have, wants))
    assert rename.proved
    assert rename.chosen
    assert rename.steps == ((r"^layers\.0\.", "midlayer."),)
    assert rename.renamed == len(BODY)
    assert rename.leaves_keys == rename.leaves_parameters == ()
    assert ("layers.0.mlp.up_proj.weight", "midlayer.mlp.up_proj.weight") in {
        pair[:2] for pair in rename.pairs
    }


def test_prefix_of_everything() -> None:
    wants = layers("") | HEADS
    rename = only(ask({f"draft_model.{k}": v for k, v in wants.items()}, wants))
    assert rename.proved
    assert rename.chosen
    assert rename.renamed == len(wants)


def test_prefix_that_is_lacking() -> None:
    wants = {f"model.{k}": v for k, v in (layers("") | HEADS).items()}
    rename = only(ask(layers("") | HEADS, wants))
    assert rename.chosen


def test_many_layers_keep_their_numbers() -> None:
    have = {k.replace("layers.", "h."): v for k, v in layers("").items()} | HEADS
    rename = only(ask(have, layers("") | HEADS))
    assert rename.chosen
    assert rename.renamed == 3 * len(BODY)


def test_inner_segment() -> None:
    have = {k.replace("self_attn", "attention"): v for k, v in layers("").items()} | HEADS
    rename = only(ask(have, layers("") | HEADS))
    assert rename.chosen
    assert rename.renamed == 3 * 4


def test_rules_compose() -> None:
    wants = {f"midlayer.{k}": v for k, v in BODY.items()} | HEADS
    have = {f"draft_model.layers.0.{k}": v for k, v in BODY.items()}
    have |= {f"draft_model.{k}": v for k, v in HEADS.items()}
    rename = only(ask(have, wants))
    assert rename.chosen
    assert len(rename.steps) == 2
    assert rename.renamed == len(wants)


def test_fused_projections() -> None:
    wants = {
        k: v
        for k, v in layers("model.").items()
        if "_proj" not in k or "o_proj" in k or "down" in k
    }
    for n in range(3):
        wants[f"model.layers.{n}.self_attn.qkv_proj.weight"] = (16, 16)
        wants[f"model.layers.{n}.mlp.gate_up_proj.weight"] = (24, 8)
    rename = only(ask(layers(""), wants))
    assert rename.proved
    assert {whole for _, whole in rename.fuses} == {"qkv_proj", "gate_up_proj"}
    assert rename.steps


def test_two_equal_candidates_are_shown_and_none_is_chosen() -> None:
    found = ask({"a.weight": (8,), "b.weight": (8,)}, {"c.weight": (8,), "d.weight": (8,)})
    assert len(found) == 2
    assert all(rename.proved and not rename.chosen for rename in found)


def test_wrong_shape_is_no_candidate() -> None:
    assert not ask({"a.weight": (8, 2)}, {"b.weight": (2, 8)})


def test_partial_proof_says_what_it_leaves() -> None:
    have = {f"layers.0.{k}": v for k, v in BODY.items()} | {"extra.bias": (3,)}
    wants = {f"midlayer.{k}": v for k, v in BODY.items()} | {"lm_head.weight": (32, 8)}
    rename = only(ask(have, wants))
    assert not rename.proved
    assert not rename.chosen
    assert rename.leaves_keys == ("extra.bias",)
    assert rename.leaves_parameters == ("lm_head.weight",)


def test_integers_do_not_become_weights() -> None:
    assert not ask({"a.weight": (8,)}, {"b.weight": (8,)}, dtype="I64")


@pytest.mark.parametrize("have", [{}, {"norm.weight": (8,)}])
def test_nothing_lost_proposes_nothing(have: Rows) -> None:
    assert ask(have, {"norm.weight": (8,), "fc.weight": (4, 4)}) == ()


def test_a_rule_that_breaks_what_loads_is_not_proposed() -> None:
    # `layers.0.` holds a tensor that loads; moving the whole prefix would lose it.
    have = {"layers.0.norm.weight": (8,), "layers.0.fc.weight": (4, 4)}
    wants = {"layers.0.norm.weight": (8,), "mid.fc.weight": (4, 4)}
    for rename in ask(have, wants):
        assert "layers.0.norm.weight" not in rename.leaves_keys
        assert rename.renamed == 1


def test_a_shape_alone_never_chooses() -> None:
    # One tensor too many and one too few, of one shape: fits formally, means nothing.
    have = HEADS | {"fc.weight": (12, 8)}
    rename = only(ask(have, HEADS | {"midlayer.mlp.up_proj.weight": (12, 8)}))
    assert rename.proved
    assert not rename.by_name
    assert not rename.chosen
    assert "only the shapes" in rename.proof


def test_one_segment_within_a_name_is_evidence() -> None:
    have = {"layers.0.self_attn.query.weight": (8, 16)} | HEADS
    assert only(ask(have, {"layers.0.self_attn.q_proj.weight": (8, 16)} | HEADS)).chosen
