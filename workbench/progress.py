"""How far a long analysis is, for whoever watches it from another thread, and whether it shall stop.

The analyses show their own bar on a terminal. A notebook's panel runs them in a thread of its own: it calls
`watched`, and what the analysis reports with `say` and `step` reaches it. Nobody watches: both do nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


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
