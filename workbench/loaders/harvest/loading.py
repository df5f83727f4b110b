"""One watched run of a class's real ``load_weights`` on synthetic keys, and single keys on one model."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import traceback
from typing import Any

from .names import Keys, Mapping, Shape, seeing_mappings

LOADED, DROPPED, WARNED, RAISES, KEPT = "loads", "dropped", "warned", "raises", "kept"
ABSENT = "absent"  # it raises, whatever the shape: there is no parameter of that name


def tensor(shape: Shape, dtype: str) -> Any:
    """Return a tensor without memory."""
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device="meta")


def mappings_of(model: Any, watch: Any) -> list[Mapping]:
    """Return the substitutions that the loader makes, seen while it loads one key of each part."""
    found: list[Mapping] = []
    first: dict[str, tuple[str, Any]] = {}
    for name, parameter in model.named_parameters():
        first.setdefault(".".join(name.split(".")[:2]), (name, parameter))
    for name, parameter in list(first.values())[:8]:
        what = [(name, tensor(tuple(parameter.shape), str(parameter.dtype)))]
        try:
            with seeing_mappings(found):
                model.load_weights(iter(what))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
    return found


class Loader:
    """Loads keys into models of one class."""

    def __init__(self, make: Any, watch: Any, reads: Any) -> None:
        self.make = make
        self.watch = watch  # the tracer's module
        self.reads = reads
        self._at_end: tuple[str, int] | None = None  # where an empty load raises

    def whole(self, keys: Keys, most_errors: int = 40) -> dict[str, Any]:
        """Load all keys into a new model; return the tracer's report."""

        def tensors(model: Any) -> Any:
            return iter([(key, tensor(shape, dtype)) for key, (shape, dtype) in keys.items()])

        with self.watch.threads_inline(), self.reads.watching():
            report: dict[str, Any] = self.watch.watch_load(
                self.make, tensors, most_errors=most_errors
            )
        return report

    def one(self, model: Any, key: str, shape: Shape, dtype: str) -> tuple[str, list[str]]:
        """Load one key into a model; return what happened and the parameters that were written."""
        watch = self.watch.Watch(model)
        feed = self.watch._Feed(watch, iter([(key, tensor(shape, dtype))]), ())
        log = self.watch.LogLines()
        try:
            with log.collecting(), self.watch.threads_inline(), watch:
                model.load_weights(feed)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if feed.rest() or _place(error) != self._end(model):
                return RAISES, []
        written = sorted(watch.writes.get(key) or [])
        if written:
            return LOADED, written
        watch.left(key)
        if key in watch._kept:
            return KEPT, []
        return (WARNED if log.lines else DROPPED), []

    def raises_by_name(self, model: Any, key: str, shape: Shape, dtype: str) -> bool:
        """Tell whether the loader raises the same for another shape: the name is to blame, not the shape."""
        said = []
        for one in (shape, (*shape, 3), tuple(n + 1 for n in shape)):
            try:
                model.load_weights(iter([(key, tensor(one, dtype))]))
                said.append("")
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        return bool(said[0]) and len(set(said)) == 1

    def _end(self, model: Any) -> tuple[str, int]:
        """Return where the loader raises because keys are missing: no key is to blame for that."""
        if self._at_end is None:
            self._at_end = "", 0
            try:
                model.load_weights(iter(()))
            except Exception as error:
                self._at_end = _place(error)
        return self._at_end


def _place(error: BaseException) -> tuple[str, int]:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename, last.lineno or 0


def shared_by_target(model: Any) -> list[str]:
    """Return the parameters that a draft takes over from its target: replaced by set_embed and its like."""
    import torch

    before = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
    made = [torch.nn.Parameter(torch.empty(4, 4, device="meta"), requires_grad=False) for _ in "ab"]
    for function, count in (("set_embed_and_head", 2), ("set_embed", 1)):
        method = getattr(model, function, None)
        if method is None:
            continue
        try:
            method(*made[:count])
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
    after = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
    return [name for name in before if after.get(name) != before[name]]


def never_read(model: Any) -> list[str]:
    """Return the parameters that their module makes and then never mentions: no forward can use them.

    Only tables of positions are looked for: old files have them as ``position_ids``.
    """
    found = []
    for name, module in model.named_modules():
        for leaf, _ in module.named_parameters(recurse=False):
            if leaf != "position_ids":
                continue
            with contextlib.suppress(OSError, TypeError):
                source = inspect.getsource(sys.modules[type(module).__module__])
                if len(re.findall(rf"\.{leaf}\b", source)) == 1:
                    found.append(f"{name}.{leaf}" if name else leaf)
    return found
