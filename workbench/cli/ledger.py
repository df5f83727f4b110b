"""``workbench ledger add`` and ``workbench ledger show``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.exits import ExitCode, of_verdicts
from workbench.cli.finish import finish, output
from workbench.cli.options import Force, Html, Json, Markdown

File = Annotated[Path, typer.Argument(help="The ledger, a file of JSON lines.")]


def add(
    ledger: File,
    launch: Annotated[
        str,
        typer.Argument(
            help="What was typed, in quotes; or a folder with launch.json; or a server's log."
        ),
    ],
    outcome: Annotated[
        str, typer.Option(help="served, hung, crashed, stopped or unknown.")
    ] = "unknown",
    name: Annotated[str, typer.Option(help="A name for it.")] = "",
    hypothesis: Annotated[str, typer.Option(help="Why it was launched.")] = "",
    against: Annotated[
        str, typer.Option(help="The launch to compare it with, if not the one before it.")
    ] = "",
    version: Annotated[str, typer.Option(help="The engine's version.")] = "",
    note: Annotated[str, typer.Option(help="Anything else.")] = "",
) -> ExitCode:
    """Record one launch, redacted, and show what differs from the launch before it.

    The file of `--config` is read when the launch is recorded. Exits 0 if the launch was recorded.
    """
    from workbench.hang.ledger.ledger import Ledger, launch_of

    book = Ledger(ledger)
    known = {"outcome": outcome, "name": name, "version": version, "note": note}
    given: dict[str, Any] = {key: value for key, value in known.items() if value}
    if outcome == "unknown":
        del given["outcome"]  # a folder or a log may show more
    written = book.record(launch_of(launch), hypothesis=hypothesis, against=against, **given)
    typer.echo(f"recorded {written.name} ({written.outcome}) in {ledger}")
    step = book.story().steps[-1]
    if step is not None:
        typer.echo(str(step))
    return of_verdicts([True])


def show(
    ledger: File,
    json: Json = False,
    markdown: Markdown = False,
    html: Html = None,
    force: Force = False,
) -> ExitCode:
    """Show all launches of a ledger, what changed, and what may be concluded."""
    from workbench.errors import WorkbenchError
    from workbench.hang.ledger.ledger import Ledger

    if not ledger.expanduser().exists():
        raise WorkbenchError(
            f"there is no ledger {ledger}",
            next_step="Give the file that `workbench ledger add` wrote.",
        )
    page = output(html, "page", ledger, force=force)
    return finish(Ledger(ledger).story(), json=json, markdown=markdown, html=page)


LEDGER: tuple[Callable[..., ExitCode], ...] = (add, show)
