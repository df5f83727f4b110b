"""Whether a process that does not run is stopped, or only paused while a profiler reads it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from workbench.hang.collect.collector import proc

# States of /proc: stopped by a signal; held by a tracer.
HALTED = ("T", "t")
# What pauses a process to read its stack and lets it go, another collection's py-spy among them; and what
# may hold it for as long as somebody likes. (Names as /proc/PID/comm has them; no other leaves the host.)
SAMPLERS = frozenset({"py-spy", "pystack", "austin", "pyrasite", "eu-stack", "gcore", "perf"})
DEBUGGERS = frozenset(
    {
        "gdb",
        "cuda-gdb",
        "rocgdb",
        "lldb",
        "lldb-server",
        "gdbserver",
        "strace",
        "ltrace",
        "rr",
        "dlv",
    }
)
# A stop must last this long, without a tracer, before it counts; a tracer gets this long to let go. (A
# py-spy holds a process of 200 threads for 0.1 s, on a machine under load for some 0.5 s. A py-spy that was
# killed may leave its process stopped, and its collector lets it run on within 0.2 s.)
STOPPED_FOR = 0.5
PATIENCE = 5.0
_STEP = 0.05


def watch(pid: int, interrupted: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Look again at a process that was read as halted, until it runs or is known to stay halted.

    Returns
    -------
    dict
        Its ``status``; where it is still halted, ``halt`` with the ``seconds`` that this state was seen
        without a break, the pid of the ``tracer`` (0 for none that can be seen) and its ``program`` ("" for
        one that is not known). Nothing where it has ended.
    """
    began = since = time.monotonic()
    last = None
    while True:
        facts = proc.stat(pid)
        if facts is None:
            return {}
        if facts.state not in HALTED:
            return {"status": facts.state}
        tracer = proc.tracer(pid)
        now = time.monotonic()
        if (facts.state, tracer) != last:
            last, since = (facts.state, tracer), now
        stays = facts.state == "T" and not tracer and now - since >= STOPPED_FOR
        if stays or now - began >= PATIENCE or interrupted():
            halt = {"seconds": round(now - since, 3), "tracer": tracer, "program": program(tracer)}
            return {"status": facts.state, "halt": halt}
        time.sleep(_STEP)


def program(pid: int) -> str:
    """Return the name of a program that reads or debugs others, "" for any other and for no pid."""
    name = proc.read(pid, "comm").strip() if pid else ""
    return name if name in SAMPLERS | DEBUGGERS else ""
