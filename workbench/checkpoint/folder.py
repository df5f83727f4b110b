"""Which files of a folder make up a checkpoint, decided as inference engines decide it.

- safetensors before PyTorch files, where both are there.
- Engines load every ``*.safetensors`` of the folder and use the index only to leave out files that it
  does not name (SGLang and vLLM: ``filter_duplicate_safetensors_files``). So a file outside the index is
  left out with a warning, a key that the index lacks is kept with a warning; a shard or key that is named
  and absent is an error, since it would be missing silently.
- ``consolidated*.safetensors`` beside other files holds the same weights once more under the vendor's own
  names, and is left out. So are trainer states (``optimizer.pt``, ``training_args.bin``, …).
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from workbench.checkpoint.index import Index, read_index
from workbench.checkpoint.sources import (
    LocalFile,
    RemoteFile,
    Source,
    check_regular,
    unreadable,
)
from workbench.errors import CheckpointError, shorten, without_secrets

SAFETENSORS = ".safetensors"
TORCH = (".bin", ".pt", ".pth", ".ckpt")
_TRAINER = re.compile(
    r"(training_args|optimizer|scheduler|scaler|rng_state.*|trainer_state|.*optim_states|"
    r"tokenizer|preprocessor.*)\.(bin|pt|pth|ckpt)"
)


class Folder(Protocol):
    """A place with files: on this machine or behind an fsspec filesystem."""

    @property
    def label(self) -> str:
        """Path or address, for messages."""

    def names(self) -> list[str] | None:
        """Return the file names, sorted; None where the place cannot list them (http)."""

    def subfolders(self) -> list[str]:
        """Return the names of the folders inside."""

    def open(self, name: str) -> Source:
        """Return one file; CheckpointError where it is unsafe to open."""

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""


@dataclasses.dataclass(frozen=True)
class LocalFolder:
    """A folder on this machine; files in it may not lead out of it."""

    path: Path

    @property
    def label(self) -> str:
        """The path."""
        return str(self.path)

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise unreadable(self.path, error) from None

    def names(self) -> list[str]:
        """Return the names of everything that is not a folder, sorted."""
        return [entry.name for entry in self._entries() if not _is_folder(entry)]

    def subfolders(self) -> list[str]:
        """Return the names of the folders inside."""
        return [entry.name for entry in self._entries() if _is_folder(entry)]

    def exists(self, name: str) -> bool:
        """Whether there is such a file, a broken link included."""
        return os.path.lexists(self.path / name)

    def open(self, name: str) -> LocalFile:
        """Return a file of the folder.

        Links within the folder are followed, and so are those of a Hugging Face snapshot into the
        ``blobs`` of the same model. Any other link would let a checkpoint read what its sender never sent.
        """
        path = self.path / name
        try:
            real, home = path.resolve(strict=True), self.path.resolve()
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError):
                raise unreadable(path, error) from None
            raise CheckpointError(
                f"cannot read {path}",
                why="it is a symbolic link that leads back to itself",
                next_step="Put the file itself in place of the link, or give the folder that has it.",
            ) from None
        blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
        if not real.is_relative_to(home) and not (blobs and real.parent == blobs):
            raise CheckpointError(
                f"{path} leads out of the checkpoint's folder",
                why=f"it is a symbolic link to {real}",
                next_step="Give the folder that it leads to, or put a copy in place of the link.",
            )
        return LocalFile(path, name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


@dataclasses.dataclass(frozen=True)
class RemoteFolder:
    """A folder of an fsspec filesystem."""

    filesystem: Any
    path: str
    label: str
    lists: bool = True

    def _listing(self) -> list[dict[str, Any]]:
        try:
            return list(self.filesystem.ls(self.path, detail=True))
        except Exception as error:  # each filesystem has exceptions of its own
            raise CheckpointError(
                f"cannot list {self.label}",
                why=f"{type(error).__name__}: {error}",
                next_step="Check the address, the network and the credentials, or download it.",
            ) from None

    def names(self) -> list[str] | None:
        """Return the file names, sorted; None for http, which has no listings to rely on."""
        if not self.lists:
            return None
        found = [entry["name"] for entry in self._listing() if entry.get("type") != "directory"]
        return sorted(PurePosixPath(name).name for name in found)

    def subfolders(self) -> list[str]:
        """Return the names of the folders inside."""
        if not self.lists:
            return []
        found = [entry["name"] for entry in self._listing() if entry.get("type") == "directory"]
        return sorted(PurePosixPath(name).name for name in found)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            return bool(self.filesystem.exists(f"{self.path.rstrip('/')}/{name}"))
        except Exception:
            return False

    def open(self, name: str) -> RemoteFile:
        """Return a file of the folder."""
        path, label = (f"{base.rstrip('/')}/{name}" for base in (self.path, self.label))
        return RemoteFile(self.filesystem, path, without_secrets(label), name)


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of one checkpoint.

    Attributes
    ----------
    form
        ``safetensors`` or ``torch``.
    sources
        The weights, in the order in which an engine reads them.
    index
        What the index says; None without one.
    warnings
        What an engine would pass over and a person should know.
    single
        One file was given, not the folder around it.
    """

    form: str
    sources: tuple[Source, ...]
    index: Index | None = None
    warnings: tuple[str, ...] = ()
    single: bool = False


