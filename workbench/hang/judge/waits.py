"""What a thread waits in: classes of waiting by frames, and which threads are bystanders."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence

from workbench.hang.records import Dump, Frame, Thread, WaitClass

# Frames that only wrap others (torch's logger and decorators, SGLang's profiler, contextlib): what is said
# about a thread is said of the first frame that is none of them.
_WRAPPERS = re.compile(
    r"_exception_logger\.<locals>\.wrapper|profile_method.*wrapper|decorate_context|(?:^|[.>])wrapper$"
    r"|^_GeneratorContextManager(?:Base)?\.__\w+__$|contextmanager\.<locals>\.helper|_call_impl$"
)
# Native frames that say only that a thread sleeps or runs Python.
_PLUMBING = re.compile(
    r"^0x[0-9a-f]+$|^pthread_|^_?_?futex|^std::condition_variable|^PyThread_acquire|^pybind11::"
    r"|^_?Py[A-Z_]|^_PyEval|^clone3?$|^start_thread$|^__libc_|^syscall$|^(?:__)?(?:poll|epoll_wait|select|ppoll)$"
    r"|^cfunction_|^method_vectorcall|^sem_wait|^do_futex_wait"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    """Frames that make a wait class; of the conditions that are given all have to hold.

    Attributes
    ----------
    names
        The last part of the function's name, one of these words.
    within
        The function's name has one of these in it (native names, and classes).
    files
        The path has one of these in it; ``""`` also fits a frame without a file.
    """

    wait: WaitClass
    names: str = ""
    within: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


# From the leaf upwards the first frame that fits any mark decides; of one frame's marks the first here.
_MARKS = (
    _Mark(
        "LOCK", "acquire _acquire __enter__ wait lock",
        files=("filelock", "file_baton", "fasteners", "portalocker"),
    ),
    _Mark("LOCK", "flock __flock lockf fcntl_lock"),
    _Mark("JIT", files=("deep_gemm_wrapper/compile_utils", "deep_gemm/jit", "torch/utils/cpp_extension")),
    _Mark(
        "JIT",
        files=(
            "triton/compiler/", "triton/runtime/build", "triton/runtime/jit", "flashinfer/jit/",
            "tvm_ffi/cpp", "tilelang/jit", "_inductor/async_compile", "_inductor/codecache",
            "_inductor/graph", "_inductor/compile_fx", "cutlass/base_dsl/", "sglang/jit_kernel/",
        ),
    ),
    _Mark("JIT", "communicate wait _wait _try_wait _communicate run call", files=("subprocess.py",)),
    _Mark(
        "MODULE_LOAD",
        within=("cuModuleLoad", "cuLibraryLoad", "cudaModuleLoad", "cuModuleGetFunction", "load_binary"),
    ),
    _Mark(
        "CAPTURE",
        within=(
            "StreamEndCapture", "StreamBeginCapture", "GraphInstantiate", "cuGraphLaunch", "cuGraphUpload",
        ),
    ),
    _Mark("CAPTURE", files=("torch/cuda/graphs.py",)),
    _Mark(
        "NCCL_INIT",
        within=(
            "ncclCommInit", "ncclCommSplit", "ncclCommWindow", "ncclMemAlloc", "NCCLComm::create",
            "NCCLComm::split",
        ),
    ),
    _Mark(
        "STORE",
        within=(
            "ncclGetUniqueId", "ncclUniqueId", "UniqueNCCLID", "TCPStore", "PrefixStore", "FileStore",
            "store_based_barrier", "_new_process_group_helper", "rendezvous", "_create_c10d_store",
        ),
    ),
    _Mark("STORE", files=("torch/distributed/rendezvous",)),
    _Mark(
        "HOST_COLL",
        "barrier monitored_barrier broadcast broadcast_object_list all_gather all_gather_object"
        " all_gather_into_tensor all_reduce reduce reduce_scatter reduce_scatter_tensor gather"
        " gather_object scatter scatter_object_list all_to_all all_to_all_single send recv isend irecv"
        " send_object_list recv_object_list batch_isend_irecv wait",
        files=("torch/distributed/",),
    ),
    _Mark(
        "HOST_COLL",
        within=(
            "UnboundBuffer::wait", "gloo::", "ProcessGroupGloo", "c10d::Work::wait", "broadcast_pyobj",
            "monitored_barrier", "GroupCoordinator.barrier", "GroupCoordinator.broadcast_object",
            "GroupCoordinator.all_gather_object", "dist_barrier_after_load",
            "_pp_commit_comm_work",  # c10d's wait below it is no Python frame
        ),
    ),
    _Mark("NCCL_LAUNCH", files=("pynccl_wrapper.py",)),
    _Mark(
        "NCCL_LAUNCH",
        within=("ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclGroupEnd",
                "ncclSend", "ncclRecv", "ncclReduce", "ncclEnqueueCheck", "ncclLaunch"),
    ),
    _Mark(
        "CUDA_SYNC",
        within=("StreamSynchronize", "EventSynchronize", "CtxSynchronize", "DeviceSynchronize", "MemcpyDtoH"),
    ),
    _Mark("CUDA_SYNC", "synchronize", files=("torch/cuda/", "torch/accelerator/", "torch/xpu/", "torch/hip")),
    _Mark("CUDA_SYNC", "item tolist cpu _local_scalar_dense is_nonzero", files=("", "torch/")),
    _Mark(
        "IO",
        "get_tensor get_slice safetensors_weights_iterator multi_thread_safetensors_weights_iterator"
        " buffered_multi_thread_safetensors_weights_iterator fastsafetensors_weights_iterator"
        " pt_weights_iterator np_cache_weights_iterator load_file _load_file",
    ),
    _Mark("IO", files=("safetensors/", "huggingface_hub/", "modelscope/", "runai_model_streamer/")),
    _Mark("IO", "read pread pread64 preadv readv readahead mmap madvise fsync", files=("libc",)),
    _Mark("IDLE", "maybe_sleep"),
    _Mark(
        "IPC",
        "recv recv_pyobj recv_multipart recv_string send_pyobj poll _poll select accept recv_bytes _recv"
        " _recv_bytes run",
        files=("zmq/", "multiprocessing/connection", "selectors.py", "asyncio/", "uvicorn/", "socket.py"),
    ),
    _Mark("IPC", within=("zmq_", "zmq::")),
    _Mark(
        "QUEUE", "get put wait result join wait_for _wait_for_tstate_lock",
        files=("queue.py", "queues.py", "threading.py", "concurrent/futures/"),
    ),
    # A wait for a child that was forked or spawned.
    _Mark("QUEUE", "wait poll join", files=("multiprocessing/popen_", "multiprocessing/process.py")),
    # vLLM's queue in shared memory: its readers wait for the writer, the writer for all readers.
    _Mark("HOST_COLL", "acquire_read acquire_write dequeue enqueue", files=("shm_broadcast.py",)),
)  # fmt: skip
# The event loop of a scheduler, and what it receives through: below both, a broadcast is no hang.
_EVENT_LOOP = re.compile(
    r"(?:^|\.)(?:worker_busy_loop|run_busy_loop)$|(?:^|\.)event_loop_\w+$|(?:^|\.)event_loop$|(?:^|\.)(?:run_)?event_loop$"
)
_RECEIVING = re.compile(
    r"(?:^|\.)(?:recv_requests|_broadcast_reqs_across_ranks|broadcast_pyobj|point_to_point_pyobj|maybe_sleep"
    r"|_pull_raw_reqs|on_idle|self_check_during_idle|publish_load_snapshot|recv_reqs"
    # vLLM: a worker waits for the engine core's next work, the core for requests.
    r"|dequeue|acquire_read|_process_input_queue)$"
)
# What the loop does with what it received: a wait below one of these is no wait for requests.
_HANDLING = re.compile(
    r"(?:^|\.)(?:process_input_requests|get_next_batch_to_run|get_new_batch_prefill|update_running_batch"
    r"|prepare_mlp_sync_batch\w*|handle_\w+|_request_dispatcher|flush_cache\w*|\w*weights\w*)$"
)
_BATCH = re.compile(
    r"(?:^|\.)(?:run_batch|forward_batch_generation|process_batch_result\w*|resolve_(?:last_)?batch_result\w*"
    r"|launch_batch_sample_if_needed|forward|forward_extend|forward_decode|verify|draft\w*"
    r"|execute_model|sample_tokens|execute_dummy_batch)$"
)
# Sends and receives between two neighbours of a pipeline: each end waits for the other, and the two frames
# above the event loop's own say so.
_OF_PAIRS = re.compile(
    r"(?:^|\.)(?:point_to_point_pyobj|_pp_(?:commit|send|recv)\w*|(?:send|recv)_tensor_dict|i?send|i?recv)$"
)
# Reads of a network connection: their bytes are in no counter of /proc/PID/io.
_NETWORK = re.compile(
    r"(?:^|/)(?:ssl|http/client|socket)\.py$|(?:^|/)(?:urllib3|requests|httpx|httpcore|aiohttp)/"
)
# What vLLM's workers do of the start-up inside the loop that later serves: no loop of a server yet.
_START_UP = re.compile(
    r"(?:^|\.)(?:determine_available_memory|initialize_from_config|compile_or_warm_up_model|initialize_cache)$"
)
# Waits for other ranks: whoever is not in one of them is behind.
FOR_OTHERS: frozenset[WaitClass] = frozenset({"HOST_COLL", "STORE", "NCCL_INIT", "IDLE"})
# Waits for the device, which may wait for other ranks in turn.
ON_DEVICE: frozenset[WaitClass] = frozenset({"CUDA_SYNC", "NCCL_LAUNCH"})
# Waits in which a thread may burn CPU time without getting on.
SPINNING: frozenset[WaitClass] = FOR_OTHERS | ON_DEVICE | {"CAPTURE", "MODULE_LOAD", "GIL"}

_FOLDED = tuple(
    (why, re.compile(name), re.compile(file))
    for why, name, file in (
        ("progress bar", r"tqdm", r"tqdm/_monitor\.py$"),
        ("inductor's pool", r"InductorSubproc|subproc_worker_timer", r"_inductor/compile_worker/"),
        ("watchdog", r"watchdog|pyspy_dump_schedulers", r"utils/watchdog\.py$"),
        ("metrics", r"prometheus|metrics", r"prometheus_client/|wsgiref/|socketserver\.py$"),
        ("messages", r"zmq|[Hh]eartbeat", r"zmq/utils|zmq/auth"),
    )
)
_POOL = re.compile(r"^(?:_worker|_process_worker|worker)$")
_POOL_FILES = re.compile(r"concurrent/futures/(?:thread|process)\.py$|multiprocessing/pool\.py$")
_FEEDER = re.compile(r"QueueFeederThread|ExecutorManagerThread|asyncio_\d")


def plain_name(function: str) -> str:
    """Return a frame's name without what differs from run to run: addresses, template arguments."""
    if function.startswith("0x"):
        return "?"
    if "<" in function and "<locals>" not in function and not function.startswith("<"):
        return function[: function.index("<")]
    return function


