"""The view in a real JupyterLab: run by hand, scrolled away, and in a notebook that is not trusted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT
from .jupyter import KERNEL, OPENED, SAVE, Server, browsing, open_notebook, run_all, serving, write


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving("lab", tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture
def open_lab(browser: Any, lab: Server) -> Iterator[Callable[[str], Any]]:
    """Open a notebook of the lab; at the end, nothing outside the lab may have been asked."""
    with browsing(browser, lab) as page:

        def open_lab(name: str) -> Any:
            open_notebook(page, lab, name)
            return page

        yield open_lab


def test_the_shipped_notebook_runs_and_its_views_answer(
    lab: Server, open_lab: Callable[[str], Any]
) -> None:
    work = lab.work
    source = ROOT / "notebooks" / "02_keys.ipynb"
    (work / "notebooks").mkdir()
    shutil.copy(source, work / "notebooks")
    shutil.copytree(ROOT / "data" / "drafts", work / "data" / "drafts")
    page = open_lab("notebooks/02_keys.ipynb")
    run_all(page, "notebooks/02_keys.ipynb")
    # Running all has scrolled to the end, and what is far from there is not drawn.
    page.evaluate("window.jupyterapp.shell.currentWidget.content.scrollToItem(3, 'start')")
    view = page.locator(".wb-view[data-ready]:visible").first
    view.wait_for(timeout=60_000)
    if folder := os.environ.get("WORKBENCH_PICTURES"):
        page.wait_for_timeout(1000)
        page.screenshot(path=Path(folder) / "lab.png")
    view.locator(".wb-filter").fill("q_proj")
    assert " of " in view.locator(".wb-status").inner_text()
    assert "q_proj" in view.locator(".wb-rows .wb-row .wb-name").first.get_attribute("title")


def test_state_lives_in_the_kernel_and_outlives_scrolling(
    lab: Server, open_lab: Callable[[str], Any]
) -> None:
    work = lab.work
    filler = ["print('\\n' * 60)"] * 12
    write(
        work / "state.ipynb",
        "from tests.display_samples import big\nview = big().view()\nview",
        *filler,
        "print('last')",
    )
    page = open_lab("state.ipynb")
    run_all(page, "state.ipynb")
    top = page.locator(".jp-WindowedPanel-outer").first
    top.evaluate("node => node.scrollTo(0, 0)")
    view = page.locator(".wb-view[data-ready]")
    view.wait_for(timeout=60_000)
    view.locator(".wb-filter").fill("o_proj")
    view.locator(".wb-rows .wb-row").first.click()
    view.locator(".wb-grid").focus()
    # Lab would take these keys for its own: cells would be selected or inserted.
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "b"):
        page.keyboard.press(key)
    chosen = "language_model.model.layers.2.self_attn.o_proj.weight"
    assert view.locator(".wb-about-name").inner_text().endswith(chosen)
    page.wait_for_timeout(400)

    # The active cell never leaves: choose the last one, and scroll there.
    page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 13")
    top.evaluate("node => node.scrollTo(0, node.scrollHeight)")
    view.wait_for(state="hidden")
    top.evaluate("node => node.scrollTo(0, 0)")
    view.wait_for()
    assert view.locator(".wb-filter").input_value() == "o_proj"
    assert view.locator(".wb-rows .wb-row").count() > 10

    count = page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.length")
    assert count == 14  # no cell was inserted by the keys above
    asked = page.evaluate(
        """async () => {
          const { kernel } = window.jupyterapp.shell.currentWidget.context.sessionContext.session;
          let said = "";
          const future = kernel.requestExecute({ code: "print(view.ui['filter'], view.ui['row'])" });
          future.onIOPub = (message) => { if (message.content.text) said += message.content.text; };
          await future.done;
          return said.trim();
        }"""
    )
    assert asked.startswith("o_proj [")
    assert asked.endswith(", 2]")

    # Drawn anew from the model, as after a real removal.
    page.evaluate("""async () => {
      const app = window.jupyterapp;
      app.shell.currentWidget.content.activeCellIndex = 0;
      await app.commands.execute("notebook:create-output-view");
    }""")
    again = page.locator(".jp-LinkedOutputView .wb-view[data-ready]")
    again.wait_for(timeout=30_000)
    assert again.locator(".wb-filter").input_value() == "o_proj"
    assert again.locator(".wb-about-name").inner_text().endswith(chosen)

    # The page is loaded anew, the kernel lives on: the choice comes back from it.
    page.evaluate(SAVE, "state.ipynb")
    page.reload()
    page.wait_for_function("window.jupyterapp !== undefined", timeout=120_000)
    page.evaluate(OPENED, "state.ipynb")
    page.evaluate(KERNEL, "state.ipynb")
    from playwright.sync_api import expect

    kept = page.locator(".jp-Notebook .wb-filter").first
    expect(kept).to_have_value("o_proj", timeout=60_000)
