"""A bar of progress where somebody watches: on a terminal, and in a notebook that is run by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def bar(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return a bar of tqdm's over `items`, silent where nobody watches, and gone once it is done.

    Parameters
    ----------
    items
        What to go through; without, the caller calls ``update``.
    options
        As tqdm takes them: ``total``, ``unit``, ``desc``, ``bar_format``.
    """
    from tqdm.auto import tqdm

    return tqdm(items, disable=not watched(), leave=False, **options)


def watched() -> bool:
    """Say whether somebody sees a bar.

    A notebook that is run by a program, for a report or a test, takes no input: there the bar would stay
    in the output as text.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    if "ipykernel" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return bool(getattr(kernel, "_allow_stdin", False))
