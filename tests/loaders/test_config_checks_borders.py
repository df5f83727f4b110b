"""Both sides of each border of the checks of config.json: refused for sure, cannot tell, nothing to say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.loaders.test_config_checks import ABSENT, LLAMA
from workbench.checkpoint.config import Config, parse_config
from workbench.facts.model_types import FIRST_SEEN, OF_SGLANG
from workbench.loaders.config_checks import FIELDS, Rules, check, fits
from workbench.loaders.profile import NotCovered, Refused

LOOSE = Rules("4.57.1", sglang=True)
STRICT = Rules("5.8.1", strict=True, base=True, sglang=True)
HALF = dataclasses.replace(STRICT, base=None)
OWN = dataclasses.replace(STRICT, base=False)
FIVE = Rules("5.3.0", sglang=True)  # transformers 5 that does not check types yet
BLIND = dataclasses.replace(STRICT, rope=False)
DEEP = LLAMA | {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
QWEN = LLAMA | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
UNKNOWN = LLAMA | {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}


def said(rules: Rules, raw: dict[str, Any] = LLAMA, **fields: Any) -> str:
    """Return what is said of a config with some fields changed: ok, refused, unknown."""
    changed = {k: v for k, v in (raw | fields).items() if v is not ABSENT}
    try:
        check(Config(changed), rules)
    except Refused:
        return "refused"
    except NotCovered:
        return "unknown"
    return "ok"


def types_of(release: str) -> str:
    return next(
        name for name, first in FIRST_SEEN.items() if first == release and name not in OF_SGLANG
    )


LINEAR = {"rope_type": "linear", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
TWO = ["full_attention", "sliding_attention"]

# Rules, changed fields, what is said; neighbours differ in one thing.
CASES: list[tuple[Rules, dict[str, Any], dict[str, Any], str]] = [
    # the type
    (STRICT, LLAMA, {}, "ok"),
    (LOOSE, LLAMA, {}, "ok"),
    (STRICT, LLAMA, {"model_type": "lama"}, "refused"),
    (Rules("", sure=True), LLAMA, {"model_type": "lama"}, "unknown"),
    (STRICT, LLAMA, {"model_type": "lama", "auto_map": {"AutoConfig": "x.X"}}, "ok"),
    (STRICT, LLAMA, {"model_type": "lama", "auto_map": {"AutoModel": "x.X"}}, "refused"),
    (STRICT, LLAMA, {"model_type": ""}, "ok"),
    (STRICT, LLAMA, {"model_type": ABSENT}, "ok"),
    (STRICT, LLAMA, {"model_type": 5}, "refused"),
    (dataclasses.replace(STRICT, sure=False), LLAMA, {"model_type": 5}, "unknown"),
    # architectures
    (STRICT, LLAMA, {"architectures": None}, "refused"),
    (dataclasses.replace(STRICT, sglang=False), LLAMA, {"architectures": None}, "ok"),
    (STRICT, LLAMA, {"architectures": ABSENT}, "ok"),
    (STRICT, LLAMA, {"architectures": "LlamaForCausalLM"}, "refused"),
    (HALF, LLAMA, {"architectures": "LlamaForCausalLM"}, "unknown"),
    (FIVE, LLAMA, {"architectures": "LlamaForCausalLM"}, "unknown"),
    (LOOSE, LLAMA, {"architectures": []}, "ok"),
    (LOOSE, LLAMA, {"architectures": [5]}, "refused"),
    (LOOSE, LLAMA, {"architectures": ["LlamaForCausalLM", 5]}, "unknown"),
    (LOOSE, LLAMA, {"architectures": 5}, "refused"),
    # tables
    (LOOSE, LLAMA, {"quantization_config": {"quant_method": "fp8"}}, "ok"),
    (LOOSE, LLAMA, {"quantization_config": {}}, "refused"),
    (LOOSE, LLAMA, {"quantization_config": None}, "ok"),
    (LOOSE, LLAMA, {"quantization_config": "fp8"}, "refused"),
    (LOOSE, LLAMA, {"id2label": []}, "refused"),
    (LOOSE, LLAMA, {"label2id": []}, "unknown"),
    (LOOSE, LLAMA, {"label2id": {}}, "ok"),
    (LOOSE, LLAMA, {"pruned_heads": [1]}, "unknown"),
    # dtypes
    (LOOSE, LLAMA, {"torch_dtype": "float16"}, "ok"),
    (LOOSE, LLAMA, {"torch_dtype": "int8"}, "refused"),
    (LOOSE, LLAMA, {"torch_dtype": "float8_e4m3fn"}, "unknown"),
    (LOOSE, LLAMA, {"torch_dtype": {"": "float16"}}, "unknown"),
    (LOOSE, LLAMA, {"torch_dtype": "int8", "dtype": "half"}, "ok"),
    (LOOSE, LLAMA, {"torch_dtype": "half", "dtype": "int8"}, "refused"),
    # fields, checked and not
    (STRICT, LLAMA, {"rms_norm_eps": 1}, "refused"),
    (LOOSE, LLAMA, {"rms_norm_eps": 1}, "ok"),
    (LOOSE, LLAMA, {"rms_norm_eps": "x"}, "unknown"),
    (STRICT, UNKNOWN, {"rms_norm_eps": "x"}, "unknown"),
    (STRICT, LLAMA, {"use_cache": "x"}, "refused"),
    (LOOSE, LLAMA, {"use_cache": "x"}, "ok"),
    (LOOSE, LLAMA, {"tie_word_embeddings": "x"}, "unknown"),
    (LOOSE, LLAMA, {"tie_word_embeddings": 1}, "ok"),
    (LOOSE, LLAMA, {"tie_word_embeddings": 2}, "unknown"),
    (LOOSE, LLAMA, {"tie_word_embeddings": None}, "ok"),
    (STRICT, LLAMA, {"tie_word_embeddings": 1}, "refused"),
    (LOOSE, LLAMA, {"intermediate_size": "256"}, "refused"),
    (LOOSE, LLAMA, {"intermediate_size": None}, "refused"),
    (LOOSE, LLAMA, {"intermediate_size": 256.0}, "unknown"),
    (LOOSE, UNKNOWN, {"intermediate_size": "256"}, "unknown"),
    (LOOSE, LLAMA, {"hidden_act": 5}, "unknown"),
    (LOOSE, LLAMA, {"max_seq_len": "x"}, "refused"),
    (LOOSE, LLAMA, {"max_seq_len": 512.0}, "ok"),
    (LOOSE, LLAMA, {"max_seq_len": None}, "ok"),
    (LOOSE, LLAMA, {"num_labels": "x"}, "refused"),
    (LOOSE, DEEP, {"num_labels": "x"}, "unknown"),
    (LOOSE, QWEN, {"num_labels": "x"}, "unknown"),
    (LOOSE, LLAMA, {"num_labels": 2}, "ok"),
    (dataclasses.replace(LOOSE, only_silu=True), LLAMA, {"hidden_act": "gelu"}, "refused"),
    (dataclasses.replace(LOOSE, only_silu=True), LLAMA, {"hidden_act": "silu"}, "ok"),
    (dataclasses.replace(LOOSE, only_silu=True), LLAMA, {}, "ok"),
    (LOOSE, LLAMA, {"hidden_act": "gelu"}, "ok"),
    # fields of every class
    (STRICT, LLAMA, {"return_dict": "x"}, "refused"),
    (HALF, LLAMA, {"return_dict": "x"}, "unknown"),
    (OWN, LLAMA, {"return_dict": "x"}, "ok"),
    (LOOSE, LLAMA, {"return_dict": "x"}, "ok"),
    (STRICT, LLAMA, {"return_dict": True}, "ok"),
    (STRICT, LLAMA, {"problem_type": "nope"}, "refused"),
    (HALF, LLAMA, {"problem_type": "nope"}, "unknown"),
    (OWN, LLAMA, {"problem_type": "nope"}, "ok"),
    (LOOSE, LLAMA, {"problem_type": "nope"}, "refused"),
    (LOOSE, LLAMA, {"problem_type": "regression"}, "ok"),
    (STRICT, LLAMA, {"problem_type": None}, "ok"),
    # numbers against each other
    (STRICT, LLAMA, {"num_attention_heads": 3}, "refused"),
    (LOOSE, LLAMA, {"num_attention_heads": 3}, "unknown"),
    (LOOSE, LLAMA, {"num_attention_heads": 3, "head_dim": 32}, "ok"),
    (STRICT, QWEN, {"num_attention_heads": 3, "head_dim": 32}, "ok"),
    (STRICT, QWEN, {"num_attention_heads": 3}, "unknown"),
    (STRICT, DEEP, {"num_attention_heads": 3}, "ok"),
    (LOOSE, LLAMA, {"num_attention_heads": 0}, "refused"),
    (LOOSE, LLAMA, {"num_attention_heads": 1}, "ok"),
    (LOOSE, QWEN, {"num_attention_heads": 0}, "unknown"),
    (LOOSE, LLAMA, {"num_key_value_heads": 0}, "refused"),
    (LOOSE, LLAMA, {"num_key_value_heads": 1}, "ok"),
    (LOOSE, LLAMA, {"num_key_value_heads": -1}, "unknown"),
    (LOOSE, DEEP, {"num_key_value_heads": 0}, "unknown"),
    (LOOSE, LLAMA, {"num_key_value_heads": False}, "unknown"),
    (LOOSE, LLAMA, {"num_attention_heads": True}, "unknown"),
    (LOOSE, LLAMA, {"max_position_embeddings": 0}, "ok"),
    (LOOSE, LLAMA, {"max_position_embeddings": -1}, "refused"),
    (LOOSE, DEEP, {"max_position_embeddings": -1}, "unknown"),
    (STRICT, LLAMA, {"initializer_range": 1.0}, "ok"),
    (STRICT, LLAMA, {"initializer_range": 0.0}, "ok"),
    (STRICT, LLAMA, {"initializer_range": 1.1}, "unknown"),
    (STRICT, LLAMA, {"initializer_range": -0.1}, "unknown"),
    (LOOSE, LLAMA, {"initializer_range": 1.1}, "ok"),
    (STRICT, LLAMA, {"head_dim": 32}, "ok"),
    (STRICT, LLAMA, {"head_dim": 33}, "unknown"),
    (LOOSE, LLAMA, {"head_dim": 33}, "ok"),
    (STRICT, LLAMA, {"head_dim": "32"}, "refused"),
    (STRICT, DEEP, {"head_dim": "32"}, "unknown"),
    (LOOSE, LLAMA, {"layer_types": TWO}, "ok"),
    (STRICT, LLAMA, {"layer_types": TWO}, "ok"),
    (STRICT, LLAMA, {"layer_types": TWO[:1]}, "refused"),
    (LOOSE, LLAMA, {"layer_types": TWO[:1]}, "unknown"),
    (STRICT, LLAMA, {"layer_types": "x"}, "refused"),
    (LOOSE, LLAMA, {"layer_types": "x"}, "unknown"),
    (STRICT, LLAMA, {"layer_types": ["full_attention", "linear"]}, "unknown"),
    (STRICT, LLAMA, {"layer_types": TWO[:1], "num_hidden_layers": ABSENT}, "ok"),
    # the rotary embedding
    (STRICT, LLAMA, {"rope_parameters": [1]}, "refused"),
    (FIVE, LLAMA, {"rope_parameters": [1]}, "unknown"),
    (LOOSE, LLAMA, {"rope_parameters": [1]}, "unknown"),
    (LOOSE, LLAMA, {"rope_parameters": {"rope_type": "nope"}}, "unknown"),
    (STRICT, LLAMA, {"rope_parameters": {"rope_type": "nope"}}, "refused"),
    (FIVE, LLAMA, {"rope_parameters": {"rope_type": "nope"}}, "unknown"),
    (BLIND, LLAMA, {"rope_parameters": {"rope_type": "nope"}}, "unknown"),
    (STRICT, DEEP, {"rope_parameters": {"rope_type": "nope"}}, "unknown"),
    (LOOSE, LLAMA, {"rope_scaling": {"rope_type": "nope"}}, "refused"),
    (LOOSE, DEEP, {"rope_scaling": {"rope_type": "nope"}}, "unknown"),
    (LOOSE, LLAMA, {"rope_scaling": {"factor": 2.0}}, "refused"),
    (STRICT, LLAMA, {"rope_scaling": {"factor": 2.0}}, "ok"),
    (LOOSE, LLAMA, {"rope_scaling": [1]}, "refused"),
    (STRICT, LLAMA, {"rope_scaling": [1]}, "refused"),
    (FIVE, LLAMA, {"rope_scaling": [1]}, "unknown"),
    (STRICT, LLAMA, {"rope_scaling": []}, "ok"),
    (STRICT, LLAMA, {"rope_parameters": {"full_attention": {"rope_type": "nope"}}}, "ok"),
    (STRICT, LLAMA, {"rope_parameters": {"a": {}, "rope_type": "nope"}}, "refused"),
    (LOOSE, LLAMA, {"rope_scaling": LINEAR}, "ok"),
    (LOOSE, LLAMA, {"rope_scaling": {"rope_type": "linear"}}, "refused"),
    (LOOSE, LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "ok"),
    (LOOSE, LLAMA, {"rope_scaling": {"type": "linear"}}, "refused"),
    (LOOSE, LLAMA, {"rope_scaling": LINEAR | {"factor": "2"}}, "refused"),
    (LOOSE, LLAMA, {"rope_scaling": {"rope_type": "deepseek_yarn"}}, "unknown"),
    (LOOSE, LLAMA, {"rope_scaling": {"rope_type": "mrope"}}, "unknown"),
    (LOOSE, LLAMA, {"rope_scaling": YARN}, "ok"),
    (LOOSE, LLAMA, {"rope_scaling": LLAMA3}, "ok"),
    (LOOSE, LLAMA, {"rope_scaling": LLAMA3 | {"low_freq_factor": True}}, "refused"),
    (LOOSE, LLAMA, {"rope_theta": "x"}, "refused"),
    (LOOSE, LLAMA, {"rope_theta": 0}, "unknown"),
    (LOOSE, LLAMA, {"rope_theta": 1}, "ok"),
    (LOOSE, LLAMA, {"rope_theta": True}, "unknown"),
    (FIVE, LLAMA, {"rope_theta": "x"}, "unknown"),
    (STRICT, LLAMA, {"rope_theta": "x"}, "refused"),
    (STRICT, LLAMA, {"rope_parameters": {"rope_theta": "x", "rope_type": "default"}}, "refused"),
    (LOOSE, LLAMA, {"rope_parameters": {"rope_theta": "x", "rope_type": "default"}}, "unknown"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(CASES)))
def test_what_is_said_of_a_value(at: int) -> None:
    rules, raw, fields, wanted = CASES[at]
    assert said(rules, raw, **fields) == wanted


# Values of each kind of field, and their neighbours that are none.
KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    "int": ([0, -3], [1.0, True, "1", [1], None]),
    "int?": ([2, None], [1.5, False]),
    "ints": ([1, [1, 2], []], [[1, "x"], ["x", 1], [1, True], 1.0, True, "1", None]),
    "texts": ([["a", "b"], []], [["a", 1], [1, "a"], "a", None]),
    "flag": ([True, False], [0, 1, "true", None]),
    "float": ([1.0], [1, True, "1.0", None]),
    "number": ([1, 1.5], [True, "1", None]),
    "number?": ([1, None], [False]),
    "text": (["a", ""], [1, ["a"], None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_of_a_kind_and_what_is_not(kind: str) -> None:
    good, bad = KINDS[kind]
    assert [value for value in good if not fits(value, kind)] == []
    assert [value for value in bad if fits(value, kind)] == []


@pytest.mark.parametrize("model_type", FIELDS)
def test_each_field_of_each_class_is_checked_where_types_are(model_type: str) -> None:
    own = {"model_type": model_type, "architectures": ["LlamaForCausalLM"]}
    for name, kind in FIELDS[model_type].items():
        wrong = said(STRICT, own | {name: {"not": "a value"}})
        assert wrong == "refused", name
        empty = said(STRICT, own | {name: None})
        assert (empty == "ok") is kind.endswith("?"), name


def test_a_type_is_known_from_its_release_on() -> None:
    name = types_of("5.8.1")
    older = dataclasses.replace(STRICT, transformers="5.3.0")
    assert said(STRICT, model_type=name) != "refused"
    assert said(Rules("5.8.1"), {"model_type": name}) == "ok"
    assert said(Rules("5.3.0"), {"model_type": name}) == "unknown"
    assert said(older, {"model_type": name}) == "unknown"
    own = next(n for n in OF_SGLANG if n not in FIRST_SEEN)
    assert said(Rules("5.8.1", sglang=True), {"model_type": own}) == "ok"
    assert said(Rules("5.8.1"), {"model_type": own}) == "refused"


@pytest.mark.parametrize(
    ("release", "transformers", "name", "right"),
    [
        ("0.5.8", "4.57.1", "chatglm", "ok"),  # a type of SGLang's own in every release
        ("0.5.8", "4.57.1", "bailing_hybrid", "unknown"),  # of a later release
        ("0.5.14", "5.8.1", "bailing_hybrid", "ok"),
        ("0.5.8", "4.57.1", "cohere2_moe", "unknown"),  # of transformers as well, from 5.12.1 on
        ("0.5.8", "5.12.1", "cohere2_moe", "ok"),
        ("0.5.14", "5.8.1", "cohere2_moe", "ok"),
        ("0.5.14", "5.8.1", "made_up", "refused"),
    ],
)
def test_a_type_that_sglang_registers_in_some_releases(
    release: str, transformers: str, name: str, right: str
) -> None:
    rules = Rules(transformers, sglang=True, release=release)
    assert said(rules, {"model_type": name}) == right


def test_what_is_refused_for_sure_comes_before_what_is_open() -> None:
    both = LLAMA | {"label2id": [], "quantization_config": {}}
    assert said(LOOSE, both) == "refused"
    assert said(dataclasses.replace(LOOSE, sure=False), both) == "unknown"


def test_a_byte_order_mark_is_a_certain_refusal_and_loose_nested_forms_are_not_judged() -> None:
    import json

    plain, marked = (
        parse_config(m + json.dumps(LLAMA).encode(), "c") for m in (b"", b"\xef\xbb\xbf")
    )
    check(plain, LOOSE)
    with pytest.raises(Refused):
        check(marked, LOOSE)
    nested = Config(
        {"speculators_model_type": "eagle3", "transformer_layer_config": LLAMA, "architectures": 5}
    )
    assert nested.layout == "speculators"
    check(nested, STRICT)
    parts = {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"]}
    assert said(STRICT, parts | {"text_config": LLAMA | {"rms_norm_eps": "x"}}) == "ok"
