"""A bar of progress where somebody watches: on a terminal, and in a notebook that is run by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from workbench.core import progress


def bar(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a bar of tqdm's over `items`, silent where nobody watches, and gone once it is done.

    Parameters
    ----------
    items
        What to go through; without, the caller calls ``update``.
    options
        As tqdm takes them: ``total``, ``unit``, ``desc``, ``bar_format``.
    """
    if progress.is_watched():
        return progress.Bar(items, **options)
    if by_hand():
        return _in_notebook(items, options)
    from tqdm import tqdm

    return tqdm(items, disable=not _on_terminal(), leave=False, **options)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def by_hand() -> bool:
    """Say whether this runs in a notebook with somebody in front of it.

    A notebook that is run by a program, for a report or a test, takes no input.
    """
    if "ipykernel" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return bool(getattr(kernel, "_allow_stdin", False))


def _in_notebook(items: Iterable[Any] | None, options: dict[str, Any]) -> Any:
    """Return tqdm's bar for notebooks, as a widget that leaves an empty output and not a dead widget.

    Left to itself it stays in a saved notebook, which then shows "Error displaying widget".
    """
    from IPython.display import display
    from tqdm.notebook import tqdm_notebook

    class Bar(tqdm_notebook):  # type: ignore[misc]  # tqdm has no types
        place: Any = None

        def close(self) -> None:
            super().close()
            if self.place is not None:
                self.place.update({"text/plain": ""}, raw=True)
                self.place = None

    made = Bar(items, display=False, leave=False, **options)
    show: Any = display  # without types, too
    made.place = show(made.container, display_id=True)
    return made
