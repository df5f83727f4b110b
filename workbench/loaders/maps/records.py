"""The maps of one release: what `workbench.loaders.harvesting` saw, as it is kept in the wheel."""

from __future__ import annotations

import functools
import lzma
from importlib import resources
from typing import Any

import msgspec
from packaging.version import Version


class Slot(msgspec.Struct, array_like=True, frozen=True):
    """A group of keys of one template and shape.

    Attributes
    ----------
    name
        The template; further shapes of one template have a number behind ``#``.
    parameter
        Where the keys land, ``{0}`` for the first number; None where that is not regular.
    shape
        An expression for each dimension; None where none was found.
    rows
        A rule for each number of the template; None where none was found.
    wanted
        Whether a file should have it; otherwise it is another name for what has one.
    """

    name: str
    parameter: str | None
    shape: list[Any] | None
    rows: list[Any] | None
    wanted: bool

    @property
    def template(self) -> str:
        """The template alone."""
        return self.name.partition("#")[0]


class Variant(msgspec.Struct, array_like=True, frozen=True):
    """What another value of a field changes: slots that go, by name, and slots that come."""

    field: str
    value: Any
    gone: list[str]
    come: list[Slot]


class ClassMap(msgspec.Struct, frozen=True):
    """What was seen of one class.

    Attributes
    ----------
    complete
        Whether every key and parameter of it is explained, at other sizes than those first seen, too.
    why
        Why not.
    model_type
        That of the config it was built of; "" where no config.json of that kind can be read.
    fields
        Field -> ``free`` (it builds nothing), ``size``, ``among`` (one of these values), ``list`` (its values
        pick layers), ``fixed``; then the values seen.
    defaults
        Field -> what it counts as where config.json lacks it.
    aliases
        Other names of fields.
    unknown
        Fields that the class asks for and that were not tried.
    shared
        Parameters that a draft takes over from its target.
    unread
        Parameters that the engine makes and never reads.
    bounds
        Field -> the largest number that it holds for.
    families, beyond, words
        What the loader did with names that almost match: by family; behind the last layer; alone, or written
        by transformers for nothing.
    flat
        Whether the fields of ``text_config`` may lie at the top of config.json instead.
    """

    module: str
    complete: bool
    why: str = ""
    model_type: str = ""
    fields: dict[str, list[Any]] = {}
    defaults: dict[str, list[Any]] = {}
    aliases: dict[str, str] = {}
    unknown: list[str] = []
    slots: list[Slot] = []
    shared: list[str] = []
    unread: list[str] = []
    bounds: dict[str, int] = {}
    variants: list[Variant] = []
    families: dict[str, Any] = {}
    beyond: Any = ""
    words: dict[str, str] = {}
    flat: bool = False


class Maps(msgspec.Struct, frozen=True):
    """All maps of a release."""

    engine: str
    release: str
    transformers: str
    classes: dict[str, ClassMap]


def _data() -> Any:
    return resources.files("workbench.loaders.maps") / "data"


@functools.cache
def harvested(engine: str) -> tuple[str, ...]:
    """Return the releases of an engine that there are maps of, oldest first."""
    names = [one.name for one in _data().iterdir()] if _data().is_dir() else []
    ends = ".json.xz"
    found = [
        n[len(engine) + 1 : -len(ends)]
        for n in names
        if n.startswith(f"{engine}-") and n.endswith(ends)
    ]
    return tuple(sorted(found, key=Version))


@functools.lru_cache(maxsize=8)
def maps_of(engine: str, release: str) -> Maps:
    """Return the maps of a release."""
    packed = (_data() / f"{engine}-{release}.json.xz").read_bytes()
    return msgspec.json.decode(lzma.decompress(packed), type=Maps)
