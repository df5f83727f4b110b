"""The report of the shipped notebook in a real browser, the network off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.export.test_clean import EVIL, page_of, result, shows
from workbench.export.index import write_index
from workbench.export.report import report

from ..conftest import ROOT
from ..display_samples import HOSTILE
from .conftest import Opened
from .jupyter import write

Open = Callable[..., Opened]
CELLS = (
    "from tests import display_samples, hang_samples, weights_samples\ndisplay_samples.incident()",
    "hang_samples.diverged()",
    "weights_samples.target().view()",
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    report(ROOT / "notebooks" / "02_keys.ipynb", folder / "02_keys.html")
    write_index(folder)
    return folder


def test_every_view_is_alive_and_answers(reports: Path, open_page: Open) -> None:
    page = open_page(reports / "02_keys.html").page
    page.wait_for_function("document.querySelectorAll('.wb-view[data-ready]').length === 7")
    views = page.locator(".wb-view")
    lost = views.nth(1)
    assert "10 of 16 keys" in lost.locator(".wb-line").inner_text()
    lost.locator(".wb-filter").fill("/layers.0.mlp/")
    assert lost.locator(".wb-status").inner_text() == "3 of 24 rows · 3 groups"
    lost.locator("summary").first.click()
    assert lost.locator(".wb-evidence[open]").count() == 1

    target = views.nth(6)
    target.locator(".wb-filter").fill("q_proj")
    target.locator(".wb-rows .wb-row").click()
    names = target.locator(".wb-rows .wb-c-name .wb-name")
    assert names.count() == 9
    assert names.nth(8).get_attribute("title") == "model.layers.7.self_attn.q_proj.weight"
    # One view's state is not another's.
    assert views.nth(0).locator(".wb-filter").input_value() == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 480])
def test_it_fits_every_width_in_light_and_dark(
    reports: Path, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(reports / "02_keys.html", width=width, color_scheme=scheme).page
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0
    colours = page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    assert colours == (
        ["rgb(27, 31, 36)", "rgb(255, 255, 255)"]
        if scheme == "light"
        else ["rgb(230, 233, 238)", "rgb(20, 23, 28)"]
    )


def test_it_is_small(reports: Path) -> None:
    assert (reports / "02_keys.html").stat().st_size < 400_000


def test_without_javascript_every_verdict_stands(reports: Path, open_page: Open) -> None:
    page = open_page(reports / "02_keys.html", live=False, java_script_enabled=False).page
    text = page.inner_text("body")
    for said in ("10 of 16 keys", "Cannot tell", "d2t holds target ids", "midlayer."):
        assert said in text


def test_it_opens_with_the_worst_of_all_and_leads_to_each(reports: Path, open_page: Open) -> None:
    page = open_page(reports / "02_keys.html").page
    top = page.locator(".nb-results")
    counts = top.locator("p").inner_text()
    assert re.search(r"7 results: \d wrong, \d cannot tell, \d ok", counts)
    states = page.locator(".wb-head").evaluate_all("all => all.map((one) => one.dataset.state)")
    for state, word in {"wrong": "wrong", "unsure": "cannot tell", "ok": "ok"}.items():
        assert f"{states.count(state)} {word}" in counts
    top.locator("a").nth(4).click()
    assert page.evaluate("location.hash") == "#result-5"
    assert page.locator("#result-5 .wb-view").is_visible()
    index = open_page(reports / "index.html", live=False).page
    assert counts.split(": ")[1] in index.inner_text("li")


def test_plain_nbconvert_shows_every_result_alive(browser: Any, tmp_path: Path) -> None:
    """The stock HTML of nbconvert asks a few servers for scripts of its own; the views need none of them."""
    source = tmp_path / "plain.ipynb"
    write(source, *CELLS)
    run = [sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--to", "html", str(source)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "plain.html").as_uri())
    views = page.locator(".wb-view[data-ready]")
    views.nth(2).wait_for()
    assert views.count() == 3
    views.first.locator(".wb-filter").fill("q_proj")
    assert views.first.locator(".wb-status").inner_text() == "1 of 23 rows · 1 group"
    context.close()

    still = browser.new_context(offline=True, java_script_enabled=False)
    page = still.new_page()
    page.goto((tmp_path / "plain.html").as_uri())
    for line in ("silently drops 10 of 16 keys", "Hung while decode graphs", "7 of 7 matrices"):
        assert line in page.inner_text("body")
    still.close()


def test_a_hostile_notebook_is_a_quiet_page(tmp_path: Path, open_page: Open) -> None:
    """Whatever ran or asked for anything would be counted when the page is closed."""
    cells = [shows(evil) for evil in EVIL] + [
        nbformat.v4.new_markdown_cell(f"text {evil}\n\n{evil}") for evil in EVIL
    ]
    cells.append(shows(result(True, line=HOSTILE).replace("<p>still</p>", "".join(EVIL))))
    out = tmp_path / "hostile.html"
    out.write_text(page_of(*cells))
    opened = open_page(out, live=False)
    opened.page.wait_for_timeout(1000)
    assert opened.page.url == out.as_uri()
    assert opened.page.locator(".wb-theme").is_visible()


def test_the_index_leads_to_it(reports: Path, open_page: Open) -> None:
    page = open_page(reports / "index.html", live=False).page
    assert "Where did the weights go?" in page.inner_text("h2")
    assert "refuses this config" in page.inner_text("li")
    page.click("li a")
    page.wait_for_selector(".wb-view[data-ready]")
    assert page.title() == "Where did the weights go?"
