"""The one own widget of a panel: keyboard, copying, and the style sheet; imported when a panel is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import anywidget


def _read(name: str) -> str:
    return (files("workbench.panels") / "static" / name).read_text("utf-8")


class Keyboard(anywidget.AnyWidget):
    """Listens inside the panel that it lies in.

    Parameters
    ----------
    heard
        Called with ``"run"``, ``"follow"`` or ``"values"`` and with what the fields hold in the page.
    """

    _esm = _read("panel.js")
    _css = _read("panel.css")

    def __init__(self, heard: Callable[[str, Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._heard = heard
        self.on_msg(self._message)

    def _message(self, _: Any, content: Any, __: Any) -> None:
        if isinstance(content, dict) and isinstance(content.get("values"), dict):
            self._heard(str(content.get("action")), content["values"])
