"""Reading files of ``torch.save``: nothing in them is run, and no torch that could be made to is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import CheckpointError

OLDEST = "2.10"
CONVERT = (
    "Convert it to safetensors where you trust it: torch.load there, then "
    "safetensors.torch.save_file(state_dict, 'model.safetensors')."
)


def load(path: Path, *, mmap: bool | None = None) -> Any:
    """Return what a file of ``torch.save`` holds, tensors and plain containers only.

    Raises
    ------
    CheckpointError
        This torch is older than 2.10: before, a hostile file could corrupt memory although
        ``weights_only=True`` was given (CVE-2026-24747). Whatever else torch raises is passed on.
    """
    import torch

    if not is_safe(str(torch.__version__)):
        raise CheckpointError(
            f"{path} is not read with torch {torch.__version__}",
            why="it is a pickle, and before torch 2.10 a hostile one can corrupt memory and run code even "
            "with weights_only=True (CVE-2026-24747)",
            next_step=f"Install torch {OLDEST} or newer in an environment of its own, or: {CONVERT}",
        )
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)


def is_safe(version: str) -> bool:
    """Whether a version of torch has the fix; of a build before the release of 2.10 nobody knows."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(Version(version).public) >= Version(OLDEST)
    except InvalidVersion:
        return False
