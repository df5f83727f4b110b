"""The report of the shipped notebook in a real browser, the network off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.export.index import write_index
from workbench.export.report import report

from ..conftest import ROOT
from .conftest import Opened

Open = Callable[..., Opened]


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
    assert lost.locator(".wb-told").inner_text() == "3 of 24 rows · 3 groups"
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


def test_the_index_leads_to_it(reports: Path, open_page: Open) -> None:
    page = open_page(reports / "index.html", live=False).page
    assert "Where did the weights go?" in page.inner_text("h2")
    assert "refuses this config" in page.inner_text("li")
    page.click("li a")
    page.wait_for_selector(".wb-view[data-ready]")
    assert page.title() == "Where did the weights go?"
