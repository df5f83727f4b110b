"""One HTML file that needs nothing else: the page around a result."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from workbench.display import assets, html
from workbench.display.palette import verdict_state

if TYPE_CHECKING:
    from workbench.result import Result

# Runs before anything is drawn: the reader's choice of light or dark, kept where the browser allows it.
_THEME = """\
const root = document.documentElement, kept = "workbench-theme";
try { root.dataset.wbTheme = localStorage.getItem(kept) ?? root.dataset.wbTheme ?? ""; } catch {}
addEventListener("DOMContentLoaded", () => {
  const button = document.querySelector(".wb-theme");
  const dark = () => root.dataset.wbTheme ? root.dataset.wbTheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const tell = () => (button.textContent = dark() ? "Light" : "Dark");
  button.hidden = false;
  tell();
  button.addEventListener("click", () => {
    root.dataset.wbTheme = dark() ? "light" : "dark";
    tell();
    try { localStorage.setItem(kept, root.dataset.wbTheme); } catch {}
  });
});
"""
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
    scripts: tuple[str, ...] = (),
    policy: str = "",
    style: str = "",
    theme: str = "",
    verdict: Verdict | None = None,
) -> str:
    """Return a whole page in the workbench's design.

    Parameters
    ----------
    title
        Its heading, and the title of its window.
    body
        Its content, as HTML.
    scripts
        The inline scripts in `body` that may run; no other does, whatever a name in it contains.
    policy
        Another Content-Security-Policy, where `scripts` is not enough.
    style
        More style sheet.
    theme
        ``light`` or ``dark`` to open in it; "" as the reader's system is.
    verdict
        What the page found, for an index of pages.
    """
    allowed = " ".join([assets.csp_hash(s) for s in (_THEME, *scripts)] + ["blob:"] * bool(scripts))
    base = (files("workbench.display") / "static" / "page.css").read_text("utf-8")
    found = ""
    if verdict:
        state, line = map(html.escape, verdict)
        found = f'<meta name="workbench-verdict" data-state="{state}" content="{line}">\n'
    return f"""<!DOCTYPE html>
<html lang="en"{f' data-wb-theme="{html.escape(theme)}"' if theme else ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy or _POLICY.format(scripts=allowed)}">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
{found}<style>{base}{style}</style>
<script>{_THEME}</script>
</head>
<body>
<div class="wb-top"><h1>{html.escape(title)}</h1><button type="button" class="wb-theme" hidden>Dark</button></div>
<main>{body}</main>
</body>
</html>
"""


def result_page(result: Result) -> str:
    """Return a result as one HTML page that holds everything and makes no request."""
    payload = result.payload()
    data = assets.packed(payload)
    verdict = (verdict_state(payload["verdict"]["ok"]), payload["verdict"]["line"])
    body = html.live(data, html.preview(payload), verdict=verdict)
    return shell(result.title, body, scripts=(html.start_script(data),), verdict=verdict)
