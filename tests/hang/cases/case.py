"""One case: a scene, and what its diagnosis must say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from workbench.hang.records import Scene


@dataclasses.dataclass(frozen=True)
class Case:
    """A scene with its verdict.

    Attributes
    ----------
    odd, missing
        Exactly the ranks that must be named; nobody else may be.
    proposes
        Words that the experiment's change must have.
    why
        Why the verdict is this one, in a few words.
    """

    name: str
    build: Callable[[], Scene]
    state: str
    phase: str
    why: str
    odd: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    not_collected: tuple[int, ...] = ()
    wait: str = ""
    rule: str = ""
    proposes: str = ""
    source: str = ""

    @property
    def scene(self) -> Scene:
        return self.build()
