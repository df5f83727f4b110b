"""The page of a scan in a real browser, the network off: the map, one tensor, the table."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.display import assets, live
from workbench.display.page import shell
from workbench.display.static_html import static
from workbench.weights.results import WeightScan

from ..weights_samples import draft, experts, hostile, pair, target
from .conftest import Opened

Open = Callable[..., Opened]


def wide() -> WeightScan:
    """More cells than an SVG should have."""
    pairs = [
        pair(
            f"model.layers.{n}.block.part{k}.weight", (64, 64), "at_init" if n == 140 else "trained"
        )
        for n in range(200)
        for k in range(30)
    ]
    return WeightScan.build("models/wide", pairs)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    for make in (target, draft, experts, hostile, wide):
        make().to_html(folder / f"{make.__name__}.html")
    return folder


def limited_page(folder: Path, result: WeightScan, limit: int) -> Path:
    """A page with as much as a notebook would carry."""
    payload = result.payload(limit)
    body = live.live(assets.packed(payload), static(result), payload["schema"])
    out = folder / "limited.html"
    out.write_text(shell("x", body, scripts=(live.start_script(),)))
    return out


def fill(page: Any, row: int, column: int, wide: int = 9) -> str:
    at = row * wide + column
    return str(page.eval_on_selector_all(".wb-box", f"all => getComputedStyle(all[{at}]).fill"))


def shown(page: Any) -> str:
    return str(page.inner_text(".wb-one .wb-about-name"))


def names(page: Any) -> list[str]:
    script = (
        "all => all.sort((a, b) => a.dataset.line - b.dataset.line)"
        ".map(row => row.querySelector('.wb-c-name .wb-name').title)"
    )
    return list(page.eval_on_selector_all(".wb-tensors .wb-rows .wb-row", script))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_layer_at_init_stands_out(pages: Path, open_page: Open, scheme: str) -> None:
    page = open_page(pages / "target.html", color_scheme=scheme).page
    assert page.locator(".wb-box").count() == 24 * 9 + 3
    assert {fill(page, 17, column) for column in range(9)} == {fill(page, 17, 0)}
    assert {fill(page, row, 2) for row in (0, 16, 18, 23)} == {fill(page, 0, 2)}
    assert fill(page, 17, 2) != fill(page, 16, 2)
    assert page.locator(".wb-box-sign").all_text_contents() == ["✗"] * 9
    # It is seen without scrolling far: the map begins on the first screen or right after it.
    assert page.locator(".wb-map-frame").first.bounding_box()["y"] < 900


def test_the_worst_tensor_is_open_with_its_histogram_and_its_statistics(
    pages: Path, open_page: Open
) -> None:
    page = open_page(pages / "target.html").page
    assert shown(page).startswith("model.layers.17.self_attn.q_proj.weight")
    assert "indistinguishable" in page.inner_text(".wb-one .wb-about-facts")
    assert "would not be seen" in page.inner_text(".wb-one .wb-about-facts")
    assert page.locator(".wb-one .wb-bin").count() == 64
    assert page.locator(".wb-one .wb-fit").count() == 1
    strips = page.locator(".wb-strip")
    assert "Marchenko–Pastur" in "".join(strips.all_inner_texts())
    assert page.locator(".wb-mark[data-out=true]").count() == 0


def test_click_and_keys_lead_to_a_tensor(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "target.html").page
    page.locator(".wb-box").nth(3 * 9 + 8).click()
    assert shown(page).startswith("model.layers.3.mlp.down_proj.weight")
    assert page.locator(".wb-mark[data-out=true]").count() == 3
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert shown(page).startswith("model.layers.4.mlp.up_proj.weight")
    assert "model.layers.4.mlp.up_proj.weight" in page.inner_text(".wb-map-status >> nth=0")
    page.keyboard.press("n")
    assert shown(page).startswith("model.layers.17.input_layernorm.weight")
    page.keyboard.press("Home")
    assert shown(page).startswith("model.layers.0.input_layernorm.weight")
    page.keyboard.press("ArrowUp")  # there is nothing above
    assert shown(page).startswith("model.layers.0.input_layernorm.weight")


def test_every_focusable_element_keeps_its_keys_from_jupyterlab(
    pages: Path, open_page: Open
) -> None:
    page = open_page(pages / "experts.html").page
    script = """() => [...document.querySelectorAll('.wb-view :is(button,input,summary,select,a,[tabindex])')]
        .filter(e => e.dataset.lmSuppressShortcuts !== 'true').length"""
    assert page.evaluate(script) == 0


def test_the_map_is_coloured_by_numbers_too(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "target.html").page
    before = fill(page, 5, 5)
    page.click("text=Standard deviation")
    assert page.get_attribute(".wb-mode >> nth=1", "aria-pressed") == "true"
    assert fill(page, 5, 5) != before
    assert fill(page, 0, 1) != fill(page, 23, 1)
    assert page.locator(".wb-box-sign").count() == 9  # what is not trained keeps its sign
    page.click("text=Excess kurtosis")
    assert fill(page, 17, 2) != fill(page, 16, 2)


def test_the_table_is_filtered_sorted_and_taken_away(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "draft.html").page
    assert page.inner_text(".wb-table .wb-status") == "15 tensors"
    page.fill(".wb-filter", "Q_PROJ")
    assert page.inner_text(".wb-table .wb-status") == "0 of 15 tensors"
    page.fill(".wb-filter", "/self_attn.[qk]/")
    assert names(page) == ["layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight"]
    page.fill(".wb-filter", "/(/")
    assert "Not a regular expression" in page.inner_text(".wb-table .wb-status")
    page.fill(".wb-filter", "")
    page.click("[data-chip=trained]")
    assert page.inner_text(".wb-table .wb-status") == "4 of 15 tensors"
    page.click(".wb-sort >> text=Name")
    assert names(page)[0] == "embed_tokens.weight"
    page.click(".wb-sort >> text=Name")
    assert names(page)[0] == "norm.weight"
    with page.expect_download() as download:
        page.click("text=CSV")
    rows = list(csv.DictReader(download.value.path().open()))
    assert rows[0]["name"] == "norm.weight"
    assert float(rows[0]["std"]) > 0
    page.click(".wb-sort >> text=Max |value|")
    page.click(".wb-sort >> text=Max |value|")
    shown_first = page.inner_text('.wb-rows [data-line="0"] .wb-c-absmax')
    assert float(shown_first) == max(float(row["absmax"]) for row in rows)
    family = "all => all.map(cell => getComputedStyle(cell).fontFamily)"
    fonts = page.eval_on_selector_all('.wb-rows [data-line="0"] > .wb-cell', family)
    assert len(fonts) == 7
    assert len(set(fonts[4:])) == 1  # every number is set in the same type
    assert fonts[0] != fonts[4]
    page.click(".wb-sort >> text=Name")
    page.click(".wb-sort >> text=Name")
    page.focus(".wb-tensors")
    page.keyboard.press("End")
    assert shown(page).startswith("embed_tokens.weight")


def test_one_expert_of_many_is_found(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "experts.html").page
    assert page.locator(".wb-box-sign").all_text_contents() == ["✗ 2"] * 3 + ["✗ 1"] * 3
    page.locator(".wb-box-sign").first.dispatch_event("click")
    page.focus(".wb-map-frame")
    page.keyboard.press("n")
    page.keyboard.press("n")
    said = page.inner_text(".wb-members")
    assert "2 of 64 tensors are at init" in said
    assert "model.layers.3.mlp.experts.*" in said
    assert page.inner_text(".wb-table .wb-status").startswith("64 of 2,340 tensors")
    chips = page.locator(".wb-member-list .wb-chip")
    assert [text.split()[-1] for text in chips.all_inner_texts()][:3] == ["✗17", "✗40", "✓0"]
    chips.nth(1).click()
    assert ".experts.40." in shown(page)
    page.click(".wb-cell-chip")
    assert page.inner_text(".wb-table .wb-status").startswith("2,340 tensors")


def test_what_a_notebook_leaves_out_is_said(open_page: Open, tmp_path: Path) -> None:
    limit = len(assets.packed(experts().payload())) // 2
    page = open_page(limited_page(tmp_path, experts(), limit)).page
    assert "left out here" in page.inner_text(".wb-table .wb-status")
    assert page.locator(".wb-box").count() == 12 * 6


def test_many_cells_are_one_canvas(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "wide.html").page
    assert page.locator("canvas.wb-picture").count() == 1
    pixel = """([x, y]) => { const c = document.querySelector('canvas'); const k = c.width / c.offsetWidth;
        return [...c.getContext('2d').getImageData(x * k, y * k, 1, 1).data]; }"""
    box = page.locator("canvas").bounding_box()
    page.focus(".wb-map-frame")
    page.keyboard.press("n")
    assert shown(page).startswith("model.layers.140.block.part")
    lines = [
        page.evaluate(pixel, [box["width"] / 2, box["height"] - 2 - 16 * (200 - n) + 4])
        for n in (139, 140, 141)
    ]
    assert lines[0] == lines[2]
    assert lines[0] != lines[1]
    assert page.inner_text(".wb-map-status").startswith("model.layers.140.")
    page.click("text=Dark")
    page.wait_for_timeout(100)
    dark = page.evaluate(pixel, [box["width"] / 2, box["height"] - 2 - 16 * (200 - 139) + 4])
    assert dark != lines[0]


@pytest.mark.parametrize("width", [1200, 700, 480, 320])
def test_nothing_sticks_out(pages: Path, open_page: Open, width: int) -> None:
    for name in ("target", "experts", "hostile"):
        page = open_page(pages / f"{name}.html", width=width).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_the_preview_stands(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "target.html", live=False, java_script_enabled=False).page
    text = page.inner_text("main")
    assert "7 of 7 matrices are indistinguishable" in text
    assert "17  ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗ ✗" in text


def test_names_stay_text(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "hostile.html").page
    assert page.evaluate("window.owned") is None
    assert page.locator("main img").count() == 0
    assert "\u202e" not in page.inner_text("main")
    assert page.inner_text(".wb-one .wb-about-name").startswith("</script><img src=x onerror=")
    assert "{{0}}" not in page.inner_text("main")
    page.fill(".wb-filter", "=cmd")
    with page.expect_download() as download:
        page.click("text=CSV")
    assert "'=cmd" in download.value.path().read_text()
