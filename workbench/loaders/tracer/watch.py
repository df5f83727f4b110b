"""Watch a model load a checkpoint: which key went into which parameter, and how much of it was filled.

Nothing here knows a rule about names. A `Watch` sees the tensor operations that the loader itself
performs. It follows each checkpoint tensor, by the identity of its memory, through every operation
until values derived from it are written into memory that a parameter owns, and it keeps the byte ranges
that were written. That works without values (on the meta device), where memory has an identity, sizes
and strides, too.

Two users share this file: `trace_load.py`, a script that an engine's own Python runs, and the workbench
itself, for modules that are in its own process. So it imports torch and nothing else, and keeps to
Python 3.10.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import copy
import logging
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Named = Iterable[tuple[str, torch.Tensor]]
# Bytes of a memory: the first, how many in a row, and (step, count) for each dimension of such rows.
Block = tuple[int, int, tuple[tuple[int, int], ...]]

# Every byte of a parameter before loading. In each float format that is a NaN, and not the one that
# arithmetic yields, so that a checkpoint full of NaNs does not look unwritten.
SENTINEL = 0xFF
# How many keys a loader may stumble over, one reload each, before we stop looking for more.
MOST_ERRORS = 64
# A write that is scattered over more pieces than this is taken as the range from first to last.
MOST_PIECES = 20_000_000
# In-place operations that write only where their index says, and what stands for the index.
INDEXED = {
    "aten::index_put_": ("indices",),
    "aten::_index_put_impl_": ("indices",),
    "aten::index_copy_": ("dim", "index"),
    "aten::index_fill_": ("dim", "index"),
    "aten::index_add_": ("dim", "index"),
    "aten::scatter_": ("dim", "index"),
    "aten::scatter_add_": ("dim", "index"),
    "aten::masked_fill_": ("mask",),
    "aten::masked_scatter_": ("mask",),
}


# --- memory ---------------------------------------------------------------------------------------


def memory_of(tensor: torch.Tensor) -> int:
    """Identify the memory a tensor lies in: equal for all views of it, 0 where it has none.

    The address would not do: on the meta device it is always 0.
    """
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # a wrapper around other tensors
        return 0


def block_of(tensor: torch.Tensor) -> Block | None:
    """Return the bytes of its memory that a tensor covers, None if it has no elements."""
    if tensor.numel() == 0:
        return None
    item = tensor.element_size()
    start = int(tensor.storage_offset()) * item
    strides = sorted(
        (int(stride) * item, int(size))
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1 and stride > 0  # stride 0: the same elements again
    )
    length = item
    while strides and strides[0][0] <= length:
        stride, size = strides.pop(0)
        length += stride * (size - 1)
    pieces = 1
    for _, size in strides:
        pieces *= size
    if pieces > MOST_PIECES:
        return start, length + sum(s * (n - 1) for s, n in strides), ()
    return start, length, tuple(strides)


def measure(blocks: Iterable[Block]) -> int:
    """Count the bytes that blocks cover together, each byte once."""
    starts, lengths = [], []
    for start, length, strides in blocks:
        places = torch.tensor([start], dtype=torch.int64, device="cpu")
        for stride, size in strides:
            steps = torch.arange(size, dtype=torch.int64, device="cpu") * stride
            places = (places[:, None] + steps).flatten()
        starts.append(places)
        lengths.append(torch.full_like(places, length))
    if not starts:
        return 0
    first, order = torch.cat(starts).sort()
    stop = first + torch.cat(lengths)[order]
    reached = stop.cummax(0).values  # how far all pieces up to here reach
    before = torch.cat([first[:1], reached[:-1]])
    return int((reached - torch.maximum(before, first)).clamp(min=0).sum())


def _raw(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the bytes of a dense tensor, one row an element, or None where there are no values."""
    tensor = tensor.detach()
    if tensor.is_meta or not tensor.is_contiguous() or not tensor.numel():
        return None
    flat = tensor.as_subclass(torch.Tensor).reshape(-1).view(torch.uint8)
    return flat.view(tensor.numel(), tensor.element_size())


