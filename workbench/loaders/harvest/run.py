"""The script that the engine's Python runs: one JSON object a class on standard output.

    python run.py [CLASS ...]

Each class runs in a fork of its own, as many at a time as HARVEST_JOBS says: a crash or a hang costs one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT = 240  # seconds of processor time a class


def package(name: str, folder: Path) -> None:
    """Let the files of a folder import each other, and keep the folder itself off sys.path."""
    made = types.ModuleType(name)
    made.__path__ = [str(folder)]
    sys.modules[name] = made


def prepare(names: Sequence[str] = ()) -> tuple[Any, Any, dict[str, Any], dict[str, str]]:
    """Start the engine; return the module that makes maps, the watch, the classes, and failed modules."""
    for name, value in {
        "SGLANG_USE_CPU_ENGINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore")
    package("workbench_harvest", HERE)
    package("workbench_tracer", HERE.parent / "tracer")
    standins = importlib.import_module("workbench_harvest.standins")
    standins.install()
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    engine = importlib.import_module("workbench_harvest.engine")
    found, errors = engine.registry(names)
    engine.start(tempfile.mkdtemp(prefix="harvest-"))
    standins.simplify()
    watch = importlib.import_module("workbench_tracer.watch")
    return importlib.import_module("workbench_harvest.class_map"), watch, found, errors


@dataclasses.dataclass
class Fork:
    """A function on its way in a process of its own."""

    pid: int
    folder: tempfile.TemporaryDirectory[str]
    start: float

    def result(self, status: int) -> dict[str, Any]:
        """Return what the function returned, or why there is nothing; the process has ended."""
        file = Path(self.folder.name, "result")
        made = json.loads(file.read_text()) if file.exists() else {"why": f"stopped: {status}"}
        self.folder.cleanup()
        made["seconds"] = round(time.monotonic() - self.start, 1)
        return dict(made)


def forked(work: Callable[[], dict[str, Any]], limit: int = LIMIT) -> Fork:
    """Start a function in a fork."""
    folder = tempfile.TemporaryDirectory()
    start = time.monotonic()
    child = os.fork()
    if child:
        return Fork(child, folder, start)
    signal.setitimer(signal.ITIMER_PROF, limit)
    signal.alarm(20 * limit)
    engine = sys.modules["workbench_harvest.engine"]
    if not os.environ.get("HARVEST_LOUD"):
        engine.quiet()
    try:
        result = work()
    except BaseException as error:
        text = traceback.format_exc()[-900:]
        result = {"why": f"{type(error).__name__}: {str(error)[:200]}", "trace": text}
    with contextlib.suppress(BaseException):
        Path(folder.name, "result").write_text(json.dumps(result, default=str))
    os._exit(0)


def each(
    work: Callable[[str], dict[str, Any]], names: Iterable[str], jobs: int
) -> Iterator[dict[str, Any]]:
    """Run a function for each name, some at a time; yield the records as they come."""
    running: dict[int, tuple[str, Fork]] = {}

    def ended() -> dict[str, Any]:
        pid, status = os.wait()
        name, fork = running.pop(pid)
        return {"class": name} | fork.result(status)

    for name in names:
        if len(running) >= jobs:
            yield ended()
        fork = forked(functools.partial(work, name))
        running[fork.pid] = name, fork
    while running:
        yield ended()


def main() -> None:
    """Harvest the classes named, or all."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
    class_map, watch, found, errors = prepare(sys.argv[1:])
    files = importlib.import_module("workbench_tracer.files")
    head = {
        "engine": "sglang",
        "version": files.version_of("sglang"),
        "transformers": files.version_of("transformers"),
    }
    print(json.dumps(head | {"modules": errors, "classes": sorted(found)}), file=out, flush=True)
    all_configs = sys.modules["workbench_harvest.configs"].Configs()
    wanted = sys.argv[1:] or [n for n in sorted(found) if not n.startswith("Transformers")]
    jobs = int(os.environ.get("HARVEST_JOBS", "1"))
    for record in each(
        lambda name: class_map.harvest(found[name], all_configs, watch),
        (name for name in wanted if name in found),
        jobs,
    ):
        print(json.dumps(record), file=out, flush=True)
    out.close()
    os._exit(0)


if __name__ == "__main__":
    main()
