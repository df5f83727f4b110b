"""A panel without its widgets: the values of its forms, the run, and the results."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.panels import hang, keys, replay, weights
from workbench.panels.calls import Call
from workbench.panels.forms import FollowUp, Form, Option
from workbench.panels.running import Run, Status

if TYPE_CHECKING:
    from workbench.core.result import Result

FORMS: dict[str, Form] = {
    form.name: form for form in (hang.FORM, keys.FORM, weights.FORM, replay.FORM)
}


@dataclasses.dataclass(frozen=True)
class Ended:
    """One finished run: the form as it was filled in, the call, and what came of it."""

    form: Form
    values: Mapping[str, Any]
    call: Call
    status: Status
    result: Result | None = None


class Session:
    """What a panel knows.

    Attributes
    ----------
    form
        The job that is shown.
    values, follow_values
        What is filled in, by job; and in the follow-up of the job's result.
    ended
        The finished runs that are shown, by job in the order in which they ended: of each job the last run,
        and what followed from it.
    results
        All results, oldest first.
    """

    def __init__(self, form: Form, values: Mapping[str, Any] | None = None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.form = form
        self.values: dict[str, dict[str, Any]] = {f.name: f.defaults() for f in FORMS.values()}
        self.values[form.name] |= values or {}
        self.follow_values: dict[str, Any] = {}
        self.ended: dict[str, tuple[Ended, ...]] = {}
        self.results: tuple[Result, ...] = ()
        self.run: Run | None = None
        self.run_of: tuple[str, bool] = (
            "",
            False,
        )  # the job it belongs to; whether it is a follow-up
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a run gets on or ends, from the run's threads."""
        self._listeners.append(changed)

    @property
    def is_running(self) -> bool:
        """Whether a call runs now."""
        return self.run is not None and not self.run.status.is_over

    def call(self) -> Call:
        """Return the call that the form stands for now, or raise what is missing."""
        return self.form.call(self.values[self.form.name])

    def subject(self) -> Ended | None:
        """Return the shown result that a follow-up belongs to."""
        follow = self.form.follow_up
        for one in reversed(self.ended.get(self.form.name, ())):
            if follow is not None and one.result is not None and follow.fits(one.result):
                return one
        return None

    def follow_up(self) -> FollowUp | None:
        """Return what can be done with the result that is shown, None where nothing can."""
        return self.form.follow_up if self.subject() else None

    def follow_options(self) -> tuple[Option, ...]:
        """Return the entries of the follow-up's checklist."""
        subject, follow = self.subject(), self.form.follow_up
        if subject is None or subject.result is None or follow is None or follow.options is None:
            return ()
        return tuple(follow.options(subject.result))

    def follow_call(self) -> Call:
        """Return the follow-up's call, or raise what is missing."""
        subject, follow = self.subject(), self.form.follow_up
        if subject is None or subject.result is None or follow is None:
            raise WorkbenchError("there is no result to go on from")
        return follow.call(self.follow_values, subject.call, subject.result)

    def start(self, *, follow: bool = False) -> Run:
        """Run the form's call, or its follow-up's, in a thread of its own.

        Raises
        ------
        WorkbenchError
            Something is missing, or another call still runs.
        """
        if self.is_running:
            raise WorkbenchError(
                "a call is still running", next_step="Stop it, or wait for its end."
            )
        subject = self.subject() if follow else None
        call = self.follow_call() if follow else self.call()
        form, values = self.form, dict(self.values[self.form.name])
        before = (subject,) if subject is not None else ()

        def ended(run: Run, status: Status) -> None:
            self._keep(form, (*before, Ended(form, values, run.call, status, run.result)))
            if run.result is not None:
                self.results = (*self.results, run.result)

        def changed() -> None:
            for listener in self._listeners:
                listener()

        self.run_of = (form.name, follow)
        self.run = Run(call, subject.result if subject else None, changed=changed, ended=ended)
        self.run.start()
        return self.run

    def show(self, call: Call, result: Result) -> None:
        """Take a result that was made elsewhere as if it had been run here."""
        values = dict(self.values[self.form.name])
        self._keep(self.form, (Ended(self.form, values, call, Status(stage="done"), result),))
        self.results = (*self.results, result)

    def _keep(self, form: Form, ended: tuple[Ended, ...]) -> None:
        others = {name: kept for name, kept in self.ended.items() if name != form.name}
        self.ended = {**others, form.name: ended}
