"""SIGTERM and SIGHUP as Ctrl-C: they end a collection early, and what was taken so far is written.

Kubernetes and Slurm send the one, a terminal that is lost the other.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _Stop:
    """Whether a signal may interrupt now; one that may not is kept for later."""

    def __init__(self) -> None:
        self.shielded = False
        self.pending = False
        self.done = False

    def handle(self, number: int) -> None:
        """Interrupt what runs, once; a second signal must not lose what the first one saved."""
        if self.done and number != signal.SIGINT:
            return
        if self.shielded:
            self.pending = True
            return
        self.done = True
        raise KeyboardInterrupt


_active: list[_Stop] = []


def _handle(number: int, frame: Any) -> None:
    """Give a signal to the innermost block, which alone knows whether it may be interrupted."""
    stop = _mine()
    if stop is not None:
        stop.handle(number)


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, once, until the block ends.

    Signals that are ignored (nohup) stay ignored. Outside of the main thread nothing changes. Blocks may be
    nested: a signal ends the innermost one, and what that one settled holds until its end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _Stop()
    before = {}
    _active.append(stop)
    try:
        for number in (*_ENDING, signal.SIGINT):
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            if signal.getsignal(number) == default:
                before[number] = signal.signal(number, _handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _active.remove(stop)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Put signals off until the block ends, so that no file is left half-written in a zip."""
    stop = _mine()
    if stop is None or stop.shielded:
        yield
        return
    stop.shielded = True
    try:
        yield
    finally:
        stop.shielded = False
    if stop.pending:
        stop.pending = False
        stop.done = True
        raise KeyboardInterrupt


def settle() -> None:
    """Take no further SIGTERM or SIGHUP: what was taken is being written, and then the work ends anyway."""
    stop = _mine()
    if stop is not None:
        stop.done = True


def _mine() -> _Stop | None:
    here = threading.current_thread() is threading.main_thread()
    return _active[-1] if _active and here else None
