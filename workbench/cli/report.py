"""``workbench report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.exits import ExitCode, of_verdicts
from workbench.cli.options import Force


def report(
    source: Annotated[Path, typer.Argument(help="A notebook, or a saved result (.json).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")],
    force: Force = False,
) -> ExitCode:
    """Write one HTML file that opens with the network off.

    The exit code is the verdict of the page, whose worst result decides; a notebook that shows no result
    exits 3. The page is written in each of these cases; 2 means that it was not.
    """
    from workbench.export.report import report as write
    from workbench.export.report import verdicts

    typer.echo(f"wrote {write(source, out, force=force)}")
    return of_verdicts(verdicts(out))
