"""Files of a repaired copy that take their bytes from the source: links, and shared blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import CheckpointError

# Blocks can be shared only where both files have them at the same offset in a block.
_BLOCK = 4096


def link(source: Path, target: Path) -> None:
    """Give a file that stays as it is a second name: no link that could lead out of the folder.

    Raises
    ------
    OSError
        The folders are on two file systems, or this one has no links.
    """
    os.link(source.resolve(), target)


def padded(header: bytes, begin: int) -> bytes:
    """Return a header so long that what follows has the offset in a block that it has in the source.

    Parameters
    ----------
    header
        The header with its length in front.
    begin
        Where the first tensor begins in the source.
    """
    more = (begin - len(header)) % _BLOCK
    text = header[8:] + b" " * more
    return len(text).to_bytes(8, "little") + text


def write_shard(
    source: Path, target: Path, header: bytes, pieces: Sequence[tuple[int, int]]
) -> None:
    """Write a header, and let the kernel copy the data: without a copy where blocks can be shared.

    Raises
    ------
    CheckpointError
        The source ends too early.
    OSError
        The disk is full, or the kernel cannot copy between these files.
    """
    with open(source, "rb", buffering=0) as old, open(target, "xb", buffering=0) as new:
        view = memoryview(padded(header, pieces[0][0] if pieces else 0))
        while view:
            view = view[new.write(view) :]
        for begin, end in pieces:
            at = begin
            while at < end:
                number = os.copy_file_range(old.fileno(), new.fileno(), end - at, at)
                if not number:
                    raise CheckpointError(
                        f"{source} is shorter than when it was opened",
                        why=f"it ends {end - at:,} bytes too early",
                        next_step="Open the checkpoint again when the writer is done.",
                    )
                at += number
        os.fsync(new.fileno())
