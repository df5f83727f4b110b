"""A report: what was found, as one HTML file for somebody who has neither the notebook nor the kernel."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from workbench.core.outputs import Output, prepared, writing
from workbench.core.result import Result
from workbench.core.saving import load
from workbench.errors import WorkbenchError, shown

_ACCEPTED = "Give a notebook (.ipynb), a saved result (.json, from result.save), or a result."


def report(
    case_or_notebook: str | os.PathLike[str] | Result,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
) -> Path:
    """Write one HTML file that holds everything and makes no request.

    Parameters
    ----------
    case_or_notebook
        A notebook, which is executed in its own folder first (the file itself is left as it is); a
        result saved by `Result.save`; or a result.
    out
        The file to write. It appears whole or not at all.
    force
        Whether `out` may replace a file that the workbench did not write; never the source itself.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    WorkbenchError
        There is no such file, it is of no kind that is known, a cell of the notebook fails (the error
        names the cell and what it raised), or `out` cannot be written.

    Examples
    --------
    >>> workbench.report("notebooks/02_keys.ipynb", "keys.html")  # doctest: +SKIP
    """
    if isinstance(case_or_notebook, Result):
        return _written(case_or_notebook, prepared(out, "page", force=force))
    source = _source(case_or_notebook)
    if os.path.isdir(source):
        raise WorkbenchError(
            f"cannot report on {source}", why="it is a folder", next_step=_ACCEPTED
        )
    if not os.path.exists(source):
        raise WorkbenchError(
            f"cannot report on {source}", why="there is no such file", next_step=_ACCEPTED
        )
    page = prepared(out, "page", examined=(source,), force=force)
    if source.suffix == ".json":
        return _written(load(source), page)
    if source.suffix != ".ipynb":
        raise WorkbenchError(
            f"cannot report on {source}",
            why=f"{source.suffix or 'a file without an extension'} is not a kind it knows",
            next_step=_ACCEPTED,
        )
    text = notebook_page(executed(source), source)
    with writing(page, "page") as file:
        file.write(text.encode())
    return page.path


def _source(given: object) -> Path:
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        raise WorkbenchError(
            f"cannot report on {shown(given)}", why="it is no path", next_step=_ACCEPTED
        )
    return Path(path)


def _written(result: Result, page: Output) -> Path:
    result.to_html(page)
    return page.path


def verdicts(page: str | os.PathLike[str]) -> list[bool | None]:
    """Return the verdict of each result in a page that `report` wrote."""
    reader = _Verdicts()
    reader.feed(Path(page).expanduser().read_text("utf-8", "replace"))
    return reader.found


class _Verdicts(HTMLParser):
    """Read the verdicts from the tags of a page: a text that only looks like one does not count."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[bool | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        state = dict(attrs).get("data-wb-verdict")
        if state is not None:
            self.found.append({"ok": True, "wrong": False}.get(state.partition(":")[0]))


def notebook_page(notebook: Any, source: Path) -> str:
    """Return an executed notebook as a page; `source` gives its name and where its pictures lie."""
    from workbench.export.exporter import WorkbenchExporter

    resources = {"metadata": {"name": source.stem, "path": str(source.parent)}}
    exporter: Any = WorkbenchExporter  # nbconvert's constructor has no types
    page, _ = exporter().from_notebook_node(notebook, resources)
    return str(page)


def _execute(client: Any) -> None:
    """Run the notebook; where an event loop runs already, as in a notebook's own kernel, in a thread.

    Two loops of one thread would wait for each other for ever.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        client.execute()
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(client.execute).result()


def executed(source: Path) -> Any:
    """Run all cells of a notebook in its folder and return it with its outputs.

    Raises
    ------
    WorkbenchError
        It is no notebook, its kernel is not installed or dies, or a cell fails.
    """
    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    from workbench.export.boxes import unfold

    try:
        read: Any = nbformat.read  # nbformat has types in part
        notebook = read(source, as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        why = error.strerror or str(error)
        raise WorkbenchError(f"cannot read {source}", why=why, next_step=_ACCEPTED) from None
    except Exception as error:  # nbformat raises whatever a damaged file makes it stumble over
        raise WorkbenchError(
            f"cannot read {source}",
            why=f"not a notebook: {_first_line(error)}",
            next_step="Open it in JupyterLab and save it again.",
        ) from None
    client = NotebookClient(
        notebook,
        timeout=None,
        resources={"metadata": {"path": str(source.parent.resolve())}},
        store_widget_state=True,  # to see what is in them; the page has none
        extra_arguments=["--log-level=ERROR"],  # ipykernel warns of every plain TCP start
    )
    try:
        _execute(client)
    except CellExecutionError as error:
        raise _failed(source, notebook, error) from None
    except DeadKernelError:
        raise WorkbenchError(
            f"the kernel died while it ran {source}",
            why="often the system ran out of memory",
            next_step="Run the notebook in JupyterLab and see at which cell.",
        ) from None
    except NoSuchKernel as error:
        raise WorkbenchError(
            f"cannot run {source}",
            why=f"its kernel {error.name!r} is not installed here",
            next_step="Install ipykernel, or choose another kernel in JupyterLab and save.",
        ) from None
    unfold(notebook, client.widget_state)
    notebook.metadata.pop("widgets", None)
    return notebook


def _failed(source: Path, notebook: Any, error: Any) -> WorkbenchError:
    number = next(
        (
            at
            for at, cell in enumerate(notebook.cells, 1)
            if any(output.output_type == "error" for output in cell.get("outputs", ()))
        ),
        0,
    )
    code = notebook.cells[number - 1].source.strip().splitlines() if number else []
    begins = f", which begins {code[0]!r}," if code else ""
    return WorkbenchError(
        f"cell {number} of {source}{begins} failed",
        why=f"{error.ename}: {error.evalue}",
        next_step="Run the notebook in JupyterLab, repair that cell, and write the report again.",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
