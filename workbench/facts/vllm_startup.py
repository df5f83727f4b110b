"""How vLLM starts (V1): the order of its phases, the lines of its log and the frames of its workers.

Read in the wheels of 0.8.5.post1, 0.11.0 and 0.20.0; where each text and function is, with the newest release
that was looked up, is in `READ_IN`. A start-up that is not V1's has none of these frames.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

from workbench.facts.startup import Step
from workbench.facts.startup_markers import (
    ERRORS,
    Edge,
    Event,
    Marker,
    Who,
)

READ_IN = Path(__file__).parent / "data" / "read_in" / "vllm.json"
"""Release, file and line of every text and function here; ``python -m tests.facts.vllm_check`` writes it."""

ORDER = (
    Step("spawn"),
    Step("dist_init"),
    Step("weights"),
    Step("weights", "draft"),
    Step("warmup"),
    Step("kv_pool"),
    Step("graph_decode"),
    Step("init_done"),
    Step("ready"),
)
"""A worker profiles and compiles before the KV cache is made; the graphs come last."""

WORDS = {
    "warmup": "while profiling memory and compiling",
    "graph_decode": "while capturing CUDA graphs",
    "kv_pool": "while making the KV cache",
    "ready": "at work of the engine core",
}
"""What vLLM does in a phase, where SGLang's words do not fit."""


def _mark(
    code: str, phase: str, edge: Edge, pattern: str, needle: str, who: Who = "rank0"
) -> Marker:
    return Marker(code, phase, edge, re.compile(pattern), needle, who)


def _error(code: str, pattern: str, needle: str) -> Marker:
    return Marker(code, "", "at", re.compile(pattern), needle, error=True)


# Lines that only some workers write (`info_once`) do not put a worker ahead of the others.
PHASES: tuple[Marker, ...] = (
    _mark("api_server", "spawn", "begin", r"^vLLM API server version (?P<version>\S{1,60})",
          "vLLM API server version %s", "parent"),
    _mark("engine_begin", "spawn", "at",
          r"^Initializing an? (?:V1 )?LLM engine \(v(?P<version>[^)\s]{1,60})\)",
          "Initializing a V1 LLM engine (v%s) with config: %s", "parent"),
    _mark("nccl_version", "dist_init", "at", r"^vLLM is using nccl==(?P<nccl>[\d.]+)",
          "vLLM is using nccl==%s"),
    _mark("assigned", "dist_init", "end", r"^rank \d+ in world size \d+ is assigned as DP rank",
          "rank %s in world size %s is assigned as "),
    _mark("weights_begin", "weights", "begin", r"^Starting to load model ",
          "Starting to load model %s...", "rank"),
    _mark("weights_read", "weights", "at", r"^Loading weights took (?P<elapsed>[\d.]+) seconds",
          "Loading weights took %.2f seconds"),
    _mark("draft_weights", "weights", "at", r"^Loading drafter model\.\.\.", "Loading drafter model..."),
    _mark("weights_end", "weights", "end",
          r"^Model loading took [\d.]+ GiB(?: memory)? and (?P<elapsed>[\d.]+) seconds",
          "Model loading took %", "rank"),
    _mark("compile_cache", "warmup", "begin", r"^Using cache directory: ",
          "Using cache directory: %s for vLLM's torch.compile"),
    _mark("bytecode", "warmup", "at", r"^Dynamo bytecode transform time: ",
          "Dynamo bytecode transform time: %.2f s"),
    _mark("compiled", "warmup", "at",
          r"^(?:Compiling a graph for|Directly load the compiled graph\(s\) for|Cache the graph (?:of|for))",
          "Compiling a graph for "),
    _mark("compile_end", "warmup", "at", r"^torch\.compile (?:takes|took) (?P<elapsed>[\d.]+) s",
          "%.2f s in total"),
    _mark("memory_known", "warmup", "end", r"^Available KV cache memory: ", "Available KV cache memory: %"),
    _mark("kv_size", "kv_pool", "at", r"^GPU KV cache size: [\d,]+ tokens",
          "GPU KV cache size: %s tokens", "parent"),
    _mark("capturing", "graph_decode", "at", r"Capturing CUDA graphs?\b", "Capturing CUDA graph"),
    _mark("capture_end", "graph_decode", "end", r"^Graph capturing finished in (?P<elapsed>\d+) secs",
          "Graph capturing finished in %.0f secs"),
    _mark("engine_end", "init_done", "at", r"^init engine \(profile, create kv cache, warmup model\) took ",
          "init engine (profile, create kv cache, ", "parent"),
    _mark("ready", "ready", "at", r"^Application startup complete\.", "", "parent"),
    _mark("serving", "ready", "at",
          r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, "
          r"Avg generation throughput: (?P<generated>[\d.]+)",
          "Avg prompt throughput: %.1f tokens/s", "parent"),
)  # fmt: skip
OWN_ERRORS: tuple[Marker, ...] = (
    _error("shm_wait", r"No available shared memory broadcast block found in (?P<seconds>\d+) seconds",
           "No available shared memory broadcast block found"),
    _error("rank_died", r"Worker proc (?P<name>[\w=-]{1,60}) died unexpectedly",
           "Worker proc %s died unexpectedly, shutting down executor."),
    _error("child_failed_start", r"(?:EngineCore|WorkerProc) failed to start\.",
           "EngineCore failed to start."),
    _error("rank_died", r"Engine core proc (?P<name>[\w=-]{1,60}) died unexpectedly", ""),
    _error("exception", r"WorkerProc hit an exception\.|EngineCore encountered a fatal error\.",
           "EngineCore encountered a fatal error."),
    _error("rpc_timeout", r"RPC call to (?P<name>\w{1,60}) timed out", "RPC call to {method} timed out."),
)  # fmt: skip


