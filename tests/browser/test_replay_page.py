"""The page of a replay in a real browser, the network off: the step player, its keys, the ablations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.display import assets, live
from workbench.display.page import shell
from workbench.speculation.result import Replay

from ..replay_samples import EVIL, beside, chain, counted, hostile, tree
from .conftest import Opened

Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    for make in (chain, tree, counted, hostile, beside):
        make().to_html(folder / f"{make.__name__}.html")
    return folder


def payload_page(folder: Path, payload: dict[str, Any]) -> Path:
    data = assets.packed(payload)
    out = folder / "payload.html"
    out.write_text(
        shell(
            "x",
            live.live(data, "<p>no script ran</p>", payload["schema"]),
            scripts=(live.start_script(),),
        )
    )
    return out


def where(page: Any) -> str:
    return str(page.inner_text(".wb-where b"))


def states(page: Any) -> list[str]:
    return list(
        page.eval_on_selector_all(".wb-node[data-state]", "all => all.map(n => n.dataset.state)")
    )


def pieces(page: Any) -> list[tuple[str, str]]:
    script = "all => all.map(n => [n.dataset.kind, n.textContent.trim()])"
    return [(a, b) for a, b in page.eval_on_selector_all(".wb-so-far .wb-piece", script)]


def test_it_begins_at_the_first_rejection_and_says_why(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    assert where(page) == "Round 1"
    said = page.inner_text(".wb-round-text")
    assert "0 of 3 drafts accepted." in said
    assert "The target chose ·word20 where the draft had ·word11" in said
    assert "that was number 3 in the draft's own order" in said
    assert "the engine did the same" in said
    assert states(page) == ["rejected", "beside", "beside"]


def test_keys_go_from_round_to_round(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    page.focus(".wb-stage")
    for key, expected in (
        ("ArrowRight", "Round 2"), ("ArrowRight", "Round 3"), ("ArrowLeft", "Round 2"), ("n", "Round 4"),
        ("End", "Round 6"), ("ArrowRight", "Round 6"), ("p", "Round 5"), ("Home", "Round 1"),
        ("ArrowLeft", "Round 1"), ("]", "Round 4"), ("]", "Round 4"), ("[", "Round 1"),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert where(page) == expected, key


def test_the_keys_survive_the_ends(pages: Path, open_page: Open) -> None:
    """A button that the last round turns off gives its focus to the stage."""
    page = open_page(pages / "chain.html").page
    forth = page.get_by_role("button", name="→")
    for _ in range(5):
        forth.click()
    assert where(page) == "Round 6"
    assert forth.is_disabled()
    page.keyboard.press("ArrowLeft")
    assert where(page) == "Round 5"
    page.keyboard.press("Home")
    assert where(page) == "Round 1"


def test_rejections_are_sorted_by_kind(pages: Path, open_page: Open, tmp_path: Path) -> None:
    payload = chain().payload()
    kinds = [row for row in payload["rounds"] if row[6] == "rejected"]
    assert len(kinds) > 2
    fell = next(node for node in kinds[-1][7] if not node[4])
    fell[5] = -1
    page = open_page(payload_page(tmp_path, payload)).page
    choice = page.get_by_label("Kind of rejection")
    labels = choice.locator("option").all_inner_texts()
    assert labels[0] == f"all {len(kinds)} rejections"
    assert "1: not in the draft's vocabulary" in labels
    choice.select_option("outside")
    assert where(page) == f"Round {payload['rounds'].index(kinds[-1]) + 1}"
    assert "the draft's vocabulary does not have it" in page.inner_text(".wb-round-text")
    assert page.locator(".wb-drafted[data-mark='∉']").count() == 1
    assert page.get_by_role("button", name="Next rejection").is_disabled()
    page.focus(".wb-stage")
    page.keyboard.press("p")
    assert where(page) == f"Round {payload['rounds'].index(kinds[-1]) + 1}"


def test_the_drafts_own_best_stand_beside_the_targets(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    own = page.locator(".wb-choices[data-whose=draft]")
    assert own.count() == 3
    assert own.nth(1).locator(".wb-choice").count() == 5


def test_tokens_are_marked_and_not_by_colour_alone(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    page.keyboard.press("Tab")
    page.focus(".wb-stage")
    page.keyboard.press("ArrowRight")
    kinds = pieces(page)
    assert kinds[-4:] == [
        ("accepted", "word11"), ("rejected", "word12"), ("rejected", "word13"), ("bonus", "word21"),
    ]  # fmt: skip
    assert [kind for kind, _ in kinds[:5]] == ["prompt"] * 5
    assert page.locator(".wb-so-far del").count() == 2
    assert states(page) == ["accepted", "rejected", "beside"]
    signs = page.eval_on_selector_all(".wb-node .wb-sign", "all => all.map(n => n.textContent)")
    assert signs == ["✓", "✗", "·"]
    style = "(n) => getComputedStyle(n).textDecorationLine"
    assert "line-through" in page.eval_on_selector(".wb-so-far del", style)


def test_the_targets_choices_stand_under_the_drafts(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    columns = page.locator(".wb-choices[data-whose=target]")
    assert columns.count() == 3
    assert columns.nth(0).locator(".wb-choice").first.inner_text().split() == ["·word20", "50", "%"]
    assert columns.nth(0).get_attribute("data-beside") == "false"
    assert columns.nth(1).get_attribute("data-beside") == "true"
    # Under each other: a position's drafts and what the target chose there.
    boxes = [page.locator(".wb-node[data-state]").nth(n).bounding_box() for n in range(3)]
    answers = [columns.nth(n).bounding_box() for n in range(3)]
    for box, answer in zip(boxes, answers, strict=True):
        assert abs(box["x"] - answer["x"]) < 3


def test_a_node_of_a_tree_shows_its_own_place(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "tree.html").page
    assert states(page) == ["rejected", "accepted", "beside", "accepted", "rejected"]
    edges = page.eval_on_selector_all(".wb-edge", "all => all.map(n => n.dataset.state)")
    assert edges == states(page)
    assert (
        page.locator(".wb-choices[data-whose=target]").nth(1).get_attribute("data-beside")
        == "false"
    )
    page.locator(".wb-node[data-state]").nth(2).click()
    assert page.locator(".wb-node[aria-pressed=true]").count() == 1
    assert (
        page.locator(".wb-choices[data-whose=target]").nth(1).get_attribute("data-beside") == "true"
    )
    page.locator(".wb-node[aria-pressed=true]").click()
    assert page.locator(".wb-node[aria-pressed=true]").count() == 0


def test_buttons_picker_and_chart_do_as_the_keys(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    page.get_by_role("button", name="Next rejection").click()
    assert where(page) == "Round 2"
    page.get_by_role("button", name="Next rejection").click()
    assert where(page) == "Round 4"
    page.get_by_label("Request").select_option("0")
    assert where(page) == "Round 1"
    assert page.get_by_role("button", name="←").is_disabled()
    page.locator(".wb-course svg").scroll_into_view_if_needed()
    page.locator(
        ".wb-course svg"
    ).scroll_into_view_if_needed()  # a mouse reaches only what is in view
    box = page.locator(".wb-course svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 20)
    assert where(page) == "Round 6"
    assert page.get_by_role("button", name="Next rejection").is_disabled()


def test_every_focusable_element_keeps_its_keys_in_jupyterlab(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "tree.html").page
    lacking = page.evaluate(
        "[...document.querySelectorAll('.wb-view :is(button,select,[tabindex],summary,a)')]"
        ".filter(n => n.dataset.lmSuppressShortcuts !== 'true').length"
    )
    assert lacking == 0


@pytest.mark.parametrize("width", [480, 1200])
@pytest.mark.parametrize("name", ["chain", "tree", "counted", "hostile"])
def test_nothing_is_wider_than_the_page(
    pages: Path, open_page: Open, name: str, width: int
) -> None:
    page = open_page(pages / f"{name}.html", width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_from_strangers_stay_text(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "hostile.html").page
    assert page.title() != "1"
    assert page.locator("img").count() == 0
    assert "\\u202e" in page.inner_text(".wb-so-far")
    assert EVIL not in page.inner_text(".wb-view")


def test_counts_alone_have_no_player(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "counted.html").page
    assert page.locator(".wb-stage").count() == 0
    assert "1.00" in page.inner_text(".wb-lengths")


def test_what_is_left_out_is_said(pages: Path, open_page: Open, tmp_path: Path) -> None:
    replay: Replay = chain(rounds=900)
    page = open_page(payload_page(tmp_path, replay.payload(limit=4_000))).page
    assert "of 900 are left out here" in page.inner_text(".wb-hint")


BARS = [
    ("as served", 1.05, None, False), ("reload decoder layer", 2.5, 0.96, True),
    *((f"change {n}", 1.05, 0.0, False) for n in range(14)), ("one + other", 2.6, 1.02, False),
]  # fmt: skip


def ablations() -> dict[str, Any]:
    bars = [
        {
            "name": name, "fact": "", "words": f"words of {name}", "accept_length": length,
            "interval": [length - 0.1, length + 0.1], "restored": restored, "restored_interval": None,
            "per_position": [0.6, 0.3], "profile": cause, "rank": 1.0, "confirmed": True,
            "requests": 10, "rounds": 400, "same": [], "cause": cause,
        }
        for name, length, restored, cause in BARS
    ]  # fmt: skip
    return {
        "schema": "workbench.ablations/1",
        "title": "x",
        "verdict": {
            "ok": False,
            "line": "The cause is the decoder layer.",
            "sure": "likely, not certain",
            "checked": ["24 changes"],
            "unchecked": ["fc order: 2 of 2 not tried (interrupted)"],
            "overturned_by": ["the repaired draft accepting as little"],
            "next_step": "Rename the keys.",
        },
        "facts": [],
        "expected": {"accept_length": 2.56, "per_position": [0.64, 0.42]},
        "bars": bars,
        "idle": ["reload fc"],
        "entropy": [3.0, 6.9],
        "findings": [],
        "left_out": 2,
    }


def test_the_cause_stands_out_and_reaches_the_line(open_page: Open, tmp_path: Path) -> None:
    page = open_page(payload_page(tmp_path, ablations())).page
    rows = page.locator(".wb-abl:not(.wb-abl-head)")
    assert rows.count() == 1 + 12 + 1
    assert rows.nth(1).get_attribute("data-kind") == "cause"
    line = page.locator(".wb-abl[data-kind=cause] .wb-line-enough").bounding_box()
    bar = page.locator(".wb-abl[data-kind=cause] .wb-abl-bar").bounding_box()
    assert bar["x"] + bar["width"] > line["x"]
    served = page.locator(".wb-abl[data-kind=served] .wb-abl-bar").bounding_box()
    assert served["x"] + served["width"] < line["x"]
    assert "96 %" in rows.nth(1).inner_text()
    assert "✓" in rows.nth(1).inner_text()
    page.get_by_role("button", name="All 15 changes").click()
    assert rows.count() == 1 + 15 + 1
    note = page.inner_text(".wb-abls-note")
    assert "No effect here: reload fc." in note
    assert "2 changes left out here" in note
    doubts = page.inner_text(".wb-doubts")
    assert "fc order: 2 of 2 not tried (interrupted)" in doubts
    assert "likely, not certain" in doubts


def test_ablations_fit_a_narrow_page(open_page: Open, tmp_path: Path) -> None:
    page = open_page(payload_page(tmp_path, ablations()), width=480).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 480


def test_what_the_changed_draft_would_have_said_stands_below(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "beside.html").page
    cells = '[data-whose="changed"]'

    def drafted() -> list[tuple[str, str]]:
        script = "all => all.map(n => [n.dataset.beside, n.querySelector('code').textContent])"
        return [(a, b) for a, b in page.eval_on_selector_all(cells, script)]

    assert drafted() == [("false", "·word20"), ("false", "·word16"), ("true", "·word17")]
    assert "1 of 3 accepted" in page.inner_text(".wb-changed-tag")
    page.keyboard.press("ArrowRight")
    page.focus(".wb-stage")
    page.keyboard.press("ArrowRight")
    assert [state for state, _ in drafted()] == ["false"] * 3
    assert "3 of 3 accepted" in page.inner_text(".wb-changed-tag")


def test_without_a_changed_draft_there_is_no_row_for_it(pages: Path, open_page: Open) -> None:
    page = open_page(pages / "chain.html").page
    assert page.query_selector('[data-whose="changed"], .wb-changed-tag') is None
