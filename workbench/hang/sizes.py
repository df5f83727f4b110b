"""The size of a group of ranks, as the arguments of a launch give it."""

from __future__ import annotations

from collections.abc import Mapping


def whole(arguments: Mapping[str, str], name: str) -> int:
    """Return a size of a launch, 1 where the arguments do not have it."""
    value = arguments.get(name, "")
    return int(value) if value.isdigit() and 0 < int(value) < 10**6 else 1
