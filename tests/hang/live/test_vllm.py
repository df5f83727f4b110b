"""Attached to real processes that have vLLM's titles and frames."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workbench.hang.attach import attach

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="py-spy needs root to look into another's process"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """A server of two workers, one of them stuck in a capture."""
    command = [sys.executable, "-m", "tests.hang.live.vllm_job", str(tmp_path), "2", "1", "x" * 120]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while not all((tmp_path / f"at-{rank}").exists() for rank in range(2)):
            assert process.poll() is None
            assert time.monotonic() < until, (tmp_path / "server.log").read_text()
            time.sleep(0.05)
        time.sleep(1)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_tree_of_vllm_is_found_and_judged(server: int) -> None:
    found = attach(server, interval=2)
    assert (found.engine, found.version) == ("vllm", "0.11.0")
    assert (found.state, found.phase, found.odd_ranks) == ("hung", "graph_decode", (1,))
    assert found.summary.startswith("vLLM 0.11.0: hung while capturing CUDA graphs: TP1 is apart")
    assert found.experiment is not None
    assert "--enforce-eager" in found.experiment.change
    assert [rank.name for rank in found.ranks] == ["TP0", "TP1"]