# --- watching -------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follow checkpoint tensors through torch operations into the parameters of a model.

    Use as a context manager around the loading, with every tensor of the checkpoint passed through
    `follow`; then read `report`.

    Attributes
    ----------
    given
        Keys in the order in which the loader took them.
    writes
        Key -> names of the parameters that values of it were written into.
    notes
        What could only be estimated.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.given: list[str] = []
        self.writes: dict[str, set[str]] = collections.defaultdict(set)
        self.notes: list[str] = []
        self._size: dict[str, int] = {}
        self._integers: set[str] = set()
        self._kept: set[str] = set()
        self._taken: dict[str, dict[str, int]] = collections.defaultdict(dict)
        self.parameters = dict(model.named_parameters())
        self._owners: dict[int, list[str]] = collections.defaultdict(list)
        for name, parameter in self.parameters.items():
            self._owners[memory_of(parameter)].append(name)
        self._extent = {name: _extent(p) for name, p in self.parameters.items()}
        self._first = {name: memory_of(p) for name, p in self.parameters.items()}
        self._origin: dict[int, frozenset[str]] = {}  # memory -> keys whose values lie there
        self._computed: set[int] = set()  # memory that one operation filled from end to end
        self._written: dict[int, set[Block]] = collections.defaultdict(set)
        self._alive: list[Any] = []  # or freed memory would be handed out again, with its identity
        self._alive.extend(self.parameters.values())
        for parameter in self.parameters.values():
            raw = _raw(parameter)
            if raw is not None:
                raw.fill_(SENTINEL)

    def follow(self, key: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a checkpoint tensor, to be handed to the loader, that is known by its key."""
        # A copy, since tensors of one file may share one block of memory.
        copied = torch.empty_like(tensor) if tensor.is_meta else tensor.detach().clone()
        self._size[key] = copied.numel()
        if not copied.is_floating_point():
            self._integers.add(key)
        self._mark(copied, frozenset((key,)))
        self._computed.add(memory_of(copied))
        return copied

    def left(self, key: str) -> None:
        """See whether the loader, done with a key, keeps it outside of parameters: a later may replace it.

        Asked for integers only, which are what is kept so (maps of token ids), since it takes a while.
        """
        if key in self._integers and not self.writes.get(key):
            self._kept |= self._keys_in_attributes()

    def keys_of(self, tensor: torch.Tensor) -> frozenset[str]:
        """Return the keys that the values in a tensor's memory come from."""
        return self._origin.get(memory_of(tensor), frozenset())

    def owner_of(self, tensor: torch.Tensor) -> list[str]:
        """Return the parameters that a tensor is a view of."""
        names = self._owners.get(memory_of(tensor), [])
        if len(names) < 2:  # the usual case needs no geometry
            return names
        low, high = _extent(tensor)
        return [n for n in names if self._extent[n][0] < high and low < self._extent[n][1]]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and see what it read and wrote."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        keys: frozenset[str] = frozenset().union(*(self.keys_of(t) for t in read))
        for value in _written_arguments(func, args, kwargs):
            if isinstance(value, torch.Tensor):
                self._wrote(func, args, kwargs, value, keys)
            elif isinstance(value, (list, tuple)):  # _foreach_copy_ and its like
                sources = next((a for a in args[1:] if isinstance(a, (list, tuple))), ())
                for number, tensor in enumerate(value):
                    source = sources[number] if len(sources) == len(value) else None
                    own = self.keys_of(source) if isinstance(source, torch.Tensor) else keys
                    self._wrote(func, args, kwargs, tensor, own)
        if keys:
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    memory = memory_of(tensor)
                    if memory not in self._owners and memory not in self._origin:
                        self._mark(tensor, keys)
                        self._computed.add(memory)
        return result

    def _mark(self, tensor: torch.Tensor, keys: frozenset[str]) -> None:
        memory = memory_of(tensor)
        if memory and keys:
            self._origin[memory] = self._origin.get(memory, frozenset()) | keys
            self._alive.append(tensor.untyped_storage())

    def _wrote(
        self, func: Any, args: Any, kwargs: Any, tensor: torch.Tensor, keys: frozenset[str]
    ) -> None:
        owners = self.owner_of(tensor)
        for key in keys:
            self.writes[key].update(owners)
        if len(keys) == len(owners) == 1 and func._schema.name == "aten::copy_":
            taken = self._taken[next(iter(keys))]
            taken[owners[0]] = taken.get(owners[0], 0) + args[1].numel()
        if not owners:
            self._mark(tensor, keys)
        if owners or keys:
            self._written[memory_of(tensor)].update(self._blocks(func, args, kwargs, tensor))

    def _blocks(self, func: Any, args: Any, kwargs: Any, tensor: torch.Tensor) -> list[Block]:
        """Return which bytes of `tensor` an operation wrote: all, but for those that take an index."""
        name = func._schema.name
        block = block_of(tensor)
        if block is None:
            return []
        if name not in INDEXED:
            return [block]
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
        given.update(kwargs)
        index = [given[k] for k in INDEXED[name]]
        if any(t.is_meta for t in tree_leaves(index) if isinstance(t, torch.Tensor)):
            self.notes.append(f"{name} with an index without values: taken as written in full")
            return [block]
        index = [_on_cpu(part) for part in index]
        hit = torch.zeros(tensor.shape, dtype=torch.bool, device="cpu")
        if name in ("aten::index_put_", "aten::_index_put_impl_"):
            hit.index_put_(index[0], torch.tensor(True))
        elif name in ("aten::index_copy_", "aten::index_fill_", "aten::index_add_"):
            hit.index_fill_(index[0], index[1], True)
        elif name in ("aten::masked_fill_", "aten::masked_scatter_"):
            hit |= index[0]
        else:
            hit.scatter_(index[0], index[1], True)
        strides = torch.tensor(tensor.stride(), dtype=torch.int64, device="cpu")
        item = tensor.element_size()
        places: list[int] = (hit.nonzero() * strides).sum(dim=1).tolist()
        start = int(tensor.storage_offset())
        return [((start + at) * item, item, ()) for at in places]

    def report(self) -> dict[str, Any]:
        """Say where everything ended up; called after loading, successful or not."""
        after = dict(self.model.named_parameters())
        every = dict(self.model.named_parameters(remove_duplicate=False))
        for name, parameter in after.items():
            # A loader may also put new memory in a parameter's place: `p.data = x`, `setattr`.
            if memory_of(parameter) != self._first.get(name):
                for key in self.keys_of(parameter):
                    self.writes[key].add(name)
        fractions = {name: self._fraction(name, p) for name, p in after.items()}
        attributes = (self._kept | self._keys_in_attributes()) - {
            key for key, to in self.writes.items() if to
        }
        by_identity = {id(parameter): name for name, parameter in after.items()}
        taken = {key for key, to in self.writes.items() if to}
        return {
            "parameters": {
                name: {"shape": list(p.shape), "dtype": str(p.dtype).removeprefix("torch.")}
                for name, p in after.items()
            },
            "aliases": {
                name: by_identity[id(p)]
                for name, p in every.items()
                if name not in after and id(p) in by_identity
            },
            "writes": {key: sorted(self.writes[key]) for key in self.given if key in taken},
            "resized": self._resized(),
            "attributes": [key for key in self.given if key in attributes],
            "unreached_or_dropped": [
                key for key in self.given if key not in taken and key not in attributes
            ],
            "written": fractions,
            "notes": list(dict.fromkeys(self.notes)),
        }

    def _resized(self) -> dict[str, str]:
        """Return the keys that were cut or filled up to fit silently by the loader."""
        found = {}
        for key, taken in self._taken.items():
            size = self._size.get(key, 0)
            for name, count in taken.items():
                if count != size:
                    found[key] = f"{count} elements of {name} were filled from {size}"
        return found

    def _fraction(self, name: str, parameter: torch.Tensor) -> float:
        """Return the share of a parameter's elements that were written, 0 to 1."""
        memory = memory_of(parameter)
        if not parameter.numel():
            return 1.0
        if memory != self._first.get(name) and memory in self._computed:
            return 1.0
        block = block_of(parameter)
        assert block is not None
        written = self._written.get(memory, set())
        size = measure([block])
        # What two sets have in common is what they have apart less what they have together.
        seen = (size + measure(written) - measure([block, *written])) / size
        # Values that came by another way than torch operations (numpy, a thread of a library).
        raw = _raw(parameter) if memory == self._first.get(name) else None
        if raw is not None and seen < 1:
            seen = max(seen, float((raw != SENTINEL).any(dim=1).double().mean().item()))
        return round(seen, 9)

    def _keys_in_attributes(self) -> set[str]:
        """Return the keys whose values are kept in a buffer or a plain attribute, as d2t is."""
        found: set[str] = set()
        for module in self.model.modules():
            held = {k: v for k, v in vars(module).items() if k not in ("_parameters", "_modules")}
            for value in tree_leaves(held):
                if isinstance(value, torch.Tensor):
                    found |= self.keys_of(value)
        return found


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of its memory that a tensor covers, and the one after the last."""
    item = tensor.element_size()
    low = int(tensor.storage_offset()) * item
    span = sum(int((n - 1) * s) for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return low, low + (span + 1) * item if tensor.numel() else low


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return [_on_cpu(v) for v in value] if isinstance(value, (list, tuple)) else value


_ARGUMENTS: dict[Any, list[tuple[int, str]]] = {}


def _written_arguments(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the arguments that an operation declares to write to."""
    places = _ARGUMENTS.get(func)
    if places is None:
        places = [
            (number, argument.name)
            for number, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        _ARGUMENTS[func] = places
    for number, name in places:
        value = args[number] if number < len(args) else kwargs.get(name)
        if value is not None:
            yield value


@contextlib.contextmanager
def threads_inline() -> Iterator[None]:
    """Let work that is handed to a thread pool run at once in this thread.

    Some loaders copy in threads (SGLang's for DeepSeek), and torch's dispatch modes hold for one thread only.
    """
    pool = concurrent.futures.ThreadPoolExecutor
    original, here = pool.submit, threading.get_ident()

    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != here:
            return original(self, fn, *args, **kwargs)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # it belongs to whoever asks for the result
            future.set_exception(error)
        return future

    pool.submit = submit  # type: ignore[method-assign]
    try:
        yield
    finally:
        pool.submit = original  # type: ignore[method-assign]


# --- what a loader says ---------------------------------------------------------------------------


class LogLines(logging.Handler):
    """Collect warnings and worse, from logging and from the warnings module."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line once."""
        line = f"{record.levelname} {record.name}: {record.getMessage()}"
        if line not in self.lines:
            self.lines.append(line)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Listen for a while, also to loggers that keep their records to themselves."""
        known = list(logging.root.manager.loggerDict.values())
        closed = [x for x in known if isinstance(x, logging.Logger) and not x.propagate]
        loggers = [logging.root, *closed]
        logging.captureWarnings(True)
        for logger in loggers:
            logger.addHandler(self)
        try:
            yield
        finally:
            logging.captureWarnings(False)
            for logger in loggers:
                logger.removeHandler(self)


def shorten(error: BaseException, most: int = 500) -> str:
    """Return an exception as text; some engines list every model they know in theirs."""
    text = str(error)
    if len(text) > most:
        text = text[:most] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, ``sglang/srt/models/llama.py:42 load_weights``."""
    frames = list(_frames(error))
    own = [f for f in frames if not _is_beneath(f[0].f_code.co_filename)] or frames
    if not own:
        return ""
    frame, line = own[-1]
    file = frame.f_code.co_filename
    roots = sorted((p for p in sys.path if p and file.startswith(p.rstrip("/") + "/")), key=len)
    if roots:
        file = file[len(roots[-1].rstrip("/")) + 1 :]
    return f"{file}:{line} {frame.f_code.co_name}"


def _is_beneath(file: str) -> bool:
    """Tell torch's own frames, and ours within them, from the engine's."""
    return "/torch/" in file or file == __file__


def _frames(error: BaseException) -> Iterator[tuple[types.FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


# --- loading --------------------------------------------------------------------------------------


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
        parameter = _parameter_in_frames(error, self.watch)
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
    frames = [frame for frame, _ in _frames(error)]
    loops = [n for n, frame in enumerate(frames) if "load_weights" in frame.f_code.co_name]
    for number in reversed(range(len(frames))):
        keys = {key for tensor in _tensors_in(frames[number]) for key in watch.keys_of(tensor)}
        current = frames[number].f_locals.get("loaded_weight")  # what every loader calls it
        if len(keys) > 1 and isinstance(current, torch.Tensor):
            keys = set(watch.keys_of(current))
        if len(keys) == 1:
            return keys.pop(), bool(loops) and number > loops[-1]
    return None, False


def _parameter_in_frames(error: BaseException, watch: Watch) -> str | None:
    """Find the parameter that was about to be written.

    Only functions below the loader's loop are asked: in the loop itself the variable of that kind may be left
    over from the key before.
    """
    frames = [frame for frame, _ in _frames(error)]
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