def find_files(folder: Folder, index_name: str = "") -> Files:
    """Return the files that make up the checkpoint in a folder.

    Parameters
    ----------
    folder
        Where to look.
    index_name
        The index to go by; found by its name where empty.

    Raises
    ------
    CheckpointError
        There is no checkpoint, or the index names files that are absent or outside the folder.
    """
    names = folder.names()
    if names is None:
        names = _probe(folder)
    if index_name:
        form = "safetensors" if index_name.endswith(".safetensors.index.json") else "torch"
    else:
        form = "safetensors" if any(name.endswith(SAFETENSORS) for name in names) else "torch"
        index_name = _index_name(names, form)
    weights = _weights(names, form)
    warnings = []
    if index_name:
        return _indexed(folder, form, index_name, names, weights)
    if not weights:
        raise _nothing(folder, names)
    if form == "safetensors" and (left := [n for n in _weights(names, "torch") if n]):
        warnings.append(f"{_some(left)} not used: engines prefer the safetensors files")
    whole = [name for name in weights if name in ("model.safetensors", "pytorch_model.bin")]
    parts = [name for name in weights if re.search(r"-\d+-of-\d+\.", name)]
    if parts and not whole:
        _check_parts(folder, parts)
    sources = tuple(folder.open(name) for name in weights)
    return Files(form, sources, warnings=tuple(warnings))


def _probe(folder: Folder) -> list[str]:
    """Return which of the usual names exist, where a folder cannot be listed."""
    usual = (
        "model.safetensors.index.json", "model.safetensors", "adapter_model.safetensors",
        "diffusion_pytorch_model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin",
    )  # fmt: skip
    for name in usual:
        if folder.exists(name):
            return [name]
    raise CheckpointError(
        f"found no checkpoint at {folder.label}",
        why=f"none of these answers there: {', '.join(usual)}",
        next_step="Give the full address of a .safetensors file or of its index.json.",
    )


def _index_name(names: Sequence[str], form: str) -> str:
    ending = ".safetensors.index.json" if form == "safetensors" else ".bin.index.json"
    found = [name for name in names if name.endswith(ending)]
    if not found and form == "torch":  # http probing finds the index alone
        found = [name for name in names if name.endswith(".safetensors.index.json")]
    usual = [n for n in found if n.startswith(("model.", "pytorch_model."))]
    return (usual or found or [""])[0]


