"""Sums of a launch: each division from both sides of its border, and the sizes that a release sets itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.launch.rules.asking import (
    DEEPSEEK,
    LLAMA,
    NEWEST,
    QWEN_MOE,
    answer,
    ask,
    found,
    repaired,
)
from workbench.launch.rules.records import Model
from workbench.launch.rules.sums import (
    BLOCKS,
    EXPERTS,
    GROUPS,
    HEADS,
    MEMORY,
    WEIGHTS,
    Sizes,
    sizes_of,
)

DP = "--enable-dp-attention "
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d "


@pytest.mark.parametrize(
    ("words", "version", "right"),
    [
        ("", "0.5.14", Sizes(1, 1, 1, 1, 1, 1)),
        ("--tp 8 --pp-size 2 --nnodes 2", "0.5.14", Sizes(8, 2, 1, 1, 2, 8)),
        ("--tp 0 --dp -1", "0.5.14", Sizes(1, 1, 1, 1, 1, 1)),
        ("--tp 8 --ep 4", "0.5.14", Sizes(8, 1, 1, 4, 1, 8)),
        ("--tp 8 --dp 2", "0.5.14", Sizes(8, 1, 2, 1, 1, 8)),
        (f"--tp 8 --dp 2 {DP}", "0.5.14", Sizes(8, 1, 2, 1, 1, 4)),
        (f"--tp 8 --dp 1 {DP}", "0.5.14", Sizes(8, 1, 1, 1, 1, 8)),
        (f"--tp 8 --dp 3 {DP}", "0.5.14", Sizes(8, 1, 3, 1, 1, 0)),
        ("--tp 8 --attn-cp-size 2", "0.5.14", Sizes(8, 1, 1, 1, 1, 4)),
        (f"--tp 8 --dp 2 {DP} --attn-cp-size 2", "0.5.14", Sizes(8, 1, 2, 1, 1, 2)),
        ("--tp 8 --attn-cp-size 3", "0.5.14", Sizes(8, 1, 1, 1, 1, 0)),
        ("--tp 8 --attn-cp-size 0", "0.5.14", Sizes(8, 1, 1, 1, 1, 8)),
        # SGLang makes the experts' size that of the tensors
        ("--tp 8 --moe-a2a-backend none", "0.5.14", Sizes(8, 1, 1, 1, 1, 8)),
        ("--tp 8 --moe-a2a-backend deepep", "0.5.14", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --ep 2 --moe-a2a-backend flashinfer", "0.5.14", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --ep 2 --moe-a2a-backend ascend_tp", NEWEST, Sizes(8, 1, 1, 2, 1, 8)),
        ("--tp 8 --moe-a2a-backend pplx", NEWEST, Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --moe-a2a-backend deepep", "0.4.10.post2", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8", "0.4.10.post2", Sizes(8, 1, 1, 1, 1, 8)),
        ("--tp 8 --enable-deepep-moe", "0.4.9", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --ep-size 4 --enable-deepep-moe", "0.4.10.post1", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --enable-ep-moe", "0.4.9", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --ep-size 4 --enable-ep-moe", "0.4.9.post6", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --ep-size 4 --enable-ep-moe", "0.4.10", Sizes(8, 1, 1, 4, 1, 8)),
        ("--tp 8 --ep-size 4 --enable-ep-moe", "0.4.10.post1", Sizes(8, 1, 1, 4, 1, 8)),
        ("--tp 8 --ep-size 4 --enable-ep-moe", "0.4.10.post2", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --enable-ep-moe", "0.4.10", Sizes(8, 1, 1, 8, 1, 8)),
        ("--tp 8 --ep-size 4", "0.4.9", Sizes(8, 1, 1, 4, 1, 8)),
    ],
)
def test_the_sizes_that_hold(words: str, version: str, right: Sizes) -> None:
    assert sizes_of(ask(words, version)) == right


def test_by_what_the_width_of_an_expert_is_divided() -> None:
    for tp, ep, right in ((8, 2, 4), (8, 8, 1), (8, 3, 1), (8, 1, 8), (1, 1, 1)):
        assert Sizes(tp, 1, 1, ep, 1, tp).experts_by == right


@pytest.mark.parametrize(
    ("words", "version", "right"),
    [
        ("", "0.5.14", "ok"),
        *(
            (f"{name} 0", "0.5.14", "wrong size_below_one")
            for name in ("--tp", "--pp-size", "--dp", "--ep")
        ),
        ("--nnodes 0", "0.5.14", "wrong size_below_one"),
        ("--tp x", "0.5.14", "ok"),  # the parser refuses it
        ("--tp 8 --nnodes 2", "0.5.14", "ok"),
        ("--tp 8 --nnodes 3", "0.5.14", "wrong nodes_and_ranks"),
        ("--tp 8 --pp-size 3 --nnodes 3", "0.5.14", "ok"),
        ("--tp 7 --nnodes 1", "0.5.14", "ok"),
        ("--tp 1 --nnodes 2", "0.5.14", "wrong nodes_and_ranks"),
        (f"--tp 8 --dp 4 {DP}", "0.5.14", "ok"),
        (f"--tp 8 --dp 3 {DP}", "0.5.14", "wrong dp_and_tp"),
        (f"--tp 8 --dp 3 {DP}", "0.5.21", "wrong dp_and_tp"),
        (f"--tp 8 --dp 3 {DP}", "0.5.22", "ok"),  # there --dp-size no longer splits attention
        ("--tp 8 --dp 3", "0.5.14", "ok"),
        ("--tp 8 --ep 8", "0.5.14", "ok"),
        ("--tp 8 --ep 3", "0.5.14", "wrong ep_and_tp"),
        ("--tp 8 --ep 16", "0.5.14", "wrong ep_and_tp"),
        (f"--tp 8 --ep 3 --dp 3 {DP}", "0.5.14", "wrong dp_and_tp; wrong ep_and_tp"),
        ("--tp 8 --ep 3 --nnodes 3", "0.5.14", "wrong ep_and_tp; wrong nodes_and_ranks"),
    ],
)
def test_groups(words: str, version: str, right: str) -> None:
    assert answer(GROUPS, ask(words, version)) == right


@pytest.mark.parametrize(
    ("words", "visible", "right"),
    [
        ("--tp 2", "0,1", "ok"),
        ("--tp 3", "0,1", "wrong too_few_gpus"),
        ("--tp 2", "0", "wrong too_few_gpus"),
        ("", "0", "ok"),
        ("--tp 4 --nnodes 2", "0,1", "ok"),
        ("--tp 4 --nnodes 1", "0,1", "wrong too_few_gpus"),
        ("--tp 2 --pp-size 2", "0,1,2", "wrong too_few_gpus"),
        ("--tp 2 --pp-size 2", "0,1,2,3", "ok"),
        ("--tp 1 --dp 2", "0", "wrong too_few_gpus"),  # two servers
        ("--tp 1 --dp 2", "0,1", "ok"),
        (f"--tp 2 --dp 2 {DP}", "0,1", "ok"),  # two parts of one
        ("--tp 2 --gpu-id-step 2", "0,1", "wrong too_few_gpus"),  # GPUs 0 and 2
        ("--tp 2 --gpu-id-step 2", "0,1,2", "ok"),
        ("--tp 1 --base-gpu-id 1", "0", "wrong too_few_gpus"),
        ("--tp 1 --base-gpu-id 1", "0,1", "ok"),
        ("--tp 2 --gpu-id-step x --base-gpu-id x", "0,1", "ok"),  # the parser refuses them
        ("--tp 4", "GPU-1,GPU-2", "ok"),  # not counted: a name may be of several
        ("--tp 4", "", "ok"),
        ("--tp 2 --ep 3", "0", "wrong ep_and_tp; wrong too_few_gpus"),
    ],
)
def test_visible_gpus(words: str, visible: str, right: str) -> None:
    assert answer(GROUPS, ask(words, CUDA_VISIBLE_DEVICES=visible)) == right


def heads(count: int | None, kv: int | None = None, width: int | None = None, **more: Any) -> Any:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": count,
            "num_key_value_heads": kv, "intermediate_size": width} | more  # fmt: skip


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        ("", heads(7), "ok"),
        ("--tp 2", heads(8), "ok"),
        ("--tp 2", heads(7), "wrong heads_not_divided"),
        ("--tp 2", heads(None), "open"),
        ("--tp 2", None, "open"),
        ("--tp 2", Model("t"), "open"),
        ("--tp 1", None, "ok"),
        (f"--tp 8 --dp 3 {DP}", heads(8), "open"),
        (f"--tp 8 --dp 4 {DP}", heads(2), "ok"),
        (f"--tp 8 --dp 2 {DP}", heads(2), "wrong heads_not_divided"),
        # Key-value heads: divided, or copied
        ("--tp 4", heads(12, 4), "ok"),
        ("--tp 4", heads(12, 2), "ok"),
        ("--tp 4", heads(12, 6), "wrong kv_heads_not_divided"),
        ("--tp 4", heads(12, 3), "wrong kv_heads_not_divided"),
        ("--tp 4", heads(12, 0), "ok"),
        ("--tp 4", heads(12, 6, kv_lora_rank=512), "ok"),
        # The width of the MLP
        ("--tp 4", heads(12, 4, 16), "ok"),
        ("--tp 4", heads(12, 4, 18), "wrong width_not_divided"),
        ("--tp 4", heads(12, 4, 18, num_experts=8), "ok"),
        ("--tp 4", heads(12, 4, 18, num_experts=8, first_k_dense_replace=1), "wrong width_not_divided"),
        ("--tp 4", heads(12, 4, 18, num_experts=8, first_k_dense_replace=0), "ok"),
        (f"--tp 4 --dp 2 {DP}", heads(12, 4, 18), "ok"),  # each rank has the whole MLP
    ],
)  # fmt: skip
def test_heads(words: str, target: Any, right: str) -> None:
    assert answer(HEADS, ask(words, target=target)) == right


@pytest.mark.parametrize(
    ("words", "draft", "right"),
    [
        (f"--tp 4 {EAGLE3}", heads(8), "ok"),
        (f"--tp 4 {EAGLE3}", heads(6), "wrong heads_not_divided"),
        ("--tp 4 --speculative-draft-model-path d", heads(6), "ok"),  # it is not loaded
        (f"--tp 4 {EAGLE3}", Model("d"), "open"),
        (f"--tp 4 --dp 2 {DP} {EAGLE3}", heads(8, 8, 18), "wrong width_not_divided"),
        (f"--tp 4 --dp 2 {DP} {EAGLE3}", heads(8, 8, 16), "ok"),
    ],
)
def test_heads_of_the_draft(words: str, draft: Any, right: str) -> None:
    assert answer(HEADS, ask(words, target=heads(8, 4), draft=draft)) == right


@pytest.mark.parametrize(
    ("words", "target", "fixed"),
    [
        ("--tp 5", heads(12, 4), "--tp 4"),
        ("--tp 12", heads(24, 8), "--tp 8"),
        ("--tp 6", heads(24, 4), "--tp 4"),
        ("--tp 8", heads(16, 6), "--tp 2"),  # 6 does not divide 16
        ("--tp 8", heads(24, 3), "--tp 6"),  # 3 are copied to 6
        ("--tp 3", heads(12, 4), "--tp 2"),
        (f"--tp 8 --dp 2 {DP}", heads(6), f"--tp 8 --dp 2 {DP}"),  # which of the two is not known
        (f"--tp 12 --dp 2 {DP}", heads(12, 4), f"--tp 12 --dp 2 {DP}"),
        ("--tp 4", heads(12, 4, 18), "--tp 4"),
    ],
)
def test_the_ranks_that_divide_the_heads(words: str, target: Any, fixed: str) -> None:
    assert repaired(HEADS, ask(words, target=target)) == fixed.strip()


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        ("--tp 0", ""),
        (f"--tp 8 --dp 6 {DP}", f"--tp 8 --dp 2 {DP}"),
        ("--tp 8 --ep 6", "--tp 8 --ep 2"),
    ],
)
def test_the_groups_that_fit(words: str, fixed: str) -> None:
    assert repaired(GROUPS, ask(words)) == fixed.strip()


def moe(count: int | None, width: int | None = None, **more: Any) -> Any:
    return {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": count,
            "moe_intermediate_size": width} | more  # fmt: skip


SPARE = "--ep-num-redundant-experts"


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        ("", moe(7), "ok"),
        ("", None, "ok"),
        ("--tp 2", None, "open"),
        ("--tp 2", Model("t"), "open"),
        ("--tp 2", LLAMA, "ok"),
        ("--tp 4 --ep 4", moe(8), "ok"),
        ("--tp 4 --ep 4", moe(6), "wrong experts_not_divided"),
        ("--ep 2", moe(7), "wrong experts_not_divided"),
        (f"--tp 4 --ep 4 {SPARE} 2", moe(6), "ok"),
        (f"--tp 4 --ep 4 {SPARE} 2", moe(8), "wrong experts_not_divided"),
        ("--tp 8 --ep 8", moe(4), "wrong experts_not_divided"),
        ("--tp 8 --moe-a2a-backend deepep", moe(4), "open"),  # of eight ranks four have none
        ("--tp 8 --moe-a2a-backend deepep", moe(8), "ok"),
        (f"--tp 8 --moe-a2a-backend deepep {SPARE} 4", moe(4), "ok"),
        ("--tp 8 --moe-a2a-backend deepep", moe(12), "wrong experts_not_divided"),
        ("--tp 4", moe(8, 16), "ok"),
        ("--tp 4", moe(8, 18), "wrong expert_width"),
        ("--tp 4 --ep 2", moe(8, 18), "ok"),
        ("--tp 4 --ep 3", moe(9, 17), "ok"),  # the groups do not fit, which is another rule's
        ("--tp 4", moe(8, None), "ok"),
        # Families that count under other names
        ("--tp 4", moe(None, num_local_experts=8, moe_intermediate_size=18), "wrong expert_width"),
        ("--tp 4", moe(7, 16, model_type="mixtral", num_local_experts=8, intermediate_size=18),
         "wrong expert_width"),
        ("--tp 4 --ep 4", moe(7, 18, model_type="minimax_m2", num_local_experts=8, intermediate_size=16),
         "ok"),
    ],
)  # fmt: skip
def test_experts(words: str, target: Any, right: str) -> None:
    assert answer(EXPERTS, ask(words, target=target)) == right


def test_a_release_without_spare_experts() -> None:
    assert answer(EXPERTS, ask("--tp 4 --ep 4", "0.4.6.post4", moe(8))) == "ok"


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        ("--tp 8 --ep 4", "--tp 8 --ep 2"),
        (f"--tp 8 --ep 4 {SPARE} 1", f"--tp 8 --ep 4 {SPARE} 1"),  # either could change
    ],
)
def test_the_ranks_that_divide_the_experts(words: str, fixed: str) -> None:
    assert repaired(EXPERTS, ask(words, target=moe(6))) == fixed


def blocked(block: Any, method: str = "fp8", **more: Any) -> Any:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "quantization_config": {"quant_method": method, "weight_block_size": block}} | more  # fmt: skip


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        ("--tp 2", None, "open"),
        ("--tp 2", Model("t"), "open"),
        ("--tp 2", LLAMA, "ok"),
        # A dense MLP
        ("--tp 2", blocked([128, 128], intermediate_size=512), "ok"),
        ("--tp 2", blocked([128, 128], intermediate_size=384), "wrong blocks_not_whole"),
        ("", blocked([128, 128], intermediate_size=200), "ok"),
        ("--tp 3", blocked([128, 128], intermediate_size=200), "ok"),  # another rule's
        ("--tp 2", blocked([64, 128], intermediate_size=384), "wrong blocks_not_whole"),
        ("--tp 2", blocked([128, 64], intermediate_size=384), "wrong blocks_not_whole"),
        ("--tp 2", blocked([128, 128], "awq", intermediate_size=384), "ok"),
        ("--tp 2", blocked(None, intermediate_size=384), "ok"),
        ("--tp 2", blocked([128], intermediate_size=384), "ok"),
        ("--tp 2", blocked([128, 0], intermediate_size=384), "ok"),
        ("--tp 2", blocked([128, "128"], intermediate_size=384), "ok"),
        ("--tp 2", blocked([1, 1], intermediate_size=384), "ok"),
        ("--tp 2", blocked([1, 128], intermediate_size=384), "wrong blocks_not_whole"),
        # Experts, by the ranks of each
        ("--tp 4", QWEN_MOE, "ok"),  # 1536 / 4 = 384
        ("--tp 8", QWEN_MOE, "wrong blocks_not_whole"),  # 1536 / 8 = 192
        ("--tp 8 --ep 2", QWEN_MOE, "ok"),
        ("--tp 7", QWEN_MOE, "ok"),  # the width is not divided: another rule's
        ("--tp 16", DEEPSEEK, "ok"),
        ("--tp 32", DEEPSEEK, "wrong blocks_not_whole"),
        ("", QWEN_MOE | {"moe_intermediate_size": 192}, "wrong blocks_not_whole"),
        ("", QWEN_MOE | {"moe_intermediate_size": 128}, "ok"),
        ("", blocked([64, 128], num_experts=8, moe_intermediate_size=192), "ok"),  # one rank: no cut
        ("--tp 2", blocked([64, 128], num_experts=8, moe_intermediate_size=384), "wrong blocks_not_whole"),
        ("--tp 2", blocked([128, 128], moe_intermediate_size=192, intermediate_size=512), "ok"),
        ("--tp 2", blocked([128, 128], num_experts=8, intermediate_size=384), "ok"),
    ],
)  # fmt: skip
def test_blocks(words: str, target: Any, right: str) -> None:
    assert answer(BLOCKS, ask(words, target=target)) == right


@pytest.mark.parametrize(
    ("words", "target", "fixed"),
    [
        ("--tp 4", blocked([128, 128], intermediate_size=768), "--tp 2"),
        ("--tp 4", blocked([128, 128], intermediate_size=128), "--tp 1"),
        ("--tp 4", blocked([128, 128], intermediate_size=384), "--tp 1"),  # 3 does not divide 4
        ("--tp 2", blocked([128, 128], intermediate_size=192), "--tp 1"),
        ("--tp 8", QWEN_MOE | {"moe_intermediate_size": 768}, "--tp 8 --ep-size 4"),
        ("--tp 8", QWEN_MOE, "--tp 8 --ep-size 2"),
        ("--tp 12", QWEN_MOE | {"moe_intermediate_size": 1920}, "--tp 12 --ep-size 4"),
        ("--tp 32", DEEPSEEK, "--tp 32 --ep-size 2"),
        ("--tp 6", QWEN_MOE | {"moe_intermediate_size": 192}, "--tp 6 --ep-size 6"),
    ],
)
def test_the_ranks_with_whole_blocks(words: str, target: Any, fixed: str) -> None:
    assert repaired(BLOCKS, ask(words, target=target)) == fixed


SHARE = "--mem-fraction-static"


@pytest.mark.parametrize(
    ("words", "right", "fixed"),
    [
        ("", "ok", ""),
        (f"{SHARE} 0.01", "ok", ""),
        (f"{SHARE} 0", "wrong share_out_of_range", f"{SHARE} 0.85"),
        (f"{SHARE} 0.94", "ok", ""),
        (f"{SHARE} 0.95", "ok share_high", ""),
        (f"{SHARE} 1", "ok share_high", ""),
        (f"{SHARE} 1.01", "wrong share_out_of_range", f"{SHARE} 0.0101"),
        (f"{SHARE} 85", "wrong share_out_of_range", f"{SHARE} 0.85"),
        (f"{SHARE} 99", "wrong share_out_of_range", f"{SHARE} 0.99"),
        (f"{SHARE} 100", "wrong share_out_of_range", f"{SHARE} 0.85"),
        (f"{SHARE} 1.5 --max-total-tokens 9", "ok share_high", ""),
    ],
)
def test_the_share_of_memory(words: str, right: str, fixed: str) -> None:
    asked = ask(words)
    assert answer(MEMORY, asked) == right
    assert repaired(MEMORY, asked) == (fixed or words)


@pytest.mark.parametrize(
    ("target", "draft", "words", "text"),
    [
        (0, 0, "", "were not read"),
        (8e9, 0, "", "of target take about 8.0 GB"),
        (8e9, 2e9, "--tp 2", "of target and draft take about 5.0 GB"),
        (8e9, 0, "--tp 2 --pp-size 2", "about 2.0 GB"),
        (1e8, 0, "", "about 0.1 GB"),
        (9.9e7, 0, "", "about 99.0 MB"),
    ],
)
def test_the_memory_of_the_weights(target: float, draft: float, words: str, text: str) -> None:
    models = Model("t", bytes=int(target)), Model("d", bytes=int(draft))
    one = found(WEIGHTS, ask(f"{EAGLE3} {words}", target=models[0], draft=models[1]))
    assert [(ruled.state, text in ruled.how) for ruled in one] == [("open", True)]
    none = found(WEIGHTS, ask("", target=None))
    assert "were not read" in none[0].how
