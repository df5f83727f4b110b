"""``workbench weights``."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.exits import ExitCode
from workbench.cli.finish import finish, output
from workbench.cli.options import Force, Html, Json, Markdown
from workbench.errors import WorkbenchError


def weights(
    ckpt: Annotated[
        str,
        typer.Argument(
            help="Folder, file, Hub id or URL of a checkpoint; or http://host:port of a server."
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Option(help='Only these tensors: a name or a pattern ("*.mlp.*"); may be repeated.'),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(help="Read less: a share (0.05) or a number (128) of each tensor's rows."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    target: Annotated[
        str | None,
        typer.Option(help="The target of a draft: weights that equal one of its are named."),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(help="Instead, show what changed to another checkpoint or a server."),
    ] = None,
    html: Html = None,
    force: Force = False,
    json: Json = False,
    markdown: Markdown = False,
) -> ExitCode:
    """Show which weights look trained, which are still at random initialisation, which are broken."""
    from workbench.weights.scan import scan_weights

    if compare is not None and target is not None:
        raise WorkbenchError(
            "--target has no effect with --compare",
            why="a comparison shows what changed, not what a draft shares with its target",
            next_step="Leave one of them out.",
        )
    page = output(html, "page", ckpt, target, compare, force=force)
    found = scan_weights(
        ckpt, names=names or None, sample=_share(sample), device=device, target=target
    )
    shown = found if compare is None else found.compare(compare, names=names or None)
    return finish(shown, json=json, markdown=markdown, html=page)


def _share(sample: str | None) -> float | None:
    """Read a share of the rows (0.05), or a number of them (128)."""
    try:
        return None if sample is None else int(sample) if sample.isdecimal() else float(sample)
    except ValueError:
        raise WorkbenchError(
            f"--sample {sample} is not a number",
            next_step="Give a share of the rows (0.05), or a number of them (128).",
        ) from None
