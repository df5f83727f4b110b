"""Pieces of HTML, all escaped: the static preview of a result.

The preview is what is left where no script runs: in a notebook that JupyterLab does not trust, in mail,
in print without JavaScript. JupyterLab's sanitizer keeps plain elements and style attributes there, so
the preview is made of nothing else.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

from workbench.display.palette import tone, verdict_state
from workbench.display.text import middle, plural
from workbench.errors import clean

PREVIEW_ROWS = 24
_MONO = "font-family:monospace;font-size:13px"
_CELL = "padding:3px 14px 3px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere"
_QUIET = "opacity:0.75"


def escape(text: object) -> str:
    """Return `text` for an element or a quoted attribute, control characters spelt out."""
    return html.escape(clean(str(text)), quote=True)


def prose(text: str) -> str:
    """Return escaped text with what stands between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", text)
    return "".join(
        f"<code>{escape(p)}</code>" if at % 2 else escape(p) for at, p in enumerate(parts)
    )


def _sign(state: str) -> str:
    look = tone(state)
    return (
        f'<b style="color:{look.light};color:light-dark({look.light},{look.dark})">{look.glyph}</b>'
    )


def preview(payload: dict[str, Any], rows: int = PREVIEW_ROWS) -> str:
    """Return a result as static HTML: verdict, facts, findings, renames and the first groups."""
    return f'<div style="line-height:1.5;max-width:1240px">{"".join(_preview(payload, rows))}</div>'


def _preview(payload: dict[str, Any], rows: int) -> Iterator[str]:
    verdict = payload["verdict"]
    sign = _sign(verdict_state(verdict["ok"]))
    yield f'<p style="font-size:20px;font-weight:600;margin:0 0 8px">{sign} {prose(verdict["line"])}</p>'
    facts = [f"<span style='{_QUIET}'>{escape(k)}</span> {escape(v)}" for k, v in payload["facts"]]
    if facts:
        yield f'<p style="margin:0 0 16px">{" &nbsp;·&nbsp; ".join(facts)}</p>'
    for item in payload["findings"]:
        yield _finding(item)
    for block in payload.get("preview", ()):
        yield _block(block)
    for rename in payload.get("renames", ()):
        yield _rename(rename)
    if "table" not in payload:
        return
    groups = payload["table"]["groups"]
    if groups:
        shown = "".join(map(_row, groups[:rows]))
        yield f'<table style="border-collapse:collapse;margin:12px 0 8px">{shown}</table>'
    left = sum(group["count"] for group in groups[rows:]) + payload["table"]["left_out"]
    if left:
        yield f'<p style="{_QUIET};margin:0">… and {plural(left, "more row", "more rows")}.</p>'


def _block(block: dict[str, Any]) -> str:
    """Return one piece of a preview: a ``heading``, ``text``, ``code``, ``table`` or ``image``.

    A table is ``head`` and ``rows``; the first cell of a row may be ``{"state": ..., "text": ...}``. An image
    is a PNG in base64 with its ``alt``.
    """
    kind = block["kind"]
    if kind == "heading":
        return f'<p style="font-weight:600;margin:14px 0 4px">{prose(block["text"])}</p>'
    if kind == "text":
        return f'<p style="margin:0 0 8px">{prose(block["text"])}</p>'
    if kind == "code":
        return f'<pre style="{_MONO};margin:0 0 8px;overflow-x:auto">{escape_lines(block["text"])}</pre>'
    if kind == "image":
        source = f"data:image/png;base64,{escape(block['png'])}"
        return f'<img style="max-width:100%" alt="{escape(block["alt"])}" src="{source}">'
    head = "".join(f'<td style="{_CELL};{_QUIET}">{escape(text)}</td>' for text in block["head"])
    rows = "".join(f"<tr>{''.join(map(_block_cell, row))}</tr>" for row in block["rows"])
    return (
        f'<table style="border-collapse:collapse;margin:6px 0 10px"><tr>{head}</tr>{rows}</table>'
    )


def _block_cell(cell: Any) -> str:
    if isinstance(cell, dict):
        return f'<td style="{_CELL};white-space:nowrap">{_sign(cell["state"])} {escape(cell["text"])}</td>'
    return f'<td style="{_CELL};{_MONO}">{escape(middle(clean(str(cell)), 96))}</td>'


def escape_lines(text: str) -> str:
    """Return text of several lines, escaped."""
    return "\n".join(escape(line) for line in text.split("\n"))


def _finding(item: dict[str, Any]) -> str:
    inside = []
    if item["detail"]:
        inside.append(f"<div>{prose(item['detail'])}</div>")
    inside += [f"<div>+ {prose(text)}</div>" for text in item["evidence_for"]]
    inside += [f"<div>− {prose(text)}</div>" for text in item["evidence_against"]]
    if item["next_step"]:
        inside.append(f"<div><b>Next:</b> {prose(item['next_step'])}</div>")
    opened = "" if item["severity"] == "note" else " open"
    return (
        f'<details style="margin:0 0 10px"{opened}><summary>{_sign(item["severity"])} '
        f"<b>{prose(item['title'])}</b></summary>"
        f'<div style="margin:2px 0 0 20px">{"".join(inside)}</div></details>'
    )


def _rename(rename: dict[str, Any]) -> str:
    steps = "; ".join(f"{a} → {b or '(nothing)'}" for a, b in rename["rule"])
    before, after = rename["example"]
    proof = "proved" if rename["proved"] else "partly proved"
    return (
        f'<p style="margin:12px 0 4px">{_sign("ok" if rename["proved"] else "unsure")} <b>Rename</b> '
        f'<span style="{_MONO}">{escape(steps)}</span> ({proof}, {plural(rename["renamed"], "key")}), '
        f'such as <span style="{_MONO}">{escape(before)} → {escape(after)}</span></p>'
    )


def _row(group: dict[str, Any]) -> str:
    shape = "" if group["shape"] is None else str(list(group["shape"]))
    count = "" if group["count"] == 1 else f"{group['count']:,}×"
    where = f"→ {group['rename']}" if group["rename"] else group["parameter"] or group["reason"]
    cells = [
        f'<td style="{_CELL};white-space:nowrap">{_sign(group["status"])} {escape(group["status"])}</td>',
        *_cells([middle(clean(group["text"]), 72), count, shape, group["dtype"] or ""], _MONO),
        *_cells([middle(clean(where or ""), 72)], _QUIET),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _cells(texts: Iterable[str], style: str) -> Iterator[str]:
    return (f'<td style="{_CELL};{style}">{escape(text)}</td>' for text in texts)
