"""A checkpoint that is opened for a scan, here or by each worker of a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.dequantize import LogicalWeights, logical_weights
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.checkpoint.checkpoint import Checkpoint
    from workbench.checkpoint.config import Config


def config_of(opened: Checkpoint, notes: list[str]) -> Config | None:
    """Return the config, or None with a note where it cannot be used."""
    try:
        return opened.config
    except WorkbenchError as error:
        notes.append(f"the config was not used: {error.what}")
        return None


def adapter_of(opened: Checkpoint, notes: list[str]) -> Mapping[str, Any]:
    """Return the adapter's config; empty without one, and with a note where it cannot be used."""
    try:
        return opened.adapter_config.raw
    except WorkbenchError as error:
        notes.append(f"the adapter's config was not used: {error.what}")
        return {}


@lru_cache(maxsize=2)
def opened_by_worker(source: str, stamp: str) -> tuple[LogicalWeights, Config | None]:
    """Open a checkpoint once in each process of a cluster; `stamp` tells changed files apart."""
    from workbench.checkpoint.open import open_checkpoint

    opened = open_checkpoint(source)
    return logical_weights(opened), config_of(opened, [])


def absolute(source: str) -> tuple[str, str]:
    """Return a local path or an address as every process reads it, and a stamp that changes with its files.

    A folder's own time does not change where one of its files is written anew in its place.
    """
    from workbench.checkpoint.open import given

    path = Path(source).expanduser()
    try:
        real = path.resolve(strict=True)
        with contextlib.ExitStack() as stack:
            entries = stack.enter_context(os.scandir(real)) if real.is_dir() else ()
            files = [real.stat(), *(entry.stat() for entry in entries)]
    except (OSError, ValueError, RuntimeError):
        return given(source), ""
    about = sorted((file.st_ino, file.st_mtime_ns, file.st_size) for file in files)
    return str(real), hashlib.sha256(repr(about).encode()).hexdigest()[:16]
