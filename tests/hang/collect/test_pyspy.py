"""py-spy is run for a bounded time, tried again where that helps, and its refusals are told truthfully."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workbench.hang.collect.collector import proc, pyspy
from workbench.hang.collect.collector.pyspy import PySpy
from workbench.hang.collect.collector.refusals import Place, translate

HOST = Place(root=True, sys_ptrace=True, container="", ptrace_scope=0)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="py-spy needs root for another's process")


@pytest.fixture
def target() -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that sleeps in a function called `waits`."""
    code = "import time\ndef waits():\n    print(1, flush=True)\n    time.sleep(60)\nwaits()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


Fake = Callable[[str], str]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """A stand-in for py-spy that runs a shell script; it counts its calls in the file `calls`."""

    def write(script: str) -> str:
        path = tmp_path / "py-spy"
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
        path.chmod(0o755)
        return str(path)

    return write


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


# What py-spy 0.4 writes, and what it means (state and tracer as /proc has them afterwards).
NO_EXECUTABLE = (
    "Error: Failed to get process executable name. Check that the process is running.\n"
    "Reason: {0}\nReason: {0}"
)
DENIED = NO_EXECUTABLE.format("Permission denied (os error 13)")
ABSENT = NO_EXECUTABLE.format("No such file or directory (os error 2)")
NOT_ROOT = "Permission Denied: Try running again with elevated permissions by going 'sudo env …'"
SUSPEND = "Error: Failed to suspend process\nReason: EPERM: Operation not permitted"


@pytest.mark.parametrize(
    ("error", "place", "state", "tracer", "refusal", "remedy"),
    [
        (NOT_ROOT, Place(False, False, "", 1), "S", 0, "no permission", "ptrace_scope=0"),
        (NOT_ROOT, Place(False, False, "", None), "S", 0, "no permission", "Run it with sudo."),
        (NOT_ROOT, Place(False, False, "", 2), "S", 0, "no permission", "Run it with sudo."),
        (DENIED, Place(True, False, "docker", 1), "S", 0, "no permission", "--cap-add SYS_PTRACE"),
        (DENIED, Place(True, False, "kubernetes", 1), "S", 0, "no permission", "securityContext"),
        (DENIED, Place(True, False, "", 1), "S", 0, "no permission", "lacks the capability SYS_PTRACE"),
        (DENIED, Place(True, True, "", 3), "S", 0, "no permission", "ptrace_scope is 3"),
        (DENIED, HOST, "S", 0, "no permission", "seccomp"),
        (ABSENT, HOST, "", 0, "ended", ""),
        (ABSENT, HOST, "Z", 0, "zombie", ""),
        (SUSPEND, HOST, "t", 812, "traced by another program (pid 812)", "pid 812"),
        (SUSPEND, Place(True, False, "docker", 1), "S", 0, "may not be traced", "--cap-add"),
        ("Failed to find python version from target process", HOST, "S", 0, "not a Python", ""),
        ("Unsupported version of Python: 3.99", HOST, "S", 0, "does not know", "newer py-spy"),
        ("unexpected waitpid result PtraceEvent(Pid(7), SIGSTOP, 128)", HOST, "T", 0, "stopped", "--nonbl"),
        ("Failed to merge native and python frames", HOST, "S", 0, "could not match", "native"),
        ("thread 'main' panicked at src/x.rs", HOST, "S", 0, "py-spy failed: thread 'main'", ""),
        ("", HOST, "S", 0, "it wrote nothing", ""),
    ],
)  # fmt: skip
def test_a_refusal_is_translated_truthfully(
    error: str, place: Place, state: str, tracer: int, refusal: str, remedy: str
) -> None:
    what, do = translate(error, place, state=state, tracer=tracer)
    assert refusal in what
    assert remedy in do
    if "ermission" in error or "EPERM" in error:
        assert "ended" not in what  # EACCES is not "gone"


