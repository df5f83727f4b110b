"""Pieces of HTML, all escaped."""

from __future__ import annotations

import html
import re

from workbench.core.palette import tone
from workbench.display import assets
from workbench.errors import clean


def escape(text: object) -> str:
    """Return `text` for an element or a quoted attribute, control characters spelt out."""
    return html.escape(clean(str(text)), quote=True)


def prose(text: str) -> str:
    """Return escaped text with what stands between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", text)
    return "".join(
        f"<code>{escape(p)}</code>" if at % 2 else escape(p) for at, p in enumerate(parts)
    )


def sign(state: str) -> str:
    """Return the sign of a state in its colour.

    Where a host knows one colour only (an untrusted notebook), the sign has that of the text: no single
    colour can be read both on white and on near black.
    """
    look = tone(state)
    return f'<b style="color:light-dark({look.light},{look.dark})">{look.glyph}</b>'


def code_lines(text: str) -> str:
    """Return text of several lines, escaped."""
    return "\n".join(escape(line) for line in text.split("\n"))


def base64_png(png: bytes) -> str:
    """Return an image as base64 text."""
    return escape(assets.base64_of(png))
