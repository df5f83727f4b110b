"""Two plugins of pytest: which lines of the judging modules each test runs, and which tests to run."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

Lines = dict[str, set[int]]


class Tracer:
    """Records the lines of some files that each passing test runs, with those of the fixtures it shares.

    Attributes
    ----------
    reached
        Test -> file -> lines.
    seconds
        Test -> how long it took, traced.
    unfit
        Tests that fail or are skipped as it is.
    """

    def __init__(self, root: Path, files: frozenset[str]) -> None:
        self.root, self.files = root, files
        self.reached: dict[str, Lines] = {}
        self.seconds: dict[str, float] = {}
        self.unfit: set[str] = set()
        self._now: Lines = defaultdict(set)
        self._of_fixture: dict[tuple[str, str], Lines] = {}
        self._names: dict[CodeType, str | None] = {}

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._names:
            name = code.co_filename.removeprefix(f"{self.root}/")
            self._names[code] = name if name in self.files else None
        name = self._names[code]
        if name is None:
            return None
        self._now[name].add(frame.f_lineno)

        def line(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            if event == "line":
                self._now[name].add(frame.f_lineno)
            return line

        return line

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before, self._now = self._now, defaultdict(set)
        try:
            return (yield)
        finally:
            mine, self._now = self._now, before
            self._of_fixture[fixturedef.baseid, fixturedef.argname] = mine
            _add(self._now, mine)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._forget(item)
        self._now = defaultdict(set)
        begun = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - begun
        used = set(getattr(item, "fixturenames", ()))
        for (_, name), lines in self._of_fixture.items():
            if name in used:
                _add(self._now, lines)
        self.reached[item.nodeid] = self._now
        return result

    def _forget(self, item: pytest.Item) -> None:
        """Empty what functions remember, or the lines behind it would count for the first test alone."""
        names = {name.removesuffix(".py").replace("/", ".") for name in self.files}
        for module in [getattr(item, "module", None), *map(sys.modules.get, names)]:
            for value in list(vars(module).values()) if module is not None else ():
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.unfit.add(report.nodeid)


def _add(lines: Lines, more: Lines) -> None:
    for name, numbers in more.items():
        lines[name] |= numbers


class Chosen:
    """Runs the named tests only, and remembers the one that failed."""

    def __init__(self, tests: frozenset[str]) -> None:
        self.tests = tests
        self.killer = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.killer:
            self.killer = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.killer:
            self.killer = f"{report.nodeid} (cannot be imported)"
