"""Which processes are a server's, and what /proc says of them; on processes made for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.hang.collect.collector import logs, proc, servers
from workbench.hang.collect.collector.ports import is_open

TITLES = {
    "sglang::scheduler": "scheduler",
    "sglang::scheduler_TP0": "scheduler",
    "sglang::scheduler_DP1_PP0_ATTN_CP1_MOE_DP0_TP3_EP3": "scheduler",
    "sglang::scheduler_None": "scheduler",
    "sgl_diffusion::scheduler_0": "scheduler",
    "sglang::detokenizer": "detokenizer",
    "sglang::tokenizer_worker:4711": "tokenizer",
    "sglang::data_parallel_controller": "controller",
}


@pytest.mark.parametrize("title", TITLES)
def test_titles_are_recognised_whatever_pads_them(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for padding in ("", " " * 40, "\0" * 40, "\0"):
        monkeypatch.setattr(proc, "read", lambda pid, name, p=padding: title + p)
        argv = proc.arguments(1)
        assert argv == [title]
        assert proc.is_title(argv)
        assert servers.role(1, argv, (1,)) == TITLES[title]


@pytest.mark.parametrize(
    ("line", "launch"),
    [
        ("python3 -m sglang.launch_server --model-path x", True),
        ("/opt/venv/bin/python3.12 -u -m sglang.launch_server", True),
        ("/usr/bin/python3 /usr/local/bin/sglang serve --model-path x", True),
        ("python /sgl-workspace/sglang/python/sglang/launch_server.py --tp 8", True),
        ("bash -c python3 -m sglang.launch_server", False),
        ("timeout 600 python3 -m sglang.launch_server", False),
        ("vim launch_server.py", False),
        ("grep sglang.launch_server", False),
        ("python3 -m workbench.cli hang sglang.launch_server", False),
        ("python3 -m pytest sglang", False),
        ("", False),
    ],
)
def test_a_launch_is_told_from_what_only_names_one(line: str, launch: bool) -> None:
    assert servers.is_launch(line.split()) is launch


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9)", "spawned"),
        ("python3 -c from multiprocessing.resource_tracker import main;main(6)", "bystander"),
        ("python3 /x/torch/_inductor/compile_worker/__main__.py --pickler=…", "bystander"),
        ("/usr/local/cuda/bin/nvcc -c x.cu", "compiler"),
        ("ninja -v", "compiler"),
        ("tee server.log", "other"),
    ],
)  # fmt: skip
def test_other_children_have_their_roles(line: str, role: str) -> None:
    assert servers.role(5, line.split(), (1,)) == role


def stat(parent: int, session: int = 1) -> proc.Stat:
    return proc.Stat("S", parent, session, 0, 0, 1, 100, 0)


def world(
    monkeypatch: pytest.MonkeyPatch, table: dict[int, tuple[int, str]]
) -> dict[int, proc.Stat]:
    """A host with these processes: pid to parent and command line."""
    monkeypatch.setattr(servers.proc, "arguments", lambda pid: table[pid][1].split())
    return {pid: stat(parent, session=pid // 100) for pid, (parent, _) in table.items()}


LAUNCH = "python3 -m sglang.launch_server"
ONE = {
    1: (0, "init"),
    100: (1, "bash"),
    101: (100, LAUNCH + " --port 30000"),
    102: (101, "sglang::scheduler_TP0"),
    103: (101, "sglang::scheduler_TP1"),
    104: (103, "ninja -v"),
    105: (101, "sglang::data_parallel_controller"),
    106: (105, "sglang::scheduler_DP1_TP0"),
}


@pytest.mark.parametrize("pid", [None, 1, 100, 101, 103, 104, 106])
def test_any_pid_of_the_tree_leads_to_its_server(
    pid: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert servers.choose(pid, world(monkeypatch, ONE)).roots == (101,)


def test_two_servers_are_told_apart_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ONE | {
        200: (1, LAUNCH + " --port 31000"),
        201: (200, "sglang::scheduler"),
        300: (1, "top"),
    }
    processes = world(monkeypatch, table)
    with pytest.raises(servers.CollectError, match="2 SGLang servers") as error:
        servers.choose(None, processes)
    assert "pid 101 (--port 30000)" in str(error.value)
    assert "pid 200 (--port 31000)" in str(error.value)
    assert servers.choose(201, processes).roots == (200,)
    with pytest.raises(servers.CollectError, match="started 2"):
        servers.choose(1, processes)
    with pytest.raises(servers.CollectError, match="belongs to no SGLang or vLLM server"):
        servers.choose(300, processes)
    with pytest.raises(servers.CollectError, match="there is no process 999"):
        servers.choose(999, processes)


def test_an_engine_in_a_program_of_the_users_has_that_program_as_its_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = {1: (0, "init"), 50: (1, "python3 mine.py"), 51: (50, "sglang::scheduler")}
    assert servers.choose(None, world(monkeypatch, table)).roots == (50,)


def test_ranks_that_lost_their_parent_are_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {1: (0, "init"), 151: (1, "sglang::scheduler_TP0"), 152: (1, "sglang::scheduler_TP1")}
    assert servers.choose(152, world(monkeypatch, table)).roots == (151, 152)


def test_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        servers.CollectError, match="there is no SGLang or vLLM server running here"
    ):
        servers.choose(None, world(monkeypatch, {1: (0, "init")}))


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a log, an open lock file, a child called ninja and a zombie."""
    (tmp_path / "ninja").symlink_to("/bin/sleep")
    code = f"""
import os, subprocess, sys, time
lock = open({str(tmp_path / "kernels.lock")!r}, "w")
subprocess.Popen([{str(tmp_path / "ninja")!r}, "60"])
if os.fork() == 0:
    os._exit(7)
print("up", flush=True)
time.sleep(60)
"""
    environment = {**os.environ, "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_secret"}
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    until = time.monotonic() + 60
    while not _asleep(process.pid):
        assert time.monotonic() < until
        time.sleep(0.02)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _asleep(pid: int) -> bool:
    """Whether the process sleeps, its compiler runs, and its other child has ended."""
    processes = proc.everyone()
    found = proc.facts(pid, processes)
    ended = any(processes[one].state == "Z" for one in proc.family({pid}, processes))
    return (found["thread_states"], found["compilers"], ended) == ({"S": 1}, ["ninja"], True)


