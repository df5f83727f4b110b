"""A launch, as far as it could be read: which engine, with which arguments, and what is not known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from workbench.errors import shorten

Form = Literal[
    "command line", "script", "argument list", "process", "log", "configuration file", "compose file",
    "kubernetes manifest", "systemd unit", "Dockerfile", "supervisord file", "launch record",
]  # fmt: skip
State = Literal["known", "unknown", "absent"]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where something was read: a file ("" for a text) and its line (0 where lines mean nothing)."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return the place as a reader looks it up."""
        line = f"line {self.line}" if self.line else ""
        return ", ".join(part for part in (shorten(self.file), line) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a server.

    Attributes
    ----------
    name
        What the release's parser calls it, without dashes: ``tp-size`` for ``--tp``.
    key
        The same under its name in the newest release; launches are compared by it.
    raw
        As it was written: ``--tp``.
    value
        Its value as text, ``"true"`` or ``"false"`` for a switch; None where it is not known.
    unknown
        The variables, or whatever else, that the value depends on.
    """

    name: str
    key: str
    raw: str
    value: str | None
    where: Place = Place()
    unknown: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Unread:
    """Something of a launch that was not understood, or cannot be known from it.

    Attributes
    ----------
    essential
        Whether it may decide what is served: a port is not.
    options
        Whether it may hold further options of any kind.
    """

    what: str
    why: str
    essential: bool = True
    options: bool = False

    def __str__(self) -> str:
        """Return in one line what was not read, and why."""
        return f"{shorten(self.what)}: {self.why}"


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a server, whatever it was handed over as.

    Attributes
    ----------
    engine
        ``sglang``, ``vllm``, ``tensorrt-llm``, or "" where none of these is launched.
    version
        The engine's release, "" where the launch does not name it.
    version_basis
        How the version is known: ``tag of the image``, ``launch record``.
    program
        What is run: ``sglang.launch_server``, ``vllm serve``.
    target, draft
        Paths or names of the models, None where they are not given or not known.
    arguments
        In the order in which they count: the last of a name is the one that holds.
    environment
        Variables that the launch sets, and that are known.
    image
        The container's image, "" without one.
    not_read
        What was not understood.
    log
        The file that its output goes to, "" where it is not redirected.
    words
        The whole command, in words; a variable that is not known is written as ``$NAME``.
    before
        Those of its words that stand before the server and run it: ``numactl -N 0``.
    options
        The words behind the server, those of its configuration file first, as its parser gets them; what is
        not known in them is a hole (`workbench.launch.holes`). Empty where no command line was read: a log
        prints what the parser made of one.
    pasted
        What is no longer as it was typed, where it changes the words: typographic dashes, quotes, spaces.
        The launch is read as it was meant.
    """

    engine: str
    form: Form
    version: str = ""
    version_basis: str = ""
    program: str = ""
    target: str | None = None
    draft: str | None = None
    arguments: tuple[Argument, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    image: str = ""
    not_read: tuple[Unread, ...] = ()
    source: str = ""
    log: str = ""
    words: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    pasted: tuple[str, ...] = ()

    def argument(self, key: str) -> Argument | None:
        """Return the argument that holds, by its name in the newest release; None where it is not given."""
        return next((one for one in reversed(self.arguments) if one.key == key), None)

    def value(self, key: str) -> str | None:
        """Return an argument's value; None where it is not given or not known (`state` says which)."""
        found = self.argument(key)
        return None if found is None else found.value

    def state(self, key: str) -> State:
        """Return whether an argument is known, not known, or absent.

        Where something that may hold options was not read, an argument that was not seen is not absent.
        """
        found = self.argument(key)
        if found is not None:
            return "unknown" if found.value is None else "known"
        return (
            "unknown" if any(one.options for one in self.not_read) or not self.engine else "absent"
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that the launch depends on and that are not known."""
        found = (name for argument in self.arguments for name in argument.unknown)
        return tuple(dict.fromkeys(found))

    @property
    def doubts(self) -> tuple[Unread, ...]:
        """What was not understood and may decide what is served."""
        return tuple(one for one in self.not_read if one.essential)
