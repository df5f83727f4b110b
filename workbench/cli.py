"""The command line: the same words as the functions, and exit codes for scripts.

0: ok. 1: something is wrong. 2: could not run (what, why and what to do next on standard error).
3: cannot tell.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from workbench import __version__
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.result import Result

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Forensics for SGLang: which keys of a checkpoint an engine drops, why, and what mends it.",
)


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version, where that is all that was asked for."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


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
Html = Annotated[Path | None, typer.Option(help="Also write the result as one HTML file.")]


@app.command()
def diff(
    ckpt: Ckpt,
    model: Model,
    target: Target = None,
    python: Annotated[
        str | None, typer.Option(help="The engine's own Python: its real loader is run there.")
    ] = None,
    launch: Annotated[
        str | None, typer.Option(help="The server's launch command, to check against the draft.")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Say which keys the engine loads, which it drops, and which rename mends that."""
    from workbench.keys.diff import diff_keys

    _finish(diff_keys(ckpt, model, target=target, python=python, launch=launch), json, html)


@app.command()
def fix(
    ckpt: Ckpt,
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; must not exist.")],
    target: Target = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Write a repaired copy: keys renamed, config flattened, bytes untouched; then diff it again."""
    from workbench.keys.repair import fix_checkpoint

    result = fix_checkpoint(ckpt, model, out, target=target)
    if not json:
        typer.echo(f"wrote {out}\n")
    _finish(result, json, html)


@app.command()
def report(
    source: Annotated[Path, typer.Argument(help="A notebook, or a saved result (.json).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")],
) -> None:
    """Write one HTML file that opens with the network off."""
    from workbench.export.report import report as write

    typer.echo(f"wrote {write(source, out)}")


def _finish(result: Result, json: bool, html: Path | None) -> NoReturn:
    """Print a result, and leave with the exit code of its verdict."""
    typer.echo(result.to_json(indent=1) if json else result.to_text())
    if html is not None:
        result.to_html(html)
        print(f"wrote {html}", file=sys.stderr)
    verdict = getattr(result, "ok", True)
    raise typer.Exit({True: 0, False: 1}.get(verdict, 3))


def main() -> NoReturn:
    """Run the command line; a user's mistake is three lines on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a name may be more than the terminal's encoding
    try:
        app()
    except WorkbenchError as error:
        print(error, file=sys.stderr)
    except BrokenPipeError:
        # The reader (head, less) has gone: no mistake, and Python must not complain when it exits.
        _leave_quietly()
    except OSError as error:
        _leave_quietly()
        print(WorkbenchError("the result could not be written", why=str(error)), file=sys.stderr)
    except Exception as error:
        # Exit code 1 accuses the checkpoint: a mistake of ours must not look like that.
        if os.environ.get("WORKBENCH_DEBUG"):
            raise
        print(_our_mistake(error), file=sys.stderr)
    sys.exit(2)


def _leave_quietly() -> None:
    """Let Python's own flush at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _our_mistake(error: Exception) -> WorkbenchError:
    return WorkbenchError(
        "the workbench itself failed; nothing is said about the checkpoint",
        why=f"{type(error).__name__}: {error}",
        next_step="Run it again with WORKBENCH_DEBUG=1 for the traceback, and report it with that.",
    )


if __name__ == "__main__":
    main()