@needs_root
def test_a_dump_has_the_frames_and_leaves_the_process_running(
    target: subprocess.Popen[bytes],
) -> None:
    taken = PySpy().dump(target.pid)
    assert taken.data is not None
    (thread,) = json.loads(taken.data)
    assert [frame["name"] for frame in thread["frames"]] == ["waits", "<module>"]
    assert taken.record["exit"] == 0
    assert taken.record["nonblocking"] is False
    assert target.poll() is None
    assert proc.tracer(target.pid) == 0


@needs_root
def test_a_stopped_process_is_read_without_a_pause_and_stays_stopped(
    target: subprocess.Popen[bytes],
) -> None:
    os.kill(target.pid, signal.SIGSTOP)
    while pyspy._state(target.pid) != "T":
        time.sleep(0.01)
    taken = PySpy().dump(target.pid)
    assert taken.data is not None
    assert taken.record["nonblocking"] is True
    assert pyspy._state(target.pid) == "T"
    assert "no native frames" in PySpy().dump(target.pid, native=True).record["refusal"]


@needs_root
def test_what_is_no_python_program_says_so() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        taken = PySpy().dump(process.pid)
        process.kill()
    assert taken.data is None
    assert taken.record["refusal"] == "not a Python program"


def test_a_zombie_and_a_process_that_is_gone_are_not_called_refused() -> None:
    with subprocess.Popen(["true"]) as process:
        while pyspy._state(process.pid) != "Z":
            time.sleep(0.01)
        assert "zombie" in PySpy(sys.executable).dump(process.pid).record["refusal"]
    assert "ended" in PySpy(sys.executable).dump(process.pid).record["refusal"]


def test_without_pyspy_there_are_no_stacks_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy.find_pyspy, "candidates", list)
    taken = PySpy().dump(os.getpid())
    assert taken.data is None
    assert taken.record["refusal"] == "py-spy is not installed here"
    assert taken.record["remedy"] == "Install it: pip install py-spy."


def test_one_that_overruns_is_killed_and_the_process_let_run_on(
    target: subprocess.Popen[bytes], fake: Fake
) -> None:
    # As a py-spy that is killed between the signal and the attachment: the process stays stopped.
    program = fake(f"kill -STOP {target.pid}; exec sleep 60")
    began = time.monotonic()
    taken = PySpy(program, timeout=0.7).dump(target.pid)
    assert time.monotonic() - began < 10
    assert taken.data is None
    assert taken.record["refusal"] == "py-spy did not end within 0.7 s and was killed"
    assert taken.record["resumed"] is True
    while pyspy._state(target.pid) not in "RS":
        time.sleep(0.01)


def test_a_process_that_was_stopped_before_is_not_resumed(
    target: subprocess.Popen[bytes], fake: Fake
) -> None:
    os.kill(target.pid, signal.SIGSTOP)
    while pyspy._state(target.pid) != "T":
        time.sleep(0.01)
    taken = PySpy(fake("exec sleep 60"), timeout=0.3).dump(target.pid)
    assert "resumed" not in taken.record
    assert pyspy._state(target.pid) == "T"


def test_a_traced_process_is_tried_again_then_read_without_a_pause(
    target: subprocess.Popen[bytes], fake: Fake, tmp_path: Path
) -> None:
    program = fake(
        f"case \"$*\" in *nonblocking*) echo '[]';; *) echo '{SUSPEND}' >&2; exit 1;; esac"
    )
    taken = PySpy(program).dump(target.pid)
    assert taken.data == b"[]\n"
    assert taken.record["nonblocking"] is True
    assert ["nonblocking" in call for call in calls(tmp_path)] == [False, False, False, True]


