"""A JupyterLab or Notebook 7 for the tests of a browser: cold, without news, nothing from home."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import nbformat
import pytest

from ..conftest import ROOT

Kind = Literal["lab", "notebook"]

SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    # Cells that are out of sight leave the page: the hardest case for a view's state.
    "notebook-extension/tracker": {"windowingMode": "full"},
}
_PROGRAMS = {
    "lab": ("jupyterlab", "--LabApp.expose_app_in_browser=True", "lab/tree/{}?reset"),
    "notebook": ("notebook", "--JupyterNotebookApp.expose_app_in_browser=True", "notebooks/{}"),
}
# The notebook is there, in front, and drawn; nothing is asked of its kernel.
OPENED = """async (path) => {
  const app = window.jupyterapp;
  await app.restored;
  const opened = () => [...app.shell.widgets("main")].find((w) => w.context?.path === path);
  while (!opened()) await new Promise((go) => setTimeout(go, 100));
  await opened().context.ready;
  await opened().revealed;
  app.shell.activateById(opened().id);
}"""
# The kernel is there and answers.
KERNEL = """async (path) => {
  const opened = [...window.jupyterapp.shell.widgets("main")].find((w) => w.context?.path === path);
  await opened.context.sessionContext.ready;
  await opened.context.sessionContext.session.kernel.info;
}"""
RUN_ALL = """() => window.jupyterapp.commands.execute("notebook:run-all-cells")"""
SAVE = """async (path) => {
  const opened = [...window.jupyterapp.shell.widgets("main")].find((w) => w.context?.path === path);
  await opened.context.save();
}"""
ERRORS = """(path) => [...window.jupyterapp.shell.widgets("main")].find((w) => w.context?.path === path)
  .context.model.sharedModel.toJSON().cells.flatMap((cell) => cell.outputs ?? [])
  .filter((output) => output.output_type === "error")"""


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A running server: what it is, its address, and the folder it serves."""

    kind: Kind
    address: str
    work: Path

    def url(self, name: str) -> str:
        return self.address + _PROGRAMS[self.kind][2].format(name)


@contextlib.contextmanager
def serving(kind: Kind, home: Path, *more: str, data: str = "data") -> Iterator[Server]:
    """Run a server; `home` keeps its notebooks and, in the folder `data`, which of them are trusted."""
    module, expose, _ = _PROGRAMS[kind]
    pytest.importorskip(module, reason=f"{module} is not installed")
    work, runtime = home / "work", home / "runtime"
    work.mkdir(exist_ok=True)
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / data),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": str(ROOT),
    }
    command = [
        *(sys.executable, "-m", module, "--no-browser", "--allow-root", "--ip=127.0.0.1", expose),
        *("--IdentityProvider.token=", f"--ServerApp.root_dir={work}", "--ServerApp.port=18888"),
        *("--LabApp.extension_manager=readonly", *more),
    ]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
        try:
            yield Server(kind, _address(server, runtime, home / "log"), work)
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            for file in runtime.glob("jpserver-*"):
                file.unlink()


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
    pytest.fail("The server did not start:\n" + log.read_text(errors="replace")[-3000:])


@contextlib.contextmanager
def browsing(browser: Any, server: Server, **options: Any) -> Iterator[Any]:
    """A new browser profile on a server; at the end, nothing outside the server may have been asked."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, **options)
    outside: list[str] = []

    def route(route: Any) -> None:
        if route.request.url.startswith((server.address, "blob:", "data:")):
            route.continue_()
        else:
            outside.append(route.request.url)
            route.abort()

    context.route("**/*", route)
    try:
        yield context.new_page()
    finally:
        context.close()
    assert outside == []


def open_notebook(page: Any, server: Server, name: str) -> None:
    """Open a notebook and wait until it is there."""
    page.goto(server.url(name), timeout=120_000)
    page.wait_for_function("window.jupyterapp !== undefined", timeout=120_000)
    page.evaluate(OPENED, name)


def run_all(page: Any, name: str) -> None:
    """Run all cells; a click on a cold server is lost where the kernel is not connected yet."""
    page.evaluate(KERNEL, name)
    page.evaluate(RUN_ALL)
    assert page.evaluate(ERRORS, name) == []


def write(path: Path, *cells: str) -> nbformat.NotebookNode:
    """Write a notebook of code cells."""
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
