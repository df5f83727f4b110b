"""The one exception a user of the workbench has to know."""

from __future__ import annotations

from workbench.secret_shapes import without_secrets

__all__ = [
    "CheckpointError",
    "EngineError",
    "WorkbenchError",
    "clean",
    "shorten",
    "shown",
    "without_secrets",
]

# What, why and next together are never longer than a screen of 80 by 24.
LONGEST = 500
# A name, a path or a value inside a sentence.
LONGEST_VALUE = 160
_MOST_LINES = 12


def clean(text: str) -> str:
    """Return `text` with control and bidirectional characters spelt out, as Python would."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return `text` on one line with at most `longest` characters, all printable.

    Control and bidirectional characters are spelt out; what is too long loses its middle, since both ends
    tell a name apart.
    """
    for step in (str, clean):
        text = step(text)
        if len(text) > longest:
            half = (longest - 1) // 2
            text = text[: longest - 1 - half] + "…" + text[len(text) - half :]
    return text


def _bounded(text: str) -> str:
    """Return one part of a message; the last lines that a program said keep their line breaks."""
    if "\n" not in text:
        return shorten(text, LONGEST)
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:2], "…", *lines[3 - _MOST_LINES :]]
    return "\n".join(shorten(line) for line in lines)


def shown(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return how Python writes a value, shortened: for what comes from a file."""
    if isinstance(value, str | bytes) and len(value) > longest:
        half = longest // 2 + 1
        joint = "…" if isinstance(value, str) else b"..."
        value = value[:half] + joint + value[-half:]  # type: ignore[operator]
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits, a deep list
        text = f"a very long {type(value).__name__}"
    except Exception:  # an object of somebody else's
        text = f"<{type(value).__name__} that cannot be shown>"
    return shorten(text, longest)


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

    Each is kept printable and shortened: names, paths and configs come from others, and may hold escape
    sequences or megabytes. What addresses hold of secrets is left out.
    """

    def __init__(self, what: str, *, why: str = "", next_step: str = "") -> None:
        what, why, next_step = (_bounded(without_secrets(text)) for text in (what, why, next_step))
        super().__init__(what, why, next_step)
        self.what = what
        self.why = why
        self.next_step = next_step

    @property
    def brief(self) -> str:
        """What happened and why, on one line, for a place inside a result."""
        return f"{self.what}: {self.why}".rstrip(": ")

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why:  {self.why}")
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        # A line break inside a part, indented: no name can pass for a part of its own.
        return "\n".join(line.replace("\n", "\n        ") for line in lines)


class CheckpointError(WorkbenchError):
    """A checkpoint that cannot be read, or that contradicts itself."""


class EngineError(WorkbenchError):
    """An engine that is not known, or whose own interpreter could not be run."""
