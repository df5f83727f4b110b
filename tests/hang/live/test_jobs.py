"""Attached to real jobs over gloo, the diagnosis names the right rank, or rightly none."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.hang.live.conftest import Job, start, state
from tests.tracing import Tracer
from workbench.errors import WorkbenchError
from workbench.hang.attach import attach, collect
from workbench.hang.collect.collector import find_pyspy, halted
from workbench.hang.judge.diagnose import diagnose
from workbench.hang.read.scene import read_scene

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="py-spy needs root to look into another's process"
)


@pytest.mark.parametrize(("scenario", "world", "odd"), [("sleep", 4, 2), ("skip", 8, 5)])
def test_the_rank_that_is_not_in_the_barrier_is_named(
    job: Job, scenario: str, world: int, odd: int
) -> None:
    root = job(scenario, world, odd)
    found = attach(root, interval=1.5)
    assert (found.state, found.phase, found.odd_ranks) == ("hung", "graph_decode", (odd,))
    assert found.waiting_ranks == tuple(rank for rank in range(world) if rank != odd)
    assert found.wait_class == "HOST_COLL"
    assert found.experiment is not None
    assert state(root) == "S"


def test_a_stopped_rank_is_named_and_stays_stopped(job: Job) -> None:
    root = job("sleep", 4, 1)
    pid = ranks(root)[1]
    os.kill(pid, signal.SIGSTOP)
    found = attach(pid, interval=1.5)
    assert found.state in ("hung", "stopped")
    assert found.odd_ranks == (1,)
    assert state(pid) == "T"
    os.kill(pid, signal.SIGCONT)


def test_a_rank_that_a_profiler_holds_is_not_called_stopped_and_one_of_a_debugger_is_named(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halted, "PATIENCE", 0.7)
    root = job("sleep", 4, 2)
    pid = ranks(root)[0]
    with Tracer(pid, "py-spy") as tracer:
        found = attach(root, interval=1.5)
        assert (found.state, found.odd_ranks, found.ok) == ("cannot_tell", (), None)
        assert f"held by py-spy (pid {tracer.pid}) while it was read" in found.to_text(200)
    with Tracer(pid, "gdb") as tracer:
        found = attach(root, interval=5)
        assert (found.state, found.odd_ranks) == ("stopped", (0,))
        assert f"TP0 is held by gdb (pid {tracer.pid})" in found.verdict.sentence
    assert state(pid) == "S"


def test_a_dead_rank_is_missing_and_the_waiting_are_not_to_blame(job: Job) -> None:
    found = attach(job("dies", 4, 1), interval=1.5)
    assert (found.state, found.missing_ranks, found.odd_ranks) == ("dead_rank", (1,), ())
    assert found.phase == "dist_init"


def test_a_rank_that_is_killed_between_two_snapshots_is_missing_with_its_signal(job: Job) -> None:
    root = job("baton", 4, 0)
    threading.Timer(1.0, os.kill, (ranks(root)[2], signal.SIGKILL)).start()
    found = attach(root, interval=3)
    assert (found.state, found.missing_ranks, found.odd_ranks) == ("dead_rank", (2,), ())
    assert "-9" in found.to_text(200) or "SIGKILL" in found.to_text(200)


def test_a_rank_that_compiles_is_slow_not_hung(job: Job) -> None:
    found = attach(job("compiles", 4, 3), interval=1.5)
    assert (found.state, found.odd_ranks) == ("slow", ())


def test_a_lock_that_a_sleeping_rank_holds_accuses_no_other(job: Job) -> None:
    found = attach(job("lock", 4, 2), interval=1.5)
    assert found.state in ("hung", "cannot_tell")
    assert set(found.odd_ranks) <= {2}


def test_a_lock_that_nobody_holds_has_no_odd_rank(job: Job) -> None:
    found = attach(job("baton", 4, 0), interval=1.5)
    assert (found.state, found.odd_ranks, found.wait_class) == ("hung", (), "LOCK")


def test_a_healthy_idle_job_is_not_a_broadcast_hang(job: Job) -> None:
    root = job("idle", 4, 0)
    for _ in range(4):
        found = attach(root, interval=1.5)
        assert (found.phase, found.odd_ranks) == ("ready", ())
        # On a machine so busy that the loops hardly turn it may say that it cannot tell, nothing worse.
        assert found.state in ("idle", "cannot_tell"), found.to_text(120)
        if found.state == "idle":
            return
    pytest.fail(found.to_text(120))


def test_one_snapshot_never_says_hung(job: Job) -> None:
    found = attach(job("sleep", 4, 2), snapshots=1)
    assert found.state == "cannot_tell"


def test_two_servers_on_one_host_are_listed_and_a_pid_chooses(job: Job, tmp_path: Path) -> None:
    first = job("sleep", 4, 2)
    for file in ("store", "server.log"):
        (tmp_path / file).rename(tmp_path / f"first-{file}")
    second = job("baton", 4, 0)
    with pytest.raises(WorkbenchError, match=r"\d+ SGLang servers") as error:
        attach(interval=0)
    assert str(first) in str(error.value)
    assert str(second) in str(error.value)
    assert attach(ranks(second)[3], interval=1.5).wait_class == "LOCK"


def test_without_pyspy_the_log_and_proc_still_give_phase_and_experiment(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = tmp_path / "py-spy"
    refused.write_text(
        "#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"
    )
    refused.chmod(0o755)
    monkeypatch.setattr(find_pyspy, "candidates", lambda: [str(refused)])
    root = job("sleep", 4, 2)
    found = attach(root, interval=1.5)
    assert found.phase == "graph_decode"
    assert found.odd_ranks == ()
    assert found.experiment is not None
    text = found.to_text(100)
    assert "stacks of 0 of 4" in text
    assert "no permission to read the process" in text


def test_a_server_in_a_container_is_read_from_the_host(
    container: subprocess.Popen[str], tmp_path: Path
) -> None:
    inside = start(container, tmp_path, "sleep", 4, 2)
    found = attach(ranks(container.pid)[1], interval=1.5)
    assert (found.state, found.phase, found.odd_ranks) == ("hung", "graph_decode", (2,))
    assert found.waiting_ranks == (0, 1, 3)
    # The pids of the container say nothing on the host, and the log says nothing of those here.
    assert str(inside) not in {str(rank.pid) for rank in found.ranks}
    assert any("Capture target decode CUDA graph begin" in str(f) for f in found.findings)


def test_a_collected_case_says_what_attach_says(job: Job, tmp_path: Path) -> None:
    root = job("skip", 4, 3)
    case = collect(tmp_path / "case.zip", root, interval=1.5)
    found = diagnose(read_scene(case))
    assert (found.state, found.phase, found.odd_ranks) == ("hung", "graph_decode", (3,))


def ranks(root: int) -> list[int]:
    """The ranks of a job, in their order."""
    from workbench.hang.collect.collector import proc

    processes = proc.everyone()
    titles = {pid: proc.arguments(pid) for pid in proc.family({root}, processes)}
    found = {argv[0]: pid for pid, argv in titles.items() if proc.is_title(argv)}
    return [found[title] for title in sorted(found)]
