"""Engines by name: titles, launches, files of frames, lines of vLLM's log."""

from __future__ import annotations

from typing import get_args

import pytest

from workbench.facts import engines, vllm_startup
from workbench.facts.engine_phases import marker_reader, order_of, phase_of_stack
from workbench.hang.records import Phase


@pytest.mark.parametrize(
    ("title", "role", "parts"),
    [
        ("VLLM::Worker_TP0" + " " * 40, "scheduler", {"tp": 0}),
        ("VLLM::Worker", "scheduler", {}),
        ("VLLM::Worker_DP1_PP0_PCP2_TP3_DCP1_EP7", "scheduler",
         {"dp": 1, "pp": 0, "cp": 2, "tp": 3, "ep": 7}),
        ("VLLM::EngineCore", "controller", {}),
        ("VLLM::EngineCore_DP1", "controller", {"dp": 1}),
        ("VLLM::APIServer_0", "tokenizer", {}),
        ("VLLM::DPCoordinator", "tokenizer", {}),
        ("/usr/bin/python3 /usr/bin/vllm serve m --tensor-parallel-size 2", "parent", {}),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "parent", {}),
        ("trtllm-serve m --tp_size 2", "parent", {}),
        ("/opt/bin/python /opt/bin/torchrun --nproc-per-node 2 train.py", "parent", {}),
        ("ray::RayWorkerWrapper.execute_method", "scheduler_unnamed", {}),
        ("sglang::scheduler_TP1", "scheduler", {"tp": 1}),
        ("bash -c 'vllm serve m'", "other", {}),
        ("VLLM::Worker_TPx", "other", {}),
        ("python3 train.py", "other", {}),
    ],
)  # fmt: skip
def test_titles_say_who_a_process_is(title: str, role: str, parts: dict[str, int]) -> None:
    found = engines.read_title(title)
    assert (found.role, dict(found.parts)) == (role, parts)


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("sglang serve --model-path m", "sglang"),
        ("python3 -m sglang.launch_server --model-path m", "sglang"),
        ("/usr/bin/vllm serve m", "vllm"),
        ("trtllm-serve m", "tensorrt_llm"),
        ("torchrun train.py", "torch"),
        ("python -m torch.distributed.run train.py", "torch"),
        ("grep vllm serve", ""),
        ("python train.py --data /data/vllm", ""),
        ("", ""),
    ],
)
def test_a_command_names_its_engine(command: str, engine: str) -> None:
    assert engines.engine_of_command(command) == engine


def test_the_files_of_frames_name_the_engine_last() -> None:
    assert engines.engine_of_files(["/x/torch/nn.py", "/x/site-packages/vllm/v1/core.py"]) == "vllm"
    # Old releases of SGLang call into vLLM.
    assert engines.engine_of_files(["/x/vllm/a.py", "/x/sglang/srt/b.py"]) == "sglang"
    assert engines.engine_of_files(["train.py"]) == ""


def test_an_engine_is_spoken_of_by_its_own_name() -> None:
    assert engines.spoken("vllm", "0.11.0") == "vLLM 0.11.0"
    assert engines.spoken("tensorrt_llm") == "TensorRT-LLM"
    assert engines.spoken("", "1") == ""


@pytest.mark.parametrize(
    ("text", "code", "phase"),
    [
        ("vLLM API server version 0.11.0", "api_server", "spawn"),
        ("Initializing a V1 LLM engine (v0.11.0) with config: m", "engine_begin", "spawn"),
        ("vLLM is using nccl==2.27.3", "nccl_version", "dist_init"),
        ("Starting to load model m...", "weights_begin", "weights"),
        ("Model loading took 9.0 GiB and 20.1 seconds", "weights_end", "weights"),
        ("Model loading took 9.0 GiB memory and 20.100000 seconds", "weights_end", "weights"),
        ("Using cache directory: /c for vLLM's torch.compile", "compile_cache", "warmup"),
        ("torch.compile takes 20.3 s in total", "compile_end", "warmup"),
        ("torch.compile took 20.3 s in total", "compile_end", "warmup"),
        ("Available KV cache memory: 60.1 GiB", "memory_known", "warmup"),
        ("GPU KV cache size: 1,234 tokens", "kv_size", "kv_pool"),
        ("Graph capturing finished in 12 secs, took 0.5 GiB", "capture_end", "graph_decode"),
        ("Application startup complete.", "ready", "ready"),
        ("Worker proc VllmWorker-1 died unexpectedly, shutting down executor.", "rank_died", ""),
        ("No available shared memory broadcast block found in 60 seconds.", "shm_wait", ""),
        ("TimeoutError: RPC call to execute_model timed out.", "rpc_timeout", ""),
        ("torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory", ""),
    ],
)  # fmt: skip
def test_lines_of_vllm_say_a_phase_or_an_error(text: str, code: str, phase: str) -> None:
    event = marker_reader("vllm")(text)
    assert event is not None
    assert (event.code, event.phase) == (code, phase)


def test_the_statistics_of_a_server_that_does_nothing_are_no_batch() -> None:
    line = (
        "Engine 000: Avg prompt throughput: {} tokens/s, Avg generation throughput: {} tokens/s, x"
    )
    assert vllm_startup.read_marker(line.format("0.0", "0.0")) is None
    event = vllm_startup.read_marker(line.format("0.0", "31.5"))
    assert event is not None
    assert event.code == "serving"


def test_every_phase_of_vllm_is_one_of_the_records() -> None:
    known = set(get_args(Phase))
    assert {step.phase for step in vllm_startup.ORDER} <= known
    assert {row.phase for row in vllm_startup.FRAMES} <= known
    assert {marker.phase for marker in vllm_startup.PHASES} <= {
        step.phase for step in order_of("vllm", "")
    }


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py"),
          ("worker_busy_loop", "vllm/v1/executor/multiproc_executor.py")], ""),
        ([("_dummy_run", "vllm/v1/worker/gpu_model_runner.py"),
          ("GPUModelRunner.capture_model", "vllm/v1/worker/gpu_model_runner.py"),
          ("Worker.compile_or_warm_up_model", "vllm/v1/worker/gpu_worker.py")], "graph_decode"),
        ([("Worker.execute_model", "vllm/v1/worker/gpu_worker.py")], "ready"),
        ([("load_model", "vllm/v1/worker/gpu_worker.py")], "weights"),
        ([("load_model", "train.py")], ""),
    ],
)  # fmt: skip
def test_frames_of_vllm_say_a_phase(frames: list[tuple[str, str]], phase: str) -> None:
    assert phase_of_stack("vllm", frames, "") == phase


def test_other_engines_have_no_phases() -> None:
    frames = [("event_loop_normal", "sglang/srt/managers/scheduler.py")]
    assert phase_of_stack("tensorrt_llm", frames, "") == ""
    assert phase_of_stack("sglang", frames, "0.5.14") == "ready"
