"""SGLang's loader profiles, without an engine: tests/engines holds them against the real loaders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from benchmarks import kimi_like
from workbench.checkpoint.config import Config
from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.loaders.outcome import LoadOutcome
from workbench.loaders.profile import NotCovered, Profile, Refused
from workbench.loaders.sglang import PROFILES, RELEASES, class_for, draft_class_for, release
from workbench.loaders.simulate import simulate

Key = tuple[str, tuple[int, ...]]
HIDDEN, INNER, VOCAB, DRAFT_VOCAB, HEADS, KV_HEADS, HEAD = 128, 256, 256, 128, 4, 2, 32
DRAFT = "LlamaForCausalLMEagle3"


def config(**fields: Any) -> Config:
    """A flat EAGLE-3 config; a field given as ``...`` is left out."""
    raw: dict[str, Any] = {
        "architectures": [DRAFT],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "tie_word_embeddings": False,
    } | fields
    return Config({key: value for key, value in raw.items() if value is not ...})


def layer(at: str, width: int = 2 * HIDDEN, *, hidden_norm: bool = True) -> list[Key]:
    norms = ["input_layernorm", "post_attention_layernorm"] + ["hidden_norm"] * hidden_norm
    return [
        (f"{at}self_attn.q_proj.weight", (HEADS * HEAD, width)),
        (f"{at}self_attn.k_proj.weight", (KV_HEADS * HEAD, width)),
        (f"{at}self_attn.v_proj.weight", (KV_HEADS * HEAD, width)),
        (f"{at}self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)),
        (f"{at}mlp.gate_proj.weight", (INNER, HIDDEN)),
        (f"{at}mlp.up_proj.weight", (INNER, HIDDEN)),
        (f"{at}mlp.down_proj.weight", (HIDDEN, INNER)),
        *((f"{at}{norm}.weight", (HIDDEN,)) for norm in norms),
    ]


def draft(at: str, *more: Key, embed: bool = True) -> list[Key]:
    keys: list[Key] = [("d2t", (DRAFT_VOCAB,)), ("t2d", (VOCAB,)), ("norm.weight", (HIDDEN,))]
    keys += [("fc.weight", (HIDDEN, 3 * HIDDEN)), ("lm_head.weight", (DRAFT_VOCAB, HIDDEN))]
    keys += [("embed_tokens.weight", (VOCAB, HIDDEN))] * embed
    return [*keys, *layer(at), *more]


def profile_of(version: str, model_class: str = DRAFT) -> Profile:
    (found,) = (
        p
        for p in PROFILES
        if p.model_class == model_class and release(p.first) <= release(version) <= release(p.last)
    )
    return found


def load(
    version: str, keys: Iterable[Key], settings: Config | None = None, model_class: str = DRAFT
) -> LoadOutcome:
    profile = profile_of(version, model_class)
    table = TensorTable.from_rows([TensorInfo(n, "BF16", s, "model.safetensors") for n, s in keys])
    return simulate(profile, profile.build(settings or config()), table, version)


def keys_that_are(outcome: LoadOutcome, *states: str) -> set[str]:
    return {name for group in outcome.keys if group.status in states for name in group.names}


def parameters_that_are(outcome: LoadOutcome, state: str) -> set[str]:
    return {name for group in outcome.parameters if group.status == state for name in group.names}


def without(keys: Sequence[Key], *names: str) -> list[Key]:
    return [key for key in keys if key[0] not in names]


# --- ranges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", sorted({p.model_class for p in PROFILES}))
def test_the_ranges_of_a_class_have_no_gap_and_no_overlap(model_class: str) -> None:
    mine = sorted(
        (p for p in PROFILES if p.model_class == model_class), key=lambda p: release(p.first)
    )
    covered = [
        v for p in mine for v in RELEASES[RELEASES.index(p.first) : RELEASES.index(p.last) + 1]
    ]
    assert covered == list(RELEASES[RELEASES.index(mine[0].first) :])
    for profile in mine:
        assert set(profile.verified) <= set(covered)


def test_every_release_since_eagle3_appeared_has_a_draft_profile() -> None:
    for version in RELEASES[RELEASES.index("0.4.4.post2") :]:
        assert profile_of(version).model_class == DRAFT


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: f"{p.model_class}-{p.first}")
def test_every_claim_has_a_place_in_the_source(profile: Profile) -> None:
    assert re.fullmatch(r"sglang/srt/models/\S+\.py:\d+ \(\d\S+\)", profile.place)
    assert {"unknown", "missing", "mismatch"} <= set(profile.notes)


# --- drafts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.5.4.post2", "0.5.8", "0.5.11"])
def test_the_incident_ten_keys_of_the_layer_vanish_without_a_word(version: str) -> None:
    outcome = load(version, draft("layers.0."))
    assert outcome.outcome == "loads"
    assert keys_that_are(outcome, "dropped") == {name for name, _ in layer("layers.0.")}
    assert keys_that_are(outcome, "ignored") == {"t2d"}
    missing = parameters_that_are(outcome, "missing")
    assert len(missing) == 7
    assert all(name.startswith("model.midlayer.") for name in missing)


@pytest.mark.parametrize("version", ["0.5.12", "0.5.14", "0.5.23"])
@pytest.mark.parametrize("at", ["layers.0.", "midlayer.", "model.layers.0."])
def test_newer_releases_take_both_spellings(version: str, at: str) -> None:
    outcome = load(version, draft(at, embed=False))
    assert not keys_that_are(outcome, "dropped", "mismatched")
    assert not parameters_that_are(outcome, "missing") | parameters_that_are(outcome, "partial")
    assert parameters_that_are(outcome, "shared") == {"model.embed_tokens.weight"}


@pytest.mark.parametrize("version", ["0.4.4.post2", "0.4.8.post1"])
def test_the_oldest_loader_raises_at_a_layer_it_does_not_know(version: str) -> None:
    outcome = load(version, draft("layers.0."))
    assert outcome.outcome == "raises"
    assert "KeyError" in outcome.error


def test_the_oldest_class_has_a_bias_that_no_draft_carries() -> None:
    outcome = load("0.4.8.post1", draft("midlayer."))
    assert outcome.outcome == "loads"
    assert parameters_that_are(outcome, "missing") == {"model.fc.bias"}
    assert not parameters_that_are(load("0.4.9", draft("midlayer.")), "missing")


def test_a_training_prefix_loses_all_but_d2t() -> None:
    keys = [(f"draft_model.{name}", shape) for name, shape in draft("midlayer.", embed=False)]
    outcome = load("0.5.23", keys)
    assert keys_that_are(outcome, "loaded") == {"draft_model.d2t"}
    assert len(keys_that_are(outcome, "dropped")) == 13


def test_a_missing_shard_leaves_three_quarters() -> None:
    outcome = load("0.5.14", without(draft("midlayer."), "midlayer.self_attn.k_proj.weight"))
    (part,) = (group for group in outcome.parameters if group.status == "partial")
    assert part.names == ("model.layers.0.self_attn.qkv_proj.weight",)
    assert part.fraction == pytest.approx(0.75)


def test_a_missing_head_stays_random_unless_the_config_lends_the_targets() -> None:
    keys = without(draft("midlayer."), "lm_head.weight")
    assert parameters_that_are(load("0.5.23", keys), "missing") == {"lm_head.weight"}
    lent = load("0.5.23", without(keys, "d2t", "t2d"), config(draft_vocab_size=None))
    assert "lm_head.weight" in parameters_that_are(lent, "shared")


def test_a_tied_head_of_the_file_is_dropped() -> None:
    outcome = load("0.5.23", draft("midlayer."), config(tie_word_embeddings=True))
    assert keys_that_are(outcome, "dropped") == {"lm_head.weight"}


def test_a_second_layer_lacks_its_hidden_norm_and_never_reads_its_input_norm() -> None:
    second = layer("layers.1.", HIDDEN, hidden_norm=False)
    outcome = load("0.5.23", draft("layers.0.", *second), config(num_hidden_layers=2))
    assert parameters_that_are(outcome, "missing") == {"model.layers.1.hidden_norm.weight"}
    unused = {name for group in outcome.parameters if group.unused for name in group.names}
    assert unused == {"model.layers.1.input_layernorm.weight"}


def test_numbered_midlayers_become_a_name_that_nothing_has() -> None:
    outcome = load("0.5.23", draft("midlayer.0."))
    assert len(keys_that_are(outcome, "dropped")) == 10


def test_norms_load_only_where_release_and_config_know_them() -> None:
    norm: Key = ("input_norm.weight", (3 * HIDDEN,))
    keys, asked = draft("layers.0.", norm), config(norm_before_fc=True)
    assert keys_that_are(load("0.5.16", keys, asked), "dropped") == {norm[0]}
    assert not keys_that_are(load("0.5.17", keys, asked), "dropped")
    assert keys_that_are(load("0.5.17", keys), "dropped") == {norm[0]}
    nested = config(eagle_config={"norm_before_fc": True})
    assert not keys_that_are(load("0.5.17", keys, nested), "dropped")
    each: list[Key] = [(f"aux_norm_{name}.weight", (HIDDEN,)) for name in ("low", "mid", "high")]
    assert not keys_that_are(
        load("0.5.12", draft("layers.0.", *each), config(fc_norm=True)), "dropped"
    )


def test_fc_is_as_wide_as_the_auxiliary_layers_say() -> None:
    keys = [*without(draft("midlayer."), "fc.weight"), ("fc.weight", (HIDDEN, 4 * HIDDEN))]
    four = config(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]})
    assert not keys_that_are(load("0.5.12", keys, four), "mismatched")
    old = load("0.5.11", keys, four)
    assert old.outcome == "raises"
    assert keys_that_are(old, "mismatched") == {"fc.weight"}


def test_a_long_projection_is_cut_and_a_short_one_raises() -> None:
    name = "midlayer.self_attn.q_proj.weight"
    rest = without(draft("midlayer."), name)
    assert load("0.5.14", [*rest, (name, (256, 256))]).outcome == "loads"
    short = load("0.5.14", [*rest, (name, (64, 256))])
    assert short.outcome == "raises"
    assert keys_that_are(short, "mismatched") == {name}


def test_an_embedding_of_the_drafts_own_is_kept_for_another_width_of_target() -> None:
    keys = [*without(draft("midlayer."), "fc.weight"), ("fc.weight", (HIDDEN, 3 * 512))]
    outcome = load("0.5.14", keys, config(target_hidden_size=512))
    assert not parameters_that_are(outcome, "shared") | parameters_that_are(outcome, "missing")


@pytest.mark.parametrize(
    ("version", "fields", "said"),
    [
        ("0.5.11", {"num_hidden_layers": 2}, "only supports 1 layer"),
        ("0.5.23", {"draft_vocab_size": ...}, "no draft_vocab_size"),
        ("0.5.1", {"draft_vocab_size": None}, "null"),
        ("0.5.23", {"target_hidden_size": None}, "target_hidden_size is null"),
        ("0.5.23", {"hidden_act": "gelu"}, "silu"),
        ("0.5.23", {"model_type": ...}, "model_type"),
        ("0.5.23", {"transformer_layer_config": {"model_type": "llama"}}, "nested"),
    ],
)
def test_configs_that_sglang_refuses(version: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said) as refusal:
        profile_of(version).build(config(**fields))
    assert refusal.value.place


def test_what_is_not_described_is_not_guessed() -> None:
    for settings in (config(quantization_config={"quant_method": "awq"}), Config({})):
        with pytest.raises(NotCovered):
            profile_of("0.5.23").build(settings)


def test_fields_that_the_engine_does_not_read_are_named() -> None:
    asked = config(norm_before_residual=True, norm_before_fc=True, norm_output=True)
    said = {v: profile_of(v).build(asked).facts["not_read"] for v in ("0.5.11", "0.5.16", "0.5.23")}
    assert set(said["0.5.11"]) == {"norm_before_residual", "norm_before_fc", "norm_output"}
    assert set(said["0.5.16"]) == {"norm_before_residual", "norm_before_fc"}
    assert set(said["0.5.23"]) == {"norm_before_residual"}


@pytest.mark.parametrize("version", ["0.4.9", "0.5.8", "0.5.11", "0.5.14", "0.5.23"])
@pytest.mark.parametrize(
    ("shape", "stops"),
    [((2, 64), True), ((), True), ((1, 128), False), ((128, 1), False), ((128,), None)],
)
def test_d2t_has_one_dimension(version: str, shape: tuple[int, ...], stops: bool | None) -> None:
    """The loader adds arange(d2t.shape[0]) to it: some shapes stop it, others spread in silence."""
    outcome = load(version, [*without(draft("midlayer"), "d2t"), ("d2t", shape)])
    assert ("d2t" in keys_that_are(outcome, "mismatched")) == (stops is not None)
    assert (outcome.outcome == "raises") == bool(stops)
    if stops:
        assert "1 dimension" in outcome.error


def test_only_later_layers_leave_the_input_norm_unread() -> None:
    name = "model.layers.{}.input_layernorm.weight"
    assert profile_of("0.5.14").build(config()).unused == {}
    unused = profile_of("0.5.14").build(config(num_hidden_layers=2)).unused
    assert set(unused) == {name.format("{0}"), name.format(1)}


@pytest.mark.parametrize(
    "fields",
    [
        {"draft_vocab_size": "abc"},
        {"draft_vocab_size": [128]},
        {"draft_vocab_size": 128.5},
        {"draft_vocab_size": True},
        {"draft_vocab_size": -1},
        {"eagle_config": [1]},
        {"eagle_config": "x"},
        {"num_hidden_layers": 10**9},
    ],
)
def test_no_value_of_the_config_ends_in_a_traceback(fields: dict[str, Any]) -> None:
    for version in ("0.4.9", "0.5.8", "0.5.11", "0.5.14", "0.5.23"):
        with pytest.raises((Refused, NotCovered)):
            profile_of(version).build(config(**fields))


# --- targets ----------------------------------------------------------------------------------


def target(layers: int, *, qwen: str = "") -> list[Key]:
    keys: list[Key] = [
        ("model.embed_tokens.weight", (VOCAB, HIDDEN)),
        ("model.norm.weight", (HIDDEN,)),
    ]
    keys.append(("lm_head.weight", (VOCAB, HIDDEN)))
    for number in range(layers):
        at = f"model.layers.{number}."
        keys += layer(at, HIDDEN, hidden_norm=False)
        if qwen == "2":
            keys += [
                (f"{at}self_attn.{p}_proj.bias", (h * HEAD,))
                for p, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
            ]
        if qwen == "3":
            keys += [(f"{at}self_attn.{p}_norm.weight", (HEAD,)) for p in "qk"]
    return keys


def target_config(model_class: str, **fields: Any) -> Config:
    kinds = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
    return config(
        architectures=[model_class],
        model_type=kinds[model_class],
        num_hidden_layers=2,
        draft_vocab_size=...,
        **fields,
    )


@pytest.mark.parametrize("version", ["0.4.7", "0.5.8", "0.5.23"])
@pytest.mark.parametrize(
    ("model_class", "qwen"),
    [("LlamaForCausalLM", ""), ("Qwen2ForCausalLM", "2"), ("Qwen3ForCausalLM", "3")],
)
def test_targets_load_whole(version: str, model_class: str, qwen: str) -> None:
    settings = target_config(model_class)
    outcome = load(version, target(2, qwen=qwen), settings, model_class)
    assert outcome.outcome == "loads"
    assert keys_that_are(outcome, "dropped", "mismatched") == set()
    assert {group.status for group in outcome.parameters} == {"written"}
    longer = load(version, target(3, qwen=qwen), settings, model_class)
    assert longer.outcome == "loads"
    assert all(name.startswith("model.layers.2.") for name in keys_that_are(longer, "dropped"))


def test_qwen3_raises_where_llama_warns() -> None:
    keys: list[Key] = [("other.q_proj.weight", (4, 4))]
    for model_class, outcome in (("LlamaForCausalLM", "loads"), ("Qwen3ForCausalLM", "raises")):
        got = load("0.5.23", keys, target_config(model_class), model_class)
        assert got.outcome == outcome


def test_a_ready_fused_projection_loads_in_llama_and_not_in_qwen() -> None:
    keys: list[Key] = [("model.layers.0.self_attn.qkv_proj.weight", (256, HIDDEN))]
    llama = load("0.5.23", keys, target_config("LlamaForCausalLM"), "LlamaForCausalLM")
    assert keys_that_are(llama, "loaded") == {keys[0][0]}
    qwen = load("0.5.23", keys, target_config("Qwen2ForCausalLM"), "Qwen2ForCausalLM")
    assert keys_that_are(qwen, "dropped") == {keys[0][0]}


# --- DeepSeek and Kimi ------------------------------------------------------------------------


def kimi(*, layers: int = 3) -> tuple[list[Key], Config]:
    shape = kimi_like.SMALL
    keys = [(name, tuple(size)) for name, _, size in kimi_like.tensors(shape)]
    assert layers == shape.layers
    return keys, Config(dict(kimi_like.config(shape)))


@pytest.mark.parametrize("version", ["0.5.9", "0.5.14", "0.5.23"])
def test_kimi_loads_whole_and_one_missing_shard_is_named(version: str) -> None:
    keys, settings = kimi()
    model_class = class_for(settings)
    outcome = load(version, keys, settings, model_class)
    assert outcome.outcome == "loads"
    assert keys_that_are(outcome, "dropped", "ignored", "mismatched") == set()
    assert {group.status for group in outcome.parameters} == {"written"}
    lost = "language_model.model.layers.2.mlp.experts.1.up_proj.weight_packed"
    partial = [
        g for g in load(version, without(keys, lost), settings, model_class).parameters
        if g.status != "written"
    ]  # fmt: skip
    assert [g.wanted for g in partial] == [(lost,)]
    assert partial[0].fraction == pytest.approx(1 - 1 / 8)


def deepseek(prefix: str = "language_model.") -> tuple[list[Key], Config]:
    """The language model of the small Kimi, unquantised, with one NextN layer after it."""
    keys, settings = kimi()
    plain: list[Key] = []
    for name, shape in keys:
        if not name.startswith(prefix) or name.endswith((".weight_scale", ".weight_shape")):
            continue
        packed = name.endswith(".weight_packed")
        full = (shape[0], shape[1] * 8) if packed else shape
        plain.append((name.removeprefix(prefix).replace(".weight_packed", ".weight"), full))
    hidden = settings.text["hidden_size"]
    nextn = [(n.replace("layers.2.", "layers.3."), s) for n, s in plain if ".layers.2." in n]
    nextn += [(f"model.layers.3.{name}.weight", (hidden,)) for name in ("enorm", "hnorm")]
    nextn += [("model.layers.3.eh_proj.weight", (hidden, 2 * hidden))]
    nextn += [("model.layers.3.shared_head.norm.weight", (hidden,))]
    text = {
        k: v for k, v in settings.text.items() if k not in ("quantization_config", "architectures")
    }
    text |= {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_nextn_predict_layers": 1,
    }
    return plain + nextn, Config(text)


@pytest.mark.parametrize("version", ["0.4.4", "0.4.9", "0.5.8", "0.5.23"])
def test_a_deepseek_target_leaves_the_nextn_layer_to_the_draft(version: str) -> None:
    keys, settings = deepseek()
    outcome = load(version, keys, settings, "DeepseekV3ForCausalLM")
    assert outcome.outcome == "loads"
    assert not keys_that_are(outcome, "dropped", "mismatched")
    assert all(".layers.3." in name for name in keys_that_are(outcome, "ignored"))
    assert {group.status for group in outcome.parameters} == {"written"}


@pytest.mark.parametrize("version", ["0.4.6.post2", "0.5.8", "0.5.23"])
def test_a_nextn_draft_takes_its_layer_and_nothing_else(version: str) -> None:
    keys, settings = deepseek()
    assert draft_class_for(settings) == "DeepseekV3ForCausalLMNextN"
    outcome = load(version, keys, settings, "DeepseekV3ForCausalLMNextN")
    assert outcome.outcome == "loads"
    assert keys_that_are(outcome, "loaded") == {n for n, _ in keys if ".layers.3." in n}
    assert not keys_that_are(outcome, "dropped", "mismatched")
    assert parameters_that_are(outcome, "shared") == {"lm_head.weight", "model.embed_tokens.weight"}
    assert not parameters_that_are(outcome, "missing") | parameters_that_are(outcome, "partial")


def test_half_of_the_latent_projection_is_lost_whole() -> None:
    keys, settings = deepseek()
    kept = without(keys, "model.layers.1.self_attn.kv_a_proj_with_mqa.weight")
    outcome = load("0.5.23", kept, settings, "DeepseekV3ForCausalLM")
    assert keys_that_are(outcome, "dropped") == {"model.layers.1.self_attn.q_a_proj.weight"}
    assert parameters_that_are(outcome, "missing") == {
        "model.layers.1.self_attn.fused_qkv_a_proj_with_mqa.weight"
    }


def test_an_mla_draft_renames_layer_zero_alone() -> None:
    keys, settings = deepseek()
    size = settings.text["hidden_size"]
    at = "model.layers.0."
    inside = [(n.removeprefix(at), s) for n, s in keys if n.startswith(at)]
    wide = [
        (n, (s[0], 2 * size) if "a_proj" in n else s) for n, s in inside
    ] + [("hidden_norm.weight", (size,))]  # fmt: skip
    rest: list[Key] = [("fc.weight", (size, 3 * size)), ("norm.weight", (size,)), ("d2t", (64,))]
    rest += [("lm_head.weight", (64, size))]
    fields = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1}
    drafts = Config(settings.text | fields | {"draft_vocab_size": 64})
    for prefix, lost in (("layers.0.", 0), ("midlayer.", 0), ("model.layers.0.", len(wide))):
        given = rest + [(prefix + name, shape) for name, shape in wide]
        outcome = load("0.5.14", given, drafts, class_for(drafts))
        assert len(keys_that_are(outcome, "dropped")) == lost
        assert bool(parameters_that_are(outcome, "missing")) == bool(lost)
