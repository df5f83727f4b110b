"""Jobs and servers that the live tests look at."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import planted
from tests.conftest import ROOT
from tests.planted import no_secret_leaves  # noqa: F401 - a fixture

Job = Callable[..., int]


@pytest.fixture(autouse=True)
def nothing_planted_leaves(no_secret_leaves: None) -> None:  # noqa: F811
    """Search every case for what is planted in the jobs' logs and variables."""


@pytest.fixture(scope="session")
def zygote() -> Iterator[subprocess.Popen[str]]:
    """The program that forks jobs: torch is imported once for all of them."""
    yield from _zygote([])


@pytest.fixture
def container() -> Iterator[subprocess.Popen[str]]:
    """The same, whose processes have pids of their own, as in a container."""
    yield from _zygote(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])


def _zygote(within: list[str]) -> Iterator[subprocess.Popen[str]]:
    # The last argument makes room for the title.
    command = [*within, sys.executable, "-m", "tests.hang_live.ranks", "x" * 120]
    environment = {**os.environ, **planted.VARIABLES, "GLOO_SOCKET_IFNAME": "lo"}
    environment["OMP_NUM_THREADS"] = "1"
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def job(zygote: subprocess.Popen[str], tmp_path: Path) -> Iterator[Job]:
    """Start a job and wait until its ranks are where the scenario puts them."""
    roots = []

    def start_one(scenario: str, world: int, odd: int) -> int:
        roots.append(start(zygote, tmp_path, scenario, world, odd))
        return roots[-1]

    yield start_one
    for root in roots:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(root, signal.SIGKILL)


def start(zygote: subprocess.Popen[str], folder: Path, scenario: str, world: int, odd: int) -> int:
    """Start a job in a folder; return the pid of its parent, as the zygote sees it."""
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    # (The pod's line is a start-up's, too, and would be of another launch.)
    secrets = planted.log(*(kind for kind in planted.LINES if kind != "pod"))
    (folder / "server.log").write_text(secrets + "\n")
    ask = {"scenario": scenario, "world": world, "odd": odd, "folder": str(folder)}
    zygote.stdin.write(json.dumps(ask) + "\n")
    zygote.stdin.flush()
    root = int(zygote.stdout.readline())
    last = "Init torch distributed begin." if scenario == "dies" else "Capture target decode"
    until = time.monotonic() + 60
    log = folder / "server.log"
    while not log.exists() or log.read_text().count(last) < world:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    time.sleep(2.5 if scenario == "idle" else 1.5)
    return root


def state(pid: int) -> str:
    """The state of a process, a letter of /proc."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
