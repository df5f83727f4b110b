"""``workbench collect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode, of_verdicts
from workbench.cli.options import Force, Interval, Log, Native, Snapshots
from workbench.errors import WorkbenchError


def collect(
    pid: Annotated[int | None, typer.Argument(help="Any process of the server.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The zip to write.")] = None,
    log: Log = None,
    snapshots: Snapshots = 2,
    interval: Interval = 30.0,
    native: Native = False,
    salt: Annotated[
        str | None, typer.Option(help="A word that the hosts of one job share, such as its id.")
    ] = None,
    force: Force = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would leave the host, and write nothing.")
    ] = False,
) -> ExitCode:
    """Write what can be seen of a server on this host into one zip; open it with `hang`.

    With --preview, show instead what would leave the host; nothing is written.

    Exits 0 if the zip holds every snapshot and the stacks of every process, 3 if something of that is
    missing or the collection was interrupted: the zip is written, but may not be enough for a verdict.
    """
    from workbench.hang import attach
    from workbench.hang.attach import collect_case, is_whole

    if preview == (out is not None):
        raise WorkbenchError(
            "collect takes either --out or --preview",
            next_step="Give --out CASE.zip to write a case, or --preview to see what it would hold.",
        )
    if out is None:
        typer.echo(attach.preview(pid, native=native, log=log, salt=salt), nl=False)
        return of_verdicts([True])
    found = collect_case(
        out, pid, snapshots=snapshots, interval=interval, native=native, log=log, salt=salt,
        force=force,
    )  # fmt: skip
    by = f" by py-spy {found.py_spy}" if found.py_spy else ""
    typer.echo(
        f"wrote {out}: {found.snapshots} snapshots of {found.processes} processes, "
        f"{found.stacks} stacks{by}"
    )
    for note in found.notes:
        print(f"  {note}", file=sys.stderr)
    return of_verdicts([True if is_whole(found, snapshots) else None])
