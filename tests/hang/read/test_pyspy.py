"""Stacks as py-spy, SGLang's watchdogs and Python itself write them, and what only looks like them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import WorkbenchError
from workbench.hang.read.pyspy import (
    is_json_dump,
    read_faulthandler,
    read_json,
    read_text,
    read_watchdog,
)
from workbench.hang.records import Dump, Frame

INCIDENT = Path(__file__).resolve().parents[3] / "data" / "incident" / "hang"
DUMPS = sorted(INCIDENT.glob("*/snapshot-*/pyspy-*.json"))


def last(frame: Frame) -> str:
    return frame.function.rpartition(".")[2]


@pytest.mark.parametrize("number", [1, 2])
def test_the_recorded_hang(number: int) -> None:
    folder = INCIDENT / "capture-hang" / f"snapshot-{number}"
    waiting = read_json((folder / "pyspy-2185.json").read_bytes())
    assert waiting.pid == 2185
    assert not waiting.native
    assert waiting.main is not None
    functions = [last(frame) for frame in waiting.main.frames]
    assert functions[0] == "barrier"
    assert {"capture_one", "init_decode_cuda_graph", "run_scheduler_process"} <= set(functions)
    stopped = read_json((folder / "pyspy-2186.json").read_bytes())
    assert stopped.main is not None
    assert (stopped.main.os_id, stopped.main.active, stopped.main.owns_gil) == (2186, False, True)
    native = read_json((folder / "pyspy-native-2185.json").read_bytes())
    assert native.native
    assert native.main is not None
    leaf = native.main.frames[0]
    assert leaf.function == "<libc.so.6>+?"  # an address differs from run to run
    assert leaf.module.endswith("libc.so.6")


def test_every_recorded_dump_is_read_whole() -> None:
    for path in DUMPS[::7]:
        raw = json.loads(path.read_text())
        assert is_json_dump(path.read_bytes()[:4096])
        dump = read_json(path.read_bytes())
        assert [len(t.frames) for t in dump.threads] == [len(t["frames"]) for t in raw]
        assert sum(thread.main for thread in dump.threads) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "[1]",
        "[[]]",
        '[{"frames": 1}]',
        '[{"frames": [1]}]',
        '[{"frames": [{"name": 5}]}]',
        '[{"frames": [], "pid": "7"}]',
        '[{"frames": [], "pid": -7}]',
        '[{"frames": [], "pid": 99999999999999999999999}]',
        "[" * 200_000,
        '[{"frames": [{"name": "a", "line": 1e400}]}]',
    ],
)
def test_what_is_no_dump_is_refused(text: str) -> None:
    with pytest.raises(WorkbenchError):
        read_json(text.encode())


def test_a_hostile_dump_is_bounded_and_printable() -> None:
    frame = {"name": "\x1b[31mevil\u202e", "filename": "/a\nb", "line": -5, "module": None}
    thread = {"pid": 7, "thread_name": "x\x07", "os_thread_id": -1, "frames": [frame] * 5000}
    long = {"pid": 7, "frames": [{"name": "f" * 100_000, "filename": "g" * 100_000}]}
    dump = read_json(json.dumps([thread, long, *[{"frames": []}] * 5000]).encode())
    assert len(dump.threads) == 4096
    assert len(dump.threads[0].frames) == 4096
    shown = dump.threads[0].frames[0]
    assert shown.function.isprintable()
    assert shown.file.isprintable()
    assert shown.line == 0
    assert dump.threads[0].os_id is None
    assert len(dump.threads[1].frames[0].function) <= 400


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["frames", "pid", "name", "line", "thread_name", "active"]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        dump = read_json(json.dumps(value).encode(), 5)
    except WorkbenchError:
        return
    assert isinstance(dump, Dump)


TEXT = """\
Process 4242: sglang::scheduler_TP3                                     \n\
Python v3.12.3 (/usr/bin/python3.12)

