"""The widgets of a panel; imported when one is shown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ipywidgets

from workbench.display.html import code_lines, escape
from workbench.errors import WorkbenchError
from workbench.panels.calls import Call
from workbench.panels.fields import Checklist, FieldRow
from workbench.panels.forms import Field, Form
from workbench.panels.keyboard import Keyboard
from workbench.panels.record import error_html
from workbench.panels.running import Run
from workbench.panels.session import FORMS, Session

_NOTHING = {"display": "none"}


class CallRow:
    """The call as code, with buttons to run, stop and copy it, and how far it is."""

    def __init__(self, run: Callable[[], None], stop: Callable[[], None]) -> None:
        self.code = ipywidgets.HTML()
        self.code.add_class("wbp-code")
        self.button = ipywidgets.Button(button_style="primary")
        self.button.add_class("wbp-action")
        self.button.on_click(lambda _: run())
        self.stop = ipywidgets.Button(description="Stop", disabled=True)
        self.stop.on_click(lambda _: stop())
        self.copy = ipywidgets.Button(description="Copy code")
        self.copy.add_class("wbp-copy")
        buttons = ipywidgets.HBox([self.button, self.stop, self.copy])
        buttons.add_class("wbp-buttons")
        self.bar = ipywidgets.FloatProgress(layout=_NOTHING)
        self.status = ipywidgets.HTML()
        self.status.add_class("wbp-status")
        self.message = ipywidgets.HTML()
        self.message.add_class("wbp-message")
        self.box = ipywidgets.VBox([self.code, buttons, self.bar, self.status, self.message])
        self.box.add_class("wbp-call")

    def progress(self, run: Run | None, *, mine: bool) -> None:
        """Show how far a run is; of another call's run only that this one has to wait."""
        status = run.status if run is not None else None
        running = status is not None and not status.is_over
        self.button.disabled = running
        self.stop.disabled = not (mine and status is not None and status.stage == "running")
        if not mine or status is None:
            self.status.value = ""
            self.bar.layout.display = "none"
            return
        self.status.value = f'<span class="wbp-quiet">{escape(status.sentence())}</span>'
        total = status.progress.total if running else None
        if total:
            self.bar.max = float(total)
            self.bar.value = float(status.progress.done or 0.0)
        self.bar.layout.display = None if total else "none"

    def show(self, made: Callable[[], Call]) -> None:
        """Show the call, or what it still needs."""
        try:
            self.code.value = f"<pre>{code_lines(made().code())}</pre>"
            self.copy.disabled = False
        except WorkbenchError as error:
            need = f"{error.what}. {error.next_step}"
            self.code.value = (
                f'<span class="wbp-quiet">{escape(need[:1].upper() + need[1:])}</span>'
            )
            self.copy.disabled = True


