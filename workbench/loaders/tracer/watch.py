"""Watch a model load a checkpoint: which key went into which parameter, and how much of it was filled.

Nothing here knows a rule about names. A `Watch` sees the tensor operations that the loader itself
performs. It follows each checkpoint tensor, by the identity of its memory, through every operation
until values derived from it are written into memory that a parameter owns, and it keeps the byte ranges
that were written. That works without values (on the meta device), where memory has an identity, sizes
and strides, too.

Two users share these files: `trace_load.py`, a script that an engine's own Python runs, and the workbench
itself, for modules that are in its own process. So they import torch and nothing else, and keep to
Python 3.10.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .dispatch import Watch, threads_inline
from .messages import LogLines, frames_of, place_of, shorten

Named = Iterable[tuple[str, torch.Tensor]]
# How many keys a loader may stumble over, one reload each, before we stop looking for more.
MOST_ERRORS = 64


def watch_load(
    make_model: Callable[[], torch.nn.Module],
    tensors: Callable[[torch.nn.Module], Named],
    load: Callable[[torch.nn.Module, Named], Any] | None = None,
    most_errors: int = MOST_ERRORS,
) -> dict[str, Any]:
    """Load a checkpoint into a new model, watch it, and try again without the keys it stumbles over.

    Parameters
    ----------
    make_model
        Returns a new model each time: one that raised half-way is in no known state.
    tensors
        Returns the named tensors of the checkpoint for a model, anew each time.
    load
        How to load; by default ``model.load_weights(named)``.
    most_errors
        How many keys may be left out before giving up.

    Returns
    -------
    dict
        ``error`` (None, or ``key``, ``message`` and ``place`` of the first exception), ``mismatched``
        (every key at which the loader raised -> message), ``misfit_parameters`` (parameter -> key, where
        the loader got as far as choosing one), ``parameters`` (name -> shape, dtype), ``aliases`` (other
        names of shared parameters), ``writes`` (key -> parameters), ``resized`` (key -> how much of it was
        taken, where that is more or less than it holds), ``attributes`` (keys kept outside parameters),
        ``unreached_or_dropped``, ``written`` (parameter -> share, 0 to 1), ``log``, ``notes``,
        ``unexplained`` (None, or an exception in the last attempt that no single key accounts for) and
        ``unsupported`` (None, or why this says nothing about the loader). All but ``error`` and the
        ``mismatched`` pair are as if the keys in ``mismatched`` were absent.
    """
    attempts = _Attempts(make_model, tensors, load, most_errors)
    while not attempts.done():
        pass
    return attempts.report()


class _Attempts:
    """Load again and again, each time without the keys that the loader stumbled over before."""

    def __init__(
        self,
        make_model: Callable[[], torch.nn.Module],
        tensors: Callable[[torch.nn.Module], Named],
        load: Callable[[torch.nn.Module, Named], Any] | None,
        most_errors: int,
    ) -> None:
        self.make_model = make_model
        self.tensors = tensors
        self.load: Callable[..., Any] = load or _load_weights
        self.most_errors = most_errors
        self.log = LogLines()
        self.first: dict[str, Any] | None = None
        self.without: dict[str, str] = {}
        self.misfits: dict[str, str] = {}
        self.unsupported: str | None = None
        self.unexplained: str | None = None
        self.guess: tuple[str, str] | None = (
            None  # a key that was blamed without proof, and for what
        )
        self.watch: Watch
        self.feed: _Feed

    def done(self) -> bool:
        """Load once; return whether that was the last time."""
        model = self.make_model()
        self.watch = Watch(model)
        self.feed = _Feed(self.watch, self.tensors(model), self.without)
        try:
            with self.log.collecting(), threads_inline(), self.watch:
                self.load(model, self.feed)
        except Exception as error:
            return self.unexplained is not None or self._failed(error)
        return True

    def _failed(self, error: Exception) -> bool:
        """Find out what the loader stumbled over; return whether to stop."""
        message, place = shorten(error), place_of(error)
        if needs_values(error):
            self.unsupported = f"the loader asks for values, and here are only shapes: {message}"
            return True
        said = f"{message} {place}"
        if self.guess is not None and self.guess[1] == said:
            # The same again without that key: it was not to blame. Once more with it, and no further.
            del self.without[self.guess[0]]
            if self.first is not None and self.first["key"] == self.guess[0]:
                self.first["key"] = None
            self.unexplained = message
            return False
        key, proven = _blame(error, self.feed, self.watch)
        if self.first is None:
            self.first = {"key": key, "message": message, "place": place}
        if key is None or len(self.without) >= self.most_errors:
            self.unexplained = message
            return True
        self.without[key] = message
        self.guess = None if proven else (key, said)
        parameter = _parameter_inframes_of(error, self.watch)
        if parameter is not None:
            self.misfits[parameter] = key
        return False

    def report(self) -> dict[str, Any]:
        """Return what the last attempt did, and what stopped those before."""
        report = self.watch.report()
        report["unreached_or_dropped"] += [k for k in self.feed.rest() if k not in self.without]
        report.update(
            error=self.first,
            mismatched=self.without,
            misfit_parameters=self.misfits,
            unexplained=self.unexplained,
            unsupported=self.unsupported,
            log=self.log.lines,
        )
        return report


def _load_weights(model: Any, named: Named) -> None:
    model.load_weights(named)


class _Feed:
    """Hand the tensors to the loader one by one, and know which one it is at."""

    def __init__(self, watch: Watch, tensors: Named, without: Iterable[str]) -> None:
        self.watch = watch
        self.tensors = iter(tensors)
        self.without = without
        self.current: str | None = None
        self.exhausted = False

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> tuple[str, torch.Tensor]:
        with _undispatched():
            if self.current is not None:
                self.watch.left(self.current)
            for key, tensor in self.tensors:
                if key not in self.without:
                    self.current = key
                    self.watch.given.append(key)
                    return key, self.watch.follow(key, tensor)
        self.exhausted = True
        raise StopIteration

    def rest(self) -> list[str]:
        """Return the keys that were never asked for."""
        return [key for key, _ in self.tensors]


@contextlib.contextmanager
def _undispatched() -> Iterator[None]:
    """Read the checkpoint unwatched: that is not the loader's doing."""
    with torch.utils._python_dispatch._disable_current_modes():
        yield


