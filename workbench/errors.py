"""The one exception a user of the workbench has to know."""

from __future__ import annotations

import re

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
    return shorten(text, longest)


# Also with one slash, as paths write it; what stands behind a quote or a bracket is no part of it.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,30}:/{1,2}[^\s\"'<>)\]}]+")
# A user with a password, also one with an unquoted slash; but host:port/path@version is neither.
_USER = re.compile(r"(?<=:/)/?(?:[^\s/?#]*|[^\s@/:]*:(?!\d+(?:[/?#]|$))\S*)@")
_QUERY = re.compile(r"([?&;#])(?:([^=&;#]*)=)?([^&;#]*)")
# Names whose values say which file is meant; any other may be a key or a signature.
_PLAIN = frozenset(
    {"revision", "rev", "ref", "branch", "version", "versionid", "download", "path", "file"}
)


def _hidden(part: re.Match[str]) -> str:
    mark, name, value = part.groups()
    if not value or (name is not None and name.lower() in _PLAIN):
        return part[0]
    # Behind # without a name stands which of several addresses it is.
    if name is None and mark == "#" and value.isdigit():
        return part[0]
    return f"{mark}{'' if name is None else name + '='}…"


def _without(address: re.Match[str]) -> str:
    text = _USER.sub(lambda found: "/…@" if found[0].startswith("/") else "…@", address[0], count=1)
    return _QUERY.sub(_hidden, text)


def without_secrets(text: str) -> str:
    """Return a text whose addresses have neither users and passwords nor the values of queries."""
    return _ADDRESS.sub(_without, text) if ":/" in text else text


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
