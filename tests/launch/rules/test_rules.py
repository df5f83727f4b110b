"""Each rule of a launch, from both sides of its border; the truth of the engine's checks is their source."""

from __future__ import annotations

from typing import Any

import pytest

from tests.launch.rules.asking import DEEPSEEK, DRAFT, LLAMA, QWEN_MOE, ask
from workbench.checkpoint.config import Config
from workbench.launch.rules import backends, exclusions, models, speculation, sums, tree
from workbench.launch.rules.records import Model, Served
from workbench.launch.rules.table import RULES, ruled

AWQ = LLAMA | {"quantization_config": {"quant_method": "awq"}, "torch_dtype": "bfloat16"}
MINIMAX = QWEN_MOE | {
    "model_type": "minimax_m2", "num_local_experts": 256, "intermediate_size": 1536,
    "moe_intermediate_size": 64,
}  # fmt: skip
NO_NEXTN = DEEPSEEK | {"num_nextn_predict_layers": 0}
TWO_HEADS = LLAMA | {"num_attention_heads": 2, "num_key_value_heads": 2}
SEVEN = LLAMA | {"num_attention_heads": 28, "num_key_value_heads": 7, "intermediate_size": 18944}
TWICE = LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}
STEPS, TOPK = "--speculative-num-steps ", "--speculative-eagle-topk "
TOKENS = "--speculative-num-draft-tokens "
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d "

FLASH = f"{EAGLE3} --attention-backend flashinfer"


def served(
    words: str, target: dict[str, Any] = LLAMA, version: str = "0.5.14", **env: str
) -> Served:
    return ask(words, version, target, **env)


def state(name: str, asked: Served) -> str:
    """Return the worst state that a rule gives its item, with the code of what it found."""
    found = [one for rule, one in ruled(asked) if rule.name == name]
    for one in found:
        if one.state == "wrong":
            assert one.finding is not None
            return f"wrong {one.finding.code}"
    return "open" if any(one.state == "open" for one in found) else "ok"


