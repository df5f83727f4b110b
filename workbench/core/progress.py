"""How far a long analysis is, for whoever watches it from another thread, and whether it shall stop.

The analyses show their own bar on a terminal. A notebook's panel runs them in a thread of its own: it calls
`watched`, and `workbench.core.bars` then gives them a `Bar` that reports to it instead. What has no bar
uses `say` and `step`. Nobody watches: both do nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """What an analysis does now.

    Attributes
    ----------
    text
        In words; "" where only the numbers have changed.
    done, total
        How far it is, of how much; None where that is not known.
    unit
        What is counted, with a leading space where a number needs one: ``" tensors"``, ``" s"``.
    detail
        What else is known, in a few words: bytes read, processes paused.
    """

    text: str = ""
    done: float | None = None
    total: float | None = None
    unit: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Watcher:
    tell: Callable[[Progress], None]
    stopping: Callable[[], bool]


_watcher: ContextVar[_Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(tell: Callable[[Progress], None], stopping: Callable[[], bool]) -> Iterator[None]:
    """Send the progress of what runs in this thread to `tell`, and stop it once `stopping` is true."""
    token = _watcher.set(_Watcher(tell, stopping))
    try:
        yield
    finally:
        _watcher.reset(token)


def is_watched() -> bool:
    """Whether somebody watches this thread, so that a bar of its own would be one too many."""
    return _watcher.get() is not None


def say(text: str, detail: str = "") -> None:
    """Report what is done now."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.tell(Progress(text, detail=detail))


def step(done: float, total: float | None = None, unit: str = "", detail: str = "") -> None:
    """Report how far it is.

    Raises
    ------
    KeyboardInterrupt
        Whoever watches wants it to stop: as Ctrl-C does, so an analysis that returns what it has on Ctrl-C
        returns it here as well.
    """
    watcher = _watcher.get()
    if watcher is None:
        return
    watcher.tell(Progress("", done, total, unit, detail))
    if watcher.stopping():
        raise KeyboardInterrupt


class Bar:
    """What an analysis takes for a bar of tqdm's, and whose steps go to who watches.

    Parameters
    ----------
    items
        What to go through; without, the caller calls `update`.
    options
        Of tqdm's the ``total``, ``unit`` and ``desc``; a ``bar_format`` says the unit after its total.
    """

    def __init__(self, items: Iterable[Any] | None = None, **options: Any) -> None:
        self._items = items
        self._total = options.get("total")
        if self._total is None and isinstance(items, Sized):
            self._total = len(items)
        after = re.search(r"\{total[^}]*\}(.*)$", options.get("bar_format", ""))
        self._unit = after[1] if after else options.get("unit", "")
        self._done: float = 0
        self._detail = ""
        if options.get("desc"):
            say(options["desc"])

    def __iter__(self) -> Iterator[Any]:
        for item in self._items or ():
            self.update(0)
            yield item
            self._done += 1

    def update(self, count: float = 1) -> None:
        """Report so many more; raise KeyboardInterrupt where it shall stop."""
        self._done += count
        step(self._done, self._total, self._unit, self._detail)

    def set_description_str(self, text: str) -> None:
        """Report what is done now."""
        say(text)

    def set_postfix_str(self, text: str) -> None:
        """Keep what else is known for the next step."""
        self._detail = text

    def write(self, *_: Any, **__: Any) -> None:
        """Drop a line that a terminal would show above its bar: the result has it."""

    def close(self) -> None:
        """Do nothing: there is nothing to take away."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
