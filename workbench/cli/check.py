"""``workbench check``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import apart, finish, output, write_junit
from workbench.cli.options import Force, Html, Json, Junit, Markdown


def check(
    launch: Annotated[
        str,
        typer.Argument(
            help="The launch: a command line in quotes; the path of a script, log, YAML or manifest; a PID; "
            "- for standard input."
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(help='The release, where the launch does not say it: "sglang==0.5.11".'),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The target's checkpoint, where the launch names another place."),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(help="The draft's checkpoint, where the launch names another place."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            help="The Python of an environment with SGLang or vLLM: its own parser and checks are asked "
            "as well, offline, without a GPU, and without code of a checkpoint."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help='What it is to run on: "H200", or a compute capability, "9.0".'),
    ] = None,
    junit: Junit = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Show what a launch will do before it is made: what fails first, when, and the corrected line."""
    from workbench.launch.files import is_path
    from workbench.preflight.check import check as check_launch

    given = sys.stdin.read() if launch == "-" else launch
    place = launch if launch != "-" and is_path(launch) else None
    page = output(html, "page", place, target, draft, force=force)
    report = output(junit, "junit", place, target, draft, force=force)
    apart(page, report)
    found = check_launch(
        given, target=target, draft=draft, engine=engine or "", python=python, gpu=gpu or ""
    )
    code = finish(found, json=json, markdown=markdown, html=page)
    write_junit(found, report)
    return code
