"""Wait classes, bystanders and the thread of interest."""

from __future__ import annotations

import pytest

from tests.hang.cases.build import (
    BARRIER,
    CAPTURE,
    IDLE_0,
    IDLE_N,
    LOOP,
    SITE,
    SRT,
    TQDM,
    WATCHDOG,
    frames,
    thread,
)
from tests.hang.cases.recorded import recorded
from workbench.hang.judge import waits
from workbench.hang.records import Dump, Frame

STACKS = {
    f"{BARRIER} {CAPTURE}": "HOST_COLL",
    f"0x7f00 pthread_cond_wait::x c10d::Work::wait {BARRIER}": "HOST_COLL",
    "gloo::transport::tcp::UnboundBuffer::waitRecv": "HOST_COLL",
    "c10d::TCPStore::doWait": "STORE",
    f"_new_process_group_helper GroupCoordinator.__init__ {CAPTURE}": "STORE",
    f"ncclCommInitRank@{SRT}distributed/device_communicators/pynccl_wrapper.py": "NCCL_INIT",
    f"ncclAllReduce {CAPTURE}": "NCCL_LAUNCH",
    f"synchronize {CAPTURE}": "CUDA_SYNC",
    "cuEventSynchronize::x": "CUDA_SYNC",
    f"Event.synchronize {LOOP}": "CUDA_SYNC",
    f"CUDAGraph.capture_end {CAPTURE}": "CAPTURE",
    f"cudaStreamEndCapture::v1 CUDAGraph.capture_end {CAPTURE}": "CAPTURE",
    f"cuModuleLoadDataEx::x {CAPTURE}": "MODULE_LOAD",
    f"_jit_compile load {CAPTURE}": "JIT",
    f"make_cubin@{SITE}triton/compiler/compiler.py {CAPTURE}": "JIT",
    f"Popen.communicate load {CAPTURE}": "JIT",
    f"BaseFileLock.acquire load_cuda_ops {CAPTURE}": "LOCK",
    f"wait@{SITE}torch/utils/file_baton.py _jit_compile load {CAPTURE}": "LOCK",
    f"get_tensor safetensors_weights_iterator {CAPTURE}": "IO",
    f"Queue.get process_batch_result@{SRT}managers/scheduler.py {LOOP}": "QUEUE",
    f"Socket.recv_pyobj DetokenizerManager.event@{SRT}managers/detokenizer_manager.py": "IPC",
    IDLE_0: "IDLE",
    IDLE_N: "IDLE",
    LOOP: "RUNNING",  # the loop's own code: only the receive waits for requests
    f"Scheduler.on_idle {LOOP}": "IDLE",
    # The same broadcast, not below the receiver of an event loop, is a collective.
    f"broadcast broadcast_pyobj {CAPTURE}": "HOST_COLL",
    # A batch below an event loop is no idling.
    f"barrier Scheduler.run_batch {LOOP}": "HOST_COLL",
    f"hook@/home/me/hooks.py LlamaForCausalLM.forward Scheduler.run_batch {LOOP}": "RUNNING",
    # Code of its own ends the search: what called it does not matter.
    f"compute@/home/me/x.py barrier {CAPTURE}": "RUNNING",
}


@pytest.mark.parametrize(
    "stack", STACKS, ids=[text.split()[0].split("@")[0] + str(i) for i, text in enumerate(STACKS)]
)
def test_the_class_of_a_stack(stack: str) -> None:
    assert waits.wait_class(frames(stack)) == STACKS[stack]


def test_no_frames_no_class() -> None:
    assert waits.wait_class(()) == "UNKNOWN"
    assert waits.telling_frame(()) is None


def test_wrappers_are_skipped() -> None:
    stack = frames(f"_exception_logger.<locals>.wrapper GroupCoordinator.barrier {CAPTURE}")
    telling = waits.telling_frame(stack)
    assert telling is not None
    assert telling.function == "GroupCoordinator.barrier"


def test_a_healthy_server_receives_or_runs_its_loop_in_every_recorded_dump() -> None:
    found = set()
    for shot in recorded("relaunch-graphs-off").snapshots:
        ranks = {process.pid for process in shot.processes if process.rank is not None}
        for dump in shot.dumps:
            main = waits.thread_of_interest(dump)
            if dump.pid in ranks and main is not None:
                found.add(waits.wait_class(main.frames))
    assert found == {"IDLE", "RUNNING"}


def test_bystanders_of_a_real_server() -> None:
    shot = recorded("relaunch-graphs-off").snapshots[0]
    dump = next(d for d in shot.dumps if d.pid == 2750 and not d.native)
    told = {one.name: waits.folded(one) for one in dump.threads}
    assert told.pop("MainThread") == ""
    assert all(told.values()), told
    pool = next(d for d in shot.dumps if d.pid == 3230)
    assert {waits.folded(one) for one in pool.threads if not one.main} <= {
        "inductor's pool",
        "pool",
    }


def test_the_watchdog_that_dumps_is_a_bystander() -> None:
    assert waits.folded(thread(WATCHDOG, "Thread-1 (_watchdog_thread)")) == "watchdog"
    assert waits.folded(thread(TQDM, "tqdm_monitor")) == "progress bar"
    assert waits.folded(thread(f"forward@{SRT}models/llama.py", "Thread-3")) == ""