def _weights(names: Sequence[str], form: str) -> list[str]:
    if form == "safetensors":
        found = [name for name in names if name.endswith(SAFETENSORS)]
        rest = [name for name in found if not name.startswith("consolidated")]
        return rest or found
    found = [n for n in names if n.endswith(TORCH) and not _TRAINER.fullmatch(n)]
    for ending in TORCH:  # engines take *.bin, and *.pt only where there is no *.bin
        if rest := [name for name in found if name.endswith(ending)]:
            return rest
    return []


def _indexed(
    folder: Folder, form: str, index_name: str, names: Sequence[str], weights: Sequence[str]
) -> Files:
    if index_name.endswith(".safetensors.index.json"):
        form = "safetensors"
    source = folder.open(index_name)
    index = read_index(source)
    warnings = []
    shards = index.shards
    listed = set(names)
    codes = [
        code for code, name in enumerate(shards) if name not in listed and not folder.exists(name)
    ]
    if codes:
        count = int(np.isin(index.shard, codes).sum())
        absent = [shards[code] for code in codes]
        raise CheckpointError(
            f"{source.label} names {_files(len(absent))} not there: {_some(absent)}",
            why=f"{count:,} of {len(index.keys):,} tensors would be missing; engines that list "
            "the folder instead of reading the index start anyway, silently",
            next_step="Download the absent files.",
        )
    named = set(shards)
    outside = [name for name in weights if name not in named]
    if outside:
        warnings.append(
            f"{_some(outside)} left out: the index does not name it, so engines skip it"
        )
    return Files(form, tuple(folder.open(name) for name in shards), index, tuple(warnings))


def _check_parts(folder: Folder, parts: Sequence[str]) -> None:
    """Check that model-00001-of-00004 has all its sisters, where no index says so."""
    matches = [re.search(r"^(.*)-(\d+)-of-(\d+)(\..*)$", name) for name in parts]
    groups: dict[tuple[str, int, str], set[int]] = {}
    for match in matches:
        if match:
            groups.setdefault((match[1], int(match[3]), match[4]), set()).add(int(match[2]))
    for (stem, total, ending), have in groups.items():
        if total > 100_000 or len(have) >= total:
            continue
        start = 0 if 0 in have else 1
        absent = sorted(set(range(start, total + start)) - have)
        shown = ", ".join(map(str, absent[:5])) + (", …" if len(absent) > 5 else "")
        raise CheckpointError(
            f"{folder.label} lacks {len(absent)} of the {total} parts of {stem}{ending}",
            why=f"there is no part {shown}, and engines silently load the files that are there",
            next_step="Download the absent parts.",
        )


def _nothing(folder: Folder, names: Sequence[str]) -> CheckpointError:
    what = f"found no checkpoint in {folder.label}"
    step = "Give the folder that holds *.safetensors or *.bin files, or such a file itself."
    if gguf := [name for name in names if name.endswith(".gguf")]:
        return CheckpointError(
            what,
            why=f"it holds GGUF ({_some(gguf)}), which this version does not read",
            next_step="Give the safetensors checkpoint that the GGUF was converted from.",
        )
    below = folder.subfolders()
    if len(names) == 1:
        why = f"it holds one file, {shorten(names[0])}, which is not a weights file"
    elif names:
        why = f"it holds {len(names):,} files, none of them weights"
    else:
        why = "it holds no files"
    if below:
        why += f", and the folder{'s' * (len(below) > 1)} {_some(below)}"
    return CheckpointError(what, why=why, next_step=step)


def _some(names: Sequence[str], most: int = 3) -> str:
    rest = len(names) - most
    shown = ", ".join(shorten(name, 100) for name in names[:most])
    return shown + (f" and {rest:,} more" if rest > 0 else "")


def _files(count: int) -> str:
    return "a file that is" if count == 1 else f"{count:,} files that are"


def check_file(path: Path) -> None:
    """Check that a path given by the user is a regular file that may be read."""
    check_regular(path)
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError(13, "Permission denied"))
