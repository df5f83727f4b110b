"""What all tests share: with REQUIRE=engine,browser in the environment, skipping such a test fails it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = {name for name in os.environ.get("REQUIRE", "").split(",") if name}


def pytest_report_header() -> str:
    named = ", ".join(sorted(REQUIRED)) or "nothing (a missing engine or browser skips its tests)"
    return f"required: {named}"


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
