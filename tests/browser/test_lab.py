"""The view in a real JupyterLab: run by hand, scrolled away, and in a notebook that is not trusted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from ..conftest import ROOT

SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    # Cells that are out of sight leave the page: the hardest case for a view's state.
    "notebook-extension/tracker": {"windowingMode": "full"},
}
# Clicking "Run all" on a cold server is lost where the kernel is not connected yet: wait for each in turn.
RUN_ALL = """async (path) => {
  const app = window.jupyterapp;
  await app.restored;
  const opened = () => [...app.shell.widgets("main")].find((w) => w.context?.path === path);
  while (!opened()) await new Promise((go) => setTimeout(go, 100));
  const { context } = opened();
  await context.ready;
  await context.sessionContext.ready;
  await context.sessionContext.session.kernel.info;
  app.shell.activateById(opened().id);
  await app.commands.execute("notebook:run-all-cells");
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab of its own: its address and its folder."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    home = tmp_path_factory.mktemp("lab")
    work = home / "work"
    work.mkdir()
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    runtime = home / "runtime"
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": str(ROOT),
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        *(
            "--LabApp.expose_app_in_browser=True",
            "--IdentityProvider.token=",
            f"--ServerApp.root_dir={work}",
        ),
        *("--ServerApp.port=18888", "--LabApp.extension_manager=readonly"),
    ]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
        try:
            yield _address(server, runtime, home / "log"), work
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _address(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        for file in runtime.glob("jpserver-*.json"):
            # Written before it is whole: read again.
            try:
                return str(json.loads(file.read_text())["url"])
            except ValueError:
                pass
        time.sleep(0.1)
    pytest.fail("JupyterLab did not start:\n" + log.read_text(errors="replace")[-3000:])


@pytest.fixture
def open_lab(browser: Any, lab: tuple[str, Path]) -> Iterator[Callable[[str], Any]]:
    """Open a notebook of the lab; at the end, nothing outside the lab may have been asked."""
    address, _ = lab
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    outside: list[str] = []

    def route(route: Any) -> None:
        if route.request.url.startswith((address, "blob:", "data:")):
            route.continue_()
        else:
            outside.append(route.request.url)
            route.abort()

    context.route("**/*", route)
    page = context.new_page()

    def open_lab(name: str) -> Any:
        page.goto(f"{address}lab/tree/{name}?reset", timeout=120_000)
        page.wait_for_function("window.jupyterapp !== undefined", timeout=120_000)
        return page

    yield open_lab
    context.close()
    assert outside == []


def write(path: Path, *cells: str) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells]
    )
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(notebook, path)
    return notebook


def test_the_shipped_notebook_runs_and_its_views_answer(
    lab: tuple[str, Path], open_lab: Callable[[str], Any]
) -> None:
    _, work = lab
    source = ROOT / "notebooks" / "02_keys.ipynb"
    (work / "notebooks").mkdir()
    shutil.copy(source, work / "notebooks")
    shutil.copytree(ROOT / "data" / "drafts", work / "data" / "drafts")
    page = open_lab("notebooks/02_keys.ipynb")
    page.evaluate(RUN_ALL, "notebooks/02_keys.ipynb")
    errors = page.evaluate(
        """window.jupyterapp.shell.currentWidget.context.model.sharedModel.toJSON().cells
        .flatMap((cell) => cell.outputs ?? []).filter((output) => output.output_type === "error")"""
    )
    assert errors == []
    # Running all has scrolled to the end, and what is far from there is not drawn.
    page.evaluate("window.jupyterapp.shell.currentWidget.content.scrollToItem(3, 'start')")
    view = page.locator(".wb-view[data-ready]:visible").first
    view.wait_for(timeout=60_000)
    if folder := os.environ.get("WORKBENCH_PICTURES"):
        page.wait_for_timeout(1000)
        page.screenshot(path=Path(folder) / "lab.png")
    view.locator(".wb-filter").fill("q_proj")
    assert " of " in view.locator(".wb-told").inner_text()
    assert "q_proj" in view.locator(".wb-rows .wb-row .wb-name").first.get_attribute("title")


def test_state_lives_in_the_kernel_and_outlives_scrolling(
    lab: tuple[str, Path], open_lab: Callable[[str], Any]
) -> None:
    _, work = lab
    filler = ["print('\\n' * 60)"] * 12
    write(
        work / "state.ipynb",
        "from tests.display_samples import big\nview = big().view()\nview",
        *filler,
        "print('last')",
    )
    page = open_lab("state.ipynb")
    page.evaluate(RUN_ALL, "state.ipynb")
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


def test_an_untrusted_notebook_shows_the_static_preview(
    lab: tuple[str, Path], open_lab: Callable[[str], Any]
) -> None:
    from workbench.export.report import executed

    _, work = lab
    path = work / "untrusted.ipynb"
    write(
        path,
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.display_samples import incident\nincident()",
    )
    notebook = executed(path)
    for output in notebook.cells[0].outputs:
        # As when the kernel and its widgets are gone.
        output.data.pop("application/vnd.jupyter.widget-view+json", None)
    nbformat.write(notebook, path)
    page = open_lab("untrusted.ipynb")
    output = page.locator(".jp-OutputArea-output").first
    output.wait_for(timeout=60_000)
    text = output.inner_text()
    assert "silently drops 10 of 16 keys" in text
    assert "layers.0.self_attn.q_proj.weight" in text
    assert "import" not in text  # no script shown as text
    assert page.locator(".wb-view").count() == 0
    if folder := os.environ.get("WORKBENCH_PICTURES"):
        page.screenshot(path=Path(folder) / "untrusted.png")

    # Once the reader trusts it, the same output is alive, still without a kernel.
    page.evaluate(
        """for (const cell of window.jupyterapp.shell.currentWidget.content.widgets)
             cell.model.trusted = true;"""
    )
    view = page.locator(".wb-view[data-ready]")
    view.wait_for(timeout=30_000)
    view.locator(".wb-filter").fill("q_proj")
    assert view.locator(".wb-told").inner_text() == "1 of 23 rows · 1 group"
