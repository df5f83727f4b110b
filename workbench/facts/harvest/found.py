"""What a reader found in a release."""

from __future__ import annotations

from typing import Any, NamedTuple


class Found(NamedTuple):
    """One fact of one release.

    Attributes
    ----------
    kind, name
        Together the feature: ``flag``, ``tensor-parallel-size``.
    value
        What it is in this release, in JSON's types; True where only its presence counts.
    file, line
        Where that stands, in this release; the file without the engine's own folder.
    """

    kind: str
    name: str
    value: Any
    file: str
    line: int
