"""Contracts beyond names: each case has the numbers of a small EAGLE-3 draft (H 128, V 256, D 128)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from workbench.checkpoint.records import TensorInfo, TensorTable
from workbench.core.finding import Finding
from workbench.drafts.contracts import check
from workbench.launch.read import read_launch
from workbench.loaders.outcome import KeyGroup, LoadOutcome

V, D, H = 256, 128, 128
KEPT = np.arange(D) * 2  # every second id, as the fixture generators choose
DTYPES = {"int64": "I64", "bool": "BOOL", "float32": "F32"}

BASE = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": H,
    "vocab_size": V,
    "draft_vocab_size": D,
    "tie_word_embeddings": False,
}


@dataclasses.dataclass
class Config:
    """Stands in for checkpoint.config.Config."""

    raw: dict[str, Any]
    layout: str = "huggingface"

    @property
    def architectures(self) -> tuple[str, ...]:
        return tuple(self.raw.get("architectures", ()))

    @property
    def model_type(self) -> str:
        return self.raw.get("model_type", "")

    def get(self, name: str, default: Any = None) -> Any:
        return self.raw.get(name, default)


@dataclasses.dataclass
class Checkpoint:
    config: Config
    arrays: dict[str, np.ndarray]

    @property
    def table(self) -> TensorTable:
        return TensorTable.from_rows(
            [TensorInfo(k, DTYPES[str(a.dtype)], a.shape, "m") for k, a in self.arrays.items()]
        )

    def numpy(self, name: str) -> np.ndarray:
        return self.arrays[name]


OFFSETS = KEPT - np.arange(D)


def draft(d2t: Any = OFFSETS, t2d: Any = None, **config: Any) -> Checkpoint:
    arrays = {
        "fc.weight": np.zeros((H, 3 * H), np.float32),
        "midlayer.hidden_norm.weight": np.zeros(H, np.float32),
        "lm_head.weight": np.zeros((D, H), np.float32),
    }
    if d2t is not None:
        arrays["d2t"] = np.asarray(d2t)
    if t2d is not None:
        arrays["t2d"] = np.isin(np.arange(V), t2d)
    fields = {k: v for k, v in (BASE | config).items() if v is not ...}
    return Checkpoint(Config(fields), arrays)


def run(
    checkpoint: Checkpoint,
    engine: str = "sglang==0.5.14",
    cls: str = "LlamaForCausalLMEagle3",
    dropped: tuple[str, ...] = (),
    **more: Any,
) -> dict[str, Finding]:
    name, _, version = engine.partition("==")
    keys = tuple(
        KeyGroup("dropped", group)
        for group in TensorTable.from_rows([TensorInfo(n, "F32", (1,), "") for n in dropped]).groups
    )
    outcome = LoadOutcome(name, version, cls, "profile_source_read", "loads", keys, ())
    if "launch" in more:
        more["launch"] = read_launch(more["launch"], version=version)
    found = check(checkpoint, outcome, **more)
    assert all(f.next_step and f.title and f.evidence_for for f in found)
    return {f.code: f for f in found}


def breaks(finding: Finding) -> bool:
    return finding.changes_output and finding.confidence == "certain"


# -- d2t ------------------------------------------------------------------------------------


def test_a_proper_map_is_not_accused() -> None:
    assert run(draft(t2d=KEPT)) == {}


def test_absolute_ids_are_proved_by_t2d() -> None:
    found = run(draft(d2t=KEPT, t2d=KEPT))
    assert list(found) == ["d2t_absolute"]
    assert breaks(found["d2t_absolute"])
    text = " ".join(found["d2t_absolute"].evidence_for)
    assert "d2t[1] = 2, so draft id 1 is read as 3" in text
    assert "arange+d2t reaches 381 > vocab 256" in text


def test_absolute_ids_without_t2d_need_a_sum_out_of_range() -> None:
    assert breaks(run(draft(d2t=KEPT))["d2t_absolute"])
    # d2t = 0, 1, 2 … is the offset map of every second id, and the first D ids too.
    found = run(draft())["d2t_cannot_tell"]
    assert found.confidence == "unknown"


def test_zeros_are_right_for_the_first_ids_only() -> None:
    zeros = np.zeros(D, np.int64)
    assert breaks(run(draft(d2t=zeros, t2d=KEPT))["d2t_zeros"])
    assert run(draft(d2t=zeros))["d2t_zeros"].confidence == "likely"
    assert run(draft(d2t=zeros, t2d=np.arange(D))) == {}


def test_zeros_are_right_for_a_full_vocabulary() -> None:
    full = draft(d2t=np.zeros(V, np.int64), t2d=np.arange(V), draft_vocab_size=V)
    full.arrays["lm_head.weight"] = np.zeros((V, H), np.float32)
    assert run(full) == {}
    eagle = "Eagle3LlamaForCausalLM"
    assert run(full, "vllm==0.29.0", eagle) == {}
    assert run(full, "vllm==0.30.0", eagle)["d2t_with_full_vocabulary"].confidence == "likely"
    found = run(full, "vllm==0.32.0", eagle, target=Config({"vocab_size": V, "hidden_size": H}))
    assert breaks(found["d2t_with_full_vocabulary"])


def test_a_missing_d2t_matters_only_for_a_reduced_vocabulary() -> None:
    assert breaks(run(draft(d2t=None))["d2t_missing"])
    full = draft(d2t=None, draft_vocab_size=V)
    full.arrays["lm_head.weight"] = np.zeros((V, H), np.float32)
    assert run(full) == {}


def test_ids_out_of_range_and_doubled_ids() -> None:
    far = KEPT - np.arange(D)
    far[5] = 400
    found = run(draft(d2t=far))["d2t_out_of_range"]
    assert breaks(found)
    assert "d2t[5] = 400: draft id 5 is read as 405" in found.evidence_for
    twice = KEPT - np.arange(D)
    twice[7] = twice[6] - 1
    assert "share" in run(draft(d2t=twice))["d2t_not_increasing"].evidence_for[1]


def test_d2t_against_t2d() -> None:
    other = KEPT.copy()
    other[9] += 1
    found = run(draft(t2d=other))["d2t_against_t2d"]
    assert found.evidence_for[0] == "draft id 9: d2t says 18, t2d says 19"
    assert found.confidence == "likely"
    inverted = np.setdiff1d(np.arange(V), KEPT)
    assert not run(draft(t2d=inverted))["t2d_inverted"].changes_output


def test_the_three_sizes_of_the_draft_vocabulary() -> None:
    assert breaks(run(draft(d2t=(KEPT - np.arange(D))[:-1], t2d=KEPT))["draft_vocabulary"])
    unset = run(draft(t2d=KEPT, draft_vocab_size=...))
    assert unset["draft_vocab_size_unset"].next_step.startswith('Set "draft_vocab_size": 128')


# -- lm_head and embedding --------------------------------------------------------------------


def without_head(**config: Any) -> Checkpoint:
    checkpoint = draft(t2d=KEPT, **config)
    del checkpoint.arrays["lm_head.weight"]
    return checkpoint


def test_a_missing_head_is_random_in_sglang() -> None:
    found = run(without_head())["lm_head_missing"]
    assert breaks(found)
    assert "27829" in found.detail
    assert "lm_head_missing" not in run(without_head(tie_word_embeddings=True))
    vllm = run(without_head(), "vllm==0.32.0", "Eagle3LlamaForCausalLM")
    assert vllm["lm_head_missing"].confidence == "likely"


def test_tied_embeddings_drop_the_head_in_sglang_only() -> None:
    tied = draft(t2d=KEPT, tie_word_embeddings=True)
    assert breaks(run(tied)["tied_lm_head"])
    assert run(tied, "vllm==0.32.0", "Eagle3LlamaForCausalLM") == {}


def test_a_trained_embedding_is_replaced() -> None:
    trained = draft(t2d=KEPT, embed_requires_grad=True)
    trained.arrays["embed_tokens.weight"] = np.zeros((V, H), np.float32)
    assert "embedding_replaced" in run(trained)
    trained.config.raw["embed_requires_grad"] = False
    assert run(trained) == {}


# -- fc, norms, layers ------------------------------------------------------------------------


def test_fc_width_follows_the_version() -> None:
    four = draft(t2d=KEPT, num_aux_hidden_states=4)
    four.arrays["fc.weight"] = np.zeros((H, 4 * H), np.float32)
    assert run(four) == {}
    found = run(four, "sglang==0.5.11")["fc_width"]
    assert found.title == "fc takes 4 layers, SGLang 0.5.11 builds it for 3"
    del four.config.raw["num_aux_hidden_states"]
    assert 'num_aux_hidden_states": 4' in run(four)["fc_width"].next_step


@pytest.mark.parametrize(
    ("version", "code"),
    [("0.5.16", "norm_not_applied"), ("0.5.17", None)],
)
def test_norm_before_fc_is_read_from_0_5_17(version: str, code: str | None) -> None:
    normed = draft(t2d=KEPT, norm_before_fc=True)
    normed.arrays["input_norm.weight"] = np.zeros(3 * H, np.float32)
    found = run(normed, f"sglang=={version}")
    assert list(found) == ([code] if code else [])
    if code:
        assert found[code].next_step == "Use SGLang 0.5.17 or newer."


def test_a_norm_needs_both_flag_and_tensor() -> None:
    normed = draft(t2d=KEPT)
    normed.arrays["fc_norm.0.weight"] = np.zeros(H, np.float32)
    assert run(normed)["norm_not_applied"].next_step == 'Set "fc_norm": true in config.json.'
    assert "norm_missing" in run(draft(t2d=KEPT, fc_norm=True))


def test_norm_before_residual_is_unknown_to_sglang() -> None:
    flagged = draft(t2d=KEPT, norm_before_residual=True)
    assert breaks(run(flagged, "sglang==0.5.23")["norm_before_residual_not_read"])
    assert run(flagged, "sglang==0.6.0") == {}  # nobody looked: no accusation
    assert run(flagged, "vllm==0.32.0", "Eagle3LlamaForCausalLM") == {}


def test_norm_output_came_with_0_5_12() -> None:
    flagged = draft(t2d=KEPT, norm_output=True)
    assert "norm_output_not_read" in run(flagged, "sglang==0.5.11")
    assert run(flagged, "sglang==0.5.12") == {}


def test_qk_norm_is_reported_where_it_was_dropped() -> None:
    qwen = draft(t2d=KEPT)
    name = "midlayer.self_attn.q_norm.weight"
    qwen.arrays[name] = np.zeros(32, np.float32)
    assert breaks(run(qwen, dropped=(name,))["qk_norm_dropped"])
    assert run(qwen) == {}


def target(layers: int = 32, model_type: str = "llama", **more: Any) -> Config:
    fields = {"num_hidden_layers": layers, "hidden_size": H, "vocab_size": V}
    return Config(fields | {"model_type": model_type} | more)


def with_ids(ids: list[int], **config: Any) -> Checkpoint:
    inner = {"eagle_aux_hidden_state_layer_ids": ids}
    return draft(t2d=KEPT, eagle_config=inner, **config)


def test_ids_at_the_top_level_are_not_read_by_sglang() -> None:
    top = draft(t2d=KEPT, eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    assert run(top, target=target())["aux_layers_not_read"].severity == "note"
    assert breaks(run(top, target=target(64))["aux_layers_not_read"])
    assert run(top)["aux_layers_not_read"].confidence == "unknown"
    assert run(top, "vllm==0.32.0", "Eagle3LlamaForCausalLM", target=target()) == {}


def test_the_default_ids_written_down_are_off_by_one_on_llama() -> None:
    found = run(with_ids([2, 16, 29]), target=target())["aux_layer_shift"]
    assert found.confidence == "possible"
    assert "[1, 15, 28]" in found.next_step
    assert run(with_ids([1, 15, 28]), target=target()) == {}
    kimi = target(model_type="kimi_k2")
    assert run(with_ids([2, 16, 29]), target=kimi) == {}  # taken as they are since 0.5.13
    assert "aux_layer_shift" in run(with_ids([2, 16, 29]), "sglang==0.5.12", target=kimi)
    assert run(with_ids([2, 16, 29])) == {}  # no target: nothing is known


def test_ids_beyond_the_target() -> None:
    found = run(with_ids([2, 16, 31]), target=target())["aux_layer_range"]
    assert "captures the inputs of layers [3, 17, 32]" in found.evidence_for[0]
    vllm = run(with_ids([2, 16, 33]), "vllm==0.32.0", "Eagle3LlamaForCausalLM", target=target())
    assert breaks(vllm["aux_layer_range"])


def test_a_target_of_another_width() -> None:
    assert breaks(run(draft(t2d=KEPT), target=target(hidden_size=256))["target_hidden_size"])


def test_null_target_hidden_size() -> None:
    assert breaks(run(draft(t2d=KEPT, target_hidden_size=None))["target_hidden_size_null"])


# -- config and launch ------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--speculative-algorithm EAGLE", "--speculative-algo=EAGLE"])
def test_an_eagle3_draft_launched_as_eagle(flag: str) -> None:
    launch = f"python -m sglang.launch_server --tp 8 {flag} --speculative-num-steps 3"
    found = run(draft(t2d=KEPT), launch=launch)["launched_as_eagle"]
    assert breaks(found)
    assert found.experiment is not None
    assert run(draft(t2d=KEPT), launch=launch.replace("EAGLE", "EAGLE3")) == {}


def test_a_base_architecture_on_an_eagle3_draft() -> None:
    base = draft(t2d=KEPT, architectures=["LlamaForCausalLM"])
    found = run(base, cls="LlamaForCausalLM")["base_architecture"]
    assert breaks(found)
    assert "fc.weight [128, 384]" in found.evidence_for
    assert run(base, "vllm==0.32.0", "Eagle3LlamaForCausalLM") == {}
    nameless = draft(t2d=KEPT, architectures=...)
    assert run(nameless)["no_architecture"].confidence == "likely"


def test_a_nested_config_is_refused_by_sglang_and_read_by_vllm() -> None:
    nested = draft(t2d=KEPT, architectures=["Eagle3DraftModel"], model_type=...)
    nested.config.layout = "speculators"
    found = run(nested, "sglang==0.5.23")
    assert breaks(found["speculators_config"])
    assert "norm_before_residual_not_read" in found  # speculators' default, where nothing is said
    assert run(nested, "vllm==0.32.0", "Eagle3LlamaForCausalLM") == {}


def test_a_base_model_meets_no_eagle3_contract() -> None:
    base = Checkpoint(
        Config({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True}),
        {"model.embed_tokens.weight": np.zeros((V, H), np.float32)},
    )
    assert run(base, cls="LlamaForCausalLM") == {}


# -- dtypes, heads and lists of layers ------------------------------------------------------


def loaded_as(dtype: str, name: str = "midlayer.mlp.down_proj.weight", **config: Any) -> set[str]:
    """Return the codes of what is said where a loader took one tensor of that type."""
    rows = [TensorInfo(name, dtype, (4, 4), "m"), TensorInfo("norm.weight", "BF16", (4,), "m")]
    keys = tuple(KeyGroup("loaded", g, name) for g in TensorTable.from_rows(rows).groups)
    outcome = LoadOutcome(
        "sglang", "0.5.14", "LlamaForCausalLM", "profile_source_read", "loads", keys, ()
    )
    return {f"{f.severity} {f.code}" for f in check(draft(**config), outcome) if "dtype" in f.code}


@pytest.mark.parametrize("dtype", ["I8", "U8", "I32", "I64"])
def test_whole_numbers_without_scales_are_no_weight(dtype: str) -> None:
    assert loaded_as(dtype) == {"error dtype_codes"}
    assert loaded_as(dtype, quantization_config={"quant_method": "w8a8_int8"}) == set()
    assert loaded_as(dtype, name="d2t") == set()


def test_complex_and_boolean_weights_are_destroyed_whatever_the_config() -> None:
    quantized = {"quantization_config": {"quant_method": "fp8"}}
    for config in ({}, quantized):
        assert loaded_as("C64", **config) == {"error dtype_complex"}
        assert loaded_as("BOOL", name="model.norm.weight", **config) == {"error dtype_boolean"}


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_other_floating_point_types_are_harmless(dtype: str) -> None:
    assert loaded_as(dtype) == set()


def test_fp8_without_a_config_is_suspected_and_with_unread_scales_sure() -> None:
    assert loaded_as("F8_E4M3") == {"warning dtype_eight"}
    name = "model.layers.0.mlp.up_proj.weight"
    rows = [TensorInfo(name, "F8_E4M3", (4, 4), "m"), TensorInfo(f"{name}_scale", "F32", (1,), "m")]
    first, second = TensorTable.from_rows(rows).groups
    keys = (KeyGroup("loaded", first, name), KeyGroup("dropped", second))
    outcome = LoadOutcome(
        "sglang", "0.5.14", "LlamaForCausalLM", "profile_source_read", "loads", keys, ()
    )
    found = {f.code: f for f in check(draft(), outcome)}["dtype_eight"]
    assert found.severity == "error"
    assert breaks(found)
    assert f"{name}_scale" in " ".join(found.evidence_for)


@pytest.mark.parametrize("engine", ["sglang==0.5.8", "sglang==0.5.14", "vllm==0.32.0"])
def test_as_many_layers_are_listed_as_fc_joins(engine: str) -> None:
    found = run(with_ids([1, 2]), engine)["aux_layer_count"]
    assert breaks(found)
    assert found.evidence_for == (
        "the config lists [1, 2]",
        f"fc.weight is [{H}, {3 * H}]: 3 x {H}",
    )
    assert "aux_layer_count" not in run(with_ids([1, 3, 4]), engine)


@pytest.mark.parametrize("ids", ["abc", 5, [1.5, 2, 3], ["1", "2", "3"], [10**30] * 3, [True]])
def test_ids_that_are_no_list_of_layers(ids: Any) -> None:
    for engine in ("sglang==0.5.8", "sglang==0.5.14", "vllm==0.32.0"):
        found = run(draft(eagle_config={"eagle_aux_hidden_state_layer_ids": ids}), engine)
        assert found["aux_layers_unreadable"].severity == "error"
    assert "aux_layers_unreadable" not in run(draft(eagle_config=[1]))


def test_query_heads_are_shared_out_evenly() -> None:
    assert "heads_not_divisible" in run(draft(num_attention_heads=4, num_key_value_heads=3))
    for more in ({}, {"num_key_value_heads": 2}, {"num_key_value_heads": 3, "kv_lora_rank": 8}):
        assert "heads_not_divisible" not in run(draft(num_attention_heads=4, **more))
