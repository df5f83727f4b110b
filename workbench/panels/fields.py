"""Core widgets for the fields of a form; imported when a panel is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from workbench.panels.forms import Field, Option

_LABEL = {"description_width": "130px"}
_MOST_SUGGESTED = 400


class FieldRow:
    """A field with its label, its hint and, where its list may change, a button.

    Attributes
    ----------
    box
        The row.
    """

    def __init__(
        self, field: Field, value: Any, changed: Callable[[str, Any], None], form: str = ""
    ) -> None:
        self.field = field
        self._changed = changed
        self._options: tuple[Option, ...] = ()
        self.input = self._made(value)
        self.input.add_class("wbp-field")
        self.input.add_class(f"wbp-name-{field.name}")
        self.input.add_class(f"wbp-of-{form}")
        self.input.observe(self._observed, "index" if field.kind == "choice" else "value")
        self.box = ipywidgets.HBox(self._parts())
        self.box.add_class("wbp-row")

    @property
    def value(self) -> Any:
        """What is filled in."""
        if self.field.kind != "choice":
            return self.input.value
        at = self.input.index
        return None if at is None or at >= len(self._options) else self._options[at].value

    def put(self, raw: Any) -> None:
        """Take what the page holds; what is no value of this field is left as it was."""
        kind = self.field.kind
        try:
            if kind == "choice":
                if 0 <= int(raw) < len(self._options):
                    self.input.index = int(raw)
            elif kind == "switch":
                self.input.value = bool(raw)
            elif kind in ("integer", "number"):
                self.input.value = int(raw) if kind == "integer" else float(raw)
            else:
                self.input.value = str(raw)
        except (TypeError, ValueError):
            return

    def refresh(self) -> None:
        """Read the list again, and keep the choice if it is still there."""
        before = self.value
        self._options = tuple(self.field.options()) if self.field.options else ()
        self.input.options = [(option.label, at) for at, option in enumerate(self._options)]
        self.input.index = self._at(before)
        self._changed(self.field.name, self.value)

    def _at(self, value: Any) -> int | None:
        for at, option in enumerate(self._options):
            if option.value == value:
                return at
        return 0 if self._options else None

    def _observed(self, _: Any) -> None:
        self._changed(self.field.name, self.value)

    def _made(self, value: Any) -> Any:
        field = self.field
        common = {"description": field.label, "style": _LABEL}
        wide = common | {"layout": {"width": "100%", "max_width": "760px"}}
        narrow = common | {"layout": {"width": "220px"}}
        if field.kind == "choice":
            self._options = tuple(field.options()) if field.options else ()
            made = ipywidgets.Dropdown(
                options=[(option.label, at) for at, option in enumerate(self._options)], **wide
            )
            made.index = self._at(value)
            return made
        if field.kind == "switch":
            text = f"{field.label} ({field.hint})" if field.hint else field.label
            layout = {"width": "100%", "max_width": "760px"}
            return ipywidgets.Checkbox(
                value=bool(value), description=text, style=_LABEL, layout=layout
            )
        if field.kind == "integer":
            return ipywidgets.BoundedIntText(
                value=int(value), min=int(field.low), max=int(field.high), **narrow
            )
        if field.kind == "number":
            return ipywidgets.BoundedFloatText(
                value=float(value), min=field.low, max=field.high, **narrow
            )
        if field.kind == "combo":
            listed = tuple(field.options())[:_MOST_SUGGESTED] if field.options else ()
            return ipywidgets.Combobox(
                value=str(value),
                options=tuple(option.label for option in listed),
                placeholder=field.hint,
                **wide,
            )
        if field.kind == "short":
            return ipywidgets.Text(value=str(value), **narrow)
        return ipywidgets.Text(value=str(value), placeholder=field.hint, **wide)

    def _parts(self) -> list[Any]:
        parts = [self.input]
        if self.field.refresh:
            button = ipywidgets.Button(description="Refresh", layout={"width": "90px"})
            button.on_click(lambda _: self.refresh())
            parts.append(button)
        if self.field.kind in ("integer", "number", "short") and self.field.hint:
            hint = ipywidgets.Label(self.field.hint)
            hint.add_class("wbp-hint")
            parts.append(hint)
        return parts


class Checklist:
    """A list of boxes to tick, under the headings that its options belong to.

    Attributes
    ----------
    box
        The whole of it.
    """

    def __init__(
        self,
        field: Field,
        options: Sequence[Option],
        ticked: Sequence[Any],
        changed: Callable[[str, Any], None],
        form: str = "",
    ) -> None:
        self._form = form
        self.field, self._options, self._changed = field, tuple(options), changed
        self._quiet = False
        self._boxes = [self._ticked(at, option, ticked) for at, option in enumerate(options)]
        rows: list[Any] = []
        heading = None
        for option, box in zip(self._options, self._boxes, strict=True):
            if option.group != heading:
                heading = option.group
                label = ipywidgets.Label(heading)
                label.add_class("wbp-group")
                rows.append(label)
            rows.append(box)
        listed = ipywidgets.VBox(rows)
        listed.add_class("wbp-list")
        self.box = ipywidgets.VBox([self._buttons(), listed])

    @property
    def value(self) -> tuple[Any, ...]:
        """The values of the options that are ticked."""
        pairs = zip(self._options, self._boxes, strict=True)
        return tuple(option.value for option, box in pairs if box.value)

    def put(self, raw: Mapping[int, bool]) -> None:
        """Take what the page holds, by number of the option."""
        self._set(lambda at: raw.get(at, self._boxes[at].value))

    def _ticked(self, at: int, option: Option, ticked: Sequence[Any]) -> Any:
        box = ipywidgets.Checkbox(
            value=option.value in ticked, description=option.label, indent=False
        )
        box.add_class(f"wbp-name-{self.field.name}:{at}")
        box.add_class(f"wbp-of-{self._form}")
        box.observe(self._observed, "value")
        return box

    def _buttons(self) -> Any:
        every = ipywidgets.Button(description="All")
        none = ipywidgets.Button(description="None")
        every.on_click(lambda _: self._set(lambda at: True))
        none.on_click(lambda _: self._set(lambda at: False))
        row = ipywidgets.HBox([ipywidgets.Label(f"{len(self._options)} changes"), every, none])
        row.add_class("wbp-buttons")
        return row

    def _set(self, wanted: Callable[[int], bool]) -> None:
        self._quiet = True
        for at, box in enumerate(self._boxes):
            box.value = wanted(at)
        self._quiet = False
        self._observed(None)

    def _observed(self, _: Any) -> None:
        if not self._quiet:
            self._changed(self.field.name, self.value)
