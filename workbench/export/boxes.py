"""What is inside the widgets of an executed notebook: a page has no kernel, so it shows that instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import nbformat

WIDGET = "application/vnd.jupyter.widget-view+json"
STATE = "workbench_state"
"""The metadata of an output that represents a result in a box: ``ok``, ``wrong`` or ``unsure``."""

_REFERENCE = "IPY_MODEL_"
_TEXT = (
    "This result is in a box of widgets, which a page cannot show. Display the result by itself."
)


def unfold(notebook: Any, widgets: Mapping[str, Mapping[str, Any]]) -> None:
    """Add to each output that is a widget what its `Output` widgets and views of results hold.

    Parameters
    ----------
    notebook
        An executed notebook, which is changed.
    widgets
        The state of each widget, by the name of its model.
    """
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        outputs = []
        for output in cell.outputs:
            outputs.append(output)
            shown = output.get("data", {}).get(WIDGET)
            if isinstance(shown, Mapping):
                outputs += _inside(str(shown.get("model_id")), widgets, set())
        cell.outputs = outputs


def _inside(name: str, widgets: Mapping[str, Mapping[str, Any]], seen: set[str]) -> Iterator[Any]:
    if name in seen:
        return
    seen.add(name)
    state = widgets.get(name, {})
    outputs = state.get("outputs")
    if isinstance(outputs, list):
        yield from map(nbformat.from_dict, outputs)
    if state.get("_anywidget_id") and state.get("verdict"):
        made: Any = nbformat.v4.new_output  # nbformat has types in part
        yield made("display_data", {"text/plain": _TEXT}, metadata={STATE: state["verdict"]})
    for value in state.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one.startswith(_REFERENCE):
                yield from _inside(one.removeprefix(_REFERENCE), widgets, seen)
