"""The page of a diagnosis and of a ledger in a real browser, the network off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.evidence import launches as store
from workbench.hang.diagnosis_records import Span
from workbench.hang.judge.diagnosis import HangDiagnosis
from workbench.hang.ledger.ledger import LaunchLedger

from ..conftest import ROOT
from ..hang_samples import diverged, forest, hostile, partly_seen
from .conftest import Opened

Open = Callable[..., Opened]
HANG = ROOT / "data" / "incident" / "hang"


def incident() -> LaunchLedger:
    first, hung, off = (
        store.from_folder(HANG / name)
        for name in ("first-start", "capture-hang", "relaunch-graphs-off")
    )
    return LaunchLedger("launches.jsonl", (first, dataclasses.replace(hung, outcome="hung"), off))


def apart() -> HangDiagnosis:
    """512 ranks, each in a stack of its own."""
    stacks = [(("main", *(f"f{r}_{at}" for at in range(40))), (r,)) for r in range(512)]
    return dataclasses.replace(diverged(512, 77), tree=forest(stacks))


def hostile_ledger() -> LaunchLedger:
    bad = hostile().source
    one = store.Launch(bad, (bad,), {bad: bad}, log=bad, hypothesis=bad, change=bad, note=bad)
    return LaunchLedger(bad, (one, dataclasses.replace(one, environment={})), (bad,))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hang-pages")
    made = {
        "eight": diverged(),
        "many": diverged(512, 77),
        "partly": partly_seen(),
        "apart": apart(),
        "ended": dataclasses.replace(
            diverged(),
            timeline=(Span(3, "weights", "weights", 0.0, 40.0),),
            log_end=1240.0,
            silent_for=None,
        ),
        "hostile": hostile(),
        "ledger": incident(),
        "hostile-ledger": hostile_ledger(),
    }
    for name, result in made.items():
        result.to_html(folder / f"{name}.html")
    return folder


def background(page: Any, selector: str) -> str:
    return str(page.locator(selector).evaluate("node => getComputedStyle(node).backgroundColor"))


def frames(page: Any) -> list[str]:
    return list(page.locator(".wb-frame .wb-frame-name").all_inner_texts())


def test_verdict_odd_rank_and_experiment_come_first(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    assert "1 of 8 ranks" in page.inner_text(".wb-line")
    assert page.locator(".wb-rank").count() == 8
    assert page.inner_text('.wb-rank[data-state="odd"] .wb-rank-name') == "TP5"
    assert "cuda-graph-backend-decode=disabled" in page.inner_text(".wb-plan-change")
    assert page.locator(".wb-plan-card").bounding_box()["y"] < 900
    assert page.locator(".wb-finding").count() == 1
    assert page.locator(".wb-finding .wb-experiment").count() == 0  # told once


def test_the_odd_rank_stands_out_without_colour(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    signs = page.locator(".wb-rank .wb-sign").all_inner_texts()
    assert signs == ["●"] * 5 + ["◆"] + ["●"] * 2
    assert background(page, '.wb-rank[data-rank="5"]') != background(
        page, '.wb-rank[data-rank="4"]'
    )


def test_every_way_of_not_being_seen_looks_different(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "partly.html").page
    signs = {
        page.get_attribute(f'.wb-rank[data-rank="{rank}"]', "data-state"): page.inner_text(
            f'.wb-rank[data-rank="{rank}"] .wb-sign'
        )
        for rank in range(8)
    }
    assert set(signs) == {"waiting", "missing", "not_seen", "stopped", "not_collected"}
    assert len(set(signs.values())) == 5
    assert "run as root" in page.inner_text(".wb-groups")
    assert "TP5 ends here" in page.inner_text(".wb-icicle")


@pytest.mark.parametrize("name", ["eight", "many"])
def test_choosing_a_rank_dims_what_it_lacks(pages: Path, open_page: Open, name: str) -> None:
    page = open_page(pages / f"{name}.html").page
    odd = page.locator('.wb-rank[data-state="odd"]')
    odd.click()
    assert odd.get_attribute("aria-pressed") == "true"
    dim = page.locator(".wb-frame.wb-dim .wb-frame-name").all_inner_texts()
    assert "barrier" in dim
    assert "synchronize" not in dim
    assert "FlashInferAutotuner.choose_one" in page.inner_text(".wb-groups .wb-about")
    assert page.locator(".wb-lane.wb-dim").count() >= 1
    page.click(".wb-clear")
    assert page.locator(".wb-dim").count() == 0


def test_the_strip_is_walked_with_arrow_keys(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "many.html").page
    assert page.locator(".wb-rank").count() == 512
    assert page.locator('.wb-rank[tabindex="0"]').count() == 1
    page.focus('.wb-rank[tabindex="0"]')
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.get_attribute('.wb-rank[aria-pressed="true"]', "data-rank") == "3"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.rank") == "511"
    page.keyboard.press("Escape")
    assert page.locator('.wb-rank[aria-pressed="true"]').count() == 0


def test_chips_choose_all_that_stand_alike(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "many.html").page
    page.click('.wb-chip[data-chip="waiting"]')
    assert page.locator('.wb-rank[aria-pressed="true"]').count() == 511
    assert page.evaluate("document.activeElement.dataset.chip") == "waiting"
    page.keyboard.press("Enter")
    assert page.locator('.wb-rank[aria-pressed="true"]').count() == 0


def test_search_marks_frames_and_enter_walks_them(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    page.fill(".wb-stacks .wb-filter", "barrier")
    assert "2 frames match" in page.inner_text(".wb-stacks .wb-status")
    hits = page.locator(".wb-frame.wb-hit .wb-frame-name").all_inner_texts()
    assert hits == ["GroupCoordinator.barrier", "barrier"]
    page.press(".wb-stacks .wb-filter", "Enter")
    assert "GroupCoordinator.barrier" in page.inner_text(".wb-stacks .wb-about")
    page.press(".wb-stacks .wb-filter", "Escape")
    assert page.locator(".wb-hit").count() == 0


def test_search_finds_what_is_too_narrow_to_be_drawn(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "apart.html").page
    assert "the first 2,000 are shown" in page.inner_text(".wb-stacks .wb-status")
    page.fill(".wb-stacks .wb-filter", "f300_35")
    page.press(".wb-stacks .wb-filter", "Enter")
    assert page.inner_text(".wb-frame.wb-selected .wb-frame-name") == "f300_35"
    assert "TP300 (1 of 512)" in page.inner_text(".wb-stacks .wb-about")


def test_a_frame_is_chosen_then_zoomed_into_then_left(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    before = frames(page)
    forward = page.locator(".wb-frame", has_text="DeepseekV3ForCausalLM.forward")
    narrow = forward.bounding_box()["width"]
    forward.click()
    about = page.inner_text(".wb-stacks .wb-about")
    assert "TP5 (1 of 8)" in about
    assert "TP0-4,6-7" in about
    forward.click()
    assert forward.bounding_box()["width"] > narrow * 2
    assert "barrier" not in frames(page)
    page.click("text=Whole tree")
    assert frames(page) == before


def test_the_icicle_is_walked_with_the_keyboard(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    page.focus(".wb-icicle")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert "DeepseekV3ForCausalLM.forward" in page.inner_text(".wb-stacks .wb-about")
    active = page.get_attribute(".wb-icicle", "aria-activedescendant")
    assert "wb-selected" in page.get_attribute(f"#{active}", "class")
    page.keyboard.press("Enter")
    assert not page.is_disabled("text=Whole tree")
    page.keyboard.press("Escape")
    assert page.is_disabled("text=Whole tree")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


def test_long_runs_of_frames_open(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    assert "… 12 frames" in frames(page)
    page.click(".wb-frame.wb-folded")
    assert "ModelRunner.init_cuda_graphs" in frames(page)
    page.click("text=Fold long runs")
    assert "… 12 frames" in frames(page)


def test_one_odd_rank_of_512_is_wide_enough_to_read(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "many.html").page
    odd = page.locator('.wb-frame[data-state="odd"]').first
    assert odd.bounding_box()["width"] >= 64
    assert page.locator(".wb-lane:not(.wb-axis)").count() == 2
    assert "511 ranks" in page.inner_text(".wb-lanes")


def test_the_start_up_shows_where_silence_began(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    assert page.locator(".wb-phase.wb-open").count() == 8
    assert page.inner_text(".wb-silent") == "silent for 68 s"
    page.click("text=As a table")
    rows = page.locator(".wb-plain tbody tr").all_inner_texts()
    assert len(rows) == 32
    assert any("graph_decode" in row and "never ended" in row for row in rows)


def test_a_rank_that_began_no_further_phase_says_so(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "ended.html").page
    assert page.inner_text(".wb-nothing-more") == "no further phase for 20 min"
    assert open_page(pages / "eight.html").page.locator(".wb-nothing-more").count() == 0


def test_raw_stacks_are_drawn_when_asked_for(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    assert page.locator(".wb-thread").count() == 0
    page.click("text=Every stack")
    page.wait_for_selector(".wb-thread")  # details tell that they were opened a little later
    assert page.locator(".wb-thread").count() == 60
    page.click('.wb-rank[data-state="odd"]')
    assert page.locator(".wb-thread").count() == 8
    page.fill('[aria-label="Filter threads by name or frame"]', "choose_one")
    assert page.locator(".wb-thread").count() == 2
    page.click(".wb-thread >> nth=0 >> summary")
    page.wait_for_selector(".wb-frames li")
    assert page.locator(".wb-frames li").first.inner_text().startswith("synchronize")


@pytest.mark.parametrize("width", [480, 1200])
@pytest.mark.parametrize("name", ["eight", "many", "partly", "hostile", "ledger", "hostile-ledger"])
def test_nothing_is_wider_than_the_page(
    pages: Path, open_page: Open, name: str, width: int
) -> None:
    opened = open_page(pages / f"{name}.html", width=width)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.evaluate("window.owned") is None
    assert opened.page.locator(".wb-view img, .wb-view script").count() == 0


def test_what_takes_focus_keeps_its_keys_in_jupyterlab(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "eight.html").page
    page.click("text=Every stack")
    page.wait_for_selector(".wb-thread")
    missing = page.eval_on_selector_all(
        ".wb-view :is(button, input, summary, a, [tabindex])",
        "all => all.filter(node => node.dataset.lmSuppressShortcuts !== 'true').map(node => node.className)",
    )
    assert missing == []


def test_a_ledger_shows_the_one_change_and_folds_the_rest(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "ledger.html").page
    assert page.locator(".wb-launch").count() == 3
    third = page.locator(".wb-launch").nth(2)
    assert "--cuda-graph-backend-decode" in third.inner_text()
    assert third.locator(".wb-change:visible").count() == 1
    third.locator("text=differences taken as without effect").click()
    assert third.locator(".wb-change:visible").count() == 5
    letters = page.locator(".wb-launch .wb-tag").all_inner_texts()
    assert letters == ["configuration A", "configuration A", "configuration B"]
