"""Stand-ins for the GPU packages that SGLang's model modules import, so that all can be built on a CPU.

The tracer's stand-ins refuse every call, since they serve one class whose loader is under test. Here nearly
three hundred modules must only be imported and their classes be built: what a module computes while it is
imported is offered too. Packages that transformers looks for are left out: it would believe in them.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

PACKAGES = frozenset(
    [
        "sgl_kernel",
        "triton",
        "cutlass",
        "cuda",
        "xgrammar",
        "interegular",
        "tiktoken",
        "llguidance",
        "openai_harmony",
        "outlines",
        "flashinfer",
        "deep_gemm",
        "deep_ep",
        "quack",
        "tilelang",
        "flash_mla",
        "sgl_deep_gemm",
    ]
)
# What modules call in their own body: decorators and declarations of kernels.
DECLARATIONS = frozenset(
    [
        "jit",
        "autotune",
        "heuristics",
        "Config",
        "constexpr",
        "cdiv",
        "next_power_of_2",
        "kernel",
        "constexpr_function",
        "must_use_result",
        "aggregate",
    ]
)
_REFUSING = ("sgl_kernel", "triton", "torch", "rope")


class StubCalled(RuntimeError):
    """A function that only a GPU build has was called."""


class Name:
    """Any attribute of a stand-in that is not written like a class; it takes part in arithmetic."""

    def __init__(self, path: str) -> None:
        self.__name__ = self.__qualname__ = path
        self.__module__ = path.partition(".")[0]
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Work as a decorator; refuse what would compute something in a GPU package."""
        if self._path.rpartition(".")[2] not in DECLARATIONS and self.__module__ in _REFUSING:
            raise StubCalled(f"{self._path} needs a GPU build")
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Name(self._path)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__module__ == "cuda" and name[:1].isupper():  # asked for by isinstance
            return getattr(Package(self._path), name)
        return Name(f"{self._path}.{name}")

    def __getitem__(self, key: Any) -> Any:
        return self

    __iter__ = None  # Python would iterate by __getitem__, for ever

    def __contains__(self, item: Any) -> bool:
        return False

    def __hash__(self) -> int:
        return hash(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and other._path == self._path

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def _itself(self, *args: Any) -> Any:
        return self


for _operator in [
    "rsub",
    "rfloordiv",
    "rtruediv",
    "mod",
    "rmod",
    "pow",
    "rlshift",
    "rshift",
    "xor",
    "invert",
    "or",
    "ror",
    "add",
    "radd",
    "sub",
    "mul",
    "rmul",
    "and",
    "truediv",
    "floordiv",
    "lshift",
    "neg",
]:
    setattr(Name, f"__{_operator}__", Name._itself)


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{cls.__module__}.{cls.__name__}.{name}")


class Package(types.ModuleType):
    """A package, or a module in one, that has every attribute."""

    __version__ = "99.0.0"
    __path__: list[str] = []  # noqa: RUF012 - a module attribute, never changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper():
            return _class(self.__name__, name)
        return Name(f"{self.__name__}.{name}")


def _class(module: str, name: str) -> type:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes a method
        if type(self).__name__ not in DECLARATIONS and module.split(".", maxsplit=1)[0] in (
            "sgl_kernel",
            "triton",
        ):
            raise StubCalled(f"{module}.{name} needs a GPU build")

    def schema(cls: type, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()

    body = {
        "__module__": module,
        "__init__": __init__,
        "__class_getitem__": classmethod(lambda cls, key: cls),
        "__get_pydantic_core_schema__": classmethod(schema),
    }
    return _Meta(name, (), body)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Make up the packages that nothing else could find."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Offer a stand-in for one of our packages."""
        root = fullname.partition(".")[0]
        if root in PACKAGES and (root == fullname or isinstance(sys.modules.get(root), Package)):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make the stand-in."""
        return Package(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stand-in has no code."""


class _Operators:
    """torch.ops.sgl_kernel: operators for CPUs can be named, none can be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not name.endswith("_cpu"):
            raise AttributeError(name)
        return Name(f"torch.ops.sgl_kernel.{name}")


class _Stream:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def wait_stream(self, *args: Any) -> None:
        pass


def install() -> None:
    """Put the stand-ins behind all real packages, and quiet what of torch needs a GPU while importing."""
    sys.meta_path.append(Finder())
    # torchvision beside a CPU torch: its native library does not load, and only this module minds.
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))
    import torch as real_torch

    torch: Any = real_torch
    torch.ops.sgl_kernel = _Operators()
    real = torch.library.register_fake

    def tolerant(op: Any, func: Any = None, /, **options: Any) -> Any:
        if isinstance(op, str) and op.startswith("sgl_kernel::"):
            return func if func else (lambda f: f)
        return real(op, func, **options) if func else real(op, **options)

    torch.library.register_fake = tolerant
    torch.cuda.Stream = torch.cuda.Event = _Stream
    torch.compile = lambda f=None, **_: f if f is not None else (lambda g: g)  # spares an import


def simplify() -> None:
    """Build no rotary embedding, and load scalars without asking for their value.

    Rotary embeddings hold no weights, and on a meta device SGLang can build few of them.
    """
    import torch as real_torch
    from sglang.srt.model_loader import weight_utils

    torch: Any = real_torch
    makers = _rope_makers()
    original = weight_utils.default_weight_loader

    def default_weight_loader(param: Any, loaded_weight: Any) -> Any:
        if param.numel() == 1 and loaded_weight.numel() == 1:
            param.data.copy_(loaded_weight.reshape(param.shape))
            return None
        return original(param, loaded_weight)

    for module in list(sys.modules.values()):
        if not getattr(module, "__name__", "").startswith("sglang.srt"):
            continue
        for name, value in list(vars(module).items()):
            if id(value) in makers:
                setattr(module, name, _no_rope_maker)
            elif value is original:
                setattr(module, name, default_weight_loader)
    _no_moves(torch)
    item, tolist = torch.Tensor.item, torch.Tensor.tolist
    torch.Tensor.item = lambda self: 0.0 if self.is_meta else item(self)
    torch.Tensor.tolist = lambda self: (
        torch.zeros(self.shape).tolist() if self.is_meta else tolist(self)
    )


def _no_moves(torch: Any) -> None:
    """Leave modules without memory where they are, and let models be as on a GPU, not as on a CPU."""
    move = torch.nn.Module.to

    def to(module: Any, *args: Any, **options: Any) -> Any:
        try:
            return move(module, *args, **options)
        except (NotImplementedError, AssertionError):  # no memory to move, or no GPU to move to
            return module

    torch.nn.Module.to = to
    modules: list[Any] = list(sys.modules.values())
    for module in modules:
        if getattr(module, "__name__", "").startswith("sglang.srt.models"):
            if hasattr(module, "_require_cuda"):
                module._require_cuda = lambda *_, **__: None
            if hasattr(module, "_is_cpu"):
                module._is_cpu = False


def _rope_makers() -> dict[int, Callable[..., Any]]:
    import importlib

    found: dict[int, Callable[..., Any]] = {}
    for name in ("", ".factory"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"sglang.srt.layers.rotary_embedding{name}")
            for maker in ("get_rope", "get_rope_wrapper", "get_rope_cpu"):
                if hasattr(module, maker):
                    found[id(getattr(module, maker))] = getattr(module, maker)
    return found


def _no_rope_maker(*args: Any, **kwargs: Any) -> Any:
    import torch

    class NoRope(torch.nn.Module):
        cos_sin_cache = torch.empty(1)
        is_neox_style = True
        scaling_factor = mscale = 1.0
        rotary_dim, head_size = 64, 128

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return Name(f"rope.{name}")

    return NoRope()
