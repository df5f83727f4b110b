"""A result as HTML that is alive without a kernel and without a network, and whole where nothing runs.

An output of a notebook is one element: the static form, the data, the pieces of the view's module that
this kind of result needs, and the starter. Everything but the static form and the starter lies in
attributes, because what a sanitizer does not know it drops: text between tags it may show. Each output is
alive by itself. A copy shared by all outputs of a notebook would die with the cell that holds it, which may
be deleted, cleared, run again, or not drawn yet.
"""

from __future__ import annotations

import functools
import hashlib

from workbench.display import assets
from workbench.display.html import escape


@functools.cache
def start_script() -> str:
    """Return the script that brings all results of a document to life; the same for every result."""
    lines = assets.read("start.js").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith(("//", "/**")))


def start_element() -> str:
    """Return the starter as an element: the last of an output, or of a page."""
    return f'<script type="module">{start_script()}</script>'


@functools.cache
def piece_element(piece: assets.Piece) -> str:
    """Return a piece of the view's module as an element."""
    code = assets.base64_of(piece.compressed())
    return f'<span hidden data-wb-piece="{piece.name}" data-wb-code="{code}"></span>'


def element(
    data: bytes,
    static: str,
    schema: str,
    inside: str = "",
    model: str = "",
    verdict: tuple[str, str] | None = None,
) -> str:
    """Return a result as an element; `live` adds what brings it to life.

    Parameters
    ----------
    data
        The payload, from `assets.packed`.
    static
        The static form; the script replaces it.
    schema
        The schema of the payload.
    inside
        More elements to put into it.
    model
        The name of the widget that has the same data, if there is one.
    verdict
        State and sentence, for those who read a page without its data.
    """
    name = hashlib.sha256(data).hexdigest()[:12]
    needs = " ".join(piece.name for piece in assets.pieces(schema))
    of = f' data-wb-model="{escape(model)}"' if model else ""
    if verdict:
        of += f' data-wb-verdict="{escape(": ".join(verdict))}"'
    return (
        f'<div data-wb="{name}" data-wb-needs="{needs}"{of}><div data-wb-mount>{static}</div>'
        f'<span hidden data-wb-data="{assets.base64_of(data)}"></span>{inside}</div>'
    )


def live(
    data: bytes,
    static: str,
    schema: str,
    model: str = "",
    verdict: tuple[str, str] | None = None,
) -> str:
    """Return a result as HTML that needs nothing else; the parameters are those of `element`."""
    pieces = "".join(map(piece_element, assets.pieces(schema)))
    inside = pieces + start_element()
    return element(data, static, schema, inside=inside, model=model, verdict=verdict)


def shared(schemas: set[str]) -> str:
    """Return what a page of many results has once: each piece that one of them needs, and the starter."""
    needed = {piece.name: piece for schema in sorted(schemas) for piece in assets.pieces(schema)}
    return "".join(map(piece_element, needed.values())) + start_element() if needed else ""
