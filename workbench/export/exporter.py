"""The nbconvert exporter ``workbench``: a notebook as one HTML file that makes no request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbconvert.exporters.html import HTMLExporter
from nbconvert.preprocessors import Preprocessor
from traitlets import Unicode, default
from traitlets.config import Config

from workbench.display import live
from workbench.display.page import shell
from workbench.export import printed, summary
from workbench.export.boxes import STATE, WIDGET
from workbench.export.clean import Shown, cleaned, output_html

_TEMPLATES = Path(__file__).parent / "templates"
_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)
# What a page shows of an output, the best form first: none needs a kernel.
_FORMS = (
    "text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/latex", "text/plain",
)  # fmt: skip


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
                "NbConvertBase": {"display_data_priority": list(_FORMS)},
                "HTMLExporter": {"embed_images": True, "exclude_anchor_links": True},
            }
        )
        return config

    def _init_preprocessors(self) -> None:
        base: Any = super()  # nbconvert has types in part
        base._init_preprocessors()
        # The last of all, so that it sees what execution and the user's own preprocessors leave.
        made: Any = _Outputs
        self._outputs = made(enabled=True)
        base.register_preprocessor(self._outputs)

    def default_filters(self) -> Any:
        """Give the template nbconvert's filters, with our allow-list in place of nbconvert's."""
        base: Any = super()
        yield from base.default_filters()
        yield ("clean_html", cleaned)

    def from_notebook_node(  # type: ignore[override]  # as nbconvert's own HTMLExporter
        self, nb: Any, resources: dict[str, Any] | None = None, **kwargs: Any
    ) -> tuple[str, dict[str, Any]]:
        """Return the page of a notebook, and nbconvert's resources."""
        shown = self._outputs.shown = []
        body, resources = super().from_notebook_node(nb, resources, **kwargs)
        style = (_TEMPLATES / "workbench" / "notebook.css").read_text("utf-8")
        page = shell(
            _title(nb, resources),
            summary.banner(shown) + body + live.shared({one.schema for one in shown}),
            label=resources.get("metadata", {}).get("name", ""),
            scripts=(live.start_script(),) if shown else (),
            style=style,
            theme=self.theme if self.theme in ("light", "dark") else "",
            verdict=summary.of(shown),
            counts=summary.counts(one.state for one in shown) if len(shown) > 1 else "",
        )
        return page, resources


class _Outputs(Preprocessor):
    """Makes the outputs of a notebook fit for a page, and notes the results among them."""

    shown: list[Shown]

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        if cell.cell_type == "code":
            self._marks: list[str] = []
            cell.outputs = [output for output in cell.outputs if self._keep(output)]
            cell.metadata["workbench_marks"] = "".join(self._marks)
        return cell, resources

    def _note(self, found: Iterable[Shown]) -> bool:
        """Note the results that the page shows as text; say whether there are any."""
        any_found = False
        for one in found:
            any_found = True
            if not any((one.state, one.line) == (other.state, other.line) for other in self.shown):
                self.shown.append(one)
                self._marks.append(printed.mark(len(self.shown), one))
        return any_found

    def _keep(self, output: Any) -> bool:
        """Clean an output in place; say whether anything of it is left to show."""
        data = output.get("data")
        if output.output_type == "error":
            self._note([printed.of_error(output)])
        if not data:
            self._note(printed.printed(_text(output.get("text"))))
            return True
        if isinstance(data.get("text/html"), str):
            given = data["text/html"]
            data["text/html"] = output_html(given, self.shown)
            if not data["text/html"].strip():  # only script: its other forms say more
                del data["text/html"]
            elif "data-wb" not in given:
                self._note(printed.of_html(given))
        if state := output.get("metadata", {}).get(STATE):
            self._note(printed.in_box(state))
        left = [form for form in _FORMS if data.get(form)]
        stated = False
        if left and left[0] in ("text/markdown", "text/plain"):
            stated = self._note(printed.printed(_text(data[left[0]])))
        # The text of a widget is how Python would write it, or a bar of progress.
        return stated or bool(set(left) - {"text/plain"}) if WIDGET in data else bool(left)


def _text(value: Any) -> str:
    """Return the text of an output; damaged notebooks have others."""
    return value if isinstance(value, str) else ""


def _title(nb: Any, resources: dict[str, Any]) -> str:
    """Return the notebook's title: its metadata, its first heading, or its file's name."""
    headings = (
        heading.group(1)
        for cell in nb.cells
        if cell.cell_type == "markdown" and (heading := _HEADING.search(cell.source))
    )
    name = resources.get("metadata", {}).get("name", "Notebook")
    return str(nb.metadata.get("title") or next(headings, name)).replace("`", "")
