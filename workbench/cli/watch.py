"""``workbench watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode, of_results
from workbench.cli.options import Log


def watch(
    pid: Annotated[
        int | None,
        typer.Argument(
            help="Any process of the server. By default: the one server that runs here, and after "
            "its end the next one."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder for the cases; it gets mode 0700.")
    ] = Path("workbench-cases"),
    after: Annotated[
        float, typer.Option(help="Seconds without progress after which a case is recorded.")
    ] = 60.0,
    keep: Annotated[int, typer.Option(help="How many cases stay in the folder.")] = 5,
    interval: Annotated[
        float, typer.Option(help="Seconds between the snapshots of a case.")
    ] = 10.0,
    log: Log = None,
) -> ExitCode:
    """Watch a server next to it, and record a case when its progress stops; open it with `hang`.

    Nothing is paused and no request for tokens is sent until a case is recorded. Ctrl-C and SIGTERM end
    the watch.

    Exits 0 if there was progress and no case, 1 if a case shows a fault, 3 otherwise.
    """
    from workbench.hang.watch.watching import watch as watch_server

    found = watch_server(pid, out=out, after=after, keep=keep, interval=interval, log=log)
    typer.echo(found)
    return of_results(found)
