"""Stand-ins for packages that have no CPU build, so that an engine can be imported without a GPU.

A stand-in offers whatever code asks for while it is imported: names to inherit from, decorators, constants to
compare with. Calling one as a function raises `StubCalled`, so that no arithmetic of an engine is ever faked.
A package that is installed always wins: the finder stands last in line.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterable
from typing import Any

PACKAGES = ("sgl_kernel", "triton")
# What modules call in their own body, all of it Triton's: decorators and declarations of kernels.
DECLARATIONS = frozenset(
    {"jit", "autotune", "heuristics", "Config", "constexpr", "cdiv", "next_power_of_2"}
)


class StubCalled(RuntimeError):
    """A function that only a GPU build has was called."""


def _refuse(name: str) -> Any:
    raise StubCalled(f"{name} exists only in a GPU build, and this is a stub for it")


class Name:
    """Any attribute of a stand-in that is not written like a class."""

    def __init__(self, path: str) -> None:
        self.__name__ = self.__qualname__ = path
        self.__module__ = path.partition(".")[0]
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Work as a decorator, bare or with options, where Triton has one; refuse anything else."""
        if self.__module__ != "triton" or self._path.rpartition(".")[2] not in DECLARATIONS:
            return _refuse(self._path)
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return Name(self._path)

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self._path}.{name}")

    def __getitem__(self, key: Any) -> Name:
        return self

    __iter__ = None  # Python would iterate by __getitem__, for ever

    def __contains__(self, item: Any) -> bool:
        return False

    def __or__(self, other: Any) -> Name:  # `triton.language.dtype | None` in an annotation
        return self

    __ror__ = __or__


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
    """Make a class that may be inherited from and named in annotations, but not be made an object of."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes a method
        if type(self).__name__ not in DECLARATIONS:
            _refuse(f"{module}.{type(self).__name__}")

    def item(cls: type, key: Any) -> type:
        return cls

    body = {"__module__": module, "__init__": __init__, "__class_getitem__": classmethod(item)}
    return type(name, (), body)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Make up the packages that nothing else could find, and whatever is imported from within them."""

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Offer a stand-in for one of our packages."""
        root = fullname.partition(".")[0]
        if root not in self.packages:
            return None
        if root != fullname and not isinstance(sys.modules.get(root), Package):
            return None  # the real package lacks this module: let the import fail
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make the stand-in."""
        return Package(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stand-in has no code."""


def install(packages: Iterable[str] = PACKAGES) -> list[str]:
    """Stand in for those packages that are missing, and return their names."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        sys.meta_path.append(Finder(missing))
    # torchvision's native library is built for one torch and one CUDA; beside a CPU torch it does not
    # load. torchvision lives with that, but for the module that describes its operators: leave it empty.
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))
    return missing
