"""Small builders of scenes: stacks as text, ranks by number, two looks by default."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.hang.records import (
    Dump,
    Frame,
    Gpu,
    Halt,
    Log,
    LogLine,
    Process,
    Rank,
    Scene,
    Snapshot,
    Thread,
)

SRT = "/opt/venv/lib/python3.12/site-packages/sglang/srt/"
SITE = "/opt/venv/lib/python3.12/site-packages/"
START = 1_800_000_000.0
_FRAME = re.compile(r"(?P<function>\S+?)(?:@(?P<file>[^\s:]*))?(?::(?P<line>\d+))?")

# Where a function of a stack lies that is written without its file.
FILES: Mapping[str, str] = {
    "barrier": SITE + "torch/distributed/distributed_c10d.py",
    "monitored_barrier": SITE + "torch/distributed/distributed_c10d.py",
    "all_reduce": SITE + "torch/distributed/distributed_c10d.py",
    "broadcast": SITE + "torch/distributed/distributed_c10d.py",
    "broadcast_object_list": SITE + "torch/distributed/distributed_c10d.py",
    "_exception_logger.<locals>.wrapper": SITE + "torch/distributed/c10d_logger.py",
    "synchronize": SITE + "torch/cuda/__init__.py",
    "Event.synchronize": SITE + "torch/cuda/streams.py",
    "GroupCoordinator.barrier": SRT + "distributed/parallel_state.py",
    "GroupCoordinator.all_reduce": SRT + "distributed/parallel_state.py",
    "GroupCoordinator.__init__": SRT + "distributed/parallel_state.py",
    "initialize_model_parallel": SRT + "distributed/parallel_state.py",
    "FullCudaGraphBackend.capture_one": SRT + "model_executor/runner_backend/full_cuda_graph_backend.py",
    "DecodeCudaGraphRunner.capture_one_shape": SRT + "model_executor/runner/decode_cuda_graph_runner.py",
    "DecodeCudaGraphRunner._capture_one_stream": SRT + "model_executor/runner/decode_cuda_graph_runner.py",
    "DecodeCudaGraphRunner.capture": SRT + "model_executor/runner/decode_cuda_graph_runner.py",
    "DecodeCudaGraphRunner.__init__": SRT + "model_executor/runner/decode_cuda_graph_runner.py",
    "PrefillCudaGraphRunner.capture_one_shape": SRT + "model_executor/runner/prefill_cuda_graph_runner.py",
    "PrefillCudaGraphRunner.capture": SRT + "model_executor/runner/prefill_cuda_graph_runner.py",
    "CudaGraphRunner.capture_one_batch_size": SRT + "model_executor/cuda_graph_runner.py",
    "CudaGraphRunner.capture": SRT + "model_executor/cuda_graph_runner.py",
    "CudaGraphRunner.__init__": SRT + "model_executor/cuda_graph_runner.py",
    "EAGLEDraftCudaGraphRunner.capture_one_shape": SRT + "speculative/eagle_draft_cuda_graph_runner.py",
    "EAGLEDraftCudaGraphRunner.capture": SRT + "speculative/eagle_draft_cuda_graph_runner.py",
    "ModelRunner.init_decode_cuda_graph": SRT + "model_executor/model_runner.py",
    "ModelRunner.init_cuda_graphs": SRT + "model_executor/model_runner.py",
    "ModelRunner.init_device_graphs": SRT + "model_executor/model_runner.py",
    "ModelRunner.init_torch_distributed": SRT + "model_executor/model_runner.py",
    "ModelRunner.load_model": SRT + "model_executor/model_runner.py",
    "ModelRunner.init_memory_pool": SRT + "model_executor/model_runner_kv_cache_mixin.py",
    "ModelRunner.initialize": SRT + "model_executor/model_runner.py",
    "TpModelWorker.init_cuda_graphs": SRT + "managers/tp_worker.py",
    "Scheduler.init_all_cuda_graphs": SRT + "managers/scheduler.py",
    "Scheduler.init_model_worker": SRT + "managers/scheduler.py",
    "Scheduler.init_memory_pools": SRT + "managers/scheduler.py",
    "Scheduler.__init__": SRT + "managers/scheduler.py",
    "Scheduler.event_loop_overlap": SRT + "managers/scheduler.py",
    "Scheduler.run_batch": SRT + "managers/scheduler.py",
    "Scheduler.on_idle": SRT + "managers/scheduler.py",
    "Scheduler.get_next_batch_to_run": SRT + "managers/scheduler.py",
    "run_scheduler_process": SRT + "managers/scheduler.py",
    "SchedulerRequestReceiver._broadcast_reqs_across_ranks": SRT +
    "managers/scheduler_components/request_receiver.py",
    "SchedulerRequestReceiver._pull_raw_reqs": SRT + "managers/scheduler_components/request_receiver.py",
    "SchedulerRequestReceiver.recv_requests": SRT + "managers/scheduler_components/request_receiver.py",
    "IdleSleeper.maybe_sleep": SRT + "managers/scheduler.py",
    "broadcast_pyobj": SRT + "utils/common.py",
    "Socket.recv_pyobj": SITE + "zmq/sugar/socket.py",
    "BaseRunner._warmup": SRT + "model_executor/runner/base_runner.py",
    "BaseRunner._flashinfer_autotune": SRT + "model_executor/runner/base_runner.py",
    "BaseRunner._dummy_run": SRT + "model_executor/runner/base_runner.py",
    "AutoTuner.choose_one": SITE + "flashinfer/autotuner.py",
    "AutoTuner._profile_single_kernel": SITE + "flashinfer/autotuner.py",
    "dist_barrier_after_load": SRT + "model_executor/model_runner_components/load_model_utils.py",
    "get_tensor": SITE + "sglang/srt/model_loader/weight_utils.py",
    "safetensors_weights_iterator": SRT + "model_loader/weight_utils.py",
    "DefaultModelLoader.load_model": SRT + "model_loader/loader.py",
    "process_weights_after_loading": SRT + "layers/quantization/fp8.py",
    "FileBaton.wait": SITE + "torch/utils/file_baton.py",
    "wait@file_baton": SITE + "torch/utils/file_baton.py",
    "_jit_compile": SITE + "torch/utils/cpp_extension.py",
    "load": SITE + "torch/utils/cpp_extension.py",
    "BaseFileLock.acquire": SITE + "filelock/_api.py",
    "get_cascade_module": SITE + "flashinfer/cascade.py",
    "load_cuda_ops": SITE + "flashinfer/jit/core.py",
    "merge_state": SITE + "flashinfer/cascade.py",
    "ncclCommInitRank": SRT + "distributed/device_communicators/pynccl_wrapper.py",
    "ncclAllReduce": SRT + "distributed/device_communicators/pynccl_wrapper.py",
    "PyNcclCommunicator.__init__": SRT + "distributed/device_communicators/pynccl.py",
    "PyNcclCommunicator.all_reduce": SRT + "distributed/device_communicators/pynccl.py",
    "CustomAllreduce.register_graph_buffers": SRT + "distributed/device_communicators/custom_all_reduce.py",
    "CUDAGraph.capture_end": SITE + "torch/cuda/graphs.py",
    "Queue.get": "/usr/lib/python3.12/queue.py",
    "Condition.wait": "/usr/lib/python3.12/threading.py",
    "TpModelWorkerClient.resolve_batch_result": SRT + "managers/tp_worker_overlap_thread.py",
    "TpModelWorkerClient.forward_thread_func_": SRT + "managers/tp_worker_overlap_thread.py",
    "LlamaForCausalLM.forward": SRT + "models/llama.py",
    "LlamaDecoderLayer.forward": SRT + "models/llama.py",
    "Popen.communicate": "/usr/lib/python3.12/subprocess.py",
    "_wait_until_activated": SRT + "distributed/gated_launch.py",
    "init_parallel_runtime": SRT + "distributed/bootstrap.py",
    "_new_process_group_helper": SITE + "torch/distributed/distributed_c10d.py",
    "BaseProcess.run": "/usr/lib/python3.12/multiprocessing/process.py",
    "spawn_main": "/usr/lib/python3.12/multiprocessing/spawn.py",
}  # fmt: skip

ROOT = "run_scheduler_process BaseProcess.run spawn_main"
# The tail of every stack during the start-up of 0.5.14 and later, and of its captures.
INIT = f"Scheduler.init_model_worker Scheduler.__init__ {ROOT}"
GRAPHS = f"ModelRunner.init_cuda_graphs TpModelWorker.init_cuda_graphs Scheduler.init_all_cuda_graphs {INIT}"
CAPTURE = (
    "FullCudaGraphBackend.capture_one DecodeCudaGraphRunner.capture_one_shape"
    f" DecodeCudaGraphRunner._capture_one_stream DecodeCudaGraphRunner.capture"
    f" DecodeCudaGraphRunner.__init__ ModelRunner.init_decode_cuda_graph {GRAPHS}"
)
BARRIER = "barrier _exception_logger.<locals>.wrapper GroupCoordinator.barrier"
LOOP = f"Scheduler.event_loop_overlap run_event_loop@{SRT}managers/scheduler.py {ROOT}"
IDLE_0 = (
    "Socket.recv_pyobj SchedulerRequestReceiver._pull_raw_reqs SchedulerRequestReceiver.recv_requests "
    + LOOP
)
IDLE_N = (
    "broadcast _exception_logger.<locals>.wrapper broadcast_pyobj"
    " SchedulerRequestReceiver._broadcast_reqs_across_ranks SchedulerRequestReceiver.recv_requests "
    + LOOP
)
LOAD = f"DefaultModelLoader.load_model ModelRunner.load_model ModelRunner.initialize {INIT}"
WARMUP = f"BaseRunner._flashinfer_autotune BaseRunner._warmup {GRAPHS}"


def frames(text: str) -> tuple[Frame, ...]:
    """Return a stack from ``function@file:line`` words, leaf first."""
    found = []
    for word in text.split():
        match = _FRAME.fullmatch(word)
        assert match, word
        function = match["function"]
        file = match["file"] if match["file"] is not None else FILES.get(function, "")
        assert file or "::" in function or function.startswith("0x"), f"no file for {word}"
        native = "::" in function or function.startswith("0x")
        module = "/usr/lib/libtorch_cpu.so" if native else ""
        # The same function stands at the same line in every stack.
        line = 0 if native else int(match["line"] or 100 + zlib.crc32(function.encode()) % 900)
        found.append(Frame(function, file, line, module))
    return tuple(found)


def thread(text: str, name: str = "MainThread", **more: Any) -> Thread:
    return Thread(frames(text), name, main=name == "MainThread", **more)


TQDM = f"Condition.wait TMonitor.run@{SITE}tqdm/_monitor.py"
WATCHDOG = f"WatchdogRaw._watchdog_once@{SRT}utils/watchdog.py"


@dataclasses.dataclass(frozen=True)
class R:
    """One rank: its stack in both looks (`then` in the first, where it differs), and its process.

    `was` is its state in the first look, where it differs; `halt` what was seen of a halt in every look.
    """

    stack: str = ""
    then: str | None = None
    state: str = "S"
    was: str | None = None
    halt: Halt | None = None
    cpu: float = 0.01
    io: float = 0.0
    compilers: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    refusal: str = ""
    exit_code: int | None = None
    other_threads: tuple[Thread, ...] = ()
    pid: int | None = None
    restarted: bool = False
    absent: bool = False
    gpu: tuple[float, float, float] | None = None
    dp: int | None = None
    title: str = ""


def scene(
    ranks: Sequence[R],
    *,
    looks: int = 2,
    apart: float = 30.0,
    engine: str = "sglang",
    version: str = "0.5.14",
    log: Sequence[str] | str = (),
    gpu: tuple[float, float, float] | None = (76000.0, 0.0, 120.0),
    arguments: Mapping[str, str] | None = None,
    host: str = "node0",
    numbers: Sequence[int] | None = None,
    extra: Sequence[Process] = (),
    **more: Any,
) -> Scene:
    """Return a scene of ranks of one host, each looked at `looks` times.

    `gpu` is memory in MiB, utilisation in % and power in W of every GPU; a rank may have its own.
    """
    given = {"tp-size": str(len(ranks))} if arguments is None else arguments
    numbers = range(len(ranks)) if numbers is None else numbers
    shots = tuple(
        snapshot(ranks, numbers, at, looks, apart, host, gpu, extra) for at in range(looks)
    )
    return Scene(
        source="made by hand",
        snapshots=shots,
        logs=(written(log, host),) if log else (),
        engine=engine,
        version=version,
        arguments=given,
        **more,
    )


def snapshot(
    ranks: Sequence[R],
    numbers: Sequence[int],
    at: int,
    looks: int,
    apart: float,
    host: str,
    gpu: tuple[float, float, float] | None,
    extra: Sequence[Process],
) -> Snapshot:
    processes, dumps, gpus = list(extra), [], []
    size = len(ranks)
    for index, (number, rank) in enumerate(zip(numbers, ranks, strict=True)):
        if rank.absent:
            continue
        pid = rank.pid or 1000 + number
        name = rank.title or (f"sglang::scheduler_TP{number}" if size > 1 else "sglang::scheduler")
        fresh = rank.restarted and at == looks - 1
        processes.append(
            Process(
                pid=pid,
                host=host,
                role="scheduler",
                title=name,
                rank=Rank(number, tp=number if size > 1 or number else None, dp=rank.dp),
                parent=900,
                started=500.0 + (60.0 if fresh else 0.0),
                state=rank.was if rank.was is not None and at < looks - 1 else rank.state,
                halt=rank.halt,
                threads=205,
                cpu_seconds=40.0 + rank.cpu * apart * at,
                read_bytes=int(1e9 + rank.io * apart * at),
                written_bytes=1000,
                compilers=rank.compilers,
                lock_files=rank.locks,
                exit_code=rank.exit_code,
            )
        )
        stack = rank.then if rank.then is not None and at < looks - 1 else rank.stack
        if rank.refusal:
            dumps.append(
                Dump(
                    pid, "py-spy", at=START + apart * at, refusal=rank.refusal, remedy="run as root"
                )
            )
        elif stack:
            threads = (thread(TQDM, "tqdm_monitor"), *rank.other_threads, thread(stack))
            dumps.append(Dump(pid, "py-spy", threads, at=START + apart * at))
        reading = rank.gpu or gpu
        if reading is not None:
            memory, used, watts = reading
            gpus.append(
                Gpu(
                    index,
                    host,
                    f"GPU-{index}",
                    "H200",
                    memory,
                    143771.0,
                    used,
                    watts,
                    {pid: memory},
                )
            )
    return Snapshot(START + apart * at, host, tuple(processes), tuple(dumps), tuple(gpus))


_LINE = re.compile(r"(?:(?P<at>\d+) )?(?:(?P<rank>(?:(?:DP|PP|TP|EP)\d+ ?)+)\| )?(?P<text>.*)")


def written(lines: Sequence[str] | str, host: str = "node0", name: str = "server.log") -> Log:
    """Return a log from ``seconds TP0| text`` lines; without a rank it is the parent's."""
    found = []
    for number, text in enumerate(lines.splitlines() if isinstance(lines, str) else lines, start=1):
        match = _LINE.fullmatch(text.strip())
        assert match
        at = START - 1000.0 + float(match["at"]) if match["at"] else None
        found.append(LogLine(number, match["text"], at, (match["rank"] or "").strip()))
    last = next((line.at for line in reversed(found) if line.at is not None), None)
    return Log(name, tuple(found), host, len(found), last)


