"""Several launches in one text: the same launch on other nodes, or launches that differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.launch.options import INCIDENTAL
from workbench.launch.records import Argument, Launch, Unread


def one_of(found: Sequence[Launch]) -> Launch:
    """Return what all launches of a text agree on; where they differ, that is not known.

    Nodes of one server differ in their rank and addresses alone: that is one launch.
    """
    first, *others = found
    differ = {key for other in others for key in _differences(first, other)}
    engines = {one.engine for one in found}
    versions = {one.version for one in found}
    if not differ and len(engines) == len(versions) == 1:
        return first
    what = f"{len(found)} different launches"
    unread = Unread(what, "it is not known which of them is meant; give one of them")
    kept = [_unless(one, differ, what) for one in first.arguments]
    have = {one.key for one in kept}
    for other in others:
        for one in other.arguments:
            if one.key not in have:
                have.add(one.key)
                kept.append(dataclasses.replace(one, value=None, unknown=(what,)))
    values = {one.key: one.value for one in kept}
    return dataclasses.replace(
        first,
        engine=first.engine if len(engines) == 1 else "",
        version=first.version if len(versions) == 1 else "",
        target=values.get("model-path"),
        draft=values.get("speculative-draft-model-path"),
        arguments=tuple(kept),
        not_read=(*first.not_read, unread),
    )


def _differences(first: Launch, second: Launch) -> set[str]:
    left = {one.key: (one.value, one.unknown) for one in first.arguments}
    right = {one.key: (one.value, one.unknown) for one in second.arguments}
    return {k for k in left.keys() | right.keys() if left.get(k) != right.get(k)} - INCIDENTAL


def _unless(argument: Argument, differ: set[str], what: str) -> Argument:
    if argument.key not in differ:
        return argument
    return dataclasses.replace(argument, value=None, unknown=(what,))