def read_marker(text: str) -> Event | None:
    """Return what a line of vLLM's log says, without its clock and prefix; an error outranks a phase."""
    text = text[:4000]
    for marker in (*OWN_ERRORS, *PHASES, *ERRORS):
        match = marker.pattern.search(text)
        if match is not None:
            facts = {name: value for name, value in match.groupdict().items() if value is not None}
            if (
                marker.code == "serving"
                and float(facts["prompt"]) + float(facts["generated"]) == 0.0
            ):
                return None  # the statistics of a server that does nothing
            return Event(marker, facts)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _PhaseFrame:
    phase: str
    function: str
    file: str


_WORKER = "v1/worker/gpu_worker.py"
_RUNNER = ("v1/worker/gpu_model_runner.py", "v1/worker/gpu/model_runner.py")
# `unknown`: a function that runs work of several phases. The first from the leaf decides.
FRAMES: tuple[_PhaseFrame, ...] = (
    _PhaseFrame("dist_init", "init_device", _WORKER),
    _PhaseFrame("dist_init", "init_worker_distributed_environment", _WORKER),
    _PhaseFrame("dist_init", "initialize_model_parallel", "distributed/parallel_state.py"),
    _PhaseFrame("weights", "load_model", _WORKER),
    *(_PhaseFrame("weights", "load_model", runner) for runner in _RUNNER),
    _PhaseFrame("weights", "load_model", "model_executor/model_loader/base_loader.py"),
    _PhaseFrame("warmup", "determine_available_memory", _WORKER),
    *(_PhaseFrame("warmup", "profile_run", runner) for runner in _RUNNER),
    _PhaseFrame("warmup", "kernel_warmup", "model_executor/warmup/kernel_warmup.py"),
    _PhaseFrame("warmup", "flashinfer_autotune", "model_executor/warmup/kernel_warmup.py"),
    _PhaseFrame("kv_pool", "initialize_from_config", _WORKER),
    *(_PhaseFrame("kv_pool", "initialize_kv_cache", runner) for runner in _RUNNER),
    *(_PhaseFrame("graph_decode", "capture_model", runner) for runner in _RUNNER),
    _PhaseFrame("warmup", "compile_or_warm_up_model", _WORKER),
    _PhaseFrame("ready", "execute_model", _WORKER),
    _PhaseFrame("ready", "sample_tokens", _WORKER),
    _PhaseFrame("ready", "execute_dummy_batch", _WORKER),
    _PhaseFrame("ready", "run_busy_loop", "v1/engine/core.py"),
    _PhaseFrame("unknown", "worker_busy_loop", "v1/executor/multiproc_executor.py"),
    _PhaseFrame("spawn", "worker_main", "v1/executor/multiproc_executor.py"),
    _PhaseFrame("spawn", "run_engine_core", "v1/engine/core.py"),
)


def phase_of_stack(frames: Iterable[tuple[str, str]]) -> str:
    """Return the phase that a stack tells: (function, file) pairs, leaf first; "" for none."""
    for function, file in frames:
        name = function.rpartition(".")[2]
        found = {row.phase for row in FRAMES if row.function == name and _is(file, row.file)}
        if len(found) == 1:
            phase = found.pop()
            return "" if phase == "unknown" else phase
    return ""


def _is(file: str, wanted: str) -> bool:
    """Whether a path is the wanted one; a dump may have but the end of it."""
    return file.endswith(wanted) or (file != "" and wanted.endswith("/" + file))
