"""The scan of a running server: what it holds is judged through a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.errors import WorkbenchError, shorten
from workbench.weights.held_file import write_held
from workbench.weights.live import gather_server
from workbench.weights.records import Judgement
from workbench.weights.results import WeightScan


def scan_server(
    address: str, names: Sequence[str] | None, scan_file: Callable[[Path], WeightScan]
) -> WeightScan:
    """Judge the weights that a running SGLang server holds; nothing in the server is changed.

    Parameters
    ----------
    address
        ``http://host:port``.
    names
        The engine's names of parameters. None, or patterns: those of the checkpoint that the server names, if
        it lies on this machine.
    scan_file
        `scan_weights` for a file: what a server holds is judged by the way that files are.

    Returns
    -------
    WeightScan
        Of `kind` ``server``. Its notes say whose values these are, of which rank, and what was not read.

    Raises
    ------
    WorkbenchError
        Nothing answers there, or the names are not known.
    """
    address, gathered, whose = gather_server(address, names)
    if not gathered.found:
        raise WorkbenchError(
            f"{address} returned no weights",
            why="; ".join(gathered.notes()),
            next_step="Check the server's log."
            if gathered.failed
            else "Give the engine's own names; only some model classes offer their weights (Llama).",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "held.safetensors"
        with path.open("wb") as file:
            size = write_held(gathered.found, file)
        scan = scan_file(path)
    why = f"{gathered.changed} changed meanwhile"
    judged = [
        (one, Judgement("undecided", why, stage=0) if gathered.changed else judgement)
        for one, judgement in scan.tensors.pairs()
    ]
    return WeightScan.build(
        address,
        judged,
        kind="server",
        notes=(*whose, *gathered.notes()),
        bytes_read=size,
        interrupted=scan.interrupted or gathered.interrupted,
        unseen=len(gathered.why()),
        changed=gathered.changed,
        limited=_limited(names),
    )


def _limited(names: Sequence[str] | None) -> str:
    """Say that names were given; how many more a server has is not known."""
    if names is None:
        return ""
    few = ", ".join(shorten(name, 60) for name in names[:2])
    more = f" and {len(names) - 2:,} more" if len(names) > 2 else ""
    return f"only {few}{more} {'was' if len(names) == 1 else 'were'} requested"
