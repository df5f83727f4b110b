"""What speculative decoding excludes: each condition from both sides, in the releases around its borders.

The releases are those in whose wheels the check was read (server_args.py, arg_groups/speculative_hook.py).
"""

from __future__ import annotations

import pytest

from tests.launch.rules.asking import DEEPSEEK, LLAMA, NEWEST, answer, ask, repaired
from workbench.launch.rules.exclusions import WITH_OTHERS

NAME = WITH_OTHERS
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d "
EAGLE = "--speculative-algorithm EAGLE --speculative-draft-model-path d "
STANDALONE = "--speculative-algorithm STANDALONE --speculative-draft-model-path d "
DFLASH = "--speculative-algorithm DFLASH --speculative-draft-model-path d "
NGRAM = "--speculative-algorithm NGRAM "
PARALLEL = "--tp 2 --dp 2 --enable-dp-attention "
TREE = f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8 "
CHAIN = f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
PAGED = f"{TREE} --page-size 16 --attention-backend "
MHA = "wrong trtllm_mha_topk"
MLA = "wrong flashinfer_mla_topk"


@pytest.mark.parametrize(
    ("words", "release", "right"),
    [
        ("--pp-size 2", "0.5.14", "ok"),  # no draft
        (EAGLE3, "0.5.14", "ok"),
        # Pipeline stages
        (f"{EAGLE3} --pp-size 1", "0.5.14", "ok"),
        (EAGLE3, "0.4.6.post1", "ok"),  # has no --pp-size
        (f"{EAGLE3} --pp-size 2", "0.4.6.post1", "open"),
        (f"{EAGLE3} --pp-size 2", "0.4.6.post2", "wrong excludes_pipeline"),
        (f"{EAGLE3} --pp-size 2", "0.5.20", "wrong excludes_pipeline"),
        (f"{EAGLE} --pp-size 2", "0.5.20", "wrong excludes_pipeline"),
        (f"{EAGLE} --pp-size 2 --disaggregation-mode prefill", "0.5.20", "wrong excludes_pipeline"),
        (f"{EAGLE3} --pp-size 2 --disaggregation-mode prefill", "0.5.21", "wrong excludes_pipeline"),
        (f"{EAGLE} --pp-size 2", "0.5.21", "wrong excludes_pipeline"),
        (f"{EAGLE} --pp-size 2 --disaggregation-mode prefill", "0.5.21", "open"),
        (f"{EAGLE} --pp-size 2 --disaggregation-mode decode", "0.5.21", "wrong excludes_pipeline"),
        # Attention that is data parallel
        (f"{EAGLE3} {PARALLEL}", "0.5.14", "ok"),
        (f"{STANDALONE} {PARALLEL}", "0.5.1.post3", "ok"),  # has no STANDALONE
        (f"{STANDALONE} {PARALLEL}", "0.5.2", "wrong excludes_dp_attention"),
        (f"{STANDALONE} {PARALLEL}", NEWEST, "wrong excludes_dp_attention"),
        (f"{STANDALONE} --tp 2 --dp 2", "0.5.14", "ok"),
        (f"{STANDALONE} --dp 1 --enable-dp-attention", "0.5.14", "ok"),
        (f"{NGRAM} {PARALLEL}", "0.5.3", "wrong excludes_dp_attention"),
        (f"{NGRAM} {PARALLEL}", "0.5.2", "ok"),  # has no NGRAM: the rule of algorithms says so
        (f"{NGRAM} {PARALLEL}", NEWEST, "wrong excludes_dp_attention"),
        (f"{DFLASH} {PARALLEL}", "0.5.10.post1", "open"),
        (f"{DFLASH} --tp 2 --dp 2", "0.5.20", "ok"),
        (f"{DFLASH} {PARALLEL}", "0.5.11", "wrong excludes_dp_attention"),
        (f"{DFLASH} {PARALLEL}", "0.5.19", "wrong excludes_dp_attention"),
        (f"{DFLASH} {PARALLEL}", "0.5.20", "open"),
        # LoRA
        (f"{EAGLE3} --enable-lora", "0.5.5.post2", "ok"),
        (f"{EAGLE3} --enable-lora", "0.5.5.post3", "wrong excludes_lora"),
        (f"{EAGLE3} --lora-paths a=b", "0.5.18", "wrong excludes_lora"),
        (f"{EAGLE3} --enable-lora", "0.5.19", "ok"),
        (f"{DFLASH} --enable-lora", "0.5.18", "wrong excludes_lora"),
        (f"{DFLASH} --enable-lora", "0.5.19", "ok"),
        (f"{STANDALONE} --enable-lora", "0.5.5.post2", "ok"),
        (f"{STANDALONE} --enable-lora", "0.5.18", "wrong excludes_lora"),
        (f"{STANDALONE} --enable-lora", "0.5.19", "wrong excludes_lora"),
        (f"{STANDALONE} --lora-paths a=b", NEWEST, "wrong excludes_lora"),
        (STANDALONE, NEWEST, "ok"),
        (f"{NGRAM} --enable-lora", "0.5.14", "ok"),
        # FlexAttention, of the attention backend alone
        (f"{EAGLE3} --attention-backend flex_attention", "0.5.2", "ok"),
        (f"{EAGLE3} --attention-backend flex_attention", "0.5.3", "wrong excludes_flex_attention"),
        (f"{EAGLE3} --attention-backend flex_attention", NEWEST, "wrong excludes_flex_attention"),
        (f"{EAGLE3} --attention-backend triton", NEWEST, "ok"),
        # Chunks of prefill and decode in one batch: off, and since 0.5.19 not for all
        (f"{EAGLE3} --enable-mixed-chunk", "0.4.6.post5", "open"),
        (f"{EAGLE3} --enable-mixed-chunk", "0.4.7", "ok mixed_chunk_off"),
        (f"{EAGLE3} --enable-mixed-chunk", "0.5.18", "ok mixed_chunk_off"),
        (f"{EAGLE3} --enable-mixed-chunk", "0.5.19", "ok"),
        (f"{NGRAM} --enable-mixed-chunk", "0.5.19", "ok mixed_chunk_off"),
        # trtllm_mha drafts a chain
        (f"{TREE} --attention-backend trtllm_mha", "0.5.1", MHA),
        (f"{TREE} --prefill-attention-backend trtllm_mha", "0.5.14", MHA),
        (f"{TREE} --decode-attention-backend trtllm_mha", "0.5.14", MHA),
        (f"{CHAIN} --attention-backend trtllm_mha", "0.5.14", "ok"),
        (f"{EAGLE3} --attention-backend trtllm_mha", "0.5.14", "ok"),
        # Trees over pages
        (f"{PAGED} triton", "0.4.4.post3", "open"),
        (f"{PAGED} triton", "0.4.4.post4", "ok topk_adjusted"),
        (f"{PAGED} triton", "0.4.8.post1", "ok topk_adjusted"),
        (f"{PAGED} triton", "0.4.9", "open"),
        (f"{PAGED} triton", "0.5.1.post3", "open"),
        (f"{PAGED} triton", "0.5.2", "wrong paged_tree"),
        (f"{PAGED} flashinfer", "0.5.2", "ok"),
        (f"{PAGED} fa3", "0.5.5.post3", "wrong paged_tree"),
        (f"{PAGED} fa3", "0.5.6", "ok"),
        (f"{PAGED} triton", "0.5.12.post1", "wrong paged_tree"),
        (f"{PAGED} triton", "0.5.13", "ok"),
        (f"{PAGED} torch_native", NEWEST, "wrong paged_tree"),
        (f"{TREE} --page-size 2", NEWEST, "open"),  # the GPU decides which backend it is
        (f"{TREE} --page-size 1", NEWEST, "ok"),
        (f"{CHAIN} --page-size 16 --attention-backend torch_native", NEWEST, "ok"),
        (f"{TREE} --page-size 1 --attention-backend torch_native", NEWEST, "ok"),
        (f"{TREE} --page-size 2 --attention-backend torch_native", NEWEST, "wrong paged_tree"),
        (f"{TREE} --attention-backend flashmla", "0.5.14", "wrong paged_tree"),  # pages of its own
        (f"{TREE} --attention-backend cutlass_mla --page-size 1", "0.5.14", "wrong paged_tree"),
        (f"{NGRAM} --page-size 16", "0.5.14", "ok"),
    ],
)  # fmt: skip
def test_both_sides(words: str, release: str, right: str) -> None:
    assert answer(NAME, ask(words, release)) == right


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        (f"{TREE} --attention-backend flashinfer", DEEPSEEK, MLA),
        (f"{TREE} --decode-attention-backend flashinfer", DEEPSEEK, MLA),
        (f"{CHAIN} --attention-backend flashinfer", DEEPSEEK, "ok"),
        (f"{TREE} --attention-backend triton", DEEPSEEK, "ok"),
        (f"{TREE} --attention-backend flashinfer", LLAMA, "ok"),
        (f"{TREE} --attention-backend flashinfer", None, "ok"),
    ],
)
def test_flashinfer_drafts_a_chain_for_latent_attention(
    words: str, target: dict[str, object] | None, right: str
) -> None:
    assert answer(NAME, ask(words, target=target)) == right


