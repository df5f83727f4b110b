"""`workbench.panel`: the form that fits what is given, in a notebook."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.result import Result
from workbench.errors import WorkbenchError, shown
from workbench.panels import record
from workbench.panels.calls import GIVEN
from workbench.panels.session import FORMS, Session

if TYPE_CHECKING:
    from workbench.panels.controls import Controls

_SERVER = re.compile(r"https?://[^/?#]+/?$")
_WEIGHTS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*.bin",
    "*.bin.index.json",
    "*.pt",
    "*.pth",
)
_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".index.json")
# Which form a result belongs to.
_RESULTS = {
    "workbench.hang/1": "hang",
    "workbench.keydiff/1": "keys",
    "workbench.weightscan/1": "weights",
    "workbench.replay/1": "replay",
}


class Panel:
    """Forms for the four jobs, with live progress, in one cell of a notebook.

    Nothing is examined before a button is pressed; only the list of processes is read, to name the SGLang
    servers on this machine. Reopened without a kernel, the cell still shows the form as filled in, the call
    as code, and the result.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._controls: Controls | None = None
        self._displayed = False

    @property
    def result(self) -> Result | None:
        """The last result; None before there is one."""
        return self.results[-1] if self.results else None

    @property
    def results(self) -> tuple[Result, ...]:
        """All results of this panel, oldest first."""
        return self._session.results

    @property
    def code(self) -> str:
        """The call that the form stands for now, as Python code; "" where something is missing."""
        try:
            return self._session.call().code()
        except WorkbenchError:
            return ""

    def stop(self) -> None:
        """Ask what runs to stop; what it has until then is its result."""
        if self._session.run is not None:
            self._session.run.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs, and return whether that came within `timeout` seconds."""
        return self._session.run is None or self._session.run.wait(timeout)

    def __repr__(self) -> str:
        return str(record.bundle(self._session)["text/plain"]).rstrip()

    def _ipython_display_(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        shell = get_ipython()
        if getattr(shell, "kernel", None) is None:  # a terminal shows no widgets
            print(repr(self))
            return
        # Without a kernel the record below says everything, so the widgets leave nothing of themselves.
        view = self.controls().root._repr_mimebundle_()
        data = view[0] if isinstance(view, tuple) else view
        alone = {
            "text/plain": "workbench.panel: run this cell to use it",
            "text/html": "<div></div>",
        }
        display(data | alone, raw=True)  # type: ignore[no-untyped-call]
        display(  # type: ignore[no-untyped-call]
            record.bundle(self._session), raw=True, display_id=self._session.id
        )
        self._displayed = True

    def controls(self) -> Controls:
        """Return the widgets, made on first use."""
        if self._controls is None:
            from workbench.panels.controls import Controls

            self._controls = Controls(self._session, self._recorded)
        return self._controls

    def _recorded(self) -> None:
        if not self._displayed:
            return
        from IPython.display import update_display

        update_display(  # type: ignore[no-untyped-call]
            record.bundle(self._session), raw=True, display_id=self._session.id
        )


def panel(thing: Any = None) -> Panel:
    """Open a form for the job that fits, in a notebook.

    Parameters
    ----------
    thing
        A case, a folder of dumps, a log or a pid: why a server hangs. A checkpoint: its keys, and from there
        its weights. The address of a server (``http://127.0.0.1:30000``): its weights. A result, or a file
        that one was saved to: what can be done with it, such as the ablations of a replay. The name of a job
        (``"hang"``, ``"keys"``, ``"weights"``, ``"replay"``). None: the form for a server that hangs.

    Returns
    -------
    Panel
        Shown by the notebook. ``result`` is the last result, ``code`` the call that the form stands for.

    Raises
    ------
    WorkbenchError
        There is no such file, or nothing that fits.

    Examples
    --------
    >>> workbench.panel()  # doctest: +SKIP
    >>> workbench.panel("case.zip")  # doctest: +SKIP
    """
    return Panel(_session_of(thing))


def _session_of(thing: Any) -> Session:
    if thing is None:
        return Session(FORMS["hang"])
    if isinstance(thing, Result):
        return _of_result(thing)
    if isinstance(thing, int) and not isinstance(thing, bool):
        return Session(FORMS["hang"], {"server": thing})
    if not isinstance(thing, str | os.PathLike):
        raise WorkbenchError(
            f"there is no panel for {shown(thing)}",
            why=f"it is of type {type(thing).__name__}",
            next_step="Give a case, a checkpoint, a pid, a server's address, a result, or nothing.",
        )
    text = os.fspath(thing)
    if text in FORMS:
        return Session(FORMS[text])
    if _SERVER.match(text):
        return Session(FORMS["weights"], {"ckpt": text})
    return _of_path(text)


def _of_path(text: str) -> Session:
    path = Path(text).expanduser()
    if path.suffix == ".json" and os.path.isfile(path) and not path.name.endswith(".index.json"):
        from workbench.core.saving import load

        try:
            return _of_result(load(path))
        except WorkbenchError:
            pass  # evidence may be JSON as well
    if text.endswith(_ENDINGS) or (os.path.isdir(path) and _holds_weights(path)):
        return Session(FORMS["keys"], {"ckpt": text})
    if os.path.exists(path):
        return Session(FORMS["hang"], {"path": text})
    if "://" in text or re.fullmatch(
        r"[\w.-]+/[\w.-]+", text
    ):  # an address, or the name of a Hub id
        return Session(FORMS["keys"], {"ckpt": text})
    raise WorkbenchError(
        f"there is no {shown(text)}",
        why="it is neither a file, a folder, an address nor the name of a job",
        next_step=f"Give a path, or one of {', '.join(FORMS)}.",
    )


def _holds_weights(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in _WEIGHTS)


def _of_result(result: Result) -> Session:
    name = _RESULTS.get(result.schema)
    if name is None:
        raise WorkbenchError(
            f"there is no panel for a {type(result).__name__}",
            next_step="Show the result itself: it is its own view.",
        )
    form = FORMS[name]
    known = {field.name for field in form.fields}
    values = {
        key: getattr(result, attribute)
        for key, attribute in _ATTRIBUTES[name].items()
        if key in known
    }
    session = Session(form, values)
    session.show(GIVEN, result)
    return session


# Field of a form -> attribute of its result.
_ATTRIBUTES: dict[str, dict[str, str]] = {
    "hang": {},
    "keys": {"ckpt": "checkpoint", "model": "model"},
    "weights": {"ckpt": "source"},
    "replay": {"target": "target", "draft": "draft", "evidence": "evidence", "engine": "engine"},
}
