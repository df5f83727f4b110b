"""What a launch asks of its models: each border from both sides.

The releases are those in whose wheels it was read: model_config.py, environ.py, the pin of transformers, the
attention backends.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.launch.rules.asking import (
    DRAFT,
    LLAMA,
    NEWEST,
    QWEN_MOE,
    answer,
    ask,
    found,
    repaired,
)
from workbench.checkpoint.config import Config
from workbench.launch.rules.models import (
    CLASS,
    CONTEXT,
    HOOKS,
    QUANTISATION,
    THERE,
    context_of,
)
from workbench.launch.rules.records import Model

EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d "
LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


@pytest.mark.parametrize(
    ("target", "draft", "right"),
    [
        (LLAMA, DRAFT, "ok"),
        (Model("t", absent=True), DRAFT, "wrong model_absent"),
        (LLAMA, Model("d", absent=True), "wrong model_absent"),
        (LLAMA, Model("d"), "open"),
        (Model("t"), DRAFT, "open"),
        (None, None, "open"),
        (None, DRAFT, "ok"),
        (LLAMA, None, "ok"),
    ],
)
def test_the_models_are_there(target: Any, draft: Any, right: str) -> None:
    assert answer(THERE, ask(EAGLE3, target=target, draft=draft)) == right


def named(name: str, **more: Any) -> dict[str, Any]:
    return LLAMA | {"architectures": [name]} | more


@pytest.mark.parametrize(
    ("target", "version", "right"),
    [
        (None, "0.5.14", "open"),
        (Model("t"), "0.5.14", "open"),
        (LLAMA, "0.5.14", "ok"),
        *((named(name), "0.5.14", "wrong draft_as_target") for name in (
            "LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM", "LlamaForCausalLMEagle",
            "DeepseekV3ForCausalLMNextN", "MadeUpDraftModel", "MiMoMTP")),
        (named("MadeUpForCausalLM"), "0.5.14", "open"),
        (LLAMA | {"architectures": []}, "0.5.14", "open"),
        (LLAMA | {"architectures": ["MadeUpForCausalLM", "LlamaForCausalLM"]}, "0.5.14", "ok"),
        (QWEN_MOE, "0.4.5.post1", "open"),
        (QWEN_MOE, "0.4.5.post2", "ok"),
        # Its transformers knows the type: it pins 4.57.1, then 5.3.0, …
        (named("LlamaForCausalLM", model_type="exaone_moe"), "0.5.9", "wrong model_type_too_new"),
        (named("LlamaForCausalLM", model_type="exaone_moe"), "0.5.10", "ok"),
        (named("LlamaForCausalLM", model_type="exaone_moe"), "0.5.6.post1", "ok"),  # 5.0.0rc0: not known
        (named("LlamaForCausalLM", model_type="deimv2"), "0.5.12", "wrong model_type_too_new"),
        (named("LlamaForCausalLM", model_type="deimv2"), "0.5.13", "ok"),
        (named("LlamaForCausalLM", model_type="deimv2", auto_map={"AutoConfig": "a.B"}), "0.5.12", "ok"),
        (named("LlamaForCausalLM", model_type="madeup"), "0.5.12", "ok"),
        (named("LlamaForCausalLM", model_type="bert"), "0.4.4", "ok"),  # how old it is, is not known
        # SGLang's own
        (named("LlamaForCausalLM", model_type="kimi_k25"), "0.5.8.post1", "wrong model_type_too_new"),
        (named("LlamaForCausalLM", model_type="kimi_k25"), "0.5.9", "ok"),
    ],
)  # fmt: skip
def test_the_class_of_the_target(target: Any, version: str, right: str) -> None:
    assert answer(CLASS, ask("", version, target)) == right


@pytest.mark.parametrize("name", [CLASS, HOOKS])
def test_a_target_that_cannot_be_read_is_the_reason(name: str) -> None:
    for target in (None, Model("t")):
        assert (
            found(name, ask(EAGLE3, target=target))[0].how == "the target's config cannot be read"
        )


def test_a_class_of_a_later_release_is_named() -> None:
    later, none = (
        found(CLASS, ask("", "0.4.5.post1", one))[0].how for one in (QWEN_MOE, named("MadeUp"))
    )
    assert "SGLang 0.4.5.post2 has it" in later
    assert "has it" not in none


KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}


@pytest.mark.parametrize(
    ("words", "target", "draft", "version", "right"),
    [
        (EAGLE3, LLAMA, DRAFT, "0.5.14", "ok"),
        (EAGLE3, None, DRAFT, "0.5.14", "open"),
        (EAGLE3, Model("t"), DRAFT, "0.5.14", "open"),
        ("", None, None, "0.5.14", "ok"),
        (EAGLE3.replace("EAGLE3", "EAGLE"), KIMI, DRAFT, "0.5.9", "ok"),
        (EAGLE3, KIMI, DRAFT, "0.5.9", "wrong no_capture_hooks"),
        (EAGLE3, KIMI, DRAFT, "0.5.10", "ok"),
        (EAGLE3, KIMI, None, "0.5.9", "wrong no_capture_hooks"),
        (EAGLE3, KIMI, Model("d"), "0.5.9", "wrong no_capture_hooks"),
        (EAGLE3, KIMI, DRAFT | {"eagle_config": {"use_aux_hidden_state": False}}, "0.5.9", "ok"),
        (EAGLE3, KIMI, DRAFT | {"eagle_config": {"use_aux_hidden_state": True}}, "0.5.9",
         "wrong no_capture_hooks"),
        (EAGLE3, KIMI, DRAFT | {"eagle_config": {}}, "0.5.9", "wrong no_capture_hooks"),
        (EAGLE3, KIMI, DRAFT | {"eagle_config": "none"}, "0.5.9", "wrong no_capture_hooks"),
        (EAGLE3, named("MadeUpForCausalLM"), DRAFT, "0.5.14", "open"),
        (EAGLE3, {"hidden_size": 8}, DRAFT, "0.5.14", "open"),
        (EAGLE3, named("BertModel"), DRAFT, "0.5.14", "wrong no_capture_hooks"),
    ],
)  # fmt: skip
def test_the_auxiliary_layers(
    words: str, target: Any, draft: Any, version: str, right: str
) -> None:
    assert answer(HOOKS, ask(words, version, target, draft)) == right


def test_the_release_that_has_the_hooks_is_named() -> None:
    steps = [
        (one.finding.next_step, one.finding.detail)
        for target, version in ((KIMI, "0.5.9"), (named("BertModel"), "0.5.14"))
        for one in found(HOOKS, ask(EAGLE3, version, target))
        if one.finding is not None
    ]
    assert steps[0][0] == "Serve with SGLang 0.5.10 or later."
    assert "SGLang 0.5.10 has it" in steps[0][1]
    assert steps[1][0] == "This target cannot be served with EAGLE3."
    assert "No release that is known has it" in steps[1][1]


@pytest.mark.parametrize(
    ("config", "right"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({"max_position_embeddings": 100, "seq_length": 50}, 50),
        ({"max_position_embeddings": True, "other": 1}, None),
        ({"max_position_embeddings": "100"}, None),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 2.5}}, 250),
        ({"max_position_embeddings": 100, "rope_scaling": {"rope_type": "yarn", "factor": 4}}, 400),
        ({"max_position_embeddings": 100, "rope_parameters": {"rope_type": "yarn", "factor": 4}}, 400),
        ({"max_position_embeddings": 100, "rope_scaling": {"rope_type": "llama3", "factor": 8}}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "llama3", "factor": 8}}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"rope_type": "default"}}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"factor": "2"}}, None),
        ({"max_position_embeddings": 100, "rope_scaling": "linear"}, 100),
        ({"max_position_embeddings": 100,
          "rope_scaling": {"factor": 4, "original_max_position_embeddings": 25}}, 100),
        ({}, None),
    ],
)  # fmt: skip
def test_the_length_that_sglang_derives(config: dict[str, Any], right: int | None) -> None:
    assert context_of(Model("t", Config(config))) == right


SHORT = DRAFT | {"max_position_embeddings": 2048}
UNSAID = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


@pytest.mark.parametrize(
    ("words", "target", "draft", "right"),
    [
        ("", LLAMA, None, "ok"),
        ("", None, None, "open"),
        ("", Model("t"), None, "open"),
        ("--context-length 8192", LLAMA, None, "ok"),
        ("--context-length 8193", LLAMA, None, "wrong context_too_long"),
        ("--context-length 9000", UNSAID, None, "ok"),
        ("--context-length 1", LLAMA, None, "ok"),
        ("--context-length 0", LLAMA, None, "wrong context_below_one"),
        (EAGLE3, LLAMA, DRAFT, "ok"),
        (EAGLE3, LLAMA, SHORT, "open"),
        (EAGLE3, LLAMA, Model("d"), "ok"),
        (EAGLE3, LLAMA, None, "ok"),
        (EAGLE3, LLAMA, UNSAID, "ok"),
        (f"{EAGLE3} --context-length 2048", LLAMA, SHORT, "ok"),
        (f"{EAGLE3} --context-length 2049", LLAMA, SHORT, "open"),
        (f"{EAGLE3} --context-length 2049", UNSAID, SHORT, "open"),
        (EAGLE3, UNSAID, SHORT, "ok"),
        ("--speculative-draft-model-path d", LLAMA, SHORT, "ok"),  # it does not draft
    ],
)
def test_the_context(words: str, target: Any, draft: Any, right: str) -> None:
    assert answer(CONTEXT, ask(words, target=target, draft=draft)) == right


@pytest.mark.parametrize(
    ("value", "version", "right"),
    [
        (None, "0.4.4", "ok context_overridden"),
        (None, "0.4.10.post2", "ok context_overridden"),
        (None, "0.5.1", "wrong context_too_long"),
        (None, NEWEST, "wrong context_too_long"),
        ("false", "0.4.10.post2", "wrong context_too_long"),
        ("1", "0.5.1", "ok context_overridden"),
        ("True", "0.5.14", "ok context_overridden"),
        ("0", "0.5.14", "wrong context_too_long"),
        # Two more words since environ.py reads it
        ("yes", "0.5.2", "wrong context_too_long"),
        ("y", "0.5.2", "wrong context_too_long"),
        ("yes", "0.5.3", "ok context_overridden"),
        ("y", "0.5.14", "ok context_overridden"),
    ],
)
def test_a_longer_context_by_variable(value: str | None, version: str, right: str) -> None:
    env = {} if value is None else {LONGER: value}
    assert answer(CONTEXT, ask("--context-length 9000", version, LLAMA, DRAFT, **env)) == right


def test_a_shorter_draft_is_allowed_by_the_variable() -> None:
    assert answer(CONTEXT, ask(EAGLE3, "0.5.14", LLAMA, SHORT, **{LONGER: "1"})) == "ok"


def test_the_context_that_fits() -> None:
    assert repaired(CONTEXT, ask("--context-length 9000")) == "--context-length 8192"
    assert repaired(CONTEXT, ask("--context-length 0")) == ""


def quantised(method: str | None) -> dict[str, Any]:
    return LLAMA if method is None else LLAMA | {"quantization_config": {"quant_method": method}}


@pytest.mark.parametrize(
    ("asked", "method", "right"),
    [
        ("", None, "ok"),
        ("", "fp8", "ok"),
        ("fp8", "fp8", "ok"),
        ("fp8", "FP8", "ok"),
        ("awq", "fp8", "wrong quantisation_differs"),
        ("fp8", "awq", "wrong quantisation_differs"),
        # What reads a checkpoint of another name
        ("modelopt_fp8", "modelopt", "ok"),
        ("modelopt_fp4", "modelopt", "ok"),
        ("petit_nvfp4", "modelopt", "ok"),
        ("modelopt_fp8", "fp8", "wrong quantisation_differs"),
        ("w8a8_int8", "compressed-tensors", "ok"),
        ("w8a8_fp8", "compressed-tensors", "ok"),
        ("w8a8_int8", "fp8", "wrong quantisation_differs"),
        ("awq_marlin", "awq", "ok"),
        ("awq_marlin", "gptq", "wrong quantisation_differs"),
        # What its scheme decides
        ("gptq_marlin", "gptq", "open"),
        ("gptq_marlin", "awq", "wrong quantisation_differs"),
        ("marlin", "gptq", "open"),
        ("moe_wna16", "awq", "open"),
        ("moe_wna16", "fp8", "wrong quantisation_differs"),
        ("w4afp8", "fp8", "open"),
        ("w4afp8", "awq", "wrong quantisation_differs"),
        ("modelslim", "fp8", "open"),
        # A plain checkpoint: some quantise while they load, some read what is quantised already
        ("fp8", None, "ok"),
        ("awq", None, "wrong not_quantised"),
        ("gptq_marlin", None, "wrong not_quantised"),
        ("compressed-tensors", None, "wrong not_quantised"),
        ("w8a8_int8", None, "open"),
        ("bitsandbytes", None, "open"),
    ],
)
def test_the_quantisation(asked: str, method: str | None, right: str) -> None:
    words = f"--quantization {asked}" if asked else ""
    made = ask(words, target=quantised(method))
    assert answer(QUANTISATION, made) == right
    assert repaired(QUANTISATION, made) == ("" if "wrong" in right else words)
    for nothing in (None, Model("t")):
        assert answer(QUANTISATION, ask(words, target=nothing)) == "open"


@pytest.mark.parametrize("asked", ["", "awq", "fp8"])
@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({"bits": 4}, False),
        ({"bits": 4, "quant_method": None}, False),
        ({"bits": 4, "quant_method": ""}, False),
        ({"bits": 4, "quant_method": "awq"}, True),
        ({}, True),  # as without one
    ],
)
def test_a_quantisation_without_a_name_is_neither_none_nor_another(
    asked: str, block: dict[str, Any], named: bool
) -> None:
    # _verify_quantization takes the method that is asked for, or finds one by other fields.
    target = LLAMA | {"quantization_config": block}
    made = ask(f"--quantization {asked}" if asked else "", target=target)
    assert (answer(QUANTISATION, made) == "open") == (not named)
