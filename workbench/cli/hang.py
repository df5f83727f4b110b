"""``workbench hang``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import apart, finish, output, wrote
from workbench.cli.options import Force, Html, Interval, Json, Log, Markdown, Native, Snapshots
from workbench.errors import WorkbenchError


def hang(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[PID|PATH]",
            help="A process of the server; or a case, a folder of dumps, a log. By default: the one "
            "server that runs here.",
        ),
    ] = None,
    log: Log = None,
    snapshots: Snapshots = 2,
    interval: Interval = 30.0,
    native: Native = False,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host of the server, collected over ssh; give it once for each host."),
    ] = None,
    html: Html = None,
    speedscope: Annotated[
        Path | None, typer.Option(help="Also write the merged stacks as a speedscope file.")
    ] = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Show which rank of a hung server the others wait for, in which phase, and what to change next."""
    page = output(html, "page", where, log, force=force)
    stacks = output(speedscope, "stacks", where, log, force=force)
    apart(page, stacks)
    if host and where is not None:
        raise WorkbenchError(
            f"--host and {where} cannot both be examined", next_step="Leave one of them out."
        )
    if where is None or where.isdecimal():
        from workbench.hang.attach import attach

        pid = None if where is None else int(where)
        found = attach(
            pid, snapshots=snapshots, interval=interval, native=native, log=log, hosts=host or None
        )
    else:
        from workbench.hang.open_evidence import open_evidence

        if log is not None:
            raise WorkbenchError(
                f"--log goes with a running server, and {where} is a path",
                next_step="Put the log into the folder, or give its own path instead.",
            )
        found = open_evidence(where)
    if stacks is not None:
        found.to_speedscope(stacks)
        wrote(stacks)
    return finish(found, json=json, markdown=markdown, html=page)
