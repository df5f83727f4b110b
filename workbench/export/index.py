"""The page that links all reports of a folder: what each found, in one sentence."""

from __future__ import annotations

import dataclasses
import datetime
import html
import os
import re
from pathlib import Path
from urllib.parse import quote

from workbench.core.outputs import writing
from workbench.core.palette import TONES, tone
from workbench.display.html import escape
from workbench.display.page import shell

_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_META = re.compile(
    r'<meta name="workbench-verdict" data-state="(\w+)"(?: data-counts="([^"]*)")? content="([^"]*)">'
)
_HEAD = 16_384  # bytes at the start of a page that hold its title and its verdict

_STYLE = Path(__file__).parent / "templates" / "index.css"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One report: its file, title, verdict, size in bytes, time of writing.

    Attributes
    ----------
    state, verdict
        State and sentence of its worst result.
    counts
        How many results found what, where it holds several.
    """

    file: str
    title: str
    state: str
    verdict: str
    counts: str
    size: int
    written: datetime.datetime


def read_entry(path: Path) -> Entry:
    """Read title and verdict of one report from the head of its page."""
    with path.open("rb") as file:
        head = file.read(_HEAD).decode("utf-8", "replace")
    title = _TITLE.search(head)
    verdict = _META.search(head)
    state = verdict.group(1) if verdict else ""
    about = path.stat()
    return Entry(
        file=path.name,
        title=html.unescape(title.group(1)).strip() if title else path.stem,
        state=state if state in TONES else "quiet",
        verdict=html.unescape(verdict.group(3)) if verdict else "",
        counts=html.unescape(verdict.group(2) or "") if verdict else "",
        size=about.st_size,
        written=datetime.datetime.fromtimestamp(about.st_mtime).astimezone(),
    )


def write_index(folder: str | os.PathLike[str]) -> Path:
    """Write ``index.html`` of a folder of reports, in the order of their names.

    Returns
    -------
    Path
        The page written.
    """
    folder = Path(folder)
    out = folder / "index.html"
    pages = sorted(path for path in folder.glob("*.html") if path.name != out.name)
    items = "".join(_item(read_entry(path)) for path in pages)
    body = f'<ol class="list">{items}</ol>' if items else '<p class="none">No reports yet.</p>'
    with writing(out, "page") as file:
        file.write(
            shell("Reports of the workbench", body, style=_STYLE.read_text("utf-8")).encode()
        )
    return out


def _item(entry: Entry) -> str:
    look = tone(entry.state)
    when = entry.written.strftime("%-d %B %Y, %H:%M")
    counts = f'<p class="counts">{escape(entry.counts)}</p>' if entry.counts else ""
    verdict = counts + (f"<p>{escape(entry.verdict)}</p>" if entry.verdict else "")
    return (
        f'<li><a href="{escape(quote(entry.file))}">'
        f'<span class="sign" style="background:light-dark({look.light},{look.dark})" '
        f'aria-hidden="true">{look.glyph}</span>'
        f"<h2>{escape(entry.title)}</h2>{verdict}"
        f'<p class="about">{_size(entry.size)} · {when}</p></a></li>'
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(count // 1000, 1)} KB"
