"""What is looked up in every release by name: functions of stacks, texts of logs, variables, cited lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from workbench.facts.cited import ANCHORS
from workbench.facts.harvest import (
    captures,
    digests,
    draft_path,
    registered,
    sources,
    trtllm_options,
    vllm_options,
)
from workbench.facts.harvest.flags import flags
from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel
from workbench.facts.rows import Feature
from workbench.facts.startup_frames import FRAMES, PARENT_WAITS
from workbench.facts.startup_markers import ERRORS, PHASES, Marker

# Functions that say how a release works, apart from those of stacks.
_FUNCTIONS = (
    ("init_all_cuda_graphs", "managers/scheduler.py"),
    ("_update_draft_extend_buffers", "layers/attention/triton_backend.py"),
    ("pad_or_narrow_weight", "srt/"),
    ("draft_forward", "speculative/eagle_worker.py"),
    ("draft_forward", "speculative/eagle_worker_v2.py"),
)
# Words whose absence says that a form of config is not read.
_WORDS = ("transformer_layer_config", "norm_before_residual", "eagle_aux_hidden_state_layer_ids")

# The sources of the loaders that profiles describe.
DIGESTS = (
    *(
        (f"models/{name}.py", "")
        for name in (
            "llama_eagle3",
            "kimi_k25_eagle3",
            "llama_eagle",
            "qwen2_eagle",
            "llama",
            "qwen2",
            "qwen3",
        )
    ),
    *((f"models/{name}.py", "") for name in ("deepseek_v2", "deepseek_nextn", "kimi_k25")),
    ("deepseek_common/deepseek_weight_loader.py", ""),
)


def functions() -> set[tuple[str, str]]:
    """Return the functions to look up, each with the end of its file's path."""
    stacks = {(row.function, row.file) for row in FRAMES if not row.file.startswith("torch/")}
    return stacks | {(name, "") for name in PARENT_WAITS} | set(_FUNCTIONS)


def texts() -> Iterator[sources.Text]:
    """Yield the texts of the log to look up."""
    for marker in (*PHASES, *ERRORS):
        if marker.needle:
            first = re.match(r"\^?([A-Z][a-z]+)\b", marker.pattern.pattern)
            generic = marker.needle.startswith((" ", "end", "begin", "CUDA"))
            also = first[1] if first and generic else ""
            yield sources.Text(marker.fact, marker.needle, _recogniser(marker), also)


def _recogniser(marker: Marker) -> Callable[[str], bool]:
    return lambda line: marker.pattern.search(line[:4000]) is not None


def looked_for() -> frozenset[Feature]:
    """Return the features that are looked for by name: of any other a release's file says nothing."""
    return frozenset(
        [
            *(("function", f"{name}@{end}") for name, end in functions()),
            *(("text", text.name) for text in texts()),
            *(("line", f"{anchor.file}:{anchor.name}") for anchor in ANCHORS),
            *(("word", word) for word in _WORDS),
            *(("digest", f"{end}:{name}" if name else end) for end, name in DIGESTS),
        ]
    )


# What reads a wheel, with the kinds of facts that it yields.
_READERS: tuple[tuple[frozenset[str], Callable[[Wheel], Iterator[Found]]], ...] = (
    (frozenset({"flag"}), flags),
    (frozenset({"function"}), lambda wheel: sources.functions(wheel, functions())),
    (frozenset({"text"}), lambda wheel: sources.texts(wheel, texts())),
    (frozenset({"line"}), lambda wheel: sources.anchors(wheel, ANCHORS)),
    (frozenset({"reads"}), draft_path.reads),
    (frozenset({"captures"}), captures.captures),
    (frozenset({"positions"}), draft_path.positions),
    (frozenset({"formula"}), draft_path.formulas),
    (frozenset({"class"}), registered.classes),
    (frozenset({"model type"}), registered.model_types),
    (frozenset({"algorithm"}), registered.algorithms),
    (frozenset({"environment"}), registered.environment),
    (frozenset({"title"}), registered.titles),
    (frozenset({"pin"}), registered.pins),
    (frozenset({"word"}), lambda wheel: registered.words(wheel, _WORDS)),
    (frozenset({"digest"}), lambda wheel: digests.digests(wheel, DIGESTS)),
)
# vLLM's facts are few: what a launch is checked against.
_VLLM_READERS: tuple[tuple[frozenset[str], Callable[[Wheel], Iterator[Found]]], ...] = (
    (frozenset({"option"}), vllm_options.options),
    (
        frozenset({"speculative field", "method", "eagle3 target"}),
        vllm_options.speculation,
    ),
    (frozenset({"refusal"}), vllm_options.refusals),
)
_BY_ENGINE = {
    "vllm": _VLLM_READERS,
    "tensorrt-llm": ((frozenset({"option"}), trtllm_options.options),),
}
KINDS = frozenset().union(*(kinds for kinds, _ in (*_READERS, *_VLLM_READERS)))
"""Every kind of fact."""


def harvest(wheel: Wheel, kinds: frozenset[str] = KINDS) -> Iterator[Found]:
    """Yield every fact of a release that is of one of the kinds."""
    for yields, reader in _BY_ENGINE.get(wheel.engine, _READERS):
        if yields & kinds:
            yield from (one for one in reader(wheel) if one.kind in kinds)
