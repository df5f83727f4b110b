"""Options that exclude or need each other: each row from both sides, in the releases around its borders.

The releases are those in whose wheels the check was read (server_args.py, and arg_groups/).
"""

from __future__ import annotations

import pytest

from tests.launch.rules.asking import LLAMA, NEWEST, answer, ask, found, repaired
from workbench.launch.rules.companions import NAME, ROWS
from workbench.launch.rules.records import Model

# Of each row: the release before the first that has the check, the first, the last, the one after that; ""
# where there is none, or where another row of the same code has it.
Borders = tuple[str, str, str, str]
DFLASH = "--speculative-algorithm DFLASH --speculative-draft-model-path d "
EAGLE = "--speculative-algorithm EAGLE --speculative-draft-model-path d "
WINDOW, TOPK = "--speculative-draft-window-size ", "--speculative-eagle-topk "
REJECT = "--speculative-use-rejection-sampling "
RANK, MODULES = "--max-lora-rank 16 ", "--lora-target-modules "
LORA = f"--enable-lora {RANK}{MODULES}all "
OFFLOAD = "--disaggregation-decode-enable-offload-kvcache "
CASES: list[tuple[str, Borders, list[str], list[str]]] = [
    ("cache_without_radix", ("0.4.10.post2", "0.5.1", NEWEST, ""),
     ["--enable-hierarchical-cache --disable-radix-cache"],
     ["--enable-hierarchical-cache", "--disable-radix-cache"]),
    ("padding_and_compile", ("0.5.11", "0.5.12", NEWEST, ""),
     ["--disable-cuda-graph-padding --enable-torch-compile"],
     ["--disable-cuda-graph-padding", "--enable-torch-compile"]),
    ("nodes", ("", "0.4.4", "0.5.21", "0.5.22"),
     ["--dp 2 --nnodes 2"],
     ["--dp 1 --nnodes 2", "--dp 2 --nnodes 1", "--dp 2", "--nnodes 2", "--dp two --nnodes 2",
      "--tp 2 --dp 2 --nnodes 2 --enable-dp-attention"]),
    ("dense_tp", ("", "0.5.13", NEWEST, ""),
     ["--moe-dense-tp-size 2 --tp 4", "--moe-dense-tp-size 0"],
     ["--moe-dense-tp-size 1 --tp 4", "--tp 4"]),
    ("dense_tp", ("0.4.5.post1", "0.4.5.post2", "0.5.12.post1", ""),
     ["--moe-dense-tp-size 2 --tp 4", "--moe-dense-tp-size 4 --tp 4", "--moe-dense-tp-size 0"],
     ["--moe-dense-tp-size 1 --tp 4", "--tp 4"]),
    ("name_with_colon", ("0.5.5", "0.5.5.post1", NEWEST, ""),
     ["--served-model-name a:b"], ["--served-model-name a", "", "--served-model-name s3://a/b"]),
    ("chunks", ("0.4.9.post3", "0.4.9.post4", NEWEST, ""),
     ["--chunked-prefill-size 63 --page-size 64", "--chunked-prefill-size 65 --page-size 64",
      "--chunked-prefill-size 1 --page-size 2", "--chunked-prefill-size 128 --page-size 64 --tp 4 --dp 4 "
      "--enable-dp-attention"],
     ["--chunked-prefill-size 64 --page-size 64", "--chunked-prefill-size 100", "--page-size 64",
      "--chunked-prefill-size 5 --page-size 1", "--chunked-prefill-size 100 --page-size 0",
      "--chunked-prefill-size -1 --page-size 64", "--chunked-prefill-size 0 --page-size 64",
      "--chunked-prefill-size 128 --page-size 64 --dp 4",
      "--chunked-prefill-size 256 --page-size 64 --tp 4 --dp 4 --enable-dp-attention",
      "--chunked-prefill-size 100 --page-size 64 --disaggregation-mode decode"]),
    ("chunks", ("0.4.9.post3", "0.4.9.post4", NEWEST, ""),
     ["--chunked-prefill-size 100 --page-size 64 --disaggregation-mode prefill"], []),
    ("priority_policy", ("0.5.2", "0.5.3", NEWEST, ""),
     ["--enable-priority-scheduling --schedule-policy lpm"],
     ["--enable-priority-scheduling --schedule-policy fcfs", "--enable-priority-scheduling",
      "--enable-priority-scheduling --schedule-policy lof", "--schedule-policy lpm"]),
    ("conservativeness", ("0.5.4.post3", "0.5.5", NEWEST, ""),
     ["--schedule-conservativeness -0.1"],
     ["--schedule-conservativeness 0", "", "--schedule-conservativeness inf"]),
    ("dp_head", ("0.4.9.post1", "0.4.9.post2", "0.5.21", "0.5.22"),
     ["--enable-dp-lm-head --dp 2 --tp 2"],
     ["--enable-dp-lm-head --dp 1", "--enable-dp-lm-head --dp 2 --tp 2 --enable-dp-attention", "--dp 2"]),
    ("lora_without_adapter", ("0.4.9.post2", "0.4.9.post3", NEWEST, ""),
     ["--enable-lora", f"--enable-lora {RANK}", f"--enable-lora {MODULES}all",
      f"--enable-lora --max-lora-rank 0 {MODULES}all"],
     [LORA, "--enable-lora --lora-paths a=b", "--lora-paths a=b", ""]),
    ("lora_all", ("0.4.9.post2", "0.4.9.post3", NEWEST, ""),
     [f"{LORA} q_proj", f"--lora-paths a=b {MODULES}all q_proj"],
     [LORA, f"{LORA} all", f"--enable-lora {RANK}{MODULES}q_proj k_proj", f"{MODULES}all q_proj"]),
    ("lora_loaded", ("0.4.10.post1", "0.4.10.post2", NEWEST, ""),
     [f"{LORA} --max-loaded-loras 7", "--lora-paths a=b --max-loaded-loras 3 --max-loras-per-batch 4"],
     [f"{LORA} --max-loaded-loras 8", f"{LORA} --max-loras-per-batch 9", "--max-loaded-loras 7",
      f"{LORA} --max-loaded-loras 7 --max-loras-per-batch x"]),
    ("ssl_key", ("0.5.9", "0.5.10", NEWEST, ""), ["--ssl-keyfile k"], ["--ssl-keyfile k --ssl-certfile c"]),
    ("ssl_certificate", ("0.5.9", "0.5.10", NEWEST, ""),
     ["--ssl-certfile c"], ["--ssl-keyfile k --ssl-certfile c", ""]),
    ("metrics_folder", ("0.5.5.post2", "0.5.5.post3", NEWEST, ""),
     ["--export-metrics-to-file"],
     ["--export-metrics-to-file --export-metrics-to-file-dir m", "--export-metrics-to-file-dir m"]),
    ("tokenizers", ("0.5.2", "0.5.3", NEWEST, ""),
     ["--enable-tokenizer-batch-encode --enable-dynamic-batch-tokenizer"],
     ["--enable-tokenizer-batch-encode", "--enable-dynamic-batch-tokenizer"]),
    ("two_batches", ("0.5.6.post2", "0.5.7", "0.5.14", "0.5.15"),
     ["--enable-two-batch-overlap", "--enable-two-batch-overlap --moe-a2a-backend none"],
     ["--enable-two-batch-overlap --moe-a2a-backend deepep", "--moe-a2a-backend none"]),
    ("sliding_window_share", ("0.5.6.post2", "0.5.7", NEWEST, ""),
     ["--swa-full-tokens-ratio 0", "--swa-full-tokens-ratio 1.01"],
     ["--swa-full-tokens-ratio 1", "--swa-full-tokens-ratio 0.01", ""]),
    ("two_roles", ("0.5.6.post2", "0.5.7", NEWEST, ""),
     ["--encoder-only --language-only"], ["--encoder-only", "--language-only"]),
    ("offload", ("0.5.2", "0.5.3", NEWEST, ""),
     [OFFLOAD, f"{OFFLOAD} --disaggregation-mode prefill"],
     [f"{OFFLOAD} --disaggregation-mode decode", "--disaggregation-mode prefill"]),
    ("gpu_step", ("", "0.4.4", NEWEST, ""), ["--gpu-id-step 0"], ["--gpu-id-step 1", "", "--gpu-id-step x"]),
    ("base_gpu", ("", "0.4.4", NEWEST, ""), ["--base-gpu-id -1"], ["--base-gpu-id 0", ""]),
    ("rejection_topk", ("0.5.13", "0.5.14", NEWEST, ""),
     [f"{EAGLE}{REJECT}{TOPK}2", f"{REJECT}{TOPK}2 --speculative-algorithm EAGLE3",
      f"{REJECT}{TOPK}0 --speculative-algorithm nextn"],
     [f"{EAGLE}{REJECT}{TOPK}1", f"{EAGLE}{REJECT}", f"{EAGLE}{TOPK}2", f"{REJECT}{TOPK}2"]),
    ("draft_window", ("", "0.5.13", NEWEST, ""),
     [f"{WINDOW}0"], [f"{WINDOW}1", ""]),
    ("draft_window", ("", "0.5.12", "0.5.12.post1", ""),
     [f"{DFLASH}{WINDOW}0"], [f"{DFLASH}{WINDOW}1", f"{EAGLE}{WINDOW}0"]),
    ("mixed_pipeline", ("0.4.6.post1", "0.4.6.post2", "0.5.10.post1", "0.5.11"),
     ["--pp-size 2 --enable-mixed-chunk"],
     ["--pp-size 1 --enable-mixed-chunk", "--pp-size 2", "--enable-mixed-chunk"]),
]  # fmt: skip
FIRSTS = [(code, words, first) for code, (_, first, _, _), broken, _ in CASES for words in broken]
LASTS = [(code, words, last) for code, (_, _, last, _), broken, _ in CASES for words in broken]
FINE = [
    (words, release)
    for _, (_, first, last, _), _, fine in CASES
    for words in fine
    for release in (first, last)
]
OUTSIDE = [
    (code, words, release)
    for code, (before, _, _, after), broken, _ in CASES
    for words in broken[:1]
    for release in (before, after)
    if release
]


