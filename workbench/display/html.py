"""Pieces of HTML, all escaped, and the live view that needs no kernel."""

from __future__ import annotations

import hashlib
import html
import re

from workbench.display import assets
from workbench.display.palette import tone
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
    """Return the sign of a state in its colour."""
    look = tone(state)
    return (
        f'<b style="color:{look.light};color:light-dark({look.light},{look.dark})">{look.glyph}</b>'
    )


def code_lines(text: str) -> str:
    """Return text of several lines, escaped."""
    return "\n".join(escape(line) for line in text.split("\n"))


def base64_png(png: bytes) -> str:
    """Return an image as base64 text."""
    return escape(assets.base64_of(png))


def style_element() -> str:
    """Return the style sheet as an element; one per document is enough (`live` repeats it)."""
    return f'<style data-wb-css="{assets.version()}">{assets.css()}</style>'


def module_element() -> str:
    """Return the view's module as an element; one per document is enough (`live` repeats it)."""
    return f'<script data-wb-esm="{assets.version()}" type="text/plain">{assets.esm()}</script>'


def start_script(data: bytes) -> str:
    """Return the script that brings the view of `data` to life."""
    return (
        f'const name = "{_name(data)}", version = "{assets.version()}";\n{assets.read("start.js")}'
    )


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def live(data: bytes, static: str, verdict: tuple[str, str] | None = None) -> str:
    """Return a view that needs no kernel and no network: preview, data, module and starter.

    Parameters
    ----------
    data
        The payload, from `assets.packed`.
    static
        The static preview; the script replaces it.
    verdict
        State and sentence, for an index of pages.
    """
    found = f' data-wb-verdict="{escape(": ".join(verdict))}"' if verdict else ""
    return (
        f'<div data-wb="{_name(data)}"{found}>'
        f"{style_element()}<div data-wb-mount>{static}</div>"
        f'<script type="text/plain" data-wb-data>{assets.base64_of(data)}</script>'
        f'{module_element()}<script type="module">{start_script(data)}</script></div>'
    )
