"""The same diagnosis from files: what `workbench.open_evidence` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.hang.read.scene import read_scene

if TYPE_CHECKING:
    from workbench.hang.judge.diagnosis import HangDiagnosis

__all__ = ["open_evidence", "read_scene"]


def open_evidence(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> HangDiagnosis:
    """Diagnose a server that hangs, or hung, from files alone.

    Parameters
    ----------
    path
        What ``workbench collect`` wrote (a zip, or several of several hosts in a folder or a list), or any
        folder, zip or single file of evidence. Files are distinguished by what is in them: ``py-spy dump``
        as JSON and as text, SGLang logs with the dumps of its watchdogs and Python's last stacks in them,
        ``nvidia-smi``, NCCL RAS and PyTorch's flight recorder. A log alone is enough for the phase.

    Returns
    -------
    HangDiagnosis
        As `workbench.attach` returns it.

    Raises
    ------
    WorkbenchError
        There is nothing to read, it is damaged, or it holds several launches.

    Notes
    -----
    Nothing in the files is trusted: no pickle is loaded unrestricted, nothing is unpacked to disk, sizes
    are bounded. ``HangDiagnosis.notes`` says what was not read.
    """
    from workbench.hang.judge.diagnose import diagnose

    return diagnose(read_scene(path))
