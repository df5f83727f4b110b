"""The one exception a user of the workbench has to know."""

from __future__ import annotations


class WorkbenchError(Exception):
    """Something the user can act on: what happened, why, and what to do next.

    Parameters
    ----------
    what
        What happened, naming the file, key, process or option concerned.
    why
        The reason, where it is known.
    next_step
        The one thing to do next.
    """

    def __init__(self, what: str, *, why: str = "", next_step: str = "") -> None:
        super().__init__(what, why, next_step)
        self.what = what
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why:  {self.why}")
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class CheckpointError(WorkbenchError):
    """A checkpoint that cannot be read, or that contradicts itself."""


class EngineError(WorkbenchError):
    """An engine that is not known, or whose own interpreter could not be run."""
