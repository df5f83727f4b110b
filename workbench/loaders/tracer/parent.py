"""The end of a script that an engine's own Python runs."""

from __future__ import annotations

import contextlib
import ctypes
import signal


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is gone, however that came about."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
