"""Attached to a real SGLang on a CPU: idle, stopped, hung, killed; from Python, a notebook, the shell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import environments
from tests.engines.serve import Running, serve
from tests.hang.live.conftest import state
from workbench.errors import WorkbenchError
from workbench.hang.attach import attach, collect
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.read.scene import read_scene

VERSION = "0.5.14"
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not environments.is_ready(f"sglang-{VERSION}"),
        reason="no environment (python -m tests.engines.environments)",
    ),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="py-spy needs root to look into another's process"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all servers: the model is made once."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    """A server of two ranks that serves."""
    with serve(VERSION, folder, tensor_parallel=2) as running:
        running.wait_ready()
        time.sleep(1)
        yield running


def test_a_server_with_nothing_to_do_is_idle(server: Running) -> None:
    found = attach(server.pid, interval=2)
    assert (found.state, found.phase, found.odd_ranks) == ("idle", "ready", ())
    assert found.version == VERSION
    assert found.ok is True
    assert len(found.ranks) == 2


def test_attached_from_a_notebook_kernel(server: Running) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [
        f"import workbench\nfound = workbench.attach({server.pid}, interval=2)\nfound",
        "found.state",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    NotebookClient(notebook, timeout=120).execute()
    view, word = (cell.outputs[-1]["data"] for cell in notebook.cells)
    assert word["text/plain"] == "'idle'"
    assert "idle" in view["text/plain"].lower()


def test_attached_from_the_shell(server: Running) -> None:
    command = [
        sys.executable,
        "-m",
        "workbench.cli",
        "hang",
        str(server.pid),
        "--interval",
        "2",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "idle"


def test_a_stopped_rank_is_named_and_left_stopped(server: Running) -> None:
    pid = server.pids("sglang::scheduler_TP1")["sglang::scheduler_TP1"]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1)
        found = attach(server.pid, interval=2)
        assert found.state in ("hung", "stopped")
        assert found.odd_ranks == (1,)
        assert state(pid) == "T"
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(1)
    assert state(pid) in "RS"


def test_an_unprivileged_user_without_stacks_still_gets_the_phase(server: Running) -> None:
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        case, log = Path(open_to_all) / "case.zip", Path(open_to_all) / "server.log"
        shutil.copy(server.log, log)
        # All is imported first: this Python may lie where another user may not read.
        code = (
            "import os, pynvml, tqdm\n"
            "from workbench.hang.attach import collect\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            f"collect({str(case)!r}, {server.pid}, interval=2, log={str(log)!r})\n"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        found = diagnose(read_scene(case))
    assert found.phase == "ready"
    assert found.odd_ranks == ()
    assert found.state != "hung"
    text = found.to_text(100)
    assert "stacks of 0 of 2" in text
    assert "Run it with sudo" in text or "SYS_PTRACE" in text or "host as root" in text


def test_a_killed_rank_is_dead_and_the_servers_log_is_read_when_all_is_over(
    server: Running,
) -> None:
    pid = server.pids("sglang::scheduler_TP1")["sglang::scheduler_TP1"]
    threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
    found = attach(server.pid, interval=3)
    assert found.state in ("dead_rank", "crashed")
    assert found.odd_ranks == ()
    assert found.missing_ranks in ((1,), (0, 1))  # the server ends itself when it sees one dead
    server.kill()
    with pytest.raises(WorkbenchError, match="no process"):
        attach(server.pid)
    found = diagnose(read_scene(server.log))
    assert found.phase == "ready"
    assert found.odd_ranks == ()


def test_a_rank_stuck_at_the_end_of_its_start(folder: Path, tmp_path: Path) -> None:
    stuck = {"SGLANG_TEST_STUCK_SCHEDULER_INIT": "300"}
    with serve(VERSION, folder, **stuck) as running:
        running.wait_for("max_total_num_tokens=")
        time.sleep(2)
        case = collect(tmp_path / "case.zip", running.pid, interval=2)
    found = diagnose(read_scene(case))
    assert found.state == "hung"
    assert found.odd_ranks == ()
    assert found.phase in ("init_done", "kv_pool", "unknown")
