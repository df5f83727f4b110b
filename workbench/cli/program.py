"""The program: its verbs, its version, and what it exits with.

An exit code of 0 is earned: only a verb that judged something and found it ok returns it. A command line
library that misreads the arguments (typer 0.12 with click 8.2 and newer took every flag for given, printed
the version and exited 0) is answered with 2.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TextIO

import typer

from workbench import __version__
from workbench.cli.check import check
from workbench.cli.collect import collect
from workbench.cli.diff import diff
from workbench.cli.doctor import doctor
from workbench.cli.exits import MEANING, ExitCode
from workbench.cli.fix import fix
from workbench.cli.gate import gate
from workbench.cli.hang import hang
from workbench.cli.ledger import LEDGER
from workbench.cli.replay import replay
from workbench.cli.report import report
from workbench.cli.watch import watch
from workbench.cli.weights import weights
from workbench.errors import WorkbenchError

VERBS: tuple[Callable[..., ExitCode], ...] = (
    check, doctor, gate, diff, fix, weights, hang, collect, watch, replay, report,
)  # fmt: skip
# Flags that ask for text and for no verdict: only they may exit 0 without one.
_TEXT_ONLY = ("--help", "--version")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Forensics for SGLang: why a start-up hangs, which keys of a checkpoint an engine drops, which "
    "weights are still at random initialisation, why a draft is never accepted.",
    epilog=MEANING,
)


@app.callback(invoke_without_command=True)
def common(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version, where that is all that was asked for."""
    if version is True:
        typer.echo(__version__)
        raise typer.Exit


def _leaving(verb: Callable[..., ExitCode]) -> Callable[..., None]:
    """Return a command that leaves with the exit code that its verb returns."""

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        raise typer.Exit(ExitCode(verb(**given)))

    return command


for _verb in VERBS:
    _summary = (_verb.__doc__ or "").partition("\n")[0].rstrip(".")
    app.command(short_help=_summary, epilog=MEANING)(_leaving(_verb))

_ledger = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Record launches of a server in a file, and show what differs from one to the next.",
    epilog=MEANING,
)
for _verb in LEDGER:
    _summary = (_verb.__doc__ or "").partition("\n")[0].rstrip(".")
    _ledger.command(short_help=_summary, epilog=MEANING)(_leaving(_verb))
app.add_typer(_ledger, name="ledger")


def main() -> NoReturn:
    """Run the command line; a user's mistake is three lines on standard error, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name may be more than the terminal's encoding.
            stream.reconfigure(errors="backslashreplace")
    sys.argv[1:] = _with_verb(sys.argv[1:])
    try:
        app()
        code: object = None  # it always leaves by SystemExit
    except SystemExit as left:
        code = left.code
    except WorkbenchError as error:
        _leave_with(error)
    except BrokenPipeError:
        # The reader (head, less) has gone: not a mistake, and Python must not complain when it exits.
        _silence()
        sys.exit(ExitCode.FAILED)
    except OSError as error:
        _silence()
        _leave_with(WorkbenchError("the result could not be written", why=str(error)))
    except Exception as error:
        # Exit code 1 accuses the checkpoint: a mistake of ours must not look like that.
        if os.environ.get("WORKBENCH_DEBUG"):
            raise
        _leave_with(_our_mistake(error))
    sys.exit(_earned(code, sys.argv[1:]))


def _with_verb(arguments: list[str]) -> list[str]:
    """Return the arguments with ``doctor`` before a thing in the place of a verb."""
    names = {verb.__name__ for verb in VERBS} | {"ledger"}
    if not arguments or arguments[0].startswith("-") or arguments[0] in names:
        return arguments
    return ["doctor", *arguments]


def _earned(code: object, arguments: list[str]) -> int:
    """Return an exit code, but no 0 that neither a verb gave nor a flag that asks for text only."""
    if isinstance(code, ExitCode):
        return code
    if code in (0, None) and not set(arguments).intersection(_TEXT_ONLY):
        _leave_with(
            WorkbenchError(
                "nothing was examined",
                why="the command line library (typer) misread the arguments",
                next_step="Install what the workbench asks for: pip install --upgrade forensic-workbench.",
            )
        )
    return code if isinstance(code, int) else ExitCode.FAILED


def _leave_with(error: WorkbenchError) -> NoReturn:
    try:
        print(error, file=sys.stderr, flush=True)
    except OSError:  # standard error is full or closed: the code still says that it failed
        _silence(sys.stderr)
    sys.exit(ExitCode.FAILED)


def _silence(stream: TextIO | None = None) -> None:
    """Let Python's own flush at exit go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def _our_mistake(error: Exception) -> WorkbenchError:
    return WorkbenchError(
        "the workbench itself failed: this is not a verdict",
        why=f"{type(error).__name__}: {error}",
        next_step="Run it again with WORKBENCH_DEBUG=1 for the traceback, and report it with that.",
    )