@pytest.mark.parametrize(
    ("value", "release", "right"),
    [
        ("1", "0.5.4", "ok"),  # there is no such variable yet
        ("1", "0.5.4.post1", "open"),
        ("true", "0.5.6.post2", "open"),
        ("True", "0.5.7", "wrong overlap_topk"),
        ("yes", "0.5.7", "wrong overlap_topk"),
        ("y", "0.5.10.post1", "wrong overlap_topk"),
        ("1", "0.5.11", "ok"),
        ("0", "0.5.7", "ok"),
        ("", "0.5.7", "ok"),
        ("0", "0.5.5", "ok"),
    ],
)
def test_the_overlapped_draft_is_a_chain(value: str, release: str, right: str) -> None:
    assert answer(NAME, ask(TREE, release, SGLANG_ENABLE_SPEC_V2=value)) == right
    assert answer(NAME, ask(CHAIN, release, SGLANG_ENABLE_SPEC_V2=value)) == "ok"


def test_a_variable_lets_stages_draft_since_0_5_21() -> None:
    words = f"{EAGLE} --pp-size 2"
    assert answer(NAME, ask(words, "0.5.21", SGLANG_ENABLE_PP_SPEC="1")) == "open"
    assert (
        answer(NAME, ask(words, "0.5.20", SGLANG_ENABLE_PP_SPEC="1")) == "wrong excludes_pipeline"
    )
    other = f"{EAGLE3} --pp-size 2"
    assert (
        answer(NAME, ask(other, "0.5.21", SGLANG_ENABLE_PP_SPEC="1")) == "wrong excludes_pipeline"
    )


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("--page-size 2 --attention-backend torch_native", "--page-size 1 --attention-backend torch_native"),
        # Its page size is its own: the tree becomes a chain.
        ("--attention-backend flashmla", "--attention-backend flashmla"),
    ],
)  # fmt: skip
def test_the_line_that_drafts(words: str, right: str) -> None:
    topk = "1" if "flashmla" in words else "4"
    corrected = TREE.replace("topk 4", f"topk {topk}").split()
    assert repaired(NAME, ask(TREE + words)).split() == [*corrected, *right.split()]
