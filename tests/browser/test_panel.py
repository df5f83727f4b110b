"""The panel in a real JupyterLab: by keyboard alone, saved, and reopened without a kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT
from .jupyter import Server, run_all, write
from .test_lab import lab, open_lab

__all__ = ["lab", "open_lab"]  # fixtures

CASE = ROOT / "data/incident/hang/capture-hang"
DRAFT = ROOT / "data/drafts/speculators"
SAVE_AND_SHUT_DOWN = """async () => {
  const { app, widget } = { app: window.jupyterapp, widget: window.jupyterapp.shell.currentWidget };
  await app.commands.execute("docmanager:save");
  await widget.context.sessionContext.shutdown();
}"""
CELLS = "window.jupyterapp.shell.currentWidget.content.widgets.length"


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("WORKBENCH_PICTURES"):
        page.screenshot(path=Path(folder) / name)


def focused(page: Any) -> str:
    """What has the focus: the class that names its field, or the text of a button."""
    return str(
        page.evaluate(
            """() => {
              const field = document.activeElement.closest("[class*='wbp-name-']");
              const name = field && [...field.classList].find((c) => c.startsWith("wbp-name-"));
              return name || document.activeElement.textContent.trim();
            }"""
        )
    )


@pytest.fixture
def opened(lab: Server, open_lab: Callable[[str], Any]) -> Any:
    """A panel in a notebook that has just been run."""
    work = lab.work
    write(work / "panel.ipynb", "import workbench\npanel = workbench.panel()\npanel", "1 + 1")
    page = open_lab("panel.ipynb")
    run_all(page, "panel.ipynb")
    page.locator(".wb-panel[data-ready]").wait_for(timeout=60_000)
    return page


def test_by_keyboard_to_a_diagnosis_that_survives_the_kernel(
    lab: Server, open_lab: Callable[[str], Any], opened: Any
) -> None:
    page = opened
    cells = page.evaluate(CELLS)
    # Tab order: the jobs, then the form from top to bottom.
    page.locator(".wbp-jobs button").first.focus()
    order = []
    for _ in range(12):
        page.keyboard.press("Tab")
        order.append(focused(page))
        if order[-1] == "wbp-name-path":
            break
    assert order == ["Keys", "Weights", "Replay", "wbp-name-server", "Refresh", "wbp-name-path"]
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    # Letters that JupyterLab would take for its own: cells would be cut, inserted, or merged.
    page.keyboard.type(f"xabdd{CASE}")
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("Delete")
    page.keyboard.press("Enter")
    view = page.locator(".wb-record .wb-view[data-ready]")
    view.wait_for(timeout=60_000)
    assert "TP1" in view.inner_text()
    assert page.evaluate(CELLS) == cells
    assert page.locator(".wbp-name-path input").input_value() == str(CASE)
    assert focused(page) == "wbp-name-path"  # the result has not taken the focus away
    # While the panel lives, form and code are seen once.
    assert not page.locator(".wb-record-form").is_visible()
    assert page.locator(".wbp-code pre").first.inner_text() == f"workbench.open_evidence('{CASE}')"
    picture(page, "panel.png")

    page.evaluate(SAVE_AND_SHUT_DOWN)
    work = lab.work
    outputs = json.loads((work / "panel.ipynb").read_text())["cells"][0]["outputs"]
    assert "VBox" not in json.dumps([one["data"].get("text/plain", "") for one in outputs])
    page = open_lab("panel.ipynb")
    view = page.locator(".wb-record .wb-view[data-ready]")
    view.wait_for(timeout=60_000)
    text = page.locator(".jp-OutputArea").first.inner_text()
    assert "TP1" in text
    assert f"workbench.open_evidence('{CASE}')" in text
    assert "Or a case" in text
    assert "model not found" not in text
    assert "VBox" not in text
    picture(page, "panel-reopened.png")


def test_an_untrusted_reader_sees_form_code_and_result(
    lab: Server, open_lab: Callable[[str], Any], opened: Any
) -> None:
    work = lab.work
    page = opened
    page.locator(".wbp-name-path input").fill(str(CASE))
    page.keyboard.press("Enter")
    page.locator(".wb-record .wb-view[data-ready]").wait_for(timeout=60_000)
    page.evaluate(SAVE_AND_SHUT_DOWN)
    # As from somebody else: under another name and with other bytes it has no signature here.
    saved = json.loads((work / "panel.ipynb").read_text())
    saved["cells"][1]["source"] = "2 + 2"
    saved["cells"][0]["source"] += "\n# mailed"
    (work / "mailed.ipynb").write_text(json.dumps(saved))
    page = open_lab("mailed.ipynb")
    area = page.locator(".jp-OutputArea").first
    area.locator("text=TP1").first.wait_for(timeout=60_000)
    text = area.inner_text()
    assert page.locator(".wb-view").count() == 0  # nothing runs
    for part in ("Or a case", f"workbench.open_evidence('{CASE}')", "TP1"):
        assert part in text
    for part in ("jp-OutputArea", "import(", "model not found", "VBox"):
        assert part not in text


def test_what_is_typed_last_is_run_and_a_mistake_is_a_message(opened: Any) -> None:
    page = opened
    page.locator(".wbp-name-path input").focus()
    page.keyboard.type("/nowhere/at/all.zip")
    page.keyboard.press("Enter")  # at once: the kernel may not have heard the last letters
    error = page.locator(".wb-record .wb-error")
    error.wait_for(timeout=60_000)
    assert "/nowhere/at/all.zip" in error.inner_text()
    assert "Next:" in error.inner_text()
    assert "Traceback" not in page.locator(".jp-OutputArea").first.inner_text()
    # The next job has its own form, and the mistake stays with its own.
    page.locator(".wbp-jobs button", has_text="Keys").click()
    page.locator(".wbp-name-ckpt input").fill(str(DRAFT))
    page.locator(".wbp-name-model input").fill("sglang==0.5.8")
    page.keyboard.press("Enter")
    page.locator(".wb-record [data-job=keys] .wb-view[data-ready]").wait_for(timeout=60_000)
    assert not error.is_visible()
    assert page.locator(".wbp-follow .wbp-action").inner_text() == "Write repaired copy"
    page.locator(".wb-panel").evaluate("node => node.scrollIntoView()")
    for theme in ("Light", "Dark"):
        page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })",
            f"JupyterLab {theme}",
        )
        page.wait_for_timeout(500)
        picture(page, f"panel-{theme.lower()}.png")
