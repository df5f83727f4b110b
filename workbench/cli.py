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
        typer.Option(help="Say what changed to another checkpoint or a server instead."),
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Say which weights look trained, which are as they were drawn, and which are broken."""
    from workbench.weights.scan import scan_weights

    if compare is not None and target is not None:
        raise WorkbenchError(
            "--target says nothing beside --compare",
            why="a comparison says what changed, not what a draft shares",
            next_step="Leave one of them out.",
        )
    found = scan_weights(
        ckpt, names=names or None, sample=_share(sample), device=device, target=target
    )
    _finish(found if compare is None else found.compare(compare), json, html)


def _share(sample: str | None) -> float | None:
    """Read a share of the rows (0.05), or a number of them (128)."""
    try:
        return None if sample is None else int(sample) if sample.isdecimal() else float(sample)
    except ValueError:
        raise WorkbenchError(
            f"--sample {sample} is no number",
            next_step="Give a share of the rows (0.05), or a number of them (128).",
        ) from None


Log = Annotated[Path | None, typer.Option(help="The server's log, if it is not found by itself.")]
Snapshots = Annotated[int, typer.Option(help='How many snapshots; "hung" needs two.')]
Interval = Annotated[float, typer.Option(help="Seconds between two snapshots.")]
Native = Annotated[bool, typer.Option("--native", help="Native frames, too: slower.")]


@app.command()
def hang(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[PID|PATH]",
            help="A process of the server; or a case, a folder of dumps, a log. Without it: the one "
            "server that runs here.",
        ),
    ] = None,
    log: Log = None,
    snapshots: Snapshots = 2,
    interval: Interval = 30.0,
    native: Native = False,
    html: Html = None,
    speedscope: Annotated[
        Path | None, typer.Option(help="Also write the merged stacks as a speedscope file.")
    ] = None,
    json: Json = False,
) -> None:
    """Say which rank of a hung server the others wait for, in which phase, and what to change next."""
    if where is None or where.isdecimal():
        from workbench.hang.attach import attach

        pid = None if where is None else int(where)
        found = attach(pid, snapshots=snapshots, interval=interval, native=native, log=log)
    else:
        from workbench.hang.open_evidence import open_evidence

        if log is not None:
            raise WorkbenchError(
                f"--log goes with a running server, and {where} is a path",
                next_step="Put the log into the folder, or give its own path instead.",
            )
        found = open_evidence(where)
    if speedscope is not None:
        found.to_speedscope(speedscope)
        print(f"wrote {speedscope}", file=sys.stderr)
    _finish(found, json, html)


@app.command()
def collect(
    pid: Annotated[int | None, typer.Argument(help="Any process of the server.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The zip to write.")] = None,
    log: Log = None,
    snapshots: Snapshots = 2,
    interval: Interval = 30.0,
    native: Native = False,
    salt: Annotated[
        str | None, typer.Option(help="A word that the hosts of one job share, such as its id.")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what would leave the host, and write nothing.")
    ] = False,
) -> None:
    """Write what can be seen of a server on this host into one zip; open it with `hang`."""
    from workbench.hang import attach

    if preview == (out is not None):
        raise WorkbenchError(
            "collect takes either --out or --preview",
            next_step="Give --out CASE.zip to write a case, or --preview to see what it would hold.",
        )
    if out is None:
        typer.echo(attach.preview(pid, native=native, log=log, salt=salt), nl=False)
        return
    written = attach.collect(
        out, pid, snapshots=snapshots, interval=interval, native=native, log=log, salt=salt
    )
    typer.echo(f"wrote {written}")


@app.command()
def replay(
    target: Annotated[
        str,
        typer.Option(help="The target's checkpoint, or a folder of evidence with hidden states."),
    ],
    draft: Annotated[str, typer.Option(help="The draft's checkpoint.")],
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompts to answer greedily: .jsonl (text or input_ids), or .txt."),
    ] = None,
    evidence: Annotated[
        str | None,
        typer.Option(help="What an engine did: a recorded run, hidden states, metrics, a log."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help='As this version loads and drives the draft ("sglang==0.5.11"), or "trainer". '
            "Without it: as the evidence was launched, else as the trainer means it."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Drafts in a row; with evidence, its own count.")] = 3,
    topk: Annotated[int, typer.Option(help="Width of the tree.")] = 1,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Nodes of the tree, the root included.")
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(help="What it should reach: a number, the trainer's metrics, a healthy run."),
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Only the first so many.")] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Change one thing at a time, and name the cause.")
    ] = False,
    html: Html = None,
    json: Json = False,
) -> None:
    """Draft and verify again, round by round: what is accepted, and why the rest falls."""
    from workbench.speculation.replaying import replay as run

    found = run(
        target, draft, prompts, evidence=evidence, steps=steps, topk=topk, draft_tokens=draft_tokens,
        engine=engine, expected=expected, requests=requests,
    )  # fmt: skip
    _finish(found.ablate() if ablate else found, json, html)


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
