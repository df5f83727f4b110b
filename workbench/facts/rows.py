"""Engine facts by release: one row for each change of a feature, with the place that shows it.

``data/sglang/0.5.12.json`` has what 0.5.12 has otherwise than the release before it; the oldest has all.
`read_wheel` writes such a file from a wheel. A feature has a kind and a name: ``("flag", "tp-size")``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

# Labels of a release's own wheels: what it was built for. Any other (+g3f2a91c, +fork) is other code.
_BUILDS = re.compile(r"(?:cu|cpu|rocm|xpu|hpu|npu|tpu|musa)\d*(?:\.\d+)*")

Feature = tuple[str, str]


class Changed(msgspec.Struct, array_like=True, frozen=True):
    """A feature that a release has anew or otherwise: one line of its file."""

    kind: str
    name: str
    value: Any
    file: str
    line: int


class Release(msgspec.Struct, frozen=True):
    """The file of one release."""

    engine: str
    release: str
    before: str
    rows: list[Changed]
    gone: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One change of a feature.

    Attributes
    ----------
    last_without
        The last release without it (or with another value); "" where it is older than the oldest known one.
    first_with
        The first release with it.
    last_with, first_without
        The last release that has it so, and the first that has not; the newest known one, and "".
    value
        What it is; True where only its presence counts.
    file, line
        Where `first_with` shows it.
    """

    engine: str
    kind: str
    name: str
    value: Any
    last_without: str
    first_with: str
    last_with: str
    first_without: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """Where it is shown: ``sglang/srt/models/llama_eagle3.py:173 (0.5.17)``."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where} ({self.first_with})"


def _data() -> Any:
    return resources.files("workbench.facts") / "data"


@functools.cache
def releases(engine: str) -> tuple[str, ...]:
    """Return the releases of an engine that were read, oldest first."""
    folder = _data() / engine
    if not folder.is_dir():
        return ()
    names = [
        one.name.removesuffix(".json") for one in folder.iterdir() if one.name.endswith(".json")
    ]
    return tuple(sorted(names, key=Version))


def read_release(engine: str, release: str) -> Release:
    """Return one release's file."""
    return msgspec.json.decode((_data() / engine / f"{release}.json").read_bytes(), type=Release)


@functools.lru_cache(maxsize=4096)
def known(engine: str, version: str) -> str | None:
    """Return the release that a version is, as it is spelt; None for one that was not read.

    None for a release newer than any known, a development build, a git build and a fork: nothing is certain
    of them.
    """
    try:
        given = Version(version)
    except InvalidVersion:
        return None
    if not is_build(given):
        return None
    return _spellings(engine).get(Version(given.public))


def nearest(engine: str, version: str) -> str:
    """Return the release that stands for a version where a guess will do: itself, or the one before it.

    The oldest for an older one; the newest for a version that cannot be compared.
    """
    try:
        given = Version(
            Version(version).base_version if known(engine, version) is None else version
        )
    except InvalidVersion:
        return releases(engine)[-1]
    older = [name for name in releases(engine) if Version(name) <= given]
    return older[-1] if older else releases(engine)[0]


def is_build(version: Version) -> bool:
    """Tell whether a version is a release as some wheel of it has it, and not of other code."""
    return version.local is None or _BUILDS.fullmatch(version.local) is not None


@functools.cache
def _spellings(engine: str) -> Mapping[Version, str]:
    return {Version(release): release for release in releases(engine)}


@functools.cache
def _table(engine: str) -> Mapping[Feature, tuple[Row, ...]]:
    """Return the rows of every feature, oldest first."""
    open_rows: dict[Feature, Row] = {}
    found: dict[Feature, list[Row]] = {}

    def close(feature: Feature, before: str, release: str) -> None:
        row = open_rows.pop(feature, None)
        if row is not None:
            done = dataclasses.replace(row, last_with=before, first_without=release)
            found.setdefault(feature, []).append(done)

    before = ""
    for release in releases(engine):
        one = read_release(engine, release)
        for kind, name in one.gone:
            close((kind, name), before, release)
        for row in one.rows:
            feature = (row.kind, row.name)
            close(feature, before, release)
            open_rows[feature] = Row(
                engine, row.kind, row.name, row.value, before, release, "", "", row.file, row.line
            )
        before = release
    for feature in list(open_rows):
        close(feature, before, "")
    return {feature: tuple(rows) for feature, rows in found.items()}


def rows(engine: str, kind: str, name: str) -> tuple[Row, ...]:
    """Return the rows of a feature, oldest first; () for one that no release has."""
    return _table(engine).get((kind, name), ())


@functools.lru_cache(maxsize=32)
def _state(engine: str, release: str) -> Mapping[Feature, Row]:
    """Return all that a read release has."""
    at = _order(engine)[release]
    place = _order(engine)
    return {
        feature: row
        for feature, found in _table(engine).items()
        for row in found
        if place[row.first_with] <= at <= place[row.last_with]
    }


@functools.cache
def _order(engine: str) -> Mapping[str, int]:
    return {release: at for at, release in enumerate(releases(engine))}


def names(engine: str, kind: str, version: str | None = None) -> tuple[str, ...]:
    """Return the names of all features of a kind: of one version, or of any.

    () for a version that was not read.
    """
    if version is None:
        return tuple(sorted(name for one, name in _table(engine) if one == kind))
    release = known(engine, version)
    state = _state(engine, release) if release is not None else {}
    return tuple(sorted(name for one, name in state if one == kind))


def row_in(engine: str, kind: str, name: str, version: str) -> Row | None:
    """Return what a release has of a feature, None where it has none or was not read."""
    release = known(engine, version)
    return None if release is None else _state(engine, release).get((kind, name))


def has(engine: str, kind: str, name: str, version: str, value: Any = None) -> bool | None:
    """Tell whether a release has a feature, with this value if one is given; None where it was not read.

    Parameters
    ----------
    version
        A release; a newer one, a git build and a fork give None.
    value
        None: its presence counts.
    """
    if known(engine, version) is None:
        return None
    row = row_in(engine, kind, name, version)
    return row is not None and (value is None or row.value == value)


def may_have(engine: str, kind: str, name: str, version: str) -> bool:
    """Tell whether a release has a feature, or may have it: it was not read, or not for this feature.

    One that no release is known to have was added to `watched`, and the wheels were not read again.
    """
    return not rows(engine, kind, name) or has(engine, kind, name, version) is not False


def span(engine: str, kind: str, name: str) -> str:
    """Return from the first to the last release that has a feature as a specifier; "" where all have it."""
    found = rows(engine, kind, name)
    if not found:
        return ""
    parts = [f">={found[0].first_with}"] if found[0].last_without else []
    return ",".join(parts + ([f"<{found[-1].first_without}"] if found[-1].first_without else []))


@functools.cache
def looked_for(engine: str) -> frozenset[Feature]:
    """Return the features that were looked for by name in every release; of others a release says nothing."""
    file = _data() / "looked_for" / f"{engine}.json"
    if not file.is_file():
        return frozenset()
    return frozenset(msgspec.json.decode(file.read_bytes(), type=list[Feature]))


def forget() -> None:
    """Read the files again at the next question: one of them was written."""
    for cached in (releases, known, _spellings, _table, _state, _order, looked_for):
        cached.cache_clear()