@pytest.mark.parametrize(
    ("name", "words", "target", "right"),
    [
        (speculation.ALGORITHM, "", LLAMA, "ok"),
        (speculation.ALGORITHM, EAGLE3, LLAMA, "ok"),
        (speculation.ALGORITHM, "--speculative-algorithm EAGLE3", LLAMA, "wrong no_draft"),
        (speculation.ALGORITHM, "--speculative-algorithm EAGLE", DEEPSEEK, "ok"),
        (speculation.ALGORITHM, "--speculative-algorithm EAGLE", NO_NEXTN, "wrong no_draft"),
        (speculation.ALGORITHM, "--speculative-algorithm NGRAM", LLAMA, "ok"),
        (speculation.ALGORITHM, "--speculative-draft-model-path d", LLAMA, "wrong draft_without_algorithm"),
        (tree.SHAPE, EAGLE3, LLAMA, "ok"),
        (tree.SHAPE, EAGLE3 + "--speculative-num-steps 3", LLAMA, "wrong no_topk"),
        (tree.SHAPE, EAGLE3 + "--speculative-eagle-topk 4", LLAMA, "wrong no_steps"),
        (tree.SHAPE, EAGLE3 + "--speculative-num-steps 3 --speculative-eagle-topk 1", LLAMA, "ok"),
        (tree.SHAPE, f"{EAGLE3} {STEPS} 3 {TOPK} 2", LLAMA, "wrong no_draft_tokens"),
        # 1 + 2 + 1 x 4 = 7
        (tree.SHAPE, f"{EAGLE3} {STEPS} 2 {TOPK} 2 {TOKENS} 7", LLAMA, "ok"),
        (tree.SHAPE, f"{EAGLE3} {STEPS} 2 {TOPK} 2 {TOKENS} 8", LLAMA, "wrong tree_too_small"),
        (exclusions.WITH_OTHERS, EAGLE3 + "--pp-size 1", LLAMA, "ok"),
        (exclusions.WITH_OTHERS, EAGLE3 + "--pp-size 2", LLAMA, "wrong excludes_pipeline"),
        (exclusions.WITH_OTHERS, EAGLE3 + "--enable-mixed-chunk", LLAMA, "ok"),
        (exclusions.WITH_OTHERS, EAGLE3 + "--enable-lora --lora-paths a=b", LLAMA, "wrong excludes_lora"),
        (exclusions.WITH_OTHERS, "--speculative-algorithm NGRAM --enable-lora --lora-paths a=b", LLAMA, "ok"),
        (sums.GROUPS, "--tp 8 --dp 4 --enable-dp-attention", LLAMA, "ok"),
        (sums.GROUPS, "--tp 8 --dp 3 --enable-dp-attention", LLAMA, "wrong dp_and_tp"),
        (sums.GROUPS, "--tp 8 --ep 4", QWEN_MOE, "ok"),
        (sums.GROUPS, "--tp 8 --ep 3", QWEN_MOE, "wrong ep_and_tp"),
        (sums.GROUPS, "--tp 8 --nnodes 2", LLAMA, "ok"),
        (sums.GROUPS, "--tp 8 --nnodes 3", LLAMA, "wrong nodes_and_ranks"),
        (sums.HEADS, "--tp 8", LLAMA, "ok"),
        (sums.HEADS, "--tp 16", LLAMA, "ok"),  # 8 key-value heads are copied to 16 ranks
        (sums.HEADS, "--tp 6", LLAMA, "wrong heads_not_divided"),
        (sums.HEADS, "--tp 12", LLAMA | {"num_attention_heads": 24}, "wrong kv_heads_not_divided"),
        (sums.HEADS, "--tp 7", SEVEN, "wrong width_not_divided"),
        (sums.HEADS, "--tp 8 --dp 4 --enable-dp-attention", TWO_HEADS, "ok"),
        (sums.EXPERTS, "--tp 8 --ep 8", QWEN_MOE, "ok"),
        (sums.EXPERTS, "--tp 6 --ep 6", QWEN_MOE, "wrong experts_not_divided"),
        (sums.BLOCKS, "--tp 4", QWEN_MOE, "ok"),
        (sums.BLOCKS, "--tp 8", QWEN_MOE, "wrong blocks_not_whole"),  # 1536 / 8 = 192
        (sums.BLOCKS, "--tp 8 --ep 2", QWEN_MOE, "ok"),
        (sums.BLOCKS, "--tp 16", DEEPSEEK, "ok"),
        (sums.BLOCKS, "--tp 32", DEEPSEEK, "wrong blocks_not_whole"),
        (sums.MEMORY, "--mem-fraction-static 0.99", LLAMA, "ok"),
        (sums.MEMORY, "--mem-fraction-static 85", LLAMA, "wrong share_out_of_range"),
        (sums.MEMORY, "--mem-fraction-static 0", LLAMA, "wrong share_out_of_range"),
        (models.CLASS, "", LLAMA, "ok"),
        (models.CLASS, "", DRAFT, "wrong draft_as_target"),
        (models.CLASS, "", LLAMA | {"architectures": ["MadeUpForCausalLM"]}, "open"),
        (models.CONTEXT, "--context-length 8192", LLAMA, "ok"),
        (models.CONTEXT, "--context-length 8193", LLAMA, "wrong context_too_long"),
        (models.CONTEXT, "--context-length 8193", TWICE, "ok"),
        (models.QUANTISATION, "--quantization fp8", LLAMA, "ok"),
        (models.QUANTISATION, "--quantization awq", LLAMA, "wrong not_quantised"),
        (models.QUANTISATION, "--quantization awq --dtype bfloat16", AWQ, "wrong quantisation_and_dtype"),
        (models.QUANTISATION, "--quantization awq --dtype half", AWQ, "ok"),
        (models.QUANTISATION, "--quantization awq", AWQ, "open"),  # the config says bfloat16
        (models.QUANTISATION, "--dtype bfloat16", AWQ, "ok"),  # the Marlin kernels take it
        (models.QUANTISATION, "--quantization fp8", DEEPSEEK, "ok"),
        (models.QUANTISATION, "--quantization w8a8_int8", DEEPSEEK, "wrong quantisation_differs"),
        (models.QUANTISATION, "--quantization awq", DEEPSEEK, "wrong quantisation_differs"),
        (models.QUANTISATION, "--quantization w4afp8", DEEPSEEK, "open"),
        (sums.EXPERTS, "--tp 256 --ep 256", DEEPSEEK, "ok"),
        (sums.BLOCKS, "--tp 4", MINIMAX, "ok"),
        (sums.BLOCKS, "--tp 8", MINIMAX, "wrong blocks_not_whole"),
        (exclusions.WITH_OTHERS, f"{FLASH} {TOPK} 2", DEEPSEEK, "wrong flashinfer_mla_topk"),
        (exclusions.WITH_OTHERS, f"{FLASH} {TOPK} 1", DEEPSEEK, "ok"),
        (backends.BACKENDS, "--attention-backend triton", LLAMA, "ok"),
        (backends.BACKENDS, "--attention-backend flashmla", LLAMA, "wrong backend_for_mla"),
        (backends.BACKENDS, "--attention-backend flashmla", DEEPSEEK, "open"),  # the GPU decides
    ],
)  # fmt: skip
def test_both_sides_of_each_border(
    name: str, words: str, target: dict[str, Any], right: str
) -> None:
    assert state(name, served(words, target)) == right


