"""What the watch reads of a server at one moment, and what it makes of it: frozen, no I/O."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

Stage = Literal["waiting", "starting", "working", "idle", "quiet", "still", "dead", "ended"]
"""``still``: there should be progress and there is none; ``quiet``: nothing moves, and requests are not
known; ``dead``: a process of the server has ended, and others have not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One process of the server; `cpu` is the CPU time of its main thread, in seconds."""

    pid: int
    role: str
    name: str
    started: int
    state: str
    cpu: float
    io: int = 0

    @property
    def ended(self) -> bool:
        """Whether it is a zombie."""
        return self.state in ("Z", "X", "x")


@dataclasses.dataclass(frozen=True, slots=True)
class LogSign:
    """What the log has said so far; `steps` counts the lines that are progress of a start-up.

    `running` is what the last line about a batch says of running and queued requests, None before one.
    """

    steps: int = 0
    batches: int = 0
    running: int | None = None
    ready: bool | None = None
    last: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """What the server answers over HTTP: None where it was not asked, or cannot be."""

    pending: float | None = None
    tokens: float | None = None
    alive: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Everything that was read at one moment of the monotonic clock.

    Attributes
    ----------
    ready
        Whether the server has finished its start-up.
    load
        The highest utilisation among the server's GPUs, in percent.
    watts
        The power that those GPUs draw together.
    compilers
        Whether a compiler ran below the server when its processes were last listed.
    """

    at: float
    members: tuple[Member, ...] = ()
    log: LogSign = LogSign()
    answers: Answers = Answers()
    ready: bool = False
    load: float | None = None
    watts: float | None = None
    compilers: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """What a reading means: the stage, the reason in words, and for how long there was no progress."""

    stage: Stage
    reason: str = ""
    still_for: float = 0.0
    reading: Reading | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """One case that the watch wrote, and what the diagnosis says of it (`ok` as of any result)."""

    path: Path
    sentence: str
    reason: str
    ok: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """What a watch did, from its start to its end.

    Attributes
    ----------
    cases
        The cases that it wrote, in order; older ones may have been removed since (`keep`).
    seconds
        How long it watched.
    cpu_seconds
        CPU time that the watching itself used, without the recording of cases.
    progress
        Whether the server was ever seen to work, or to be idle.
    notes
        What could not be done.
    """

    cases: tuple[Recorded, ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    progress: bool = False
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The part of one core that the watching used, in percent."""
        return 100 * self.cpu_seconds / self.seconds if self.seconds else 0.0

    @property
    def ok(self) -> bool | None:
        """True if there was progress and no case, False if a case shows a fault, None otherwise."""
        if any(case.ok is False for case in self.cases):
            return False
        return True if self.progress and not self.cases else None

    def __str__(self) -> str:
        lines = [f"watched for {self.seconds:,.0f} s with {self.share:.2f} % of one core"]
        lines += [f"  {case.path.name}: {case.sentence} ({case.reason})" for case in self.cases]
        return "\n".join(lines + [f"  {note}" for note in self.notes])
