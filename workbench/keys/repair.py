"""`fix_checkpoint`: a repaired copy, bytes untouched, written whole or not at all."""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.config import Config, Flattened
from workbench.checkpoint.write import check_out, write_renamed
from workbench.errors import WorkbenchError
from workbench.facts.flat_config import flattened
from workbench.keys.diff import diff_keys
from workbench.keys.records import KeyDiff, Rename
from workbench.keys.rename import apply

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint


def fix_checkpoint(
    ckpt: Any,
    model: Any,
    out: str | os.PathLike[str],
    *,
    target: Any = None,
    drop: Sequence[str] = (),
    overlay: bool = False,
) -> KeyDiff:
    """Write a copy of a checkpoint whose keys and config the engine loads, and diff it again.

    Names are rewritten in the headers by the one proved rename; the bytes of the tensors are copied and
    compared. A config in speculators' nested form is flattened where the engine cannot read it.

    Parameters
    ----------
    ckpt, model, target
        As in `diff_keys`.
    out
        The folder to write, which must not exist or be empty.
    drop
        Tensors to leave out: names, or patterns such as ``verifier_*``.
    overlay
        Give the files that stay as they are a second name (a hard link) instead of copying them, so that
        only files with renamed or dropped tensors are written. Who changes such a file in place changes it in
        both folders.

    Returns
    -------
    KeyDiff
        Of what was written; its ``notes`` say what could not be expressed for this engine.

    Raises
    ------
    WorkbenchError
        There is nothing to repair, no single proved way to, or the copy cannot be written.
    """
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.open import open_checkpoint

    checkpoint = ckpt if isinstance(ckpt, Checkpoint) else open_checkpoint(ckpt)
    folder = check_out(checkpoint, out, target=target)
    if not isinstance(overlay, bool):
        raise WorkbenchError("overlay= is True or False", next_step="Give one of them.")
    dropped = _dropped(checkpoint, drop)
    rest = _without(checkpoint, dropped) if dropped else checkpoint
    before = diff_keys(rest, model, target=target)
    rename = _rule(before)
    refused = before.outcome == "refused"
    if rename is None and not refused and not dropped:
        raise _nothing_to_do(before)
    names = rest.names
    new = apply(rename.steps, names) if rename else list(names)
    flat = _flat(checkpoint.config, before) if refused else None
    write_renamed(
        checkpoint,
        folder,
        {old: fresh for old, fresh in zip(names, new, strict=True) if old != fresh},
        config=dict(flat) if flat is not None else None,
        drop=dropped,
        overlay=overlay,
    )
    after = diff_keys(out, model, target=target)  # named as it was given
    return _with_notes(after, flat.lost if flat is not None else ())


def _dropped(checkpoint: Checkpoint, patterns: Sequence[str]) -> list[str]:
    """Return the tensors to leave out.

    Raises
    ------
    WorkbenchError
        A pattern names no tensor: it is a mistake, and another file would be written than is meant.
    """
    listed = isinstance(patterns, list | tuple)
    if not listed or not all(isinstance(p, str) and p for p in patterns):
        raise WorkbenchError(
            "drop= is a list of names or patterns of tensors",
            next_step='Give a list: drop=["verifier_*"].',
        )
    found: dict[str, None] = {}
    for pattern in patterns:
        hits = (
            [pattern] if pattern in checkpoint.table else fnmatch.filter(checkpoint.names, pattern)
        )
        if not hits:
            raise WorkbenchError(
                f"{checkpoint.source} has no tensor {pattern}, which is to be dropped",
                next_step="Run workbench diff to see the names.",
            )
        found |= dict.fromkeys(hits)
    return list(found)


def _without(checkpoint: Checkpoint, dropped: Sequence[str]) -> Checkpoint:
    """Return the checkpoint as it is without some of its tensors; what it was opened from is the same."""
    gone = set(dropped)
    rest = copy.copy(checkpoint)
    vars(rest).pop("quantization", None)  # of all tensors
    rest.table = checkpoint.table.select(
        [at for at, name in enumerate(checkpoint.names) if name not in gone]
    )
    return rest


def _flat(config: Config, diff: KeyDiff) -> Flattened:
    """Return the flat config for the releases that were asked for, which must be one for all of them.

    Raises
    ------
    WorkbenchError
        The same ids of auxiliary layers mean other layers in some of them.
    """
    flats = [flattened(config, answer.version) for answer in diff.versions] or [
        flattened(config, diff.version)
    ]
    if any(flat != flats[0] for flat in flats):
        raise WorkbenchError(
            f"{diff.checkpoint} has no flat config for every release of {diff.engine}",
            why="the ids of the auxiliary layers name other layers of this target in some releases",
            next_step=f'Name the release that you serve with: "{diff.engine}=={diff.version}".',
        )
    return flats[-1]


def _rule(diff: KeyDiff) -> Rename | None:
    """Return the one rename to apply, None where no key is lost."""
    if not diff.dropped:
        return None
    chosen = next((rename for rename in diff.renames if rename.chosen), None)
    step = "Run workbench diff, and save the draft again with the names that the engine expects."
    if chosen is not None and not chosen.fuses:
        return chosen
    proved = [rename.text for rename in diff.renames if rename.proved]
    if chosen is not None:
        why = "the proved rule joins tensors, and a repair only copies bytes"
    elif proved:
        why = "several renames are proved equally well: " + "; ".join(proved)
    elif diff.renames:
        why = f"the best rename repairs only a part: {diff.renames[0].proof}"
        step = "Run workbench diff. Tensors that the engine does not need can be left out: fix --drop NAME."
    else:
        why = "the lost keys cannot be renamed to what is missing"
    raise WorkbenchError(
        f"{diff.checkpoint} is not repaired for {diff.engine_text}",
        why=why,
        next_step=step,
    )


def _nothing_to_do(diff: KeyDiff) -> WorkbenchError:
    if diff.ok:
        return WorkbenchError(
            f"{diff.checkpoint} needs no repair for {diff.engine_text}",
            why=diff.summary,
            next_step="Serve it as it is.",
        )
    return WorkbenchError(
        f"renaming keys cannot repair {diff.checkpoint} for {diff.engine_text}",
        why=diff.summary,
        next_step=diff.findings[0].next_step
        if diff.findings
        else "Run workbench diff to see the keys.",
    )


def _with_notes(diff: KeyDiff, lost: tuple[str, ...]) -> KeyDiff:
    notes = (*diff.notes, *(f"the flat config cannot express: {text}" for text in lost))
    return dataclasses.replace(diff, notes=notes)
