"""``workbench doctor``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import finish, output
from workbench.cli.options import Force, Html, Json, Markdown

if TYPE_CHECKING:
    from workbench.triage.records import Answered


def doctor(
    things: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[THING]...",
            help="Logs, folders, cases, checkpoints, launch lines, PIDs, in any mix. Without any: a list of "
            "what runs or lies here.",
        ),
    ] = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Look at everything that lies around a server, and name each cause with its next step."""
    if not things:
        return _list()
    from workbench.launch.files import is_path
    from workbench.triage.doctor import doctor as examine

    page = output(html, "page", *(one for one in things if is_path(one)), force=force)
    said = None if json or markdown else _say
    return finish(examine(*things, say=said), json=json, markdown=markdown, html=page)


def _list() -> ExitCode:
    from workbench.triage.around import around

    found = around(Path())
    typer.echo("\n".join(found) if found else "No server runs here, and nothing here is known.")
    typer.echo("Which of these? Nothing was looked at yet.", err=True)
    return ExitCode.CANNOT_TELL


def _say(answered: Answered) -> None:
    """Show each answer as soon as it is there, on a terminal."""
    if sys.stderr.isatty():
        print(answered.line, file=sys.stderr, flush=True)