def test_a_release_without_the_hooks_of_the_target() -> None:
    kimi = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}
    assert state(models.HOOKS, served(EAGLE3, kimi, "0.5.9")) == "wrong no_capture_hooks"
    assert state(models.HOOKS, served(EAGLE3, kimi, "0.5.10")) == "ok"
    assert state(models.HOOKS, served("", kimi, "0.5.9")) == "ok"


def test_a_draft_of_another_vocabulary_drafts_other_words() -> None:
    words = "--speculative-algorithm STANDALONE --speculative-draft-model-path d"
    other = LLAMA | {"vocab_size": 32000}
    same = served(words, other)
    assert state(speculation.ALGORITHM, same) == "ok"
    draft = Model("d", Config(LLAMA | {"vocab_size": 1000}))
    wrong = Served(same.launch, same.version, same.target, draft)
    assert state(speculation.ALGORITHM, wrong) == "wrong standalone_vocabulary"


def test_a_longer_context_was_allowed_by_default_once() -> None:
    assert state(models.CONTEXT, served("--context-length 9000", version="0.4.10.post2")) == "ok"
    wrong = served("--context-length 9000", version="0.5.1")
    assert state(models.CONTEXT, wrong) == "wrong context_too_long"


def test_a_tree_over_pages_is_a_matter_of_release_and_backend() -> None:
    words = f"{EAGLE3} {STEPS} 3 {TOPK} 4 {TOKENS} 8 --page-size 16 "
    triton = words + "--attention-backend triton"
    assert state(exclusions.WITH_OTHERS, served(triton, version="0.5.13")) == "ok"
    assert state(exclusions.WITH_OTHERS, served(triton, version="0.5.12")) == "wrong paged_tree"
    assert state(exclusions.WITH_OTHERS, served(words)) == "open"


def test_the_visible_gpus_are_counted() -> None:
    enough = served("--tp 2", CUDA_VISIBLE_DEVICES="0,1")
    assert state(sums.GROUPS, enough) == "ok"
    assert state(sums.GROUPS, served("--tp 4", CUDA_VISIBLE_DEVICES="0,1")) == "wrong too_few_gpus"


def test_a_longer_context_is_allowed_by_a_variable() -> None:
    allowed = served("--context-length 9000", SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN="1")
    assert state(models.CONTEXT, allowed) == "ok"


def test_a_value_that_is_not_known_leaves_its_items_open() -> None:
    asked = served("--tp $TP")
    assert state(sums.HEADS, asked) == "open"
    assert state(sums.MEMORY, asked) == "ok"


def test_in_a_release_that_was_not_read_nothing_is_certain() -> None:
    states = {one.state for _, one in ruled(served("--tp 6", version="99.0"))}
    assert states == {"open"}


@pytest.mark.parametrize(
    ("words", "version", "code"),
    [
        ("--enable-hierarchical-cache --disable-radix-cache", "0.5.14", "cache_without_radix"),
        ("--enable-hierarchical-cache", "0.5.14", ""),
        ("--moe-dense-tp-size 2 --tp 4", "0.5.14", "dense_tp"),
        ("--moe-dense-tp-size 4 --tp 4", "0.5.14", ""),
        ("--moe-dense-tp-size 4 --tp 4", "0.5.12", "dense_tp"),
        ("--served-model-name a:b", "0.5.14", "name_with_colon"),
        ("--served-model-name a:b", "0.5.5", ""),
        ("--chunked-prefill-size 100 --page-size 64", "0.5.14", "chunks"),
        ("--chunked-prefill-size 128 --page-size 64", "0.5.14", ""),
        ("--enable-dp-lm-head --dp 2 --tp 2", "0.5.14", "dp_head"),
        ("--enable-dp-lm-head --dp 2 --tp 2 --enable-dp-attention", "0.5.14", ""),
        ("--dp 2 --nnodes 2", "0.5.14", "nodes"),
        ("--enable-lora", "0.5.14", "lora_without_adapter"),
        ("--enable-lora --max-lora-rank 16 --lora-target-modules all", "0.5.14", ""),
        ("--enable-lora --max-lora-rank 16 --lora-target-modules all q_proj", "0.5.14", "lora_all"),
        ("--export-metrics-to-file", "0.5.14", "metrics_folder"),
        ("--ssl-keyfile k", "0.5.14", "ssl_key"),
        ("--swa-full-tokens-ratio 0", "0.5.14", "sliding_window_share"),
        ("--swa-full-tokens-ratio 1", "0.5.14", ""),
    ],
)
def test_options_that_exclude_or_need_each_other(words: str, version: str, code: str) -> None:
    from workbench.launch.rules.companions import NAME

    assert state(NAME, served(words, version=version)) == (
        f"wrong together_{code}" if code else "ok"
    )


def test_every_rule_settles_its_own_item_and_no_other() -> None:
    asked = served(EAGLE3)
    for rule in RULES:
        assert {one.name for one in rule.check(asked)} == {rule.name}
