"""Runs of pytest in forks: torch and pytest are imported once, the workbench in each, from a copy."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# What the tests import that takes long, and is none of ours.
HEAVY = ("pytest", "torch", "numpy", "numba", "safetensors.torch", "hypothesis", "packaging.version",
         "matplotlib.figure", "nbformat", "pandas", "typer", "fsspec", "huggingface_hub",
         "http.server", "multiprocessing.pool", "pytest_timeout", "_hypothesis_pytestplugin")  # fmt: skip
# Copied; everything else in the repository is linked to.
COPIED = ("workbench", "tests")
LEFT_OUT = frozenset({".git", ".venv", "reports", "build", "dist", "mutants"})


def warm() -> None:
    """Import what is heavy, with one thread: a fork inherits no others, and need not copy what is there."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in HEAVY:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    import torch

    torch.set_num_threads(1)
    gc.freeze()


def copy_of(root: Path, place: Path) -> Path:
    """Copy what is mutated and what tests it, with the compiled files, and link to the rest."""
    place.mkdir()
    for path in root.iterdir():
        if path.name in LEFT_OUT:
            continue
        if path.name in COPIED:
            shutil.copytree(path, place / path.name, ignore=shutil.ignore_patterns("*.tmp"))
        else:
            (place / path.name).symlink_to(path)
    return place


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One run of pytest: `prepare` changes the copy and `restore` undoes it.

    ``work`` runs in the fork, in the copy, and returns what is sent back.
    """

    label: Any
    work: Callable[[Path], Any]
    seconds: float
    prepare: Callable[[Path], None] = lambda copy: None
    restore: Callable[[Path], None] = lambda copy: None


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What came of a job: `result` is None where it took too long or died."""

    label: Any
    result: Any
    seconds: float
    timed_out: bool
    output: str


@dataclasses.dataclass(slots=True)
class _Running:
    job: Job
    copy: Path
    pid: int
    begun: float


def run_all(jobs: Sequence[Job], copies: Sequence[Path]) -> Iterator[Done]:
    """Run jobs in forks, as many at a time as there are copies, and yield what comes of each."""
    waiting, free, running = list(jobs), list(copies), {}
    try:
        while waiting or running:
            while waiting and free:
                one = _start(waiting.pop(0), free.pop())
                running[one.pid] = one
            for one in list(running.values()):
                ended = os.waitpid(one.pid, os.WNOHANG)[0] == one.pid
                late = time.monotonic() - one.begun > one.job.seconds
                if not ended and late:
                    os.killpg(one.pid, signal.SIGKILL)
                    os.waitpid(one.pid, 0)
                if ended or late:
                    del running[one.pid]
                    one.job.restore(one.copy)
                    free.append(one.copy)
                    yield _done(one, late and not ended)
            time.sleep(0.01)
    finally:
        for one in running.values():
            os.killpg(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)


def _start(job: Job, copy: Path) -> _Running:
    job.prepare(copy)
    for name in ("result", "output"):
        (copy / f"{name}.tmp").unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        # Both sides do it, so that the group is there whoever comes first.
        _own_group(pid)
        return _Running(job, copy, pid, time.monotonic())
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _own_group(0)
        _work(job, copy)
    finally:
        os._exit(0)


def _own_group(pid: int) -> None:
    try:
        os.setpgid(pid, pid)
    except (PermissionError, ProcessLookupError):
        return


def _work(job: Job, copy: Path) -> None:
    output = os.open(copy / "output.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in [n for n in sys.modules if n.split(".")[0] in COPIED]:
        del sys.modules[name]
    os.chdir(copy)
    sys.path[:] = [str(copy), *(p for p in sys.path if Path(p or ".").resolve() != _root())]
    os.environ |= {
        "PYTHONPATH": str(copy),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(copy.parent),
    }
    tempfile.tempdir = None
    result = job.work(copy)
    (copy / "result.tmp").write_bytes(pickle.dumps(result))


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def _done(one: _Running, timed_out: bool) -> Done:
    result = one.copy / "result.tmp"
    output = one.copy / "output.tmp"
    return Done(
        one.job.label,
        pickle.loads(result.read_bytes()) if result.exists() and not timed_out else None,
        time.monotonic() - one.begun,
        timed_out,
        output.read_text(errors="replace")[-4000:] if output.exists() else "",
    )
