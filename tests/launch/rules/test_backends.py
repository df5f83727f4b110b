"""Attention backends against target, cache and GPU, on both sides of each border."""

from __future__ import annotations

from typing import Any

import pytest

from tests.launch.rules.asking import DEEPSEEK, LLAMA, NEWEST, answer, ask, repaired
from workbench.errors import WorkbenchError
from workbench.facts.gpus import gpu_of
from workbench.launch.rules.backends import BACKENDS, CACHES, NEEDS
from workbench.launch.rules.records import Model

BACKEND = "--attention-backend"


@pytest.mark.parametrize(
    ("words", "target", "right"),
    [
        ("", None, "ok"),
        (f"{BACKEND} triton", None, "open"),
        (f"{BACKEND} triton", Model("t"), "open"),
        (f"{BACKEND} triton", LLAMA, "ok"),
        (f"{BACKEND} trtllm_mha", LLAMA, "open"),
        (f"{BACKEND} trtllm_mha", DEEPSEEK, "wrong backend_for_mha"),
        (f"{BACKEND} fa4", LLAMA, "open"),
        ("--prefill-attention-backend fa4", LLAMA, "open"),
        *((f"{BACKEND} {name}", LLAMA, "wrong backend_for_mla")
          for name in ("flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla")),
        ("--prefill-attention-backend flashmla", LLAMA, "wrong backend_for_mla"),
        (f"--decode-attention-backend flashmla {BACKEND} triton", LLAMA, "wrong backend_for_mla"),
        (f"{BACKEND} flashmla", DEEPSEEK, "open"),
        (f"{BACKEND} triton", DEEPSEEK, "ok"),
        (f"{BACKEND} fa3", LLAMA, "ok backend_and_gpu"),
        (f"{BACKEND} ascend", LLAMA, "open"),
        (f"{BACKEND} ascend --device npu", LLAMA, "ok"),
        (f"{BACKEND} aiter", LLAMA, "open"),
    ],
)  # fmt: skip
def test_backend_and_target(words: str, target: Any, right: str) -> None:
    assert answer(BACKENDS, ask(words, target=target)) == right


def test_the_backend_for_latent_attention_reads_its_rank_in_every_release() -> None:
    for version in ("0.4.5.post2", "0.4.10.post2", "0.5.1", NEWEST):
        asked = ask(f"{BACKEND} flashmla", version)
        assert answer(BACKENDS, asked) == "wrong backend_for_mla"
        assert repaired(BACKENDS, asked) == ""


@pytest.mark.parametrize(
    ("words", "version", "target", "gpu", "right"),
    [
        (f"{BACKEND} fa3", "0.5.14", LLAMA, "H200", "ok"),
        (f"{BACKEND} fa3", "0.5.14", LLAMA, "B200", "wrong backend_and_gpu"),
        (f"{BACKEND} fa3", "0.5.14", LLAMA, "A100", "ok"),
        (f"{BACKEND} fa3", "0.5.14", DEEPSEEK, "A100", "wrong backend_and_gpu"),
        (f"{BACKEND} fa3", "0.4.6.post1", LLAMA, "A100", "wrong backend_and_gpu"),
        (f"{BACKEND} fa3", "0.5.14", LLAMA, "MI300X", "wrong backend_and_gpu"),
        (f"{BACKEND} trtllm_mla", "0.5.14", DEEPSEEK, "B200", "ok"),
        (f"{BACKEND} trtllm_mla", "0.5.14", DEEPSEEK, "H200", "wrong backend_and_gpu"),
        (f"{BACKEND} trtllm_mla", "0.5.4.post1", DEEPSEEK, "12.0", "wrong backend_and_gpu"),
        (f"{BACKEND} trtllm_mla", "0.5.4.post2", DEEPSEEK, "12.0", "ok"),
        (f"{BACKEND} trtllm_mla", "0.5.14", DEEPSEEK, "11.0", "open"),
        (f"{BACKEND} trtllm_mla", "0.5.14", {**DEEPSEEK, "kv_lora_rank": 256}, "B200", "open"),
        (f"{BACKEND} trtllm_mha", "0.5.14", LLAMA, "B200", "ok"),
        (f"{BACKEND} trtllm_mha", "0.5.14", LLAMA, "H200", "wrong backend_and_gpu"),
        ("--decode-attention-backend trtllm_mha", "0.5.14", LLAMA, "H200", "ok"),
        ("--decode-attention-backend trtllm_mha", "0.5.9", LLAMA, "H200", "wrong backend_and_gpu"),
        (f"{BACKEND} trtllm_mha", "0.5.19", LLAMA, "H200", "ok"),
        (f"{BACKEND} flashmla", "0.5.14", DEEPSEEK, "H200", "open"),
        (f"{BACKEND} aiter", "0.5.14", LLAMA, "MI300X", "ok"),
        (f"{BACKEND} aiter", "0.5.14", LLAMA, "H200", "open"),
    ],
)  # fmt: skip
def test_backend_and_gpu(words: str, version: str, target: Any, gpu: str, right: str) -> None:
    assert answer(BACKENDS, ask(words, version, target, gpu=gpu)) == right


