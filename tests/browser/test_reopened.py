"""A saved notebook opened again, its kernel and its server gone: in Lab and Notebook 7, trusted and not."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from workbench.display.static_html import static

from .. import display_samples, weights_samples
from .jupyter import KERNEL, SAVE, Kind, browsing, open_notebook, run_all, serving, write

CELLS = (
    "from tests import display_samples, hang_samples, replay_samples, weights_samples\n"
    "display_samples.incident()",
    "hang_samples.diverged()",
    "view = weights_samples.target().view()\nview",
    "from workbench.core.bars import bar\nfor _ in bar(range(3)):\n    pass\nprint('\\n' * 80)",
    "replay_samples.chain()",
    "display_samples.incident()",
)
RESULTS = {0: "keydiff", 1: "hang", 2: "weights", 4: "replay", 5: "keydiff"}  # cell: piece
NO_KERNEL = (
    "--KernelSpecManager.ensure_native_kernel=False",
    "--KernelSpecManager.allowed_kernelspecs=none",
)
VIEW = ".wb-view[data-ready]"


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """A notebook that was run by hand and saved, and the home of its server."""

    kind: Kind
    home: Path
    name: str = "saved.ipynb"

    @property
    def path(self) -> Path:
        return self.home / "work" / self.name


@pytest.fixture(scope="module", params=["lab", "notebook"])
def saved(browser: Any, request: Any, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    made = Saved(request.param, tmp_path_factory.mktemp(request.param))
    with serving(made.kind, made.home) as server:
        write(server.work / made.name, *CELLS)
        with browsing(browser, server) as page:
            open_notebook(page, server, made.name)
            run_all(page, made.name)
            wait_for_all(page)
            page.evaluate(SAVE, made.name)
    return made


def cell(page: Any, at: int) -> Any:
    """Scroll a cell into view: what is far away is not drawn."""
    page.evaluate(
        """async (at) => {
          const notebook = window.jupyterapp.shell.currentWidget.content;
          notebook.activeCellIndex = at;
          await notebook.scrollToItem(at, "start");
        }""",
        at,
    )
    return page.locator(f'.jp-Notebook [data-windowed-list-index="{at}"] .jp-OutputArea').first


def wait_for_all(page: Any) -> None:
    for at in RESULTS:
        cell(page, at).locator(VIEW).wait_for(timeout=60_000)


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("WORKBENCH_PICTURES"):
        page.wait_for_timeout(600)
        page.screenshot(path=Path(folder) / f"{name}.png")


def no_kernel_dialog(page: Any) -> None:
    """A server without kernels asks for one: nothing is chosen."""
    dialog = page.locator(".jp-Dialog")
    dialog.wait_for(timeout=60_000)
    page.locator(".jp-Dialog .jp-mod-reject, .jp-Dialog button").first.click()
    dialog.wait_for(state="hidden")


@pytest.mark.parametrize(
    ("kernel", "scheme"),
    [("a new kernel", "light"), ("a new kernel", "dark"), ("no kernel", "light")],
)
def test_a_trusted_notebook_is_alive_again(
    browser: Any, saved: Saved, kernel: str, scheme: str
) -> None:
    more = NO_KERNEL if kernel == "no kernel" else ()
    with (
        serving(saved.kind, saved.home, *more) as server,
        browsing(browser, server, color_scheme=scheme) as page,
    ):
        open_notebook(page, server, saved.name)
        if kernel == "no kernel":
            no_kernel_dialog(page)
        else:
            page.evaluate(KERNEL, saved.name)
        if scheme == "dark":
            page.evaluate(
                "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
            )
        for at in RESULTS:
            cell(page, at).locator(VIEW).wait_for(timeout=60_000)
            picture(page, f"{saved.kind}-{kernel.split(maxsplit=1)[0]}-{scheme}-{at}")
        assert page.locator("text=Error displaying widget").count() == 0
        assert page.locator("text=Loading widget").count() == 0
        first = cell(page, 0)
        first.locator(".wb-filter").fill("q_proj")
        assert first.locator(".wb-status").first.inner_text() == "1 of 23 rows · 1 group"
        # The same result further down keeps its own filter.
        assert cell(page, 5).locator(".wb-filter").input_value() == ""
        assert cell(page, 0).locator(".wb-filter").input_value() == "q_proj"


def test_what_is_saved_is_small_and_holds_no_widget(saved: Saved) -> None:
    notebook = json.loads(saved.path.read_text())
    assert "widgets" not in notebook["metadata"]
    for at, piece in RESULTS.items():
        (output,) = notebook["cells"][at]["outputs"]
        assert sorted(output["data"]) == ["text/html", "text/plain"]
        text = "".join(output["data"]["text/html"])
        assert f'data-wb-piece="{piece}-' in text
        assert len(text) < 120_000


def test_a_result_is_alive_after_the_other_cells_were_deleted(browser: Any, saved: Saved) -> None:
    # Trust goes by what is in the file, not by its name.
    alone = shutil.copy(saved.path, saved.path.with_name("alone.ipynb")).name
    with serving(saved.kind, saved.home) as server, browsing(browser, server) as page:
        open_notebook(page, server, alone)
        cell(page, 5).locator(VIEW).wait_for(timeout=60_000)
        page.evaluate(
            """async () => {
              const { context } = window.jupyterapp.shell.currentWidget;
              const model = context.model.sharedModel;
              for (let at = 4; at >= 0; at--) model.deleteCell(at);
              await context.save();
            }"""
        )
        page.reload()
        page.wait_for_function("window.jupyterapp !== undefined", timeout=120_000)
        view = page.locator(VIEW)
        view.wait_for(timeout=60_000)
        view.locator(".wb-filter").fill("q_proj")
        assert view.locator(".wb-status").first.inner_text() == "1 of 23 rows · 1 group"


def test_an_untrusted_notebook_shows_the_whole_static_form(browser: Any, saved: Saved) -> None:
    # Another user of the same file: a data folder without this notebook's signature.
    with (
        serving(saved.kind, saved.home, data="stranger") as server,
        browsing(browser, server) as page,
    ):
        open_notebook(page, server, saved.name)
        for at, made in {
            0: display_samples.incident(),
            2: weights_samples.target(),
            5: display_samples.incident(),
        }.items():
            output = cell(page, at).locator(".jp-RenderedHTML")
            output.wait_for(timeout=60_000)
            picture(page, f"{saved.kind}-untrusted-{at}")
            still = page.evaluate(
                """(text) => new DOMParser().parseFromString(text, "text/html").body.textContent""",
                static(made),
            )
            assert output.text_content().split() == still.split()
        assert page.locator(".wb-view").count() == 0
