"""One HTML file that needs nothing else: the page around a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench import __version__
from workbench.core.palette import verdict_state
from workbench.display import assets, html, live
from workbench.display.static_html import static

if TYPE_CHECKING:
    from workbench.core.result import Result

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {scripts}; "
    "base-uri 'none'; form-action 'none'"
)


Verdict = tuple[str, str]
"""State (``ok``, ``wrong``, ``unsure``) and sentence of what a page found."""


def shell(
    title: str,
    body: str,
    *,
    label: str = "",
    scripts: tuple[str, ...] = (),
    style: str = "",
    theme: str = "",
    verdict: Verdict | None = None,
    counts: str = "",
) -> str:
    """Return a whole page in the workbench's design.

    Parameters
    ----------
    title
        Its heading, and the title of its window.
    body
        Its content, as HTML.
    label
        What stands above the content instead of `title`, where the content has its own heading.
    scripts
        The inline scripts in `body` that may run; no other does, whatever a name in it contains.
    style
        More style sheet.
    theme
        ``light`` or ``dark`` to open in it; "" as the reader's system is.
    verdict
        What the page found, for an index of pages; the worst where it holds several results.
    counts
        How many results found what, where it holds several: "2 wrong, 4 ok".
    """
    allowed = " ".join(
        [assets.csp_hash(s) for s in (assets.read("theme.js"), *scripts)]
        + ["blob:"] * bool(scripts)
    )
    start = assets.read("theme.js")
    heading = f"<p>{html.escape(label)}</p>" if label else f"<h1>{html.escape(title)}</h1>"
    found = ""
    if verdict:
        state, line = map(html.escape, verdict)
        many = f' data-counts="{html.escape(counts)}"' if counts else ""
        found = f'<meta name="workbench-verdict" data-state="{state}"{many} content="{line}">\n'
    return f"""<!DOCTYPE html>
<html lang="en"{f' data-wb-theme="{html.escape(theme)}"' if theme else ""}>
<head>
<meta charset="utf-8">
<meta name="generator" content="workbench {__version__}">
<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(scripts=allowed)}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
{found}<style>{assets.read("page.css")}{style}</style>
<script>{start}</script>
</head>
<body>
<div class="wb-top">{heading}<button type="button" class="wb-theme" hidden>Dark</button></div>
<main>{body}</main>
</body>
</html>
"""


def result_page(result: Result) -> str:
    """Return a result as one HTML page that holds everything and makes no request."""
    payload = result.payload()
    data = assets.packed(payload)
    verdict = (verdict_state(payload["verdict"]["ok"]), payload["verdict"]["line"])
    body = live.live(data, static(result), payload["schema"], verdict=verdict)
    return shell(result.title, body, scripts=(live.start_script(),), verdict=verdict)
