"""The functions of SGLang whose presence in a stack tells the phase, by version."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from workbench.facts.rows import may_have


@dataclasses.dataclass(frozen=True, slots=True)
class PhaseFrame:
    """A function that runs in one phase only.

    Attributes
    ----------
    function
        The last part of its name: dumps of Python 3.11 and later qualify names, older ones do not.
    file
        The end of its file's path, or with a slash at its end a folder of it. Which releases have it is in
        the facts of each (`workbench.facts.rows`).
    """

    phase: str
    function: str
    file: str

    def may_be_in(self, version: str) -> bool:
        """Whether a release has it, or was not read and may have it."""
        if self.file.startswith("torch/"):
            return True
        return may_have("sglang", "function", f"{self.function}@{self.file}", version)


def _frames(phase: str, *rows: tuple[str, str]) -> tuple[PhaseFrame, ...]:
    return tuple(PhaseFrame(phase, *row) for row in rows)


_RUNNER = "model_executor/model_runner.py"
_RUNNERS = "model_executor/runner/"
_DRAFT_DECODE = "speculative/eagle_draft_cuda_graph_runner.py"
_DRAFT_EXTEND = "speculative/eagle_draft_extend_cuda_graph_runner.py"

# The first frame from the leaf that is in this table tells the phase: `monitored_barrier` called by
# `load_model` is the load barrier.
FRAMES: tuple[PhaseFrame, ...] = (
    *_frames(
        "load_barrier",
        ("monitored_barrier", "torch/distributed/distributed_c10d.py"),
        ("dist_barrier_after_load", "model_runner_components/load_model_utils.py"),
    ),
    *_frames(
        "dist_init",
        ("init_parallel_runtime", "srt/distributed/bootstrap.py"),
        ("init_torch_distributed", "srt/distributed/bootstrap.py"),
        ("init_torch_distributed", _RUNNER),
        ("initialize_model_parallel", "distributed/parallel_state.py"),
        ("initialize_dp_attention", "layers/dp_attention.py"),
        ("_wait_until_activated", "distributed/gated_launch.py"),
    ),
    *_frames(
        "weights",
        ("load_model", _RUNNER),
        ("load_model", "model_loader/loader.py"),
        ("process_weights_after_loading", "sglang/srt/"),
    ),
    *_frames(
        "kv_pool",
        ("init_memory_pool", _RUNNER),
        ("init_memory_pool", "model_executor/model_runner_kv_cache_mixin.py"),
        ("_init_pools", "model_executor/model_runner_kv_cache_mixin.py"),
        ("_init_pools", "mem_cache/kv_cache_configurator.py"),
        ("alloc_memory_pool", _RUNNER),
        ("alloc_memory_pool", "speculative/eagle_worker_v2.py"),
        ("init_memory_pools", "managers/scheduler.py"),
    ),
    # Between the pools and the graphs; a function that runs all phases says only that none is told.
    *_frames(
        "kv_pool",
        ("init_attention_backend", _RUNNER),
        ("init_all_attention_backends", "managers/scheduler.py"),
    ),
    *_frames(
        "unknown",
        ("init_model_worker", "managers/scheduler.py"),
        ("__init__", "managers/tp_worker.py"),
    ),
    *_frames(
        "draft_embed",
        ("get_embed_and_head", "srt/models/"),
        ("set_embed_and_head", "srt/models/"),
        ("set_embed", "srt/models/"),
    ),
    *_frames(
        "warmup",
        ("kernel_warmup", _RUNNER),
        ("_flashinfer_autotune", _RUNNER),
        ("_flashinfer_autotune", _RUNNERS + "base_runner.py"),
        ("warmup", _RUNNERS + "base_runner.py"),
        ("_warmup", _RUNNERS + "base_runner.py"),
    ),
    *_frames(
        "graph_draft",
        ("capture_one_batch_size", _DRAFT_DECODE),
        ("capture_one_batch_size", _DRAFT_EXTEND),
        ("capture_one_shape", _DRAFT_DECODE),
        ("capture_one_shape", _DRAFT_EXTEND),
        ("capture", _DRAFT_DECODE),
        ("capture", _DRAFT_EXTEND),
        ("__init__", _DRAFT_DECODE),
        ("__init__", _DRAFT_EXTEND),
        ("init_cuda_graphs", "speculative/eagle_worker.py"),
        ("init_cuda_graphs", "speculative/eagle_worker_v2.py"),
        ("init_cuda_graphs", "speculative/multi_layer_eagle_worker_v2.py"),
    ),
    *_frames(
        "graph_prefill",
        ("capture_one_batch_size", "model_executor/piecewise_cuda_graph_runner.py"),
        ("capture", "model_executor/piecewise_cuda_graph_runner.py"),
        ("__init__", "model_executor/piecewise_cuda_graph_runner.py"),
        ("init_piecewise_cuda_graphs", _RUNNER),
        ("capture_one_shape", _RUNNERS + "prefill_cuda_graph_runner.py"),
        ("capture", _RUNNERS + "prefill_cuda_graph_runner.py"),
        ("__init__", _RUNNERS + "prefill_cuda_graph_runner.py"),
        ("init_prefill_cuda_graph", _RUNNER),
        ("capture_prefill_graph", "model_runner_components/cuda_graph_setup.py"),
    ),
    *_frames(
        "graph_decode",
        ("capture_one_batch_size", "model_executor/cuda_graph_runner.py"),
        ("capture", "model_executor/cuda_graph_runner.py"),
        ("__init__", "model_executor/cuda_graph_runner.py"),
        ("capture_one_batch_size", "model_executor/cpu_graph_runner.py"),
        ("init_device_graphs", _RUNNER),
        ("capture_one_shape", _RUNNERS + "decode_cuda_graph_runner.py"),
        ("_capture_one_stream", _RUNNERS + "decode_cuda_graph_runner.py"),
        ("capture", _RUNNERS + "decode_cuda_graph_runner.py"),
        ("__init__", _RUNNERS + "decode_cuda_graph_runner.py"),
        ("init_decode_cuda_graph", _RUNNER),
        ("capture_decode_graph", "model_runner_components/cuda_graph_setup.py"),
    ),
    *_frames(
        "ready",
        ("event_loop_normal", "managers/scheduler.py"),
        ("event_loop_overlap", "managers/scheduler.py"),
        ("event_loop_pp", "managers/"),
        ("event_loop_normal_disagg_prefill", "srt/disaggregation/prefill.py"),
        ("event_loop_overlap_disagg_prefill", "srt/disaggregation/prefill.py"),
        ("event_loop_normal_disagg_decode", "srt/disaggregation/decode.py"),
        ("event_loop_overlap_disagg_decode", "srt/disaggregation/decode.py"),
    ),
    *_frames(
        "init_done",
        ("dispatch_event_loop", "managers/scheduler.py"),
    ),
    *_frames(
        "spawn",
        ("load_plugins", "srt/plugins/__init__.py"),
        ("run_scheduler_process", "managers/scheduler.py"),
    ),
)
_BY_NAME: dict[str, list[PhaseFrame]] = {}
for _frame in FRAMES:
    _BY_NAME.setdefault(_frame.function, []).append(_frame)
# The parent waits for its schedulers in these; where it waits is nobody's fault.
PARENT_WAITS = ("_wait_for_scheduler_ready", "_execute_server_warmup", "_wait_and_warmup")


def phase_of_frame(function: str, file: str, version: str = "") -> str:
    """Return the phase that one frame tells, or "" for a frame that tells none.

    ``unknown`` is told by a function that runs several phases.

    Parameters
    ----------
    function
        As the dump has it, qualified or not.
    file
        Its file; "" where the dump has none, and then a name that several phases share tells none.
    version
        The release, "" where it is not known: then all that fit must agree.
    """
    name = function.rpartition(".")[2]
    found = {
        row.phase
        for row in _BY_NAME.get(name, ())
        if row.may_be_in(version) and _in_file(file, row.file)
    }
    return found.pop() if len(found) == 1 else ""


def phase_of_stack(frames: Iterable[tuple[str, str]], version: str = "") -> str:
    """Return the phase that a stack tells: (function, file) pairs, leaf first; "" for none."""
    told = [
        phase for function, file in frames if (phase := phase_of_frame(function, file, version))
    ]
    if not told or told[0] == "unknown":
        return ""
    # From 0.5.14 on a draft's runner captures with its base class, the target's runner.
    draft = told[0].startswith("graph_") and "graph_draft" in told
    return "graph_draft" if draft else told[0]


def _in_file(file: str, wanted: str) -> bool:
    """Whether a path is the wanted one; a dump may have but the end of it."""
    if wanted.endswith("/"):
        return wanted in file or wanted.rstrip("/").endswith(file.rpartition("/")[0] or "\0")
    return file.endswith(wanted) or (file != "" and wanted.endswith("/" + file))
