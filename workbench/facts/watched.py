"""What is looked up in every release by name: functions of stacks, texts of logs, variables, cited lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from workbench.facts.cited import ANCHORS
from workbench.facts.harvest import captures, digests, draft_path, registered, sources
from workbench.facts.harvest.flags import flags
from workbench.facts.harvest.found import Found
from workbench.facts.harvest.wheel import Wheel
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
        for name in ("llama_eagle3", "kimi_k25_eagle3", "llama", "qwen2", "qwen3")
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


def harvest(wheel: Wheel) -> Iterator[Found]:
    """Yield every fact of a release."""
    yield from flags(wheel)
    yield from sources.functions(wheel, functions())
    yield from sources.texts(wheel, texts())
    yield from sources.anchors(wheel, ANCHORS)
    for reader in (
        draft_path.reads,
        captures.captures,
        draft_path.positions,
        draft_path.formulas,
        registered.classes,
        registered.model_types,
        registered.algorithms,
        registered.environment,
        registered.titles,
        registered.pins,
    ):
        yield from reader(wheel)
    yield from registered.words(wheel, _WORDS)
    yield from digests.digests(wheel, DIGESTS)
