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
from tests.hang.live.ranks import LOOPS
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
    command = [*within, sys.executable, "-m", "tests.hang.live.ranks", "x" * 120]
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
    while not (_serves(log) if scenario in LOOPS else _waits(zygote.pid)):
        assert time.monotonic() < until, log.read_text()
    return root


def _serves(log: Path) -> bool:
    time.sleep(0.05)
    return "fired up" in log.read_text()


def _waits(zygote: int) -> bool:
    """Whether every process below the zygote sleeps, stays asleep and uses no CPU time to speak of."""
    before, after = (_below(zygote, pause) for pause in (0.0, 0.5))
    asleep = all(state in "SZT" for state, _ in after.values())
    used = max((after[pid][1] - before.get(pid, ("", 0))[1] for pid in after), default=0)
    return asleep and before.keys() == after.keys() and used <= 5


def _below(zygote: int, pause: float) -> dict[int, tuple[str, int]]:
    """State and CPU ticks of each process below another, after a pause."""
    time.sleep(pause)
    found: dict[int, tuple[int, str, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            found[int(path.parent.name)] = (int(fields[1]), fields[0], ticks)
    below = {zygote}
    while more := {pid for pid, (parent, _, _) in found.items() if parent in below} - below:
        below |= more
    return {pid: found[pid][1:] for pid in below if pid in found}


def state(pid: int) -> str:
    """The state of a process, a letter of /proc."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