@pytest.mark.parametrize(
    "text",
    ["Failed to find a python interpreter in the .data section", "Failed to get stack traces"],
)
def test_the_error_of_a_busy_machine_is_tried_again(
    text: str, target: subprocess.Popen[bytes], fake: Fake, tmp_path: Path
) -> None:
    program = fake(
        f"[ $(wc -l < {tmp_path}/calls) -ge 2 ] && echo '[]' || {{ echo '{text}' >&2; exit 1; }}"
    )
    assert PySpy(program).dump(target.pid).data == b"[]\n"
    assert len(calls(tmp_path)) == 2


def test_other_errors_are_not_tried_again(
    target: subprocess.Popen[bytes], fake: Fake, tmp_path: Path
) -> None:
    taken = PySpy(fake(f"echo '{NOT_ROOT}' >&2; exit 1")).dump(target.pid)
    assert taken.record["exit"] == 1
    assert taken.record["refusal"] == "no permission to read the process"
    assert taken.record["remedy"]
    assert len(calls(tmp_path)) == 1


def test_no_more_dumps_at_a_time_than_processors_and_the_rest_beside_them(
    target: subprocess.Popen[bytes], fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspy.os, "sched_getaffinity", lambda pid: {0, 1})
    # Each says how many run, itself among them, while it runs.
    spy = PySpy(
        fake(f"cd {tmp_path}; touch run-$$; ls run-* | wc -l >> most; sleep 0.1; rm run-$$")
    )
    looking: set[int] = set()
    most = 0

    def look(number: int) -> None:
        nonlocal most
        looking.add(number)
        most = max(most, len(looking))
        assert spy.dump(target.pid).record["exit"] == 0
        looking.remove(number)

    spy.each(look, list(range(6)))
    assert max(int(line) for line in (tmp_path / "most").read_text().split()) == 2
    assert len(calls(tmp_path)) == 6
    assert 2 < most <= 4


def test_an_interrupt_ends_what_runs_and_begins_no_other(
    target: subprocess.Popen[bytes], fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pyspy.os, "sched_getaffinity", lambda pid: {0})
    spy = PySpy(fake("exec sleep 60"))

    def interrupted(futures: object) -> Iterator[object]:
        while not spy._running:
            time.sleep(0.01)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(pyspy, "as_completed", interrupted)
    taken: list[pyspy.Taken] = []
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        spy.each(lambda pid: taken.append(spy.dump(pid)), [target.pid] * 3)
    assert time.monotonic() - began < 20
    assert [one.data for one in taken] == [None] * 3
    assert [one.record["refusal"] for one in taken].count("interrupted before it was dumped") == 2
    assert not spy._running


def test_what_goes_wrong_in_a_look_is_raised_and_ends_the_others(
    target: subprocess.Popen[bytes], fake: Fake
) -> None:
    spy = PySpy(fake("exec sleep 60"))
    taken: list[pyspy.Taken] = []

    def look(pid: int) -> None:
        if not pid:
            while not spy._running:
                time.sleep(0.01)
            raise OSError("the disk is full")
        taken.append(spy.dump(pid))

    with pytest.raises(OSError, match="full"):
        spy.each(look, [target.pid, 0])
    assert taken[0].record["exit"] == -signal.SIGKILL  # and not for having taken too long


STARTS_A_CHILD = """
import os, sys
from_nobody = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
print("now", flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=from_nobody)
"""


@needs_root
def test_a_process_that_cannot_be_interrupted_is_read_without_a_pause(tmp_path: Path) -> None:
    """Its child waits for a pipe before it is executed, so the process itself is in state D."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", STARTS_A_CHILD, str(pipe)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            until = time.monotonic() + 20
            while not proc.uninterruptible(process.pid) and time.monotonic() < until:
                time.sleep(0.02)
            assert proc.uninterruptible(process.pid) == {str(process.pid)}
            taken = PySpy(timeout=15).dump(process.pid)
            assert taken.record["nonblocking"] is True
            assert taken.data is not None
            assert b"<module>" in taken.data
            assert "no native frames" in PySpy().dump(process.pid, native=True).record["refusal"]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert proc.uninterruptible(process.pid) == set()