Thread 4242 (active+gil): "MainThread"
    GroupCoordinator.barrier (sglang/srt/distributed/parallel_state.py:1234)
    c10d::Work::wait(std::chrono::duration<long>) (libtorch_cpu.so)
    void (anonymous namespace)::spin(int, char const*) (libcuda.so.1)
    0x7f606ce4524a (libc.so.6)
    <lambda> (x (copy).py:3)
        Arguments:
            self: <K at 0x7f606cc6d8d0>
    run_scheduler_process (scheduler.py:3000)
Thread 4300 (idle): "my "odd" (name)"
    wait (threading.py:359)
Thread 0x7F1234567890 (idle)
    poll (zmq.py)
Process 4243: python -m sglang.launch_server --port 1
Python v3.12.3 (/usr/bin/python3.12)

Thread 4243 (idle): "MainThread"
    select (selectors.py:415)
"""


def test_the_text_form() -> None:
    first, second = read_text(TEXT.splitlines())
    assert first.dump.pid == 4242
    assert first.title == "sglang::scheduler_TP3"
    main, named, unnamed = first.dump.threads
    assert main.main
    assert main.owns_gil
    assert main.active
    assert [frame.function for frame in main.frames] == [
        "GroupCoordinator.barrier",
        "c10d::Work::wait(std::chrono::duration<long>)",
        "void (anonymous namespace)::spin(int, char const*)",
        "<libc.so.6>+?",
        "<lambda> (x",
        "run_scheduler_process",
    ]
    assert main.frames[0] == Frame(
        "GroupCoordinator.barrier", "sglang/srt/distributed/parallel_state.py", 1234
    )
    assert main.frames[2].module == "libcuda.so.1"
    assert named.name == 'my "odd" (name)'
    assert (unnamed.name, unnamed.os_id) == ("", None)
    assert unnamed.frames[0] == Frame("poll", "zmq.py", 0)
    assert first.dump.native
    assert (second.dump.pid, second.dump.native) == (4243, False)


def dumped(process: subprocess.Popen[str], *options: str) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("py-spy"), "dump", *options, "--pid", str(process.pid)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "ermission" in done.stderr or "EPERM" in done.stderr:
        pytest.skip("py-spy may not trace here")
    return done.stdout


def shape(dump: Dump) -> list[object]:
    return sorted(
        (t.name, t.main, [(f.function, Path(f.file).name, f.line) for f in t.frames])
        for t in dump.threads
    )


def test_py_spy_itself_in_both_forms(tmp_path: Path) -> None:
    """The same process, dumped by the real py-spy as JSON and as text, reads the same."""
    script = tmp_path / "sleeper.py"
    script.write_text(
        "import threading, time\n"
        "def inner():\n    time.sleep(60)\n"
        "threading.Thread(target=inner, name='a \"b\" (c)', daemon=True).start()\n"
        "print('up', flush=True)\n"
        "inner()\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for _ in range(20):  # until both threads have come to their sleep
            by_json = read_json(dumped(process, "--json").encode(), process.pid)
            texts = read_text(dumped(process).splitlines())
            asleep = [[last(frame) for frame in thread.frames[:1]] for thread in by_json.threads]
            if asleep == [["inner"]] * 2 and texts and shape(texts[0].dump) == shape(by_json):
                break
    finally:
        process.kill()
        process.wait()
    assert [one.dump.pid for one in texts] == [by_json.pid] == [process.pid]
    assert texts[0].title.endswith("sleeper.py")
    assert shape(texts[0].dump) == shape(by_json)
    assert {thread.name for thread in by_json.threads} == {"MainThread", 'a "b" (c)'}


def log_of(form: str) -> list[str]:
    dump = TEXT.partition("Process 4243")[0]
    return [
        "[2026-11-29 18:30:00 TP3] Load weight begin. avail mem=1.00 GB",
        f"[2026-11-29 18:40:00 TP3] Pyspy dump for PID 4242{form}:",
        *dump.splitlines(),
        "",
        "[2026-11-29 18:40:01 TP3] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)",
    ]


@pytest.mark.parametrize("form", ["", " (py-spy dump --native --pid 4242)"])
def test_dumps_of_both_forms_of_the_watchdog(form: str) -> None:
    (one,) = read_watchdog(log_of(form))
    assert one.dump.source == "watchdog"
    assert one.prefix == "TP3"
    assert one.title == "sglang::scheduler_TP3"
    assert one.line == 1
    assert len(one.dump.threads) == 3
    assert one.dump.main is not None


def test_failures_of_the_watchdogs_py_spy() -> None:
    found = read_watchdog(
        [
            "[2026-11-29 18:40:00 TP0] Pyspy failed to dump PID 7. Error: /bin/sh: py-spy: command not found",
            "[2026-11-29 18:40:00 TP1] Pyspy failed (py-spy dump --native --pid 8). Error: Error: Permission"
            " Denied: Try running again",
            "[2026-11-29 18:40:00 TP1] Pyspy failed (py-spy). Error: x",
        ]
    )
    assert [(f.dump.pid, f.prefix, f.dump.refusal) for f in found] == [
        (7, "TP0", "py-spy was not found"),
        (8, "TP1", "no permission to read the process"),
    ]
    assert all(f.dump.remedy and not f.dump.threads for f in found)


def test_what_a_prompt_says_is_no_dump() -> None:
    assert read_watchdog(["Pyspy dump for PID 7:", "nothing", "of", "it", "at all"]) == []
    assert read_watchdog(["Pyspy dump for PID 7:", "Process 8: other", "Thread 8 (idle)"]) == []
    assert read_text(["Processes 5: x", "Process x: y"]) == []


def test_python_itself_printing_its_stacks() -> None:
    code = (
        "import faulthandler, os, threading\n"
        "faulthandler.enable()\n"
        "lock = threading.Lock(); lock.acquire()\n"
        "def wait_for_ever():\n    lock.acquire()\n"
        "threading.Thread(target=wait_for_ever, daemon=True).start()\n"
        "def run_scheduler_process():\n    os.abort()\n"
        "run_scheduler_process()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -6
    (one,) = read_faulthandler(done.stderr.splitlines())
    assert one.title == "Aborted"
    assert one.dump.source == "faulthandler"
    assert len(one.dump.threads) == 2
    main = one.dump.main
    assert main is not None
    assert [frame.function for frame in main.frames] == ["run_scheduler_process", "<module>"]
    other = next(thread for thread in one.dump.threads if not thread.main)
    assert other.frames[0].function == "wait_for_ever"


def test_two_processes_that_print_at_once_are_not_mixed_up() -> None:
    block = [
        "Fatal Python error: Aborted",
        "",
        "Thread 0x00007fd5 (most recent call first):",
        '  File "/x/threading.py", line 5 in wait',
        "[2026-11-29 18:40:00] a line of somebody else",
        '  File "/x/threading.py", line 982 in run',
        "",
        "Current thread 0x00007fd6 (most recent call first):",
        '  File "/x/sglang/srt/managers/scheduler.py", line 7 in run_scheduler_process',
        "  ...",
        "Extension modules: numpy.core (total: 1)",
    ]
    found = read_faulthandler([*block, "noise", *block])
    assert [one.dump.pid for one in found] == [-1, -2]
    assert [len(one.dump.threads) for one in found] == [2, 2]
    assert [f.line for f in found[0].dump.threads[0].frames] == [5, 982]
    assert read_faulthandler(["Thread 0x01 (most recent call first):", "x"]) == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [*TEXT.splitlines(), *log_of(""), "Fatal Python error: Aborted", "", "    x ("]
        )
        | st.text(max_size=30),
        max_size=60,
    )
)
def test_lines_in_any_order_are_read(lines: list[str]) -> None:
    for one in (*read_text(lines), *read_watchdog(lines), *read_faulthandler(lines)):
        assert one.line < len(lines)


def test_long_lines_cost_no_more_than_their_length() -> None:
    for unit in (
        "    a (",
        "(",
        ")",
        " (x:1)",
        'Thread 1 (idle): "',
        "Pyspy dump for PID 7 (",
        '  File "',
    ):
        lines = ["Process 7: x", 'Thread 7 (idle): "MainThread"', "    " + unit * 50_000]
        read_text(lines)
        read_watchdog(lines)
        read_faulthandler(["Current thread 0x1 (most recent call first):", unit * 50_000])
