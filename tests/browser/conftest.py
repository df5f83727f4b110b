"""A real Chromium, cut off from the network: every request that a page tries is counted."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser of the whole run; without one, its tests are skipped and say so."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


@dataclasses.dataclass
class Opened:
    """A page, what it asked the network for, and what went wrong in it."""

    page: Any
    requests: list[str] = dataclasses.field(default_factory=list)
    mistakes: list[str] = dataclasses.field(default_factory=list)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Open a file with the network off; at the end, no page may have asked for anything or failed."""
    contexts, all_opened = [], []

    def open_page(path: Path, *, width: int = 1200, live: bool = True, **options: Any) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, accept_downloads=True, **options
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        all_opened.append(opened)

        def route(route: Any) -> None:
            if route.request.url.startswith("file:") and route.request.is_navigation_request():
                route.continue_()
            else:
                opened.requests.append(route.request.url)
                route.abort()

        context.route("**/*", route)
        context.on("request", lambda request: note(opened, request.url))
        opened.page.on("pageerror", lambda error: opened.mistakes.append(str(error)))
        opened.page.on(
            "console",
            lambda said: opened.mistakes.append(said.text) if said.type == "error" else None,
        )
        opened.page.goto(path.resolve().as_uri())
        if live:
            opened.page.wait_for_selector("[data-ready]")
        return opened

    def note(opened: Opened, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            opened.requests.append(url)

    yield open_page
    for context in contexts:
        context.close()
    for opened in all_opened:
        assert opened.requests == []
        assert opened.mistakes == []
