"""How loops are compiled: with numba, without Python's lock, kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def kernel(*, fast: bool = False) -> Callable[[F], F]:
    """Compile a function on its first call.

    Parameters
    ----------
    fast
        Let sums be reordered, so that they use vector instructions; NaN and infinity stay what they are.
    """
    from numba import njit

    options: dict[str, Any] = {"nogil": True}
    if fast:
        options["fastmath"] = {"reassoc", "contract", "nsz"}

    def compiled(function: F) -> F:
        try:
            made: F = njit(cache=True, **options)(function)
        except (
            RuntimeError
        ):  # no folder to keep it in: neither the package's nor the user's is writable
            made = njit(**options)(function)
        return made

    return compiled
