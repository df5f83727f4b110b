"""What all tests share: with REQUIRE=engine,browser in the environment, skipping such a test fails it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

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
    "browser/test_panel.py",  # its panel offers the servers of this machine
)
# Tests that run the shipped notebooks, which write into the same folder.
NOTEBOOKS = (
    "notebooks/test_notebooks.py",
    "notebooks/test_hang_notebook.py",
    "browser/test_report.py",
)
# Files of more than half a minute begin first: a long one at the end keeps one worker busy, the others idle.
# Those that wait for each other alternate with those that do not.
SLOW = (
    "browser/test_reopened.py",
    "hang/live/test_servers.py",
    "engines/test_conformance.py",
    "engines/test_maps_truth.py",
    "weights/test_live.py",
    "preflight/test_asking.py",
    "speculation/ablate/test_from_file.py",
    "hang/live/test_watch.py",
    "speculation/model/test_last_features.py",
    "engines/test_flags_truth.py",
    "hang/live/test_jobs.py",
    "speculation/test_replay.py",
    "speculation/ablate/test_ablate.py",
    "notebooks/test_notebooks.py",
    "weights/whole_files/test_whole_files.py",
    "test_install_next_to_sglang.py",
    "engines/test_traced_truth.py",
    "browser/test_weights_page.py",
    "browser/test_page.py",
    "notebooks/test_hang_notebook.py",
    "browser/test_panel.py",
    "engines/test_transformers.py",
    "hang/collect/test_hostile.py",
    "hang/live/test_cluster.py",
    "browser/test_hang_page.py",
)
REQUIRED = {name for name in os.environ.get("REQUIRE", "").split(",") if name}


def pytest_report_header() -> str:
    named = ", ".join(sorted(REQUIRED)) or "nothing (a missing engine or browser skips its tests)"
    return f"required: {named}"


def _place(path: Path) -> str:
    return path.relative_to(ROOT / "tests").as_posix()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow files first; the order within a file stays."""
    order = {name: at for at, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(_place(item.path), len(order)))


@pytest.fixture(scope="module", autouse=True)
def alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let only one of the files run at a time that would be in each other's way, in whatever worker."""
    place = _place(request.path)
    together = place.startswith(PROCESSES + SERVERS)
    group = "processes" if together else "notebooks" if place in NOTEBOOKS else ""
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
