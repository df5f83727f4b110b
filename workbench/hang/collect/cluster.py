"""Collecting on every host of a dask cluster, one collection a host, at the same time."""

from __future__ import annotations

import dataclasses
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError, shorten
from workbench.hang.collect.collector import collect as collector

if TYPE_CHECKING:
    from distributed import Client


def collect_hosts(client: Client, plan: collector.Plan, folder: Path) -> tuple[str, list[str]]:
    """Write one case a host into a folder; return where they come from, and remarks.

    Hosts on which no server runs are remarked, not an error: a cluster may be larger than a server.

    Raises
    ------
    WorkbenchError
        A pid was given, which means nothing on several hosts; the cluster has no workers; or nothing
        could be collected on any host.
    """
    if plan.pid is not None:
        raise WorkbenchError(
            f"pid {plan.pid} says nothing on several hosts",
            next_step="Leave out pid, or leave out client and attach on one host.",
        )
    places: dict[str, Any] = client.run(_where, on_error="return")
    chosen: dict[Any, str] = {}
    for address, place in sorted(places.items()):
        if not isinstance(place, BaseException):
            chosen.setdefault(place, address)
    if not chosen:
        raise WorkbenchError(
            "the dask cluster has no worker that answers",
            next_step="Start a worker on each host of the server, or run `workbench collect` there.",
        )
    # Callables of this process do not travel; a salt in common makes pseudonyms comparable.
    fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    for name in ("read_gpus", "say", "wait"):
        del fields[name]
    fields["salt"] = secrets.token_hex(16)
    answers: dict[str, Any] = client.run(
        _collect_here, fields, workers=list(chosen.values()), on_error="return"
    )
    notes, failures = [], []
    for number, (address, answer) in enumerate(sorted(answers.items()), start=1):
        if isinstance(answer, bytes):
            (folder / f"host-{number}.zip").write_bytes(answer)
        else:
            failures.append(f"{address}: {shorten(str(answer), 200)}")
    if len(failures) == len(answers):
        raise WorkbenchError(
            f"nothing was collected on {len(answers)} hosts",
            why="\n".join(failures[:6]),
            next_step="Start dask workers on the hosts where the server runs, as root.",
        )
    notes += [f"not collected: {failure}" for failure in failures]
    return f"{len(answers) - len(failures)} hosts of a dask cluster", notes


def _where() -> tuple[str, str]:
    """Tell hosts apart (and containers of one host, which have pids of their own)."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return socket.gethostname(), file.read().strip()


def _collect_here(fields: dict[str, Any]) -> bytes | str:
    """Collect on a worker's host; return the case, or why there is none."""
    import io

    from workbench.hang.collect.collector.servers import CollectError
    from workbench.hang.collect.gpu import read_gpus

    out = io.BytesIO()
    try:
        collector.collect(out, collector.Plan(**fields, read_gpus=read_gpus))
    except CollectError as error:
        return error.what
    return out.getvalue()
