"""A torch dispatch mode that follows tensors of a checkpoint into the parameters of a model."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .memory import Block, block_of, bytes_of, measure, memory_of

# Every byte of a parameter before loading. In each float format that is a NaN, and not the one that
# arithmetic yields, so that a checkpoint full of NaNs does not look unwritten.
SENTINEL = 0xFF
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
            raw = bytes_of(parameter)
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
        raw = bytes_of(parameter) if memory == self._first.get(name) else None
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
