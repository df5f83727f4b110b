"""What all tests share: with REQUIRE=engine,browser in the environment, skipping such a test fails it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each worker has a core: two threads each would be in the way.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
# Tests that look at the processes of the machine: two at once would find each other's servers.
PROCESSES = (
    "hang_live",
    "test_hang_collector.py",
    "test_hang_processes.py",
    "test_hang_hostile.py",
)
SERVERS = ("test_weights_live.py", "test_incident_server.py", "test_incident_hang.py")
# Tests that run the shipped notebooks, which write into the same folder.
NOTEBOOKS = ("test_notebooks.py", "test_hang_notebook.py", "browser/test_report.py")
REQUIRED = {name for name in os.environ.get("REQUIRE", "").split(",") if name}


def pytest_report_header() -> str:
    named = ", ".join(sorted(REQUIRED)) or "nothing (a missing engine or browser skips its tests)"
    return f"required: {named}"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file in one worker, and the same for files that would be in each other's way."""
    for item in items:
        place = item.path.relative_to(ROOT / "tests").as_posix()
        group = place
        if place.partition("/")[0] in PROCESSES + SERVERS:
            group = "processes"
        elif place in NOTEBOOKS:
            group = "notebooks"
        item.add_marker(pytest.mark.xdist_group(group))


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
