"""What may stand in an exported page of what a notebook holds.

A notebook from somebody else is hostile until proved otherwise: its Markdown and its outputs pass an
allow-list, and no script of it is kept. A result of the workbench is known by its data: the page is made
of the data and of our own script, never of the script that the notebook carries.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json
import re
import secrets
import zlib
from typing import Any

import bs4
from bleach.css_sanitizer import CSSSanitizer  # type: ignore[import-untyped]
from bleach.sanitizer import Cleaner  # type: ignore[import-untyped]

from workbench.core.palette import verdict_state
from workbench.display import live
from workbench.display.html import escape

_MOST = 256_000_000  # bytes of one result's data, unpacked: more is no result of ours

_TAGS = {
    "a", "abbr", "b", "blockquote", "br", "caption", "cite", "code", "col", "colgroup", "dd", "del",
    "details", "dfn", "div", "dl", "dt", "em", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6",
    "hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s", "samp", "small", "span",
    "strike", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr",
    "tt", "u", "ul", "var", "wbr",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href"},
    "col": {"span"},
    "details": {"open"},
    "img": {"alt", "height", "src", "width"},
    "ol": {"start", "type"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
}
_EVERYWHERE = {"dir", "lang", "title", "style"}
# Nothing that loads, and nothing that leaves its place on the page.
_STYLES = {
    "border", "border-bottom", "border-collapse", "border-color", "border-left", "border-radius",
    "border-right", "border-spacing", "border-style", "border-top", "border-width", "color",
    "background-color", "font", "font-family", "font-size", "font-style", "font-variant-numeric",
    "font-weight", "line-height", "letter-spacing", "text-align", "text-decoration", "text-indent",
    "vertical-align", "white-space", "overflow-wrap", "word-break", "overflow-x", "width", "max-width",
    "min-width", "height", "margin", "margin-bottom", "margin-left", "margin-right", "margin-top",
    "padding", "padding-bottom", "padding-left", "padding-right", "padding-top", "opacity",
    "list-style-type", "display", "gap", "flex", "flex-wrap",
}  # fmt: skip
# Of pandas' tables and of pygments; a class of ours would wear our design.
_CLASS = re.compile(r"dataframe|highlight|[a-z]{1,2}\d?")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
_LINK = re.compile(r"#|https?://|mailto:", re.IGNORECASE)
# Their text is no text for a reader.
_MUTE = (
    "script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "math", "head",
    "title", "textarea", "select", "button", "video", "audio", "canvas",
)  # fmt: skip


def _allowed(tag: str, name: str, value: str) -> bool:
    if name == "class":
        return all(map(_CLASS.fullmatch, value.split()))
    if name == "src":
        return tag == "img" and bool(_IMAGE.fullmatch(value))
    if name == "href":
        return tag == "a" and bool(_LINK.match(value))
    if name == "id":
        return tag in {"h1", "h2", "h3", "h4", "h5", "h6"}
    return name in _EVERYWHERE or name in _ATTRIBUTES.get(tag, ())


@functools.cache
def _cleaner() -> Any:
    return Cleaner(
        tags=_TAGS,
        attributes=_allowed,
        protocols={"http", "https", "mailto", "data"},  # data only as pictures: see `_allowed`
        strip=True,
        strip_comments=True,
        css_sanitizer=CSSSanitizer(allowed_css_properties=_STYLES, allowed_svg_properties=()),
    )


def cleaned(text: str) -> str:
    """Return HTML with only what formats text, tables and pictures that lie in it."""
    soup = bs4.BeautifulSoup(text, "html.parser")
    for found in soup.find_all(_MUTE):
        found.decompose()
    return str(_cleaner().clean(str(soup)))


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """A result in an exported page: its schema and what it found.

    ``state`` is ``unsure`` where the verdict is missing or damaged: not accused is not cleared.
    """

    schema: str
    state: str
    line: str


def output_html(text: str, shown: list[Shown]) -> str:
    """Return the HTML of an output for a page: results made anew from their data, all else cleaned.

    Parameters
    ----------
    text
        The output, as the notebook holds it.
    shown
        The results of the page so far; those of this output are added.
    """
    if "data-wb" not in text:
        return cleaned(text)
    soup = bs4.BeautifulSoup(text, "html.parser")
    results: dict[str, str] = {}
    for outer in soup.select("div[data-wb]"):
        if outer.find_parent(attrs={"data-wb": True}):
            continue
        slot = f"result{secrets.token_hex(16)}"
        results[slot] = _result(outer, shown)
        outer.replace_with(slot)
    page = cleaned(str(soup))
    for slot, made in results.items():
        page = page.replace(slot, made)
    return page


def _result(outer: bs4.Tag, shown: list[Shown]) -> str:
    mount = outer.select_one("[data-wb-mount]")
    static = cleaned(mount.decode_contents()) if mount else ""
    data = _data(outer)
    payload = _payload(data)
    schema = payload.get("schema")
    about = Shown(schema if isinstance(schema, str) else "", *_verdict(payload))
    shown.append(about)
    inside = live.element(data, static, about.schema) if payload else static
    found = escape(f"{about.state}: {about.line}")
    return f'<div id="result-{len(shown)}" data-wb-verdict="{found}">{inside}</div>'


def _data(outer: bs4.Tag) -> bytes:
    """Return the data of a result, from an attribute or, as in notebooks of version 0.1, from a script."""
    holder = outer.select_one("[data-wb-data]")
    if holder is None:
        return b""
    try:
        return base64.b64decode(str(holder["data-wb-data"]) or holder.get_text(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _payload(data: bytes) -> dict[str, Any]:
    """Return the data of a result unpacked; empty where it is damaged."""
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(data, _MOST)
        payload = json.loads(text) if unpacker.eof else None
    except (zlib.error, ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _verdict(payload: dict[str, Any]) -> tuple[str, str]:
    verdict = payload.get("verdict")
    if not isinstance(verdict, dict):
        verdict = {}
    ok, line = verdict.get("ok"), verdict.get("line")
    if not isinstance(line, str) or not line:
        return verdict_state(None), "This result has no verdict."
    return verdict_state(ok if ok is True or ok is False else None), line
