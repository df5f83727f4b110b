"""The form for a server that hangs: a running one, or a case."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors import WorkbenchError
from workbench.panels.calls import Call
from workbench.panels.forms import Field, Form, Option, Values, changed, given, text_of


def running_servers() -> Sequence[Option]:
    """Return the SGLang servers on this machine; only the list of processes is read."""
    from workbench.hang.collect.collector import proc, servers

    found = servers.find_servers(proc.everyone())
    if not found:
        return (Option("SGLang is not running on this machine", None),)
    return tuple(Option(servers.describe(server), server.root) for server in found)


def call(values: Values) -> Call:
    """Return the call: opening a case where a path is given, else attaching."""
    path = text_of(values, "path")
    if path:
        return Call("open_evidence", (path,))
    pid = values.get("server")
    if not isinstance(pid, int):
        raise WorkbenchError(
            "there is nothing to diagnose yet",
            why="neither a server nor a case is chosen",
            next_step="Choose a server (Refresh lists them again), or give the path of a case or a log.",
        )
    options = changed(FORM, values, "snapshots", "interval", "native")
    return Call("attach", (pid,), (*options, *given(log=text_of(values, "log"))))


def unused(values: Values) -> frozenset[str]:
    """Return the fields of attaching, where a case is opened."""
    if not text_of(values, "path"):
        return frozenset()
    return frozenset({"server", "snapshots", "interval", "native", "log"})


FORM = Form(
    name="hang",
    label="Hang",
    purpose="Which rank the others wait for, in which phase, and what to change next. Attaching pauses each "
    "process for a fraction of a second a snapshot and changes nothing.",
    fields=(
        Field("server", "Server", "choice", None, options=running_servers, refresh=True),
        Field("path", "Or a case", hint="case.zip, a folder of dumps, or a log"),
        Field("snapshots", "Snapshots", "integer", 2, "two or more to call a server hung", low=1, high=100),
        Field("interval", "Seconds between", "number", 30.0, "30 or more", low=0, high=86400),
        Field("native", "Native frames", "switch", False, "about a second more a rank"),
        Field("log", "Log", hint="found by itself; name it only if it is not"),
    ),
    call=call,
    action=lambda values: "Open case" if text_of(values, "path") else "Attach",
    stops_early=True,
    unused=unused,
)  # fmt: skip