def test_what_proc_says_of_a_process(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    processes = proc.everyone()
    found = proc.facts(child.pid, processes)
    assert found["status"] == "S"
    assert found["ppid"] == os.getpid()
    assert found["threads"] == 1
    assert found["thread_states"] == {"S": 1}
    assert found["compilers"] == ["ninja"]
    assert found["lock_files"] == [str(tmp_path / "kernels.lock")]
    assert abs(found["started"] - time.time()) < 120
    assert found["read_bytes"] > 0
    assert found["argv"][0] == sys.executable
    assert proc.environment(child.pid)["NCCL_DEBUG"] == "INFO"
    zombies = [pid for pid in proc.family({child.pid}, processes) if processes[pid].state == "Z"]
    assert [proc.facts(pid, processes)["exit_code"] for pid in zombies] == [7]


def test_a_stopped_process_is_in_state_t(child: subprocess.Popen[bytes]) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    while proc.facts(child.pid, proc.everyone())["thread_states"] != {"T": 1}:
        time.sleep(0.01)
    assert proc.facts(child.pid, proc.everyone())["status"] == "T"


def test_a_process_that_is_gone_gives_nothing() -> None:
    assert proc.facts(2**22 - 3, {}) == {}
    assert proc.stat(2**22 - 3) is None
    assert proc.open_files(2**22 - 3) == {}


def test_the_log_is_found_among_the_open_files(
    child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    files, why = logs.find([child.pid], (child.pid,), proc.everyone())
    assert why == ""
    assert [(file.name, file.pids) for file in files] == [("server.log", (child.pid,))]
    (tmp_path / "server.log").unlink()  # rotated away: it is still read
    files, _ = logs.find([child.pid], (child.pid,), proc.everyone())
    assert [file.name for file in files] == ["server.log"]
    assert Path(files[0].path).read_bytes() == b"up\n"


def test_a_log_behind_a_pipe_is_found_at_its_reader(tmp_path: Path) -> None:
    line = f"{sys.executable} -c 'import time; print(1, flush=True); time.sleep(60)' | tee {tmp_path}/out.log"
    with subprocess.Popen(
        ["bash", "-c", line],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell:
        try:
            while not (tmp_path / "out.log").exists() or not (tmp_path / "out.log").read_bytes():
                time.sleep(0.02)
            processes = proc.everyone()
            writers = [
                p for p in proc.family({shell.pid}, processes) if "-c" in proc.arguments(p)[1:2]
            ]
            server = [p for p in writers if p != shell.pid]
            files, why = logs.find(server, tuple(server), processes)
            assert [file.name for file in files] == ["out.log"], why
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_no_log_says_where_the_output_goes() -> None:
    with subprocess.Popen(
        ["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        files, why = logs.find([process.pid], (process.pid,), proc.everyone())
        process.kill()
    assert files == []
    assert "/dev/null" in why


def test_the_port_is_looked_up_in_the_servers_own_table() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_open(os.getpid(), ["x", "--port", str(port)]) is True
    assert is_open(os.getpid(), ["x", f"--port={port}"]) is False
