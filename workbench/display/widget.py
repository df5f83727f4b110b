"""The interactive view in a notebook, and what a saved notebook keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from workbench.display import assets, html
from workbench.display.palette import verdict_state
from workbench.display.static_html import static

if TYPE_CHECKING:
    from workbench.core.result import Result

# A saved notebook keeps the data of a view twice where widget state is saved, as base64 both times
# (4/3), and script and style of all views, 200 KB, as often: together at most 2 MB.
NOTEBOOK_LIMIT = 580_000


class ResultView(anywidget.AnyWidget):
    """A result as a widget.

    Attributes
    ----------
    payload
        The data, compressed (`workbench.display.assets.packed`).
    ui
        What the reader chose: ``filter``, ``statuses``, ``sort``, ``open``, ``scroll``, ``row``. It lives
        here and not in the page, because JupyterLab removes a view whose cell was scrolled away.
    """

    _esm = assets.esm()
    _css = assets.css()
    payload = traitlets.Bytes().tag(sync=True)
    ui = traitlets.Dict().tag(sync=True)


def view_of(result: Result) -> ResultView:
    """Return the interactive view of a result, with as much data as a notebook should carry."""
    return ResultView(payload=assets.packed(result.payload(limit=NOTEBOOK_LIMIT)))


def mimebundle(
    result: Result,
    include: Any = None,
    exclude: Any = None,
    **kwargs: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a result in every form a notebook may ask for: text, HTML that lives alone, widget.

    Parameters
    ----------
    include, exclude
        MIME types to keep or to leave out, as IPython passes them.
    """
    payload = result.payload(limit=NOTEBOOK_LIMIT)
    data = assets.packed(payload)
    ok, line = payload["verdict"]["ok"], payload["verdict"]["line"]
    bundle: dict[str, Any] = {
        "text/plain": result.to_text(),
        "text/html": html.live(data, static(result), (verdict_state(ok), line)),
    }
    metadata: dict[str, Any] = {}
    widget = ResultView(payload=data)._repr_mimebundle_(**kwargs)
    if widget is not None:
        shown, metadata = widget if isinstance(widget, tuple) else (widget, {})
        bundle = shown | bundle
    keep = set(include or bundle) - set(exclude or ())
    return {kind: bundle[kind] for kind in bundle if kind in keep}, metadata
