"""A live view as HTML: it needs no kernel and no network."""

from __future__ import annotations

import hashlib

from workbench.display import assets, html


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
    found = f' data-wb-verdict="{html.escape(": ".join(verdict))}"' if verdict else ""
    return (
        f'<div data-wb="{_name(data)}"{found}>'
        f"{style_element()}<div data-wb-mount>{static}</div>"
        f'<script type="text/plain" data-wb-data>{assets.base64_of(data)}</script>'
        f'{module_element()}<script type="module">{start_script(data)}</script></div>'
    )