@pytest.mark.parametrize(
    ("kind", "version", "right"),
    [
        ("fp8_e4m3", "0.5.14", "ok"),
        ("fp8_e5m2", "0.5.14", "wrong backend_and_cache"),
        ("fp4_e2m1", "0.5.20", "ok"),
        ("fp4_e2m1", "0.5.21", "wrong backend_and_cache"),
        ("fp8_e5m2", "0.4.10.post1", "ok"),
    ],
)
def test_backend_and_cache(kind: str, version: str, right: str) -> None:
    words = f"{BACKEND} trtllm_mla --kv-cache-dtype {kind}"
    assert answer(BACKENDS, ask(words, version, DEEPSEEK, gpu="B200")) == right


@pytest.mark.parametrize(
    ("backend", "kind", "version"),
    [
        ("trtllm_mla", "fp8_e5m2", "0.5.8"),  # server_args.py:1751
        ("trtllm_mla", "fp8_e5m2", "0.5.12"),
        ("trtllm_mla", "fp4_e2m1", "0.5.23"),  # arg_groups/overrides.py:1214
        ("tokenspeed_mla", "bf16", "0.5.12"),  # server_args.py:2746
        ("cutedsl_mla", "fp8_e5m2", "0.5.14"),
        ("cutedsl_mla", "fp8_e5m2", "0.5.23"),  # arg_groups/overrides.py:1248
    ],
)
def test_backends_and_caches_as_the_releases_refuse_them(
    backend: str, kind: str, version: str
) -> None:
    words = f"{BACKEND} {backend} --kv-cache-dtype {{}}"
    refused = answer(BACKENDS, ask(words.format(kind), version, DEEPSEEK, gpu="B200"))
    taken = answer(BACKENDS, ask(words.format("fp8_e4m3"), version, DEEPSEEK, gpu="B200"))
    assert (refused, taken) == ("wrong backend_and_cache", "ok")


def test_rows_without_an_end_end_at_the_newest_release() -> None:
    """A release that is added takes them along, or its sources show that they ended."""
    going = {"trtllm_mla", "cutedsl_mla"}
    assert {name for name, _, last, _ in CACHES if last == NEWEST} == going


def test_the_cache_is_corrected() -> None:
    asked = ask(f"{BACKEND} trtllm_mla --kv-cache-dtype fp8_e5m2", target=DEEPSEEK, gpu="B200")
    assert repaired(BACKENDS, asked) == f"{BACKEND} trtllm_mla --kv-cache-dtype fp8_e4m3"


def test_a_backend_with_a_draft_is_not_assumed_to_draft() -> None:
    words = f"{BACKEND} trtllm_mla --speculative-algorithm EAGLE"
    assert answer(BACKENDS, ask(words, target=DEEPSEEK, gpu="B200")) == "open"


def test_a_row_ends_where_the_next_one_of_its_backend_begins() -> None:
    for row in NEEDS:
        assert row.majors == tuple(sorted(row.majors))
        assert row.last


@pytest.mark.parametrize(
    ("text", "capability"),
    [("H200", (9, 0)), ("8x NVIDIA H100", (9, 0)), ("9.0", (9, 0)), ("sm_100", (10, 0)),
     ("RTX 5090", (12, 0))],
)  # fmt: skip
def test_a_gpu_by_its_name(text: str, capability: tuple[int, int]) -> None:
    assert gpu_of(text).capability == capability


def test_a_gpu_of_amd_has_no_compute_capability() -> None:
    assert gpu_of("AMD Instinct MI300X").capability is None


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WorkbenchError, match="H2O"):
        gpu_of("H2O")