def test_a_main_thread_that_waits_for_a_thread_is_left_for_it() -> None:
    main = thread(f"Queue.get TpModelWorkerClient.resolve_batch_result {LOOP}")
    worker = thread("LlamaForCausalLM.forward TpModelWorkerClient.forward_thread_func_", "Thread-2")
    other = thread("work@/x/y.py", "Thread-5")
    idle = thread(TQDM, "tqdm_monitor")
    assert waits.thread_of_interest(Dump(1, "py-spy", (idle, worker, main))) == worker
    assert waits.thread_of_interest(Dump(1, "py-spy", (idle, worker, other, main))) == worker
    assert waits.thread_of_interest(Dump(1, "py-spy", (idle, main))) == main
    busy = thread(f"{BARRIER} {CAPTURE}")
    assert waits.thread_of_interest(Dump(1, "py-spy", (worker, busy))) == busy
    assert waits.thread_of_interest(Dump(1, "py-spy", ())) is None


def test_names_without_what_differs_from_run_to_run() -> None:
    assert waits.plain_name("0x7f7cce098e51") == "?"
    assert (
        waits.plain_name("pybind11::cpp_function::initialize<long, std::x>")
        == "pybind11::cpp_function::initialize"
    )
    assert waits.plain_name("f.<locals>.g") == "f.<locals>.g"
    assert waits.plain_name("<module>") == "<module>"


LOCKS = f"{SITE}filelock/_api.py"
UNIX = f"{SITE}filelock/_unix.py"
ENTERED = (f"acquire@{LOCKS}:290", f"__enter__@{LOCKS}:350", "load_cuda_ops")
BATON = f"wait@{SITE}torch/utils/file_baton.py"
# What a library does between two tries is the same wait: it sleeps, opens, asks the file system.
POLLS = (
    (f"acquire@{LOCKS}:300", f"__enter__@{LOCKS}:350", "load_cuda_ops"),
    (f"_acquire@{UNIX}:40", *ENTERED),
    (
        "makedirs@/usr/lib/python3.11/os.py:215",
        f"ensure_directory_exists@{SITE}filelock/_util.py:52",
        f"_acquire@{UNIX}:38",
        *ENTERED,
    ),
)
BATONS = (
    (f"{BATON}:47", "_jit_compile", "load"),
    ("exists@/usr/lib/python3.12/genericpath.py:19", f"{BATON}:46", "_jit_compile", "load"),
)


OTHERS = (
    (
        f"acquire@{SITE}portalocker/utils.py:210",
        f"__enter__@{SITE}portalocker/utils.py:180",
        "build",
    ),
    (
        f"_get_fh@{SITE}portalocker/utils.py:250",
        f"acquire@{SITE}portalocker/utils.py:205",
        f"__enter__@{SITE}portalocker/utils.py:180",
        "build",
    ),
)
NEWER = (  # filelock 4: a helper of its own between two frames that are named like waits
    (f"_poll_until_acquired@{LOCKS}:500", f"acquire@{LOCKS}:400", "load_cuda_ops"),
    (f"_acquire@{UNIX}:40", f"_poll_until_acquired@{LOCKS}:490", f"acquire@{LOCKS}:400", "load_cuda_ops"),
)  # fmt: skip
LOGGED = (
    (f"acquire@{LOCKS}:300", f"__enter__@{LOCKS}:350", "load_cuda_ops"),
    ("debug@/usr/lib/python3.12/logging/__init__.py:1477", *ENTERED),
    ("exists@/usr/lib/python3.14/pathlib/__init__.py:700", *ENTERED),
)


@pytest.mark.parametrize("stacks", [POLLS, BATONS, OTHERS, NEWER, LOGGED])
def test_a_wait_that_polls_for_a_lock_stands_still(stacks: tuple[tuple[str, ...], ...]) -> None:
    made = [lined(*stack) for stack in stacks]
    assert {waits.wait_class(stack) for stack in made} == {"LOCK"}
    assert len({waits.standing(stack) for stack in made}) == 1


def test_another_caller_of_a_lock_is_another_place() -> None:
    first = lined(f"acquire@{LOCKS}:300", "load_cuda_ops@/x/a.py:7")
    then = lined(f"acquire@{LOCKS}:300", "load_cuda_ops@/x/a.py:8")
    assert waits.standing(first) != waits.standing(then)
    # Outside of a wait for a lock a line is a place.
    assert waits.standing(lined("f@/x/a.py:1")) != waits.standing(lined("f@/x/a.py:2"))


def lined(*names: str) -> tuple[Frame, ...]:
    """Frames of ``function@file:line``, leaf first."""
    made = []
    for name in names:
        function, _, place = name.partition("@")
        file, _, line = place.partition(":")
        made.append(Frame(function, file or "/x/model.py", int(line or 1)))
    return tuple(made)


def test_a_hostile_frame_has_a_class_too() -> None:
    stack = (Frame("a" * 100_000, "b" * 100_000), Frame("\x1b[2J\u202e", "", -5), Frame("", ""))
    assert waits.wait_class(stack) == "RUNNING"