def needs_values(error: Exception) -> bool:
    """Tell the limits of the meta device from the loader's own objections."""
    text = str(error).lower()
    return "meta tensor" in text or ("meta" in text and "device" in text)


def _tensors_in(frame: types.FrameType) -> list[torch.Tensor]:
    return [value for value in frame.f_locals.values() if isinstance(value, torch.Tensor)]


def _blame(error: BaseException, feed: _Feed, watch: Watch) -> tuple[str | None, bool]:
    """Find the key that the loader was at, and say whether that is more than a guess.

    A loader that takes one tensor after the other was at the one it took last. Others take all before
    they look at any, or go on after the last: then the tensors that the failing functions hold must tell.
    In the loader's own function such a variable may be left over from the last turn of a loop.
    """
    if not feed.exhausted:
        return feed.current, True
    frames = [frame for frame, _ in frames_of(error)]
    loops = [n for n, frame in enumerate(frames) if "load_weights" in frame.f_code.co_name]
    for number in reversed(range(len(frames))):
        keys = {key for tensor in _tensors_in(frames[number]) for key in watch.keys_of(tensor)}
        current = frames[number].f_locals.get("loaded_weight")  # what every loader calls it
        if len(keys) > 1 and isinstance(current, torch.Tensor):
            keys = set(watch.keys_of(current))
        if len(keys) == 1:
            return keys.pop(), bool(loops) and number > loops[-1]
    return None, False


def _parameter_inframes_of(error: BaseException, watch: Watch) -> str | None:
    """Find the parameter that was about to be written.

    Only functions below the loader's loop are asked: in the loop itself the variable of that kind may be left
    over from the key before.
    """
    frames = [frame for frame, _ in frames_of(error)]
    loops = [n for n, f in enumerate(frames) if "load_weights" in f.f_code.co_name]
    for frame in reversed(frames[loops[-1] + 1 :] if loops else frames):
        names = {name for tensor in _tensors_in(frame) for name in watch.owner_of(tensor)}
        if len(names) == 1:
            return names.pop()
    return None


# --- in the same process --------------------------------------------------------------------------


def meta_copy(model: torch.nn.Module) -> torch.nn.Module:
    """Copy a module with all it carries, but without memory for parameters and buffers.

    Weight loaders that hang on parameters are bound to the copy's modules, so that loading into the copy
    leaves the original alone.

    Raises
    ------
    TypeError
        Something in the module cannot be copied (a lock, a process group).
    """
    memo: dict[int, Any] = {}
    tensors = [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        empty = torch.empty_like(tensor.detach().as_subclass(torch.Tensor), device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            empty = torch.Tensor._make_subclass(type(tensor), empty, tensor.requires_grad)
        memo[id(tensor)] = empty
    copied = copy.deepcopy(model, memo)
    for tensor in tensors:
        for name, value in vars(tensor).items():
            setattr(memo[id(tensor)], name, copy.deepcopy(value, memo))
    return copied


def trace_load_weights(
    model: torch.nn.Module,
    named_tensors: Named,
    load: Callable[[torch.nn.Module, Named], Any] | None = None,
) -> dict[str, Any]:
    """Run a module's own ``load_weights`` on a copy without memory, and see what it does.

    Parameters
    ----------
    model
        A module with ``load_weights(named_tensors)``. It is not changed.
    named_tensors
        Names and tensors of the checkpoint; tensors on the meta device are enough, but small integer ones
        (``d2t``) are better given with their values.
    load
        How to load, if not by ``load_weights``.

    Returns
    -------
    dict
        As `watch_load` returns it.
    """
    given = list(named_tensors)
    return watch_load(lambda: meta_copy(model), lambda _: iter(given), load)
