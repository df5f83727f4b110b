"""How many threads torch gets for a model: a small one is quicker with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_SMALL = 1024


@contextmanager
def few_threads(hidden: int) -> Iterator[None]:
    """Run a block with one thread of torch where the model is small, and leave the number as it was.

    Threads that share a small product wait for each other longer than they compute: all ablations of the
    shipped pair (hidden size 256) take 45 s of CPU with one thread, 87 s of two quiet cores with two, and
    ten times that on a machine that has other work.

    Parameters
    ----------
    hidden
        The model's hidden size.
    """
    import torch

    before = torch.get_num_threads()
    if hidden >= _SMALL or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Sized(Protocol):
    hidden: int


M = TypeVar("M", bound=_Sized)


def on_few_threads(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """Run a model's method under `few_threads` of its own size."""

    @wraps(method)
    def run(self: M, /, *arguments: P.args, **named: P.kwargs) -> R:
        with few_threads(self.hidden):
            return method(self, *arguments, **named)

    return run
