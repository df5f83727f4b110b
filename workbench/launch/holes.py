"""Text with holes: what a variable or a command would put into a launch, and is not known.

A hole is written into the text between two private-use characters, so that words can be split, joined and
parsed again without losing it. No text that comes from outside may hold these characters (`without_holes`).
"""

from __future__ import annotations

import re

# One value; and what stands outside quotes, of which a shell makes no word, one, or several.
_ONE, _MANY, _END = "\ue000", "\ue001", "\ue002"
_HOLE = re.compile(f"[{_ONE}{_MANY}]([^{_ONE}{_MANY}{_END}]*){_END}")
_MARKS = str.maketrans({_ONE: "?", _MANY: "?", _END: "?"})
_NAME = re.compile(r"\w+")
_LONGEST = 80


def hole(name: str, *, many: bool = False) -> str:
    """Return a hole that is named after what would fill it."""
    inner = without_holes(" ".join(name.split()))[:_LONGEST]
    return f"{_MANY if many else _ONE}{inner}{_END}"


def without_holes(text: str) -> str:
    """Return a text from outside, in which nothing can pass for a hole."""
    return text.translate(_MARKS)


def names(text: str) -> tuple[str, ...]:
    """Return what would fill the holes of a text, each once."""
    return tuple(dict.fromkeys(_HOLE.findall(text)))


def has_hole(text: str) -> bool:
    """Whether some of a text is not known."""
    return _END in text


def may_be_many(text: str) -> bool:
    """Whether a word may be none, or several."""
    return _MANY in text


def quoted(text: str) -> str:
    """Return a text with holes that stay within one word."""
    return text.replace(_MANY, _ONE)


def unquoted(text: str) -> str:
    """Return a text with holes of which a shell may make several words."""
    return text.replace(_ONE, _MANY)


def shown(text: str) -> str:
    """Return a text as a reader would write it: a hole is its variable."""

    def name(found: re.Match[str]) -> str:
        inner = found.group(1)
        return f"${inner}" if _NAME.fullmatch(inner) else inner

    return _HOLE.sub(name, text)
