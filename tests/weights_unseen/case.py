"""A case: a small checkpoint, where it comes from, and what may and must be reported about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

Build = Callable[[Path], None]
Answer = bool | None


@dataclasses.dataclass(frozen=True)
class UnseenCase:
    """One case.

    `ok` are the right answers. `names` are patterns that must all occur in the summary, the findings, the
    notes or what is missing. `never` must not occur there. `may` is the pattern of tensors that may be
    called at init, constant or invalid: a matrix outside of it that is called so is wrongly accused.
    `call` is what is asked: `scan`, `compare` (with the folder `other`) or `target` (the folder `other`).
    """

    name: str
    build: Build
    kind: str
    healthy: bool
    ok: tuple[Answer, ...]
    why: str
    url: str
    names: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    may: str = ""
    call: str = "scan"
    changed: str = ""


CASES: dict[str, UnseenCase] = {}


def case(
    kind: str, why: str, url: str, *, healthy: bool, ok: tuple[Answer, ...], **more: object
) -> Callable[[Build], Build]:
    """Return a decorator that lists a builder as a case, by the builder's name."""

    def add(build: Build) -> Build:
        name = build.__name__.replace("_", "-")
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        CASES[name] = UnseenCase(name, build, kind, healthy, ok, why, url, **more)  # type: ignore[arg-type]
        return build

    return add
