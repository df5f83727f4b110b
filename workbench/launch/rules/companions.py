"""Options that exclude or need each other: rows, read in the checks of every release from 0.4.4 on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from workbench.launch.rules.records import Edit, Ruled, Served, fault, fine
from workbench.launch.rules.settings import Settings

NAME = "options that exclude or need each other"
_ARGS = "sglang/srt/server_args.py"


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One combination that the engine's own checks refuse.

    Attributes
    ----------
    first, last
        The releases that refuse it; "" for the newest.
    broken
        Whether a launch has it.
    remove
        The option that goes, or whose value is to be changed; the corrected line leaves it out.
    """

    code: str
    first: str
    last: str
    broken: Callable[[Settings], bool]
    title: str
    next_step: str
    remove: str = ""


def _number(s: Settings, key: str, default: int = 1) -> int:
    found = s.number(key)
    return default if found is None else found


def _prefix_off(s: Settings) -> bool:
    return s.on("enable-hierarchical-cache") and s.on("disable-radix-cache")


def _chunks(s: Settings) -> bool:
    size, page = s.number("chunked-prefill-size"), s.number("page-size")
    if size is None or not page or s.text("disaggregation-mode") == "decode":
        return False
    split = _number(s, "dp-size") if s.on("enable-dp-attention") else 1
    return max(size, 0) // split % page != 0  # below 1 there are no chunks


def _lora_unknown(s: Settings) -> bool:
    rank = s.number("max-lora-rank") and s.text("lora-target-modules")
    return s.on("enable-lora") and not s.given("lora-paths") and not rank


def _lora_all(s: Settings) -> bool:
    modules = set((s.text("lora-target-modules") or "").split())
    return "all" in modules and len(modules) > 1 and (s.on("enable-lora") or s.given("lora-paths"))


def _dense(s: Settings) -> bool:
    value = s.number("moe-dense-tp-size")
    return value is not None and value not in (1, _number(s, "tp-size"))


def _dense_old(s: Settings) -> bool:
    return s.number("moe-dense-tp-size") not in (None, 1)


def _dp_head(s: Settings) -> bool:
    parallel = s.on("enable-dp-attention") or _number(s, "dp-size") == 1
    return s.on("enable-dp-lm-head") and not parallel


def _colon(s: Settings) -> bool:
    name = s.text("served-model-name") or ""
    return ":" in name and "://" not in name


def _priority(s: Settings) -> bool:
    policy = s.text("schedule-policy")
    return s.on("enable-priority-scheduling") and policy not in ("fcfs", "lof")


def _adapters(s: Settings) -> bool:
    loaded, batch = s.number("max-loaded-loras"), s.number("max-loras-per-batch")
    on = s.on("enable-lora") or s.given("lora-paths")
    return on and loaded is not None and batch is not None and loaded < batch


def _out_of(key: str, low: float, high: float) -> Callable[[Settings], bool]:
    def broken(s: Settings) -> bool:
        value = s.fraction(key)
        return value is not None and not low <= value <= high

    return broken


def _share(s: Settings) -> bool:
    value = s.fraction("swa-full-tokens-ratio")
    return value is not None and not 0 < value <= 1


def _offload(s: Settings) -> bool:
    on = s.on("disaggregation-decode-enable-offload-kvcache")
    return on and s.text("disaggregation-mode") != "decode"


def _rejection(s: Settings) -> bool:
    on = s.on("speculative-use-rejection-sampling") and _algorithm(s) in _TREES
    return on and s.number("speculative-eagle-topk") not in (None, 1)


def _window(s: Settings) -> bool:
    size = s.number("speculative-draft-window-size")
    return size is not None and size <= 0


def _window_of_dflash(s: Settings) -> bool:
    return _window(s) and _algorithm(s) == "DFLASH"


_TREES = ("EAGLE", "EAGLE3", "NEXTN")


def _algorithm(s: Settings) -> str:
    return (s.text("speculative-algorithm") or "").upper()


def _both(first: str, second: str) -> Callable[[Settings], bool]:
    return lambda s: s.on(first) and s.on(second)


def _without(first: str, second: str) -> Callable[[Settings], bool]:
    return lambda s: s.given(first) and not s.given(second)


