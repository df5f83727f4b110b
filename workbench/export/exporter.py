"""The nbconvert exporter ``workbench``: a notebook as one HTML file that makes no request."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from nbconvert.exporters.html import HTMLExporter
from traitlets import Unicode, default
from traitlets.config import Config

from workbench.display.page import Verdict, shell

_TEMPLATES = Path(__file__).parent / "templates"
# Views repeat the style sheet and the module, so that each works alone; one of each is enough here.
_REPEATED = re.compile(
    r'<style data-wb-css="(\w+)">.*?</style>|<script\b[^>]*\bdata-wb-esm="(\w+)"[^>]*>.*?</script>',
    re.DOTALL,
)
_VERDICT = re.compile(r'data-wb-verdict="(\w+): ([^"]*)"')
_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)
# A notebook may hold scripts of other libraries, so inline ones are allowed; none can reach the network.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; media-src data:; base-uri 'none'; form-action 'none'"
)


class WorkbenchExporter(HTMLExporter):
    """Export a notebook as a page: light and dark, interactive, offline.

    ``jupyter nbconvert --to workbench --execute notebook.ipynb``. ``--no-input`` leaves the code out,
    ``--theme dark`` and ``--theme light`` choose what the page opens in.
    """

    export_from_notebook = "Workbench report (one offline HTML file)"
    theme = Unicode("auto", help="light, dark, or auto: as the reader's system is").tag(config=True)

    @default("template_name")
    def _template_name_default(self) -> str:
        return "workbench"

    @default("extra_template_basedirs")
    def _extra_template_basedirs_default(self) -> list[str]:
        # Inside the package, not in share/jupyter: an editable install has nothing there.
        return [*super()._default_extra_template_basedirs(), str(_TEMPLATES)]

    @property
    def default_config(self) -> Config:
        """Prefer what needs no kernel, and take pictures into the file."""
        config: Config = super().default_config.copy()
        config.merge(
            {
                "NbConvertBase": {
                    "display_data_priority": [
                        "text/html",
                        "text/markdown",
                        "image/svg+xml",
                        "image/png",
                        "image/jpeg",
                        "text/latex",
                        "text/plain",
                    ]
                },
                "HTMLExporter": {"embed_images": True, "exclude_anchor_links": True},
            }
        )
        return config

    def from_notebook_node(  # type: ignore[override]  # as nbconvert's own HTMLExporter
        self, nb: Any, resources: dict[str, Any] | None = None, **kwargs: Any
    ) -> tuple[str, dict[str, Any]]:
        """Return the page of a notebook, and nbconvert's resources."""
        body, resources = super().from_notebook_node(nb, resources, **kwargs)
        style = (_TEMPLATES / "workbench" / "notebook.css").read_text("utf-8")
        page = shell(
            _title(nb, resources),
            _once(body),
            label=resources.get("metadata", {}).get("name", ""),
            policy=_POLICY,
            style=style,
            theme=self.theme if self.theme in ("light", "dark") else "",
            verdict=_verdict(body),
        )
        return page, resources


def _title(nb: Any, resources: dict[str, Any]) -> str:
    """Return the notebook's title: its metadata, its first heading, or its file's name."""
    headings = (
        heading.group(1)
        for cell in nb.cells
        if cell.cell_type == "markdown" and (heading := _HEADING.search(cell.source))
    )
    name = resources.get("metadata", {}).get("name", "Notebook")
    return str(nb.metadata.get("title") or next(headings, name)).replace("`", "")


def _verdict(body: str) -> Verdict | None:
    """Return the verdict of the first result in a page: what the index says of it."""
    found = _VERDICT.search(body)
    return (found.group(1), html.unescape(found.group(2))) if found else None


def _once(body: str) -> str:
    """Keep the first of each style sheet and module that views repeat."""
    seen: set[str] = set()

    def keep(found: re.Match[str]) -> str:
        kind = f"{found.group(0)[:7]}{found.group(1) or found.group(2)}"
        if kind in seen:
            return ""
        seen.add(kind)
        return found.group(0)

    return _REPEATED.sub(keep, body)
