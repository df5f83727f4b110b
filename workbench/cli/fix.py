"""``workbench fix``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import apart, finish, output, wrote
from workbench.cli.options import Ckpt, Force, Html, Json, Markdown, Model, Target
from workbench.core.outputs import check_folder


def fix(
    ckpt: Ckpt,
    model: Model,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write; it must not exist, or be empty.")
    ],
    target: Target = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out this tensor; a pattern such as 'verifier_*', or several of both."
        ),
    ] = None,
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay", help="Link files that stay as they are, instead of copying them."
        ),
    ] = False,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Write a repaired copy: keys renamed, config flattened, bytes untouched; then diff the copy.

    The exit code is the verdict on the copy: 0 only if it was written and the engine loads it.
    """
    from workbench.keys.repair import fix_checkpoint

    check_folder(out, examined=(ckpt, model, target))
    page = output(html, "page", ckpt, model, target, out, force=force)
    apart(page, out)
    result = fix_checkpoint(ckpt, model, out, target=target, drop=drop or (), overlay=overlay)
    wrote(out)
    return finish(result, json=json, markdown=markdown, html=page)
