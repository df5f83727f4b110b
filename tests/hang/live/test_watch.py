"""The watch next to real jobs: it records a stop by itself, and a healthy server not at all."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.hang.live.conftest import Job
from workbench.hang.open_evidence import open_evidence
from workbench.hang.watch.records import Watched
from workbench.hang.watch.watching import watch

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="py-spy needs root to look into another's process"
)


class Watching:
    """A watch in a thread; it ends with its server."""

    def __init__(self, root: int, out: Path, **options: float) -> None:
        self.root, self.out = root, out
        self.found: list[Watched] = []

        def run() -> None:
            self.found.append(watch(root, out=out, after=2.5, interval=1.5, **options))  # type: ignore[arg-type]

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def end(self) -> Watched:
        """Kill the server, and return what the watch did."""
        os.killpg(self.root, signal.SIGKILL)
        self._thread.join(30)
        return self.found[0]


def wait_for(what: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def test_a_server_that_stops_in_a_batch_is_recorded_once(job: Job, tmp_path: Path) -> None:
    root = job("serves", 2, 1)
    watching = Watching(root, tmp_path / "cases")
    time.sleep(4)
    assert list((tmp_path / "cases").iterdir()) == []
    (tmp_path / "hang").touch()
    case = tmp_path / "cases" / "case-000001.zip"
    assert wait_for(case.exists, 20), watching.end()
    time.sleep(4)  # it is still hung, and that is recorded already
    found = watching.end()
    assert [one.path for one in found.cases] == [case]
    assert "no batch ends" in found.cases[0].reason
    assert found.progress
    assert stat.S_IMODE(case.parent.stat().st_mode) == 0o700
    diagnosis = open_evidence(case)
    assert (diagnosis.state, diagnosis.odd_ranks) == ("hung", (1,)), diagnosis.to_text(120)


def test_an_idle_server_is_not_recorded_whatever_its_clock_does(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching(job("idle", 2, 0), tmp_path / "cases")
    time.sleep(2)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    time.sleep(2)
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    time.sleep(3)
    found = watching.end()
    assert (found.cases, found.notes) == ((), ())
    assert found.ok is True


def test_a_hung_start_up_is_recorded(job: Job, tmp_path: Path) -> None:
    watching = Watching(job("sleep", 2, 1), tmp_path / "cases")
    case = tmp_path / "cases" / "case-000001.zip"
    assert wait_for(case.exists, 20)
    found = watching.end()
    assert "start-up: no new step, after: graph_decode (begin)" in found.cases[0].reason
    assert found.cases[0].ok is False


def test_a_compilation_is_a_start_up_that_gets_on(job: Job, tmp_path: Path) -> None:
    watching = Watching(job("compiles", 2, 1), tmp_path / "cases")
    time.sleep(5)
    assert watching.end().cases == ()


def test_a_stopped_rank_of_an_idle_server_is_recorded_and_stays_stopped(
    job: Job, tmp_path: Path
) -> None:
    from tests.hang.live.test_jobs import ranks

    root = job("idle", 2, 0)
    pid = ranks(root)[1]
    watching = Watching(root, tmp_path / "cases")
    time.sleep(2)
    os.kill(pid, signal.SIGSTOP)
    assert wait_for((tmp_path / "cases" / "case-000001.zip").exists, 20)
    found = watching.end()
    assert f"TP1 (pid {pid}) is stopped" in found.cases[0].reason


def test_a_rank_that_is_killed_is_recorded_while_the_others_live(job: Job, tmp_path: Path) -> None:
    from tests.hang.live.test_jobs import ranks

    root = job("serves", 2, 1)
    watching = Watching(root, tmp_path / "cases")
    time.sleep(2)
    os.kill(ranks(root)[1], signal.SIGKILL)
    assert wait_for((tmp_path / "cases" / "case-000001.zip").exists, 20)
    found = watching.end()
    assert len(found.cases) == 1
    assert re.search(r"\bTP1 \(pid \d+\) ha(s|ve) ended", found.cases[0].reason)
    assert found.cases[0].ok is False


def test_the_command_ends_on_sigterm_and_says_what_it_cost(job: Job, tmp_path: Path) -> None:
    root = job("idle", 2, 0)
    words = ["watch", str(root), "-o", str(tmp_path / "cases"), "--after", "60"]
    with subprocess.Popen(
        [sys.executable, "-m", "workbench.cli", *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any("idle: the loops of all ranks turn" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0, out + err
    assert re.match(r"watched for \d+ s with \d+\.\d\d % of one core\n$", out)
    assert list((tmp_path / "cases").iterdir()) == []
