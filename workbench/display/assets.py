"""The script and the style sheet of every view, as they lie in ``static/``: no build, no download."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from workbench.display.palette import ORDER, TONES

# In the order in which they need each other; view.js, which exports the view, comes last.
_MODULES = (
    "dom.js", "head.js", "table.js", "keydiff.js", "icicle.js", "startup.js", "hang.js", "launches.js",
    "weights_map.js", "weights_table.js", "weights.js", "replay_charts.js", "replay_tree.js", "replay.js",
    "ablations.js",
)  # fmt: skip
_STYLES = ("view.css", "hang.css", "weights.css", "replay.css")
_IMPORT = re.compile(r"^import .+;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let) (\w+))", re.MULTILINE)


@functools.cache
def read(name: str) -> str:
    """Return a file of ``static/``."""
    return (files("workbench.display") / "static" / name).read_text("utf-8")


@functools.cache
def esm() -> str:
    """Return the view as one ES module without imports: it must also load from a Blob, offline.

    Every file keeps a scope of its own, so that two may use the same private name.
    """
    return "".join(map(_scoped, _MODULES)) + _IMPORT.sub("", read("view.js"))


def _scoped(name: str) -> str:
    text = _IMPORT.sub("", read(name))
    names = ", ".join(_EXPORT.findall(text))
    return (
        f"const {{ {names} }} = (() => {{\n{_EXPORT.sub('', text)}return {{ {names} }};\n}})();\n"
    )


@functools.cache
def css() -> str:
    """Return the style sheet of the view, with the colours of `workbench.display.palette`."""
    colours = "".join(f"--wb-{s}:light-dark({t.light},{t.dark});" for s, t in TONES.items())
    states = "".join(f'.wb-view [data-state="{s}"]{{--wb-tone:var(--wb-{s})}}\n' for s in TONES)
    return f"{''.join(map(read, _STYLES))}.wb-view{{{colours}}}\n{states}"


@functools.cache
def version() -> str:
    """Return a short name of this script and style sheet, so that a page holds each once."""
    return hashlib.sha256((esm() + css()).encode()).hexdigest()[:12]


def packed(payload: dict[str, Any]) -> bytes:
    """Return the payload of a view as gzip-compressed JSON, with the signs of `palette` added.

    The same payload always gives the same bytes.
    """
    style = {"glyphs": {state: tone.glyph for state, tone in TONES.items()}, "order": ORDER}
    text = json.dumps(payload | {"style": style}, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def base64_of(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def csp_hash(script: str) -> str:
    """Return the source expression that allows one inline script in a Content-Security-Policy."""
    return f"'sha256-{base64_of(hashlib.sha256(script.encode()).digest())}'"
