"""What all tests share: with REQUIRE=engine,browser in the environment, skipping such a test fails it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

# Each worker has a core: two threads each would be in the way.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
# Tests that look at the processes of the machine: two at once would find each other's servers.
PROCESSES = (
    "hang/live/",
    "hang/collect/test_collector.py",
    "hang/collect/test_processes.py",
    "hang/collect/test_hostile.py",
)
SERVERS = (
    "weights/test_live.py",
    "weights/test_live_answers.py",
    "incident/test_server.py",
    "incident/test_hang.py",
)
# Tests that start kernels: some write into one folder or share a JupyterLab, and a kernel that starts beside
# another may be given its port. One worker runs them all, one after the other.
KERNELS = (
    "notebooks/test_notebooks.py",
    "notebooks/test_hang_notebook.py",
    "browser/test_report.py",
    "browser/test_lab.py",
    "browser/test_panel.py",
    "browser/test_reopened.py",
    "cli/test_report.py",
    "core/test_bars.py",
)
REQUIRED = {name for name in os.environ.get("REQUIRE", "").split(",") if name}


def pytest_report_header() -> str:
    named = ", ".join(sorted(REQUIRED)) or "nothing (a missing engine or browser skips its tests)"
    return f"required: {named}"


def group_of(file: str) -> str:
    """Return which of the groups a test file belongs to, "" for none; the path is from the repository."""
    place = file.removeprefix("tests/")
    if place.startswith(PROCESSES + SERVERS):
        return "processes"
    return "kernels" if place in KERNELS else ""


# What waits for servers and browsers more than it computes: begun first, it ends beside the rest.
SLOW = ("browser/", "notebooks/", "engines/", "hang/live/", "speculation/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files first that take long, though they have few tests; the order within a file stays."""

    def late(item: pytest.Item) -> bool:
        file = item.path.relative_to(ROOT).as_posix()
        return not (group_of(file) or file.removeprefix("tests/").startswith(SLOW))

    items.sort(key=late)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all files of a group to one worker: in two, one of them would only wait for the lock."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    config.option.loadscopereorder = False  # it puts the files with the fewest tests last

    class ByGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return group_of(file) or file

    return ByGroup(config, log)


@pytest.fixture(scope="module", autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let only one of the files of a group run at a time, in whatever worker, and in whatever run."""
    group = group_of(request.path.relative_to(ROOT).as_posix())
    if not group:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"workbench-tests-{os.getuid()}-{group}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report = yield
    wanted = REQUIRED.intersection(mark.name for mark in item.iter_markers())
    if report.skipped and wanted and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"REQUIRE={','.join(sorted(wanted))}, and it was skipped: {report.longrepr}"
        )
    return report


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


def assert_told(page: str, story: Sequence[str]) -> None:
    """Check that an exported page says each part of a story, in this order."""
    at = page.index("<main>")
    for said in story:
        at = page.index(said, at) + 1
