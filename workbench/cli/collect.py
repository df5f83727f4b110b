"""``workbench collect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode, of_verdicts
from workbench.cli.options import Force, Interval, Log, Native, Snapshots


def collect(
    out: Annotated[Path, typer.Option("--out", "-o", help="The zip to write.")],
    pid: Annotated[int | None, typer.Argument(help="Any process of the server.")] = None,
    log: Log = None,
    snapshots: Snapshots = 2,
    interval: Interval = 30.0,
    native: Native = False,
    salt: Annotated[
        str | None, typer.Option(help="A word that the hosts of one job share, such as its id.")
    ] = None,
    force: Force = False,
) -> ExitCode:
    """Write what can be seen of a server on this host into one zip; open it with `hang`.

    Exits 0 if the zip holds every snapshot and the stacks of every process, 3 if something of that is
    missing or the collection was interrupted: the zip is written, but may not be enough for a verdict.
    """
    from workbench.hang.attach import collect_case, is_whole

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
