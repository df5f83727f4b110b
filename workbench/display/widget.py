"""A result in a notebook: HTML that outlives the kernel, and a widget that holds its state in Python."""

from __future__ import annotations

import functools
import gzip
import secrets
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from workbench.core.palette import verdict_state
from workbench.display import assets, live
from workbench.display.static_html import static

if TYPE_CHECKING:
    from workbench.core.result import Result

# A saved notebook keeps the data of a widget twice where widget state is saved, as base64 both times
# (4/3), and the view's module, 60 KB at most, as often: together at most 2 MB.
NOTEBOOK_LIMIT = 580_000


@functools.cache
def _code(schema: str) -> bytes:
    text = "".join(piece.text for piece in assets.pieces(schema))
    return gzip.compress(text.encode(), mtime=0)


class ResultView(anywidget.AnyWidget):
    """A result as a widget: put it into a box of ipywidgets, read and set what the reader chose.

    Shown by itself it is the HTML of the result, which takes the widget's state over while the kernel is
    there and lives on without it.

    Attributes
    ----------
    payload
        The data, compressed (`workbench.display.assets.packed`).
    code
        The module of the view, compressed.
    needs
        The names of the pieces that `code` was joined from.
    verdict
        ``ok``, ``wrong`` or ``unsure``: for a report, which cannot show a box of widgets.
    name
        By this the HTML in a page finds the widget.
    ui
        What the reader chose: ``filter``, ``statuses``, ``sort``, ``open``, ``scroll``, ``row``.
    """

    _esm = assets.read("widget.js")
    payload = traitlets.Bytes().tag(sync=True)
    code = traitlets.Bytes().tag(sync=True)
    needs = traitlets.Unicode().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)
    verdict = traitlets.Unicode().tag(sync=True)
    ui = traitlets.Dict().tag(sync=True)

    def __init__(self, result: Result, **kwargs: Any) -> None:
        super().__init__(name=secrets.token_hex(6), **_traits(result), **kwargs)
        self._result = result

    def show(self, result: Result) -> None:
        """Show another result in the same place, with what the reader chose kept where it fits."""
        self._result = result
        with self.hold_sync():
            for name, value in _traits(result).items():
                setattr(self, name, value)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return mimebundle(self._result, model=self.name, **kwargs)


def _traits(result: Result) -> dict[str, Any]:
    payload = result.payload(limit=NOTEBOOK_LIMIT)
    schema = str(payload.get("schema", ""))
    needs = " ".join(piece.name for piece in assets.pieces(schema))
    return {
        "payload": assets.packed(payload),
        "code": _code(schema),
        "needs": needs,
        "verdict": verdict_state(result.ok),
    }


def view_of(result: Result) -> ResultView:
    """Return the interactive view of a result, with as much data as a notebook should carry."""
    return ResultView(result)


def mimebundle(
    result: Result, include: Any = None, exclude: Any = None, model: str = "", **_: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a result in the forms that a notebook keeps: text, and HTML that is alive by itself.

    The MIME type of widgets is not among them: where it is, notebooks prefer it, and show an error once
    the kernel is gone.

    Parameters
    ----------
    include, exclude
        MIME types to keep or to leave out, as IPython passes them.
    model
        The name of the widget of the same result.
    """
    payload = result.payload(limit=NOTEBOOK_LIMIT)
    schema = str(payload.get("schema", ""))
    shown = live.live(assets.packed(payload), static(result), schema, model)
    bundle = {"text/plain": result.to_text(), "text/html": shown}
    keep = set(include or bundle) - set(exclude or ())
    return {kind: bundle[kind] for kind in bundle if kind in keep}, {}
