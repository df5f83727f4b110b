"""The pages of a check and of a gate in a real browser: verdict, what fails first, the line to paste."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.preflight.gate_records import Gate
from workbench.preflight.records import LaunchCheck

from .conftest import Opened

Open = Callable[..., Opened]
MODELS = "--model-path data/incident/target --speculative-draft-model-path data/incident/drafts/specforge "
TREE = "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"
WRONG = (
    f"python3 -m sglang.launch_server {MODELS}--tp 3 --speculative-algorithm EAGLE {TREE} "
    "--enable-piecewise-cuda-graph"
)
RIGHT = f"python3 -m sglang.launch_server {MODELS}--tp 2 --speculative-algorithm EAGLE3 {TREE}"
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture(scope="module")
def made(root: Path) -> dict[str, LaunchCheck | Gate]:
    with contextlib.chdir(root):
        draft = Path("data/incident/drafts")
        return {
            "wrong": workbench.check(WRONG, engine="sglang==0.5.14"),
            "right": workbench.check(RIGHT, engine="sglang==0.5.14"),
            "open": workbench.check(RIGHT),
            "lost": workbench.gate(draft / "speculators", target="data/incident/target",
                                   engines="sglang>=0.5.20,vllm>=0.31"),
            "passes": workbench.gate(draft / "specforge", target="data/incident/target",
                                     engines="sglang>=0.5.22"),
        }  # fmt: skip


@pytest.fixture(scope="module")
def pages(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checks")
    for name, result in made.items():
        result.to_html(folder / f"{name}.html")
    return folder


def section(page: Any, title: str) -> Any:
    return page.locator(f"section[aria-label='{title}']")


def readable(page: Any, selector: str) -> bool:
    """Whether the text of an element has another colour than what is behind it."""
    script = """(at) => {
      const back = (one) => getComputedStyle(one).backgroundColor;
      let behind = at;
      while (behind && back(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
      return getComputedStyle(at).color !== (behind ? back(behind) : "rgb(255, 255, 255)"); }"""
    return bool(page.eval_on_selector(selector, script))


@SCHEMES
def test_a_check_shows_what_fails_first_and_the_line_to_paste(
    pages: Path, made: dict[str, Any], open_page: Open, scheme: str
) -> None:
    page = open_page(pages / "wrong.html", color_scheme=scheme).page
    assert "This launch fails at once" in page.inner_text(".wb-head")
    first = section(page, "What fails, and when").locator(".wb-check").first
    assert "--enable-piecewise-cuda-graph" in first.inner_text()
    assert "parser" in first.inner_text()
    pasted = section(page, "The line, corrected")
    shown = pasted.locator("pre").inner_text()
    assert shown.replace(" \\\n    ", " ") == made["wrong"].corrected
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert readable(page, "pre.wb-corrected")
    assert page.locator(".wb-head").get_by_text("Not checked").count() >= 3


def test_the_line_is_copied_as_one_that_a_shell_takes(
    pages: Path, made: dict[str, Any], open_page: Open
) -> None:
    page = open_page(pages / "wrong.html", permissions=["clipboard-read", "clipboard-write"]).page
    button = section(page, "The line, corrected").get_by_role("button")
    button.click()
    page.wait_for_function("at => at.textContent === 'Copied'", arg=button.element_handle())
    assert page.evaluate("navigator.clipboard.readText()") == made["wrong"].corrected


@SCHEMES
def test_an_all_clear_has_its_doubts_and_no_line(pages: Path, open_page: Open, scheme: str) -> None:
    page = open_page(pages / "right.html", color_scheme=scheme).page
    assert "takes this launch" in page.inner_text(".wb-head")
    assert section(page, "What fails, and when").count() == 0
    assert section(page, "The line, corrected").count() == 0
    assert page.locator(".wb-head").get_by_text("Not checked").count() >= 3


def test_what_is_healthy_and_many_is_counted(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "right.html").page
    checked = section(page, "What was checked")
    keys = checked.locator("details", has_text="126 keys")
    assert not keys.locator("ul").is_visible()
    keys.locator("summary").click()
    listed = keys.locator("ul > li")  # keys that differ in a number only are one row
    assert 10 < listed.count() <= 126
    assert listed.last.is_visible()


def test_an_open_check_says_what_is_missing(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "open.html").page
    head = page.inner_text(".wb-head")
    assert "Cannot tell: the release of the engine" in head
    assert "--engine sglang==VERSION" in head


@SCHEMES
def test_a_gate_shows_ranges_first_failure_and_no_badge(
    pages: Path, open_page: Open, scheme: str
) -> None:
    page = open_page(pages / "lost.html", color_scheme=scheme).page
    assert "The draft does not pass" in page.inner_text(".wb-head")
    assert "workbench fix" in page.inner_text(".wb-head .wb-next")
    rows = section(page, "Releases").locator(".wb-check")
    assert rows.count() < 5  # releases that answer alike are one row
    assert "SGLang 0.5.20 to 0.5.22" in rows.first.inner_text()
    assert rows.first.get_attribute("data-state") == "wrong"
    assert "Not checked" in page.inner_text(".wb-head")
    assert section(page, "Badge").count() == 0
    assert section(page, "The line, corrected").count() == 0


@SCHEMES
def test_a_gate_that_passes_shows_its_badge(pages: Path, open_page: Open, scheme: str) -> None:
    page = open_page(pages / "passes.html", color_scheme=scheme).page
    assert "loads in sglang 0.5.22–0.5.23" in section(page, "Badge").locator("pre").inner_text()
    assert "acceptance" in section(page, "Weights and acceptance").inner_text()
    assert readable(page, "pre.wb-corrected")


def test_nothing_is_wider_than_a_narrow_window(pages: Path, open_page: Open) -> None:
    for name in ("wrong", "lost"):
        page = open_page(pages / f"{name}.html", width=420).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
