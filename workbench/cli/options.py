"""Arguments and options that several verbs share, under one name with one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Ckpt = Annotated[
    str, typer.Argument(help="Folder, file, index.json, Hub id or URL of a checkpoint.")
]
Model = Annotated[
    str,
    typer.Argument(
        help='Engine ("sglang==0.5.11", "vllm==0.32.0", "transformers", with ":Class" if need be), '
        "or another checkpoint."
    ),
]
Target = Annotated[
    str | None, typer.Option(help="The target's checkpoint, to check a draft against.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print the result as one pastes it into an issue.")
]
Html = Annotated[Path | None, typer.Option(help="Also write the result as one HTML file.")]
Junit = Annotated[
    Path | None, typer.Option(help="Also write what was checked as JUnit XML, for CI.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace a file that the workbench did not write. What is examined is never replaced.",
    ),
]
Log = Annotated[
    Path | None, typer.Option(help="The server's log, where it is not found automatically.")
]
Snapshots = Annotated[int, typer.Option(help='How many snapshots; "hung" needs two.')]
Interval = Annotated[float, typer.Option(help="Seconds between two snapshots.")]
Native = Annotated[bool, typer.Option("--native", help="Also take native frames: slower.")]
