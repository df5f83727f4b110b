"""``workbench diff``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import finish, output
from workbench.cli.options import Ckpt, Force, Html, Json, Markdown, Model, Target


def diff(
    ckpt: Ckpt,
    model: Model = "sglang",
    target: Target = None,
    python: Annotated[
        str | None, typer.Option(help="The engine's own Python: its real loader runs there.")
    ] = None,
    launch: Annotated[
        str | None,
        typer.Option(
            help="The server's launch, to check against the draft: a command line, or the path of a "
            "script, log, YAML or manifest, or a PID."
        ),
    ] = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Show which keys the engine loads, which it drops, and which rename repairs that."""
    from workbench.keys.diff import diff_keys
    from workbench.launch.files import is_path

    place = launch if launch is not None and is_path(launch) else None
    page = output(html, "page", ckpt, model, target, python, place, force=force)
    found = diff_keys(ckpt, model, target=target, python=python, launch=launch)
    return finish(found, json=json, markdown=markdown, html=page)