ROWS = (
    Row("cache_without_radix", "0.5.1", "", _prefix_off,
        "--enable-hierarchical-cache and --disable-radix-cache exclude each other",
        "Remove one of them.", "--disable-radix-cache"),
    Row("padding_and_compile", "0.5.12", "", _both("disable-cuda-graph-padding", "enable-torch-compile"),
        "--disable-cuda-graph-padding and --enable-torch-compile exclude each other",
        "Remove one of them.", "--disable-cuda-graph-padding"),
    Row("nodes", "", "0.5.21",
        lambda s: _number(s, "dp-size") > 1 and _number(s, "nnodes") > 1 and not s.on("enable-dp-attention"),
        "data parallelism over several nodes needs --enable-dp-attention",
        "Add --enable-dp-attention, or launch one server a node."),
    Row("dense_tp", "0.5.13", "", _dense, "--moe-dense-tp-size takes 1 or the --tp-size only",
        "Write --moe-dense-tp-size 1.", "--moe-dense-tp-size"),
    Row("dense_tp", "0.4.5.post2", "0.5.12.post1", _dense_old, "--moe-dense-tp-size takes 1 only",
        "Write --moe-dense-tp-size 1.", "--moe-dense-tp-size"),
    Row("name_with_colon", "0.5.5.post1", "", _colon, "a served model name may not have a colon",
        "Leave the colon out of --served-model-name: it separates the name of an adapter."),
    Row("chunks", "0.4.9.post4", "", _chunks,
        "--chunked-prefill-size is not a multiple of --page-size",
        "Give a chunk size that is a multiple of the page size."),
    Row("priority_policy", "0.5.3", "", _priority,
        "--enable-priority-scheduling needs --schedule-policy fcfs or lof",
        "Write --schedule-policy fcfs.", "--schedule-policy"),
    Row("conservativeness", "0.5.5", "", _out_of("schedule-conservativeness", 0, float("inf")),
        "--schedule-conservativeness is below 0", "Give 0 or more.", "--schedule-conservativeness"),
    Row("dp_head", "0.4.9.post2", "0.5.21", _dp_head, "--enable-dp-lm-head needs --enable-dp-attention",
        "Add --enable-dp-attention, or remove --enable-dp-lm-head.", "--enable-dp-lm-head"),
    Row("lora_without_adapter", "0.4.9.post3", "", _lora_unknown,
        "--enable-lora without --lora-paths needs --max-lora-rank and --lora-target-modules",
        "Add --max-lora-rank and --lora-target-modules, or --lora-paths."),
    Row("lora_all", "0.4.9.post3", "", _lora_all,
        "--lora-target-modules has all and other modules",
        "Write all alone.", "--lora-target-modules"),
    Row("lora_loaded", "0.4.10.post2", "", _adapters,
        "--max-loaded-loras is less than --max-loras-per-batch",
        "Raise --max-loaded-loras.", "--max-loaded-loras"),
    Row("ssl_key", "0.5.10", "", _without("ssl-keyfile", "ssl-certfile"),
        "--ssl-keyfile needs --ssl-certfile", "Add --ssl-certfile."),
    Row("ssl_certificate", "0.5.10", "", _without("ssl-certfile", "ssl-keyfile"),
        "--ssl-certfile needs --ssl-keyfile", "Add --ssl-keyfile."),
    Row("metrics_folder", "0.5.5.post3", "",
        lambda s: s.on("export-metrics-to-file") and not s.given("export-metrics-to-file-dir"),
        "--export-metrics-to-file needs --export-metrics-to-file-dir", "Add --export-metrics-to-file-dir."),
    Row("tokenizers", "0.5.3", "", _both("enable-tokenizer-batch-encode", "enable-dynamic-batch-tokenizer"),
        "--enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer exclude each other",
        "Remove one of them.", "--enable-dynamic-batch-tokenizer"),
    Row("two_batches", "0.5.7", "0.5.14",
        lambda s: s.on("enable-two-batch-overlap") and s.text("moe-a2a-backend") == "none",
        "--enable-two-batch-overlap needs a --moe-a2a-backend", "Add --moe-a2a-backend deepep.",
        "--enable-two-batch-overlap"),
    Row("sliding_window_share", "0.5.7", "", _share,
        "--swa-full-tokens-ratio is not between 0 and 1", "Give a share between 0 and 1.",
        "--swa-full-tokens-ratio"),
    Row("two_roles", "0.5.7", "", _both("encoder-only", "language-only"),
        "--encoder-only and --language-only exclude each other", "Remove one of them.", "--encoder-only"),
    Row("offload", "0.5.3", "",
        _offload,
        "--disaggregation-decode-enable-offload-kvcache is for --disaggregation-mode decode only",
        "Remove it, or add --disaggregation-mode decode.", "--disaggregation-decode-enable-offload-kvcache"),
    Row("gpu_step", "", "", _out_of("gpu-id-step", 1, float("inf")), "--gpu-id-step is below 1",
        "Give 1 or more.", "--gpu-id-step"),
    Row("base_gpu", "", "", _out_of("base-gpu-id", 0, float("inf")), "--base-gpu-id is below 0",
        "Give 0 or more.", "--base-gpu-id"),
    Row("rejection_topk", "0.5.14", "",
        _rejection,
        "--speculative-use-rejection-sampling needs topk 1", "Write --speculative-eagle-topk 1.",
        "--speculative-use-rejection-sampling"),
    Row("draft_window", "0.5.11", "0.5.12.post1",
        _window_of_dflash,
        "the window of a DFLASH draft must be above 0", "Give a whole number above 0."),
    Row("draft_window", "0.5.13", "",
        _window,
        "--speculative-draft-window-size must be above 0", "Give a whole number above 0.",
        "--speculative-draft-window-size"),
    Row("mixed_pipeline", "0.4.6.post2", "0.5.10.post1",
        lambda s: _number(s, "pp-size") > 1 and s.on("enable-mixed-chunk"),
        "--enable-mixed-chunk does not go with pipeline stages", "Remove --enable-mixed-chunk.",
        "--enable-mixed-chunk"),
)  # fmt: skip


def companions(s: Served) -> Iterator[Ruled]:
    """Rule the combinations of options that the release's own checks refuse."""
    found = [row for row in ROWS if s.within(row.first, row.last) and row.broken(s.settings)]
    for row in found:
        edits = (Edit(row.remove),) if row.remove else ()
        yield fault(
            NAME, f"together_{row.code}", row.title, "checks", next_step=row.next_step, edits=edits,
            place=f"{_ARGS} ({s.release})",
        )  # fmt: skip
    if not found:
        yield fine(NAME, f"{sum(s.within(row.first, row.last) for row in ROWS)} combinations tried")