def path(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Return the functions of a stack without lines, wrappers and native frames, root first."""
    return tuple(
        plain_name(frame.function)
        for frame in reversed(frames)
        if not is_wrapper(frame) and not frame.module
    )


_WORDS = tuple(frozenset(mark.names.split()) for mark in _MARKS)


@functools.lru_cache(maxsize=65536)
def _class_of_frame(function: str, file: str, module: str) -> WaitClass | None:
    last = re.split(r"\.|::", function)[-1]
    place = file or module
    for mark, words in zip(_MARKS, _WORDS, strict=True):
        if words and last not in words:
            continue
        if mark.within and not any(part in function for part in mark.within):
            continue
        if mark.files and not any(part in place if part else not place for part in mark.files):
            continue
        return mark.wait
    return None


@functools.lru_cache(maxsize=65536)
def is_wrapper(frame: Frame) -> bool:
    """Whether a frame only wraps another, or says only that the thread sleeps."""
    if frame.module and not frame.file.endswith(".py"):
        return bool(_PLUMBING.search(frame.function))
    return bool(_WRAPPERS.search(frame.function))


def telling_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the frame that tells what a thread does: its leaf without wrappers and plumbing."""
    return next((frame for frame in frames if not is_wrapper(frame)), frames[0] if frames else None)


def in_event_loop(frames: Iterable[Frame]) -> bool:
    """Whether a stack runs below a scheduler's event loop, and in no step of the start-up."""
    inside = False
    for frame in frames:
        if _START_UP.search(frame.function):
            return False
        inside = inside or bool(_EVENT_LOOP.search(frame.function))
    return inside


def in_batch(frames: Sequence[Frame]) -> bool:
    """Whether a stack is below an event loop and works at a batch."""
    for frame in frames:
        if _EVENT_LOOP.search(frame.function):
            return False
        if _BATCH.search(frame.function):
            return in_event_loop(frames)
    return False


def in_receive(frames: Sequence[Frame]) -> bool:
    """Whether a stack, leaf first, is in the receive of an event loop itself.

    Not below what the loop does with the requests: a collective there is the work's own.
    """
    receives = asks = False
    for frame in frames:
        if _EVENT_LOOP.search(frame.function):
            # What an engine core reads from a queue of its workers is their answer, and no request.
            return asks if frame.function.endswith("run_busy_loop") else receives
        asks = asks or frame.function.endswith("_process_input_queue")
        if _HANDLING.search(frame.function):
            return False
        receives = receives or bool(_RECEIVING.search(frame.function))
    return False


def in_pair(frames: Sequence[Frame]) -> bool:
    """Whether a stack waits for a neighbour in a pipeline, directly below the event loop."""
    for frame in frames:
        if _EVENT_LOOP.search(frame.function):
            return False
        if _BATCH.search(frame.function):
            return False
        if _OF_PAIRS.search(frame.function) and in_event_loop(frames):
            return True
    return False


def reads_network(frames: Sequence[Frame]) -> bool:
    """Whether a stack reads a network connection, as a download does."""
    frame = telling_frame(frames)
    return frame is not None and bool(_NETWORK.search(frame.file)) and "zmq/" not in frame.file


def wait_class(frames: Sequence[Frame]) -> WaitClass:
    """Return the wait class of a stack, leaf first: the first frame from the leaf that fits decides.

    A broadcast in the receive of an event loop is ``IDLE``: otherwise every healthy server of several ranks
    would look hung. ``RUNNING`` where nothing fits.
    """
    if not frames:
        return "UNKNOWN"
    if in_receive(frames):
        return "IDLE"
    return _leaf_class(frames)


def _leaf_class(frames: Sequence[Frame]) -> WaitClass:
    for frame in frames:
        if is_wrapper(frame):
            continue
        found = _class_of_frame(frame.function, frame.file, frame.module)
        if found is not None:
            return found
        if frame.file.endswith(".py") and not _library(frame.file):
            return "RUNNING"  # code of its own, not a library's that was called to wait
    return "RUNNING"


def standing(frames: Sequence[Frame]) -> tuple[tuple[str, str, int], ...]:
    """Return what of a stack, leaf first, may be compared with that of another snapshot.

    No native frames and no addresses; and of a wait for a file lock only where it was called: its library
    tries and sleeps in turn, and does not get on by that.
    """
    python = [frame for frame in frames if not frame.module or frame.line]
    lines = [(frame.function, frame.file, frame.line) for frame in python]
    if _leaf_class(python) != "LOCK":
        return tuple(lines)
    classes = [_class_of_frame(frame.function, frame.file, frame.module) for frame in python]
    outermost = at = classes.index("LOCK")
    while at < len(python) and (classes[at] == "LOCK" or _library(python[at].file)):
        outermost = at if classes[at] == "LOCK" else outermost
        at += 1
    function, file, _ = lines[outermost]
    return ((function, file, 0), *lines[outermost + 1 :])


_LIBRARIES = (
    "torch/", "zmq/", "multiprocessing/", "concurrent/", "asyncio/", "threading.py", "queue.py",
    "queues.py", "selectors.py", "subprocess.py", "contextlib.py", "filelock", "portalocker/", "fasteners/",
    "socket.py", "safetensors/",
    "tqdm/", "flashinfer/", "triton/", "deep_gemm/", "tvm_ffi/", "runpy", "functools.py",
)  # fmt: skip
# What a library asks the file system with while it polls.
_FILES = frozenset(
    {
        "os.py", "genericpath.py", "posixpath.py", "stat.py", "pathlib.py", "pathlib/_local.py",
        "pathlib/__init__.py", "logging/__init__.py", "random.py",
    }
)  # fmt: skip
_INSTALLED = re.compile(r".*(?:site-packages|dist-packages|python3\.\d+)/")


@functools.lru_cache(maxsize=65536)
def _library(file: str) -> bool:
    """Whether a file is of a library that others call to wait for something."""
    name = _INSTALLED.sub("", file)
    return name in _FILES or any(part in name for part in _LIBRARIES)


def folded(thread: Thread) -> str:
    """Return why a thread is a bystander (``progress bar``), or "" where it may matter."""
    return "" if thread.main else _folded(thread.name, thread.frames[:6])


@functools.lru_cache(maxsize=65536)
def _folded(thread_name: str, top: tuple[Frame, ...]) -> str:
    for why, name, file in _FOLDED:
        if name.search(thread_name) or any(file.search(frame.file) for frame in top[:4]):
            return why
    if _FEEDER.search(thread_name) or any(_FEEDER.search(frame.function) for frame in top[:4]):
        return "pool"
    if not top:
        return "no Python frame"
    if wait_class(top) in ("QUEUE", "IPC", "RUNNING") and any(
        _POOL.search(frame.function) and _POOL_FILES.search(frame.file) for frame in top[:3]
    ):
        return "idle pool worker"
    names = {frame.function.rsplit(".", 1)[-1] for frame in top}
    return "runs Python's own loop" if names <= {"_bootstrap", "_bootstrap_inner", "run"} else ""


def thread_of_interest(dump: Dump) -> Thread | None:
    """Return the thread that a rank hangs or works in.

    The main thread; where that only waits for a result of another thread (``QUEUE``), the one other thread
    that is no bystander: the main thread is then a victim.
    """
    main = dump.main or next(
        (t for t in dump.threads if t.name == "MainThread"),
        dump.threads[0] if len(dump.threads) == 1 else None,
    )
    if main is None:
        return None
    if wait_class(main.frames) != "QUEUE":
        return main
    others = [
        t
        for t in dump.threads
        if t is not main and not folded(t) and wait_class(t.frames) not in ("QUEUE", "IPC")
    ]
    working = [t for t in others if re.search(r"forward|worker|scheduler", _names(t))] or others
    return working[0] if len(working) == 1 else main


def _names(thread: Thread) -> str:
    return " ".join([thread.name, *(frame.function for frame in thread.frames)])