def started(ranks: int, upto: str, version: str = "0.5.14") -> list[str]:
    """Return the log of a start-up in which every rank got through the lines up to one."""
    old = version in ("0.5.8", "0.5.11", "0.5.12")
    steps = {
        "dist": [
            "Init torch distributed begin.",
            "Init torch distributed ends. elapsed=2.56 s, mem usage=1.01 GB",
        ],
        "weights_begin": ["Load weight begin. avail mem=138.28 GB"],
        "weights": [
            "Load weight end. elapsed=300.1 s, type=DeepseekV3ForCausalLM, avail mem=66.2 "
            "GB, mem usage=72.1 GB."
        ],
        "pool": [
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384, K size: 0.02 GB, V size: 0.02 GB",
            "Memory pool end. avail mem=10.21 GB",
        ],
        "decode": [
            "Capture cuda graph begin. This can take up to several minutes. avail mem=9.1 GB"
            if old
            else "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4],"
            " avail mem=9.12 GB"
        ],
        "captured": [
            "Capture cuda graph end. Time elapsed: 8.1 s. mem usage=0.1 GB. avail mem=9.0 GB."
            if old
            else "Capture target decode CUDA graph end. elapsed=8.39 s, mem usage=0.04 GB, avail mem=9.08 GB."
        ],
    }
    lines = ["0 server_args=ServerArgs(model_path='target')"]
    clock = 10
    for name, texts in steps.items():
        for text in texts:
            lines += [
                f"{clock} {f'TP{rank}| ' if ranks > 1 else ''}{text}" for rank in range(ranks)
            ]
            clock += 5
        if name == upto:
            return lines
    lines.append(
        f"{clock} {'TP0| ' if ranks > 1 else ''}max_total_num_tokens=16384, chunked_prefill_size=8192"
    )
    if upto == "ready":
        lines.append(f"{clock + 3} The server is fired up and ready to roll!")
    return lines