class Controls:
    """The widgets of one panel.

    Parameters
    ----------
    session
        What they show and change.
    recorded
        Called when what the notebook keeps of the panel has changed.
    """

    def __init__(self, session: Session, recorded: Callable[[], None]) -> None:
        self.session, self._recorded = session, recorded
        self._lock = threading.RLock()
        self._forms: dict[str, dict[str, FieldRow]] = {}
        self._follow_rows: dict[str, FieldRow | Checklist] = {}
        self._followed: object = None
        self._seen: object = session.ended
        self._jobs = ipywidgets.ToggleButtons(
            options=[(form.label, name) for name, form in FORMS.items()], value=session.form.name
        )
        self._jobs.add_class("wbp-jobs")
        self._jobs.observe(self._chosen, "value")
        self._purpose = ipywidgets.HTML()
        self._purpose.add_class("wbp-purpose")
        self._fields = ipywidgets.VBox()
        self._call = CallRow(self.run, self._stopped)
        self._follow = ipywidgets.VBox(layout=_NOTHING)
        self._follow.add_class("wbp-follow")
        self._follow_call = CallRow(self.follow, self._stopped)
        self.root = ipywidgets.VBox(
            [
                Keyboard(self._heard),
                self._jobs,
                self._purpose,
                self._fields,
                self._call.box,
                self._follow,
            ]
        )
        self.root.add_class("wb-panel")
        self._open()
        session.listen(self.update)
        self.update()

    @property
    def rows(self) -> dict[str, FieldRow]:
        """The fields of the job that is shown."""
        return self._forms[self.session.form.name]

    def run(self) -> None:
        """Run the form's call."""
        self._started(follow=False)

    def follow(self) -> None:
        """Run the follow-up's call."""
        self._started(follow=True)

    def update(self) -> None:
        """Show how far the run is; called from the run's threads, too."""
        with self._lock:
            run, of = self.session.run, self.session.run_of
            self._call.progress(run, mine=of == (self.session.form.name, False))
            self._follow_call.progress(run, mine=of == (self.session.form.name, True))
            if self.session.ended is not self._seen:
                self._seen = self.session.ended
                self._show_follow()
                self._recorded()

    def _started(self, *, follow: bool) -> None:
        row = self._follow_call if follow else self._call
        row.message.value = ""
        try:
            self.session.start(follow=follow)
        except WorkbenchError as error:
            row.message.value = error_html(error)
        self.update()

    def _stopped(self) -> None:
        if self.session.run is not None:
            self.session.run.stop()

    def _heard(self, action: str, values: Mapping[str, Any]) -> None:
        """Take the values that the page holds, then do what a key asked for."""
        form = self.session.form.name
        held = values.get(form)
        if not isinstance(held, dict):
            return  # the page still shows another job
        ticked: dict[str, dict[int, bool]] = {}
        for name, raw in held.items():
            key, _, at = str(name).partition(":")
            if at.isdecimal():
                ticked.setdefault(key, {})[int(at)] = bool(raw)
                continue
            row = self.rows.get(key) or self._follow_rows.get(key)
            if isinstance(row, FieldRow):
                row.put(raw)
        for key, boxes in ticked.items():
            listed = self._follow_rows.get(key)
            if isinstance(listed, Checklist):
                listed.put(boxes)
        if action == "run":
            self.run()
        elif action == "follow":
            self.follow()

    def _chosen(self, change: Any) -> None:
        self.session.form = FORMS[change["new"]]
        self._open()
        self.update()
        self._changed()

    def _open(self) -> None:
        """Show the form of the chosen job."""
        form = self.session.form
        values = self.session.values[form.name]
        for name in FORMS:
            (self.root.add_class if name == form.name else self.root.remove_class)(
                f"wb-panel-{name}"
            )
        self._purpose.value = escape(form.purpose)
        if form.name not in self._forms:
            put = partial(self._put, form)
            rows = {f.name: FieldRow(f, values[f.name], put, form.name) for f in form.fields}
            self._forms[form.name] = rows
            values |= {name: row.value for name, row in rows.items()}
        self._call.message.value = ""
        self._fields.children = tuple(row.box for row in self.rows.values())
        self._show_follow()
        self._show_call()

    def _put(self, form: Form, name: str, value: Any) -> None:
        self.session.values[form.name][name] = value
        self._show_call()
        self._changed()

    def _changed(self) -> None:
        if not self.session.ended:
            self._recorded()

    def _show_call(self) -> None:
        form = self.session.form
        values = self.session.values[form.name]
        unused = form.unused(values)
        for name, row in self.rows.items():
            row.input.disabled = name in unused
        self._call.button.description = form.action(values)
        self._call.show(self.session.call)

    def _show_follow(self) -> None:
        """Show what can be done with the result, with an empty form whenever the result is a new one."""
        subject, follow = self.session.subject(), self.session.follow_up()
        result = subject.result if subject else None
        if follow is None or result is None:
            self._follow.layout.display = "none"
            self._followed = None
            return
        self._follow.layout.display = None
        if result is self._followed:
            return
        self._followed = result
        self.session.follow_values = {field.name: field.default for field in follow.fields}
        self._follow_rows = {field.name: self._follow_row(field) for field in follow.fields}
        purpose = ipywidgets.HTML(escape(follow.purpose))
        purpose.add_class("wbp-purpose")
        self._follow_call.button.description = follow.action
        rows = [row.box for row in self._follow_rows.values()]
        self._follow.children = (purpose, *rows, self._follow_call.box)
        self._follow_call.show(self.session.follow_call)

    def _follow_row(self, field: Field) -> FieldRow | Checklist:
        values, form = self.session.follow_values, self.session.form.name
        if field.kind != "checklist":
            return FieldRow(field, values[field.name], self._put_follow, form)
        options = self.session.follow_options()
        values[field.name] = tuple(option.value for option in options)
        return Checklist(field, options, values[field.name], self._put_follow, form)

    def _put_follow(self, name: str, value: Any) -> None:
        self.session.follow_values[name] = value
        self._follow_call.show(self.session.follow_call)
