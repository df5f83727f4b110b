"""A call that runs in a thread of its own: its progress, its end, and stopping it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from workbench.core import progress
from workbench.core.progress import Progress
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.core.result import Result
    from workbench.panels.calls import Call

Stage = Literal["running", "stopping", "done", "stopped", "failed"]
_STARTING = Progress("starting")
_TICK = 1.0  # seconds between two looks at the clock while nothing else is reported


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """How far a run is.

    Attributes
    ----------
    stage
        ``stopping``: asked to stop, and not yet at a place where it can; ``stopped``: stopped before there
        was a result; ``done`` has a result, also one of a run that was stopped.
    progress
        What it reported last.
    seconds
        How long it has run.
    error
        Why it failed.
    early
        Whether it was stopped before its end.
    """

    stage: Stage = "running"
    progress: Progress = _STARTING
    seconds: float = 0.0
    error: WorkbenchError | None = None
    early: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.stage in ("done", "stopped", "failed")

    def sentence(self) -> str:
        """Return what a reader needs to know now, in a line."""
        took = f"{self.seconds:,.0f} s"
        if self.stage == "done":
            early = (
                "Stopped early; the result covers what was done until then." if self.early else ""
            )
            return " ".join(filter(None, (f"Done in {took}.", early, self._detail())))
        if self.stage == "stopped":
            return f"Stopped after {took}. There is no result."
        if self.stage == "failed":
            return f"Failed after {took}."
        now = self.progress
        counted = ""
        if now.done is not None and now.total:
            counted = f"{now.done:,.0f} of {now.total:,.0f}{now.unit}"
        lead = "Stopping at the next step" if self.stage == "stopping" else took
        parts = (lead, now.text, counted, now.detail)
        return " · ".join(filter(None, parts))

    def _detail(self) -> str:
        text = self.progress.detail
        return f"{text}." if text else ""


class Run:
    """One call in a thread.

    Parameters
    ----------
    call
        What to run.
    subject
        The result that a method belongs to.
    changed
        Called in the run's own threads, whenever its status has changed.
    ended
        Called once at the end with the last status, before that can be seen here.
    """

    def __init__(
        self,
        call: Call,
        subject: Result | None,
        *,
        changed: Callable[[], None],
        ended: Callable[[Run, Status], None],
    ) -> None:
        self.call = call
        self.result: Result | None = None
        self._subject = subject
        self._changed = changed
        self._ended = ended
        self._status = Status()
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._over = threading.Event()
        self._interrupted = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="workbench panel", daemon=True)
        self._clock = threading.Thread(target=self._tick, name="workbench clock", daemon=True)

    @property
    def status(self) -> Status:
        """How far it is now."""
        with self._lock:
            seconds = self._status.seconds
            if not self._status.is_over:
                seconds = time.monotonic() - self._began
            return dataclasses.replace(self._status, seconds=seconds)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        self._clock.start()

    def stop(self) -> None:
        """Ask the call to stop where it next can; what it has until then is its result."""
        if not self._stop.is_set():
            self._stop.set()
            self._update(stage="stopping")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, and return whether it came."""
        return self._over.wait(timeout)

    def _update(self, **changes: Any) -> None:
        with self._lock:
            if self._status.is_over:
                return
            self._status = dataclasses.replace(self._status, **changes)
        self._changed()

    def _tell(self, now: Progress) -> None:
        # Numbers alone belong to what was said before.
        before = self._status.progress
        text = now.text or before.text
        self._update(progress=dataclasses.replace(now, text=text))

    def _stopping(self) -> bool:
        # Only what was really interrupted is less than whole.
        self._interrupted = self._stop.is_set()
        return self._interrupted

    def _run(self) -> None:
        try:
            with progress.watched(self._tell, self._stopping):
                self.result = self.call.run(self._subject)
            stage: Stage = "done"
            error = None
        except KeyboardInterrupt:
            stage, error = "stopped", None
        except WorkbenchError as known:
            stage, error = "failed", known
        except Exception as unknown:
            stage, error = "failed", _our_mistake(unknown, self.call)
        last = dataclasses.replace(self.status, stage=stage, error=error, early=self._interrupted)
        self._ended(self, last)
        with self._lock:
            self._status = last
        try:
            self._changed()
        finally:
            self._over.set()  # who waits finds everything shown

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            self._changed()


def _our_mistake(error: Exception, call: Call) -> WorkbenchError:
    return WorkbenchError(
        "the workbench itself failed; this tells nothing about what was examined",
        why=f"{type(error).__name__}: {error}",
        next_step="Run the call that is shown as code in a cell of its own for the traceback, and report it.",
    )