@pytest.mark.parametrize(("code", "words", "release"), FIRSTS + LASTS)
def test_the_first_and_the_last_release_refuse_it(code: str, words: str, release: str) -> None:
    asked = ask(words, release)
    assert answer(NAME, asked) == f"wrong together_{code}"
    assert len(found(NAME, asked)) == 1


@pytest.mark.parametrize(("words", "release"), FINE)
def test_the_line_next_to_it_is_fine(words: str, release: str) -> None:
    assert answer(NAME, ask(words, release)) == "ok"


@pytest.mark.parametrize(("code", "words", "release"), OUTSIDE)
def test_the_release_before_and_the_one_after_let_it_pass(
    code: str, words: str, release: str
) -> None:
    assert answer(NAME, ask(words, release)) == "ok"


def test_a_dense_size_that_is_the_tensor_parallel_size_is_new() -> None:
    words = "--moe-dense-tp-size 4 --tp 4"
    assert answer(NAME, ask(words, "0.5.12.post1")) == "wrong together_dense_tp"
    assert answer(NAME, ask(words, "0.5.13")) == "ok"


def test_the_window_of_dflash_had_a_name_of_its_own() -> None:
    words = f"{DFLASH} --speculative-dflash-draft-window-size "
    assert answer(NAME, ask(f"{words} 0", "0.5.11")) == "wrong together_draft_window"
    assert answer(NAME, ask(f"{words} 1", "0.5.11")) == "ok"
    assert answer(NAME, ask(f"{words} 0", "0.5.10.post1")) == "ok"  # its parser has no such option


def test_every_row_has_a_case() -> None:
    assert {code for code, *_ in CASES} == {row.code for row in ROWS}


def test_what_goes_from_the_line() -> None:
    words = "--enable-hierarchical-cache --disable-radix-cache"
    assert repaired(NAME, ask(words)) == "--enable-hierarchical-cache"
    kept = "--chunked-prefill-size 63 --page-size 64"  # which of the two is not known
    assert repaired(NAME, ask(kept)) == kept


def test_two_rows_are_two_findings() -> None:
    asked = ask("--gpu-id-step 0 --base-gpu-id -1", target=Model("t"))
    assert answer(NAME, asked) == "wrong together_base_gpu; wrong together_gpu_step"
    assert {one.moment for one in found(NAME, asked)} == {"checks"}
    assert answer(NAME, ask("", target=LLAMA)) == "ok"
