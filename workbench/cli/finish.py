"""What verbs do with paths and results: check where to write, print, write, return the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workbench.checkpoint import hub
from workbench.cli.exits import ExitCode, of_results
from workbench.core import outputs
from workbench.display.terminal import show
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.core.result import Result

_MOST_SIBLINGS = 10_000


def output(
    path: Path | None, kind: outputs.Kind, *examined: str | Path | None, force: bool
) -> outputs.Output | None:
    """Check a path that an option names, before any work; None where the option is not given.

    Parameters
    ----------
    examined
        What the verb reads. Of a checkpoint it is the folder, of a Hub id the folder in the cache.
    """
    if path is None:
        return None
    return outputs.prepared(path, kind, examined=_places(examined), force=force)


def apart(*found: os.PathLike[str] | None) -> None:
    """Refuse to write two things to one path."""
    paths = [os.path.realpath(one) for one in found if one is not None]
    if len(set(paths)) < len(paths):
        raise WorkbenchError(
            f"two outputs would be written to {paths[0]}",
            next_step="Give each output a path of its own.",
        )


def wrote(path: object) -> None:
    """Say on standard error what was written: standard output belongs to the result."""
    print(f"wrote {path}", file=sys.stderr)


def finish(result: Result, *, json: bool, markdown: bool, html: outputs.Output | None) -> ExitCode:
    """Print a result, write its page, and return the exit code of its verdict."""
    if json and markdown:
        raise WorkbenchError(
            "--json and --markdown cannot both be printed", next_step="Leave one of them out."
        )
    if json:
        typer.echo(result.to_json(indent=1))
    elif markdown:
        typer.echo(result.to_markdown(), nl=False)
    else:
        typer.echo(show(result.document()))
    if html is not None:
        result.to_html(html)
        wrote(html)
    return of_results(result)


def write_junit(result: Result, place: outputs.Output | None) -> None:
    """Write what a result checked as JUnit XML, where the option is given."""
    if place is None:
        return
    from workbench.export.junit import junit

    with outputs.writing(place, "junit") as out:
        out.write(junit(result).encode())
    wrote(place)


def _places(examined: tuple[str | Path | None, ...]) -> Iterator[str]:
    for thing in examined:
        if thing is None:
            continue
        text = str(thing)
        yield text
        place = Path(text).expanduser()
        model = hub.parse_id(text) if not os.path.lexists(place) else None
        if model is not None:
            yield str(hub.cache_root() / ("models--" + model.repo.replace("/", "--")))
        if place.suffix in (".safetensors", ".bin", ".pt", ".pth") or text.endswith(".index.json"):
            yield from _of_checkpoint(place)


def _of_checkpoint(file: Path) -> Iterator[str]:
    """Yield the files next to one of a checkpoint: its config, its other shards, whatever is not ours."""
    try:
        names = sorted(os.listdir(file.parent))[:_MOST_SIBLINGS] if file.exists() else []
    except OSError:
        return
    for name in names:
        place = file.parent / name
        if place.is_file() and outputs.kind_of(place) is None:
            yield str(place)
