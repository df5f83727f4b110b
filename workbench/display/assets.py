"""The scripts and the style sheets of the views, as they lie in ``static/``: no build, no download.

They come in pieces: ``core`` is what every view needs, each other piece is what one kind of result needs
besides. A result carries its two pieces compressed, some 20 to 40 KB, so that it is alive wherever its
output ends up; a page of many results carries each piece once. Joined, they are one ES module.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from workbench.core.palette import ORDER, TONES


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """The files of a piece, scripts in the order in which they need each other."""

    scripts: tuple[str, ...]
    styles: tuple[str, ...] = ()


_CORE = _Files(("dom.js", "head.js", "groups.js", "grid.js", "table.js", "mount.js"), ("view.css",))
_KINDS = {
    "keydiff": _Files(("keydiff.js",)),
    "check": _Files(("check.js",), ("check.css",)),
    "hang": _Files(("icicle.js", "startup.js", "hang.js", "launches.js"), ("hang.css",)),
    "weights": _Files(("weights_map.js", "weights_table.js", "weights.js"), ("weights.css",)),
    "replay": _Files(
        ("replay_charts.js", "replay_tree.js", "replay.js", "ablations.js"), ("replay.css",)
    ),
}
# Schema of a result → the piece that shows it, and the function in it.
_VIEWS = {
    "workbench.ablations/1": ("replay", "ablations"),
    "workbench.case/1": ("check", "triage"),
    "workbench.gate/1": ("check", "gate"),
    "workbench.hang/1": ("hang", "hang"),
    "workbench.keydiff/1": ("keydiff", "keydiff"),
    "workbench.launchcheck/1": ("check", "launchcheck"),
    "workbench.launches/1": ("hang", "launches"),
    "workbench.replay/1": ("replay", "replay"),
    "workbench.weightcompare/1": ("weights", "weights"),
    "workbench.weightscan/1": ("weights", "weights"),
}
_IMPORT = re.compile(r"^import .+;\n", re.MULTILINE)
# Types and explanations for those who edit: a result carries none of them.
_JSDOC = re.compile(r"/\*\*.*?\*/", re.DOTALL)
_REMARK = re.compile(r"^[ \t]*(?://.*)?\n", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_PRELUDE = re.compile(r"(\s*)([^{};\s][^{};]*)\{")
_COMMA = re.compile(r",\s*(?![^(]*\))")  # not inside of :is(a, b)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let) (\w+))", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A part of the module: its name with a hash of its text, and its text."""

    name: str
    text: str

    def compressed(self) -> bytes:
        """Return the text compressed; the same text always gives the same bytes."""
        return _compressed(self.text)


@functools.cache
def read(name: str) -> str:
    """Return a file of ``static/``."""
    return (files("workbench.display") / "static" / name).read_text("utf-8")


def pieces(schema: str) -> tuple[Piece, ...]:
    """Return the pieces that show a result of this schema, in the order in which they are joined."""
    kind, _ = _VIEWS.get(schema, ("", ""))
    return (_core(), _kind(kind)) if kind else (_core(),)


@functools.cache
def _core() -> Piece:
    scripts = "".join(map(_scoped, _CORE.scripts)) + _bare("view.js")
    # The module exports from here, so that it is whole with whatever kinds follow.
    return _piece("core", f"{scripts}{_styled(css_of(_CORE) + _colours())}")


@functools.cache
def _kind(kind: str) -> Piece:
    made = _KINDS[kind]
    scripts = "".join(map(_scoped, made.scripts))
    shown = "".join(
        f"VIEWS[{json.dumps(schema)}] = {function};\n"
        for schema, (piece, function) in _VIEWS.items()
        if piece == kind
    )
    return _piece(kind, f"{scripts}{_styled(css_of(made))}{shown}")


def _piece(name: str, text: str) -> Piece:
    return Piece(f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}", text)


def _styled(css: str) -> str:
    return f"STYLES.push({json.dumps(css)});\n" if css else ""


def _bare(name: str) -> str:
    """Return a script without imports, and without comments and lines that are nothing else."""
    return _REMARK.sub("", _JSDOC.sub("", _IMPORT.sub("", read(name))))


def _scoped(name: str) -> str:
    """Return a file's script in a scope of its own, so that two may use the same private name."""
    text = _bare(name)
    names = ", ".join(_EXPORT.findall(text))
    return (
        f"const {{ {names} }} = (() => {{\n{_EXPORT.sub('', text)}return {{ {names} }};\n}})();\n"
    )


def css_of(made: _Files) -> str:
    """Return the style sheets of a piece."""
    return _weighty("".join(map(read, made.styles)))


def _weighty(css: str) -> str:
    """Return a style sheet whose every selector weighs one class more than it says.

    Notebooks dress the lists and tables of an output by rules such as ``.jp-OutputArea-output dl``, which
    would win over ``.wb-facts``.
    """

    def heavier(found: re.Match[str]) -> str:
        space, prelude = found.group(1), found.group(2)
        if prelude.startswith("@"):
            return found.group(0)
        selectors = (
            one.replace(".wb-view", ".wb-view.wb-view") if ".wb-view" in one else f".wb-view {one}"
            for one in _COMMA.split(prelude)
        )
        return f"{space}{','.join(selectors)}{{"

    return _PRELUDE.sub(heavier, _COMMENT.sub("", css))


@functools.cache
def css() -> str:
    """Return the style sheet of all views, with the colours of `workbench.core.palette`."""
    return css_of(_CORE) + _colours() + "".join(map(css_of, _KINDS.values()))


def _colours() -> str:
    colours = "".join(f"--wb-{s}:light-dark({t.light},{t.dark});" for s, t in TONES.items())
    states = "".join(f'.wb-view [data-state="{s}"]{{--wb-tone:var(--wb-{s})}}\n' for s in TONES)
    return _weighty(f".wb-view{{{colours}}}\n{states}")


def packed(payload: dict[str, Any]) -> bytes:
    """Return the payload of a view as gzip-compressed JSON, with the signs of `palette` added.

    The same payload always gives the same bytes.
    """
    style = {"glyphs": {state: tone.glyph for state, tone in TONES.items()}, "order": ORDER}
    text = json.dumps(payload | {"style": style}, separators=(",", ":"), allow_nan=False)
    return _compressed(text)


def _compressed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def base64_of(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def csp_hash(script: str) -> str:
    """Return the source expression that allows one inline script in a Content-Security-Policy."""
    return f"'sha256-{base64_of(hashlib.sha256(script.encode()).digest())}'"
